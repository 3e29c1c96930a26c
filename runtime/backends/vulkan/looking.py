"""A look at Vulkan's devices by a process of its own.

A driver that crashes, hangs or prints takes nothing along, a process that leaves its device to a worker loads no
driver, and a vendor's own is in that worker's environment alone. One question is the argument, in JSON; one answer goes
to what was standard output, and everything else that is printed goes to standard error.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any, cast

from cattrs.preconf.json import make_converter

from ....actors.errors import BackendFault, CoresidentError
from ...config_worker import DriverConfig
from ...worker.carried import CarriedError
from ...worker.drivers import WorkerEnvironment
from .describing import DeviceInfo
from .inventory import choose, inventory
from .library import open_functions, require
from .profile import Profile, share_of

SECONDS = 60
"""A look that takes longer hangs: its process is ended. A driver starts in tenths of a second."""

LAST_LINES = 5
_START = "from coresident.runtime.backends.vulkan.looking import main; main()"
# -P: a file of the working directory must not stand for a module of the library.
COMMAND = (sys.executable, "-P", "-c", _START)

DEVICES, PROFILE = "devices", "profile"
_CONVERTER = make_converter()


def look_at_devices(driver: DriverConfig | None = None) -> tuple[DeviceInfo, ...]:
    """Every device in the loader's order, with a vendor's driver added or not.

    Raises:
        InvalidRequest: the loader is missing; says what to install.
        BackendFault: the other process crashed, or gave no answer.
    """
    return cast(tuple[DeviceInfo, ...], _ask({"what": DEVICES}, tuple[DeviceInfo, ...], driver))


def look_at_device(index: int | None, share: int | None, driver: DriverConfig | None = None) -> Profile:
    """What planning needs of the device at ``index``, or of the best one; ``share`` as configured.

    Raises:
        InvalidRequest: loader, driver or device are missing; says what to do.
        BackendFault: the other process crashed, or gave no answer.
    """
    return cast(Profile, _ask({"what": PROFILE, "index": index, "share": share}, Profile, driver))


def main() -> None:
    """Answer the question in the first argument, and end without running what a driver may have left for the end."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as out:
        os.dup2(2, 1)
        try:
            said = {"answer": _CONVERTER.unstructure(_answer(json.loads(sys.argv[1])))}
        except CoresidentError as error:
            said = {"error": _CONVERTER.unstructure(CarriedError.of(error))}
        json.dump(said, out)
    os._exit(0)


def _answer(question: Mapping[str, Any]) -> Any:
    functions = open_functions()
    devices = inventory(functions)
    if question["what"] == DEVICES:
        return devices
    # Only the process that looks needs them.
    from .device import Device
    from .kernels import load_kernels

    info = choose(devices, question["index"])
    return Profile.of(Device.open(functions, info, kernels=load_kernels(), share=share_of(info, question["share"])))


def _ask(question: Mapping[str, Any], kind: Any, driver: DriverConfig | None) -> Any:
    require()
    done = _looked(json.dumps(question), driver)
    try:
        said = json.loads(done.stdout)
    except ValueError as error:
        lines = done.stderr.decode(errors="replace").split("\n")[-LAST_LINES:]
        raise BackendFault(
            f"the process that looked at the Vulkan devices ended with {_end(done.returncode)} and no answer; when a "
            f"driver crashes, name another in VK_DRIVER_FILES. Its last words: {' '.join(lines).strip() or 'none'}",
            status=done.returncode,
        ) from error
    if "error" in said:
        raise _CONVERTER.structure(said["error"], CarriedError).error()
    return _CONVERTER.structure(said["answer"], kind)


def _looked(question: str, driver: DriverConfig | None) -> subprocess.CompletedProcess[bytes]:
    """The other process, when it has ended."""
    environment, nothing = WorkerEnvironment(os.environ, driver), subprocess.DEVNULL
    command = [*COMMAND, question]
    try:
        return subprocess.run(
            command, env=environment.variables, stdin=nothing, capture_output=True, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise BackendFault(
            f"looking at the Vulkan devices took longer than {SECONDS} s and was ended; when a driver hangs, name "
            "another in VK_DRIVER_FILES"
        ) from error
    finally:
        environment.close()


def _end(status: int) -> str:
    return f"signal {-status}" if status < 0 else f"status {status}"
