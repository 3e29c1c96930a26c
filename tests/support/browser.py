"""A headless Chromium that tests drive: its sizes, its media, its console, and what it asked the network for."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .parts import require_or_skip

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)
NAMES = ("chromium", "chromium-browser", "google-chrome")


@contextmanager
def chromium(profile: Path) -> Iterator[Browser]:
    """A browser with a profile of its own, which is gone after the block; skips where there is none."""
    program = next((found for name in NAMES if (found := shutil.which(name))), None)
    driver = shutil.which("chromedriver")
    if program is None or driver is None:
        require_or_skip("browser", "install it with: apt-get install chromium chromium-driver")
    try:
        from selenium.webdriver import Chrome, ChromeOptions, ChromeService
    except ImportError:
        require_or_skip("browser", "install it with: pip install selenium")
    options = ChromeOptions()
    options.binary_location = program
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    chrome = Chrome(options=options, service=ChromeService(driver))
    try:
        yield Browser(chrome)
    finally:
        chrome.quit()


class Browser:
    """One window. ``driver`` is selenium's."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, page: Path, width: int = 1600, dark: bool = False, scripts: bool = True) -> None:
        """Show a file in a window of this width, in the theme that the system would ask for."""
        self.media(dark)
        self.width(width)
        self._tell("Emulation.setScriptExecutionDisabled", value=not scripts)
        self.driver.get_log("browser")
        self.driver.get_log("performance")
        self.driver.get(page.as_uri())

    def width(self, width: int, height: int = 900) -> None:
        """Resize the window, in CSS pixels."""
        self._tell("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def media(self, dark: bool, kind: str = "") -> None:
        """Emulate a system's theme, and ``print``."""
        theme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._tell("Emulation.setEmulatedMedia", media=kind, features=[theme])

    def run(self, script: str, *arguments: Any) -> Any:
        """What a script returns."""
        return self.driver.execute_script(script, *arguments)

    def complaints(self) -> list[str]:
        """Messages of the console since the page was opened."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self) -> list[str]:
        """Addresses asked for since the page was opened."""
        messages = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        return [each["params"]["request"]["url"] for each in messages if each["method"] == "Network.requestWillBeSent"]

    def press(self, *keys: str) -> None:
        """Keys to whatever has the focus."""
        from selenium.webdriver import ActionChains

        ActionChains(self.driver).send_keys(*keys).perform()

    def picture(self, path: Path) -> None:
        """The whole page as a PNG."""
        from base64 import b64decode

        done = self.driver.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True})
        path.write_bytes(b64decode(done["data"]))

    def _tell(self, command: str, **arguments: Any) -> None:
        self.driver.execute_cdp_cmd(command, arguments)
