"""``coresident warm``: compile a device's programs before the first request needs them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console

from ..actors.errors import InvalidRequest
from ..runtime.backends.catalog import open_backend
from ..runtime.config import Config, DeviceConfig
from ..runtime.host.assembly import assemble
from . import options
from .here import computing_here
from .options import configured
from .progress import Progress, loading
from .wording import duration, print_json, screen, size

if TYPE_CHECKING:
    from ..runtime.backends.vulkan.preparing import Prepared

VULKAN = "vulkan"


def warm(
    config: options.ConfigFile = None,
    model: options.Model = None,
    backend: options.Backend = None,
    as_json: options.AsJson = False,
) -> None:
    """Make every pipeline that the models of a configuration run on, and keep what the driver compiled in a file of
    the user's cache folder, from which later processes take it.

    The file is for one driver, device and version of the library: run this again after an update of any of them.
    Without a configuration the backend is vulkan; others compile nothing ahead. Loads the models once.
    """
    asked = configured(config, Config(device=DeviceConfig(VULKAN)), model=model, backend=backend)
    if asked.device.backend != VULKAN:
        raise InvalidRequest(
            f"device.backend is {asked.device.backend!r}, which has nothing to compile ahead: only {VULKAN!r} has; "
            f"say --backend {VULKAN}",
            backend=asked.device.backend,
        )
    with computing_here(asked) as chosen:
        done = compiled(chosen, Progress())
    if as_json:
        print_json(done.as_json())
    else:
        show(done, screen())


def compiled(config: Config, progress: Progress) -> Prepared:
    """Prepare the models of a configuration, as large as they are admitted.

    Raises:
        InvalidRequest, ArtifactInvalid: the configuration or a model's file is not what it should be, or the cache
            cannot be written.
        BudgetExceeded: they do not fit.
    """
    from ..runtime.backends.vulkan.preparing import prepare

    opened = open_backend(config)
    plans = assemble(config, opened.backend, opened.heads).plans
    return prepare(
        opened.backend, plans, lambda model: progress.begins(f"{loading(config, model)} and warming it up ...")
    )


def show(done: Prepared, console: Console) -> None:
    """What was made, what of it was there already, how long it took, and where it is."""
    console.print(f"{done.device}: {done.driver}", style="bold", soft_wrap=True)
    found = f", {done.found} of them from the file" if done.kept and done.found is not None else ""
    console.print(
        f"{done.pipelines} pipelines are ready{found}; loading took {duration(done.load_ns)}, and one step of each "
        f"kind, which has to compute too, {duration(done.warm_ns)}.",
        soft_wrap=True,
    )
    kept = f"Kept for later processes: {done.file} ({size(done.bytes)})."
    if not done.kept:
        kept = f"This driver keeps what it compiles in a cache of its own, and put nothing into {done.file}."
    console.print(kept, soft_wrap=True)
