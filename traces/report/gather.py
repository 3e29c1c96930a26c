"""One pass over each trace, keeping what a page needs in memory that does not grow with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Protocol

import attrs

from ...actors.errors import InvalidRequest
from ..device_tally import DeviceFigures
from ..events_schedule import ChargeFault, PolicyFaulted, Ready
from ..format import Event
from ..header import Header
from ..reader import TraceReader
from ..statistics import PREPARATION, Tally, TraceStatistics
from .bins import BINS
from .imported import Workload, how_to_run
from .levels import Levels
from .occupancy import Occupancy
from .waits import Waits
from .words import duration, shown, size

SLICES = 6000
"""Most slices that a page draws one by one, all runs together."""
_BINS, _LEAST_BINS = 2048, 64
_TOLD = 6
LONGEST = 40
_KEPT = 12
_COMPARABLE = 3


class Follower(Protocol):
    """Something else that wants the events of a run as they are read."""

    def begin(self, label: str, header: Header) -> None: ...

    def add(self, event: Event) -> None: ...

    def end(self) -> None: ...


@attrs.frozen
class Run:
    """A run as a page tells it.

    ``file`` is its trace's name; ``notable`` are its first faults, in words, and ``more`` is how many others there are.
    """

    label: str
    file: str
    header: Header
    statistics: TraceStatistics
    occupancy: Occupancy
    waits: Waits
    levels: Levels
    notable: tuple[str, ...]
    more: int

    @property
    def device(self) -> DeviceFigures:
        """Statistics of its device."""
        return self.statistics.device

    @property
    def ran(self) -> bool:
        """Whether this program's scheduler ran it; otherwise it has what its source tells, and no device."""
        return not self.header.imported

    @property
    def requests(self) -> int:
        """Requests of all classes but preparation, which the application asks for on its own account."""
        return sum(entry.requests for name, entry in self.statistics.classes.items() if name != PREPARATION)


def time_axes(runs: Sequence[Run]) -> list[int]:
    """The end of each run's time axis: the same for all, or, where they differ too much to compare, its own."""
    spans = [run.statistics.span_ns for run in runs]
    most = max(spans, default=0)
    return [most] * len(spans) if most <= _COMPARABLE * min(spans, default=0) else spans


def read_runs(
    paths: Sequence[Path],
    follower: Follower | None = None,
    on_event: Callable[[], None] | None = None,
    slices: int = SLICES,
) -> list[Run]:
    """Read every trace once, in order; ``slices`` are kept one by one, of all runs together, at most.

    Raises:
        TraceInvalid: naming the file and line of the first trace that is not whole.
        InvalidRequest: a trace was imported from a source that tells no outcomes, and never run.
    """
    share = _Share(slices // max(1, len(paths)), min(BINS, max(_LEAST_BINS, _BINS // max(1, len(paths)))))
    return [_read(path, label, share, follower, on_event) for path, label in zip(paths, labels_of(paths), strict=True)]


def labels_of(paths: Iterable[Path]) -> list[str]:
    """A different short name for each: the file's, with its folder's or a number where that is not enough.

    One longer than ``LONGEST`` characters loses its middle, as much of it as leaves all different.
    """
    paths = list(paths)
    stems = Counter(path.stem for path in paths)
    names = [path.stem if stems[path.stem] == 1 else f"{path.absolute().parent.name}/{path.stem}" for path in paths]
    if len({name for path, name in zip(paths, names, strict=True) if stems[path.stem] > 1}) == 1:
        names = [path.stem for path in paths]
    seen: Counter[str] = Counter()
    labels: list[str] = []
    for name in names:
        seen[name] += 1
        labels.append(shown(name) if seen[name] == 1 else f"{shown(name)} ({seen[name]})")
    return _shortened(labels)


def _shortened(labels: Sequence[str]) -> list[str]:
    for kept in range(_KEPT, max(map(len, labels), default=0)):
        short = [f"{each[:kept]}…{each[-kept:]}" if len(each) > max(LONGEST, 2 * kept + 1) else each for each in labels]
        if len(set(short)) == len(labels):
            return short
    return list(labels)


@attrs.frozen
class _Share:
    """A run's share of what a page has room for."""

    slices: int
    bins: int


def _read(path: Path, label: str, share: _Share, follower: Follower | None, on_event: Callable[[], None] | None) -> Run:
    tally, occupancy, levels, faults = Tally(), Occupancy(share.slices, share.bins), Levels(share.bins), _Faults()
    with TraceReader(path) as reader:
        waits = Waits(occupancy, share.bins, device=not reader.header.imported)
        if reader.header.imported and not reader.header.ends:
            raise _never_run(path, reader)
        if follower is not None:
            follower.begin(label, reader.header)
        for event in reader:
            tally.add(event)
            occupancy.add(event)
            waits.add(event)
            faults.add(event)
            levels.add(event)
            if follower is not None:
                follower.add(event)
            if on_event is not None:
                on_event()
        if follower is not None:
            follower.end()
    statistics = tally.result()
    waits.close(statistics.span_ns)
    return Run(
        label=label,
        file=shown(path.name),
        header=reader.header,
        statistics=statistics,
        occupancy=occupancy,
        waits=waits,
        levels=levels,
        notable=tuple(faults.told),
        more=faults.count - len(faults.told),
    )


def _never_run(path: Path, reader: TraceReader) -> InvalidRequest:
    workload = Workload(reader.header)
    for event in reader:
        workload.add(event)
    return InvalidRequest(
        f"{path} has no run to report: it is {workload.words()}; {how_to_run(path)}, and report what that writes",
        file=str(path),
    )


class _Faults:
    """The first faults of a run in words."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.count = 0

    def add(self, event: Event) -> None:
        match event:
            case PolicyFaulted():
                self._tell(event.at, f"the {event.policy} policy failed and was replaced: {shown(event.error)}")
            case ChargeFault():
                used, charged = size(event.measured), size(event.charge)
                self._tell(event.at, f"step {shown(event.step)} used {used}, and was charged {charged}")
            case Ready(state="faulted"):
                self._tell(event.at, f"not ready: {shown(event.error or 'no reason is given')}")
            case _:
                pass

    def _tell(self, at: int, words: str) -> None:
        self.count += 1
        if len(self.told) < _TOLD:
            self.told.append(f"At {duration(at)} {words}")
