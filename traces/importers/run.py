"""An import: a file of another format becomes a workload in ours, streaming, whole or not at all.

The trace is written beside its place and moved there when it is complete, so that nothing half-written is ever found
under its name.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from typing import TypeAlias

import attrs

from ...actors.errors import InvalidRequest, TraceInvalid
from ..blocks import LONGEST
from ..writer import TraceFile, TraceWriter
from .azure import open_azure
from .bailian import open_bailian
from .burstgpt import open_burstgpt
from .emit import MOST_BLOCKS, Emitter
from .heading import imported_header
from .mooncake import open_mooncake
from .summary import Counter, ImportSummary
from .turn import Opened, Settings
from .vllm import open_vllm
from .weka import open_weka

__all__ = ["FORMATS", "Format", "ImportSummary", "Settings", "import_trace"]

_OFTEN = 1000
OnRead: TypeAlias = Callable[[int, int, int], None]


@attrs.frozen
class Format:
    """A format: how it is opened, and what its sources tell.

    ``ends``: when requests ended. ``turns``: which requests are turns of one conversation. ``blocks``: which content
    prompts share. ``several``: a folder is read.
    """

    open: Callable[[Path, Settings, ExitStack], Opened]
    ends: bool = False
    turns: bool = False
    blocks: bool = False
    several: bool = False


FORMATS: Mapping[str, Format] = {
    "mooncake": Format(open_mooncake, blocks=True),
    "azure": Format(open_azure),
    "burstgpt": Format(open_burstgpt, turns=True),
    "bailian": Format(open_bailian, turns=True, blocks=True),
    "weka": Format(open_weka, ends=True, turns=True, blocks=True, several=True),
    "vllm": Format(open_vllm, ends=True),
}


def import_trace(
    name: str,
    source: str | Path,
    output: str | Path,
    settings: Settings = Settings(),  # noqa: B008 - frozen
    progress: OnRead | None = None,
) -> ImportSummary:
    """Write ``source``, which has the format ``name``, as a trace at ``output``, in place of a file of that name.

    ``progress`` is called with rows taken, bytes read and bytes in all.

    Raises:
        InvalidRequest: the format is not known, a setting has no meaning for it, or the output can't be written.
        TraceInvalid: the source is not of that format, or damaged; names file, row, field and value.
    """
    source, output = Path(source), Path(output)
    kind = _checked(name, source, output, settings)
    with ExitStack() as stack:
        opened = kind.open(source, settings, stack)
        decisions = settings.decisions > 0 or settings.decide_before_turns
        header = imported_header(name, opened.block_size, settings.seed, decisions, kind.ends)
        counter = Counter(kind.blocks)
        with _beside(output.resolve()) as file:
            writer = TraceWriter(file, header)
            emitter = Emitter(writer, settings, opened.block_size, counter)
            for turn in islice(opened.turns, settings.limit):
                emitter.add(turn)
                if progress is not None and counter.rows % _OFTEN == 0:
                    progress(counter.rows, opened.position(), opened.size)
            if not counter.rows:
                raise TraceInvalid(f"{source}: there are no requests in it", file=str(source))
            emitter.finish()
            writer.flush()
            writer.seal()
        return counter.result(name, str(source), str(output), opened.block_size)


@contextmanager
def _beside(output: Path) -> Iterator[TraceFile]:
    """A new file that takes the place of ``output`` when the block ends well, and is gone otherwise."""
    part = output.with_name(f".{output.name}.{os.getpid()}.part")
    try:
        try:
            with part.open("xb", buffering=0) as file:
                yield file
            part.replace(output)
        except OSError as error:
            raise InvalidRequest(
                f"trace {output} cannot be written: {error.strerror or error}; name a file in a folder that can, on a "
                "disk with room",
                file=str(output),
            ) from error
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _checked(name: str, source: Path, output: Path, settings: Settings) -> Format:
    kind = FORMATS.get(name)
    if kind is None:
        raise InvalidRequest(f"format is {name!r}: known are {', '.join(FORMATS)}", format=name)
    if output.exists() and not output.is_file():
        raise InvalidRequest(f"output {output} is a folder or a device: name a file", file=str(output))
    if output.exists() and source.exists() and output.samefile(source):
        raise InvalidRequest(f"output {output} is the source itself: name another file", file=str(output))
    if source.is_dir() and not kind.several:
        raise InvalidRequest(f"input {source} is a folder: {name} is read from one file", file=str(source))
    _check_meaning(name, kind, settings)
    _check_range("decisions", settings.decisions, 0, 1, "a share")
    _check_range("spacing", settings.spacing_s, 0, 10**9, "seconds")
    _check_range("seed", settings.seed, 0, 2**63 - 1, "a number")
    _check_range("limit", settings.limit, 1, 2**63 - 1, "a number of rows")
    _check_range("shared_head", settings.shared_head, 0, LONGEST, "a number of tokens")
    # Blocks of a source without any are made up: of the longest prompt, no more than can be written.
    smallest = 1 if kind.blocks else LONGEST // MOST_BLOCKS
    _check_range("block_size", settings.block_size, smallest, 65_536, "a number of tokens")
    return kind


def _check_meaning(name: str, kind: Format, settings: Settings) -> None:
    """Refuse settings that this format can't follow."""
    senseless = (
        (settings.decide_before_turns and not kind.turns, "decide_before_turns", "which requests are turns"),
        (settings.prepare and not (kind.turns and kind.ends), "prepare", "when turns ended"),
        (settings.open_loop and not kind.ends, "open_loop", "when requests ended: it is open loop as it is"),
    )
    for wrong, option, missing in senseless:
        if wrong:
            raise InvalidRequest(f"{option} was asked for, but {name} does not tell {missing}", option=option)
    if settings.shared_head and kind.blocks:
        raise InvalidRequest(f"shared_head was asked for, but {name} tells itself what prompts share")
    if settings.spacing_s and not kind.several:
        raise InvalidRequest(f"spacing was asked for, but all requests of a file of {name} have one clock")


def _check_range(option: str, value: float | None, least: int, most: int, what: str) -> None:
    if value is not None and not least <= value <= most:
        raise InvalidRequest(f"{option} is {value}: {what} from {least} to {most} is taken", option=option)
