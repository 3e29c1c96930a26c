"""The first screen: what ran, and the few facts that matter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from ..fields import CLASSES
from ..statistics import PREPARATION
from .gather import Run
from .latency import FIRST, GAP, LATENCY, WAIT, Metric
from .tables import relation, same_requests
from .words import count, duration, listed, share, shown, size

_MOST_DIFFERENCES, _MOST_OF_MANY = 4, 2
_LONGEST_OPENING = 160
_NOTEWORTHY = 1.1
_FIRST = ("model", "backend", "partition", "ordering policy")


@attrs.frozen
class Entry:
    """A run's value of a fact, and a few words on it."""

    label: str
    value: str
    note: str


@attrs.frozen
class Fact:
    """One thing worth knowing at once, of every run."""

    name: str
    entries: tuple[Entry, ...]


def headline(runs: Sequence[Run]) -> str:
    """What ran."""
    if len(runs) == 1:
        return f"One run: {runs[0].label}"
    return f"{len(runs)} runs: {listed([run.label for run in runs])}" if len(runs) <= 3 else f"{len(runs)} runs"


def opening(runs: Sequence[Run]) -> list[str]:
    """Where the runs ran and how long, in a line, and what sets them apart: by name only, where that would be long."""
    same, differing = _compared_settings(runs)
    apart = list(differing.values())
    if sum(map(len, apart)) > _LONGEST_OPENING:
        apart = [f"They differ in {listed(list(differing))}: see Setting."]
    where = ", ".join(f"{name} {same[name]}" for name in _FIRST if name in same)
    spans = sorted(run.statistics.span_ns for run in runs)
    took = duration(spans[0]) if spans[0] == spans[-1] else f"{duration(spans[0])} to {duration(spans[-1])}"
    long = f"{'The traces are' if len(runs) > 1 else 'The trace is'} {took} long."
    return [*([f"On {where}."] if where else []), long, *apart, *_imported(runs)]


def setting(runs: Sequence[Run]) -> list[str]:
    """All of what the runs have in common, and in what they differ, as sentences."""
    same, differing = _compared_settings(runs)
    apart = list(differing.values())
    common = ", ".join(f"{name} {value}" for name, value in same.items())
    ran = [run.label for run in runs if run.ran]
    having = "It" if len(runs) == 1 else ran[0] if len(ran) == 1 else "All that ran" if len(ran) < len(runs) else "All"
    return [*([f"{having} had: {common}."] if common else []), *apart, *_imported(runs)]


def _imported(runs: Sequence[Run]) -> list[str]:
    """What was not run here, in a sentence each."""
    return [
        f"{run.label} is imported from {shown(run.header.imported)}: it has the times of its source, and no device."
        for run in runs
        if not run.ran
    ]


def _compared_settings(runs: Sequence[Run]) -> tuple[dict[str, str], dict[str, str]]:
    """Settings that all share that ran here, and by name a sentence for each other one, each value once."""
    runs = [run for run in runs if run.ran]
    values = [_settings(run) for run in runs]
    names = list(dict.fromkeys(name for each in values for name in each))
    same = {name: values[0][name] for name in names if len({each.get(name) for each in values}) == 1}
    apart = {}
    for name in (name for name in names if name not in same):
        having: dict[str, list[str]] = {}
        for run, value in zip(runs, values, strict=True):
            having.setdefault(value.get(name, "none"), []).append(run.label)
        each = ", ".join(f"{value} in {listed(labels)}" for value, labels in having.items())
        apart[name] = f"They differ in {name}: {each}."
    return same, apart


def facts(runs: Sequence[Run]) -> list[Fact]:
    """Those that the runs have anything to say about, the most important first."""
    found = [
        Fact("requests completed", tuple(_completed(run) for run in runs)),
        _times("decisions, from arrival to end", LATENCY, "decision", runs),
        _times("first token of foreground answers", FIRST, "foreground", runs),
        Fact("longest wait for the device", tuple(_longest(run) for run in runs)),
        Fact("device busy", tuple(_busy(run) for run in runs)),
    ]
    return [fact for fact in found if any(entry.value != "-" for entry in fact.entries)]


def differences(runs: Sequence[Run]) -> list[str]:
    """Where a run is far from the first one, the farthest first: a sentence for each, shorter where they are many."""
    most = _MOST_DIFFERENCES if len(runs) == 2 else _MOST_OF_MANY
    return [_against(runs[0], run, most) for run in runs[1:]]


def _settings(run: Run) -> dict[str, str]:
    header, device, generation = run.header, run.header.device, run.header.generation
    policies = {
        f"{kind} policy": " ".join([shown(policy.name), *_parameters(policy.parameters)])
        for kind, policy in header.policies.items()
    }
    return {
        "model": listed([shown(model.label) for model in header.models]),
        "backend": shown(device.backend),
        "partition": size(device.partition),
        "workspace": size(device.workspace),
        "context": f"{device.admitted_context:,} tokens",
        "sequences": f"{generation.sequences} at a time",
        "chunk": f"{generation.chunk} tokens",
        "retained prefixes": size(generation.retained),
        **policies,
    }


def _parameters(parameters: Mapping[str, Any]) -> list[str]:
    return [f"{shown(name)}={shown(str(value))}" for name, value in parameters.items()]


def _completed(run: Run) -> Entry:
    entries = [entry for name, entry in run.statistics.classes.items() if name != PREPARATION]
    ends: Counter[str] = Counter()
    for entry in entries:
        ends["cancelled"] += entry.cancelled
        for word, counts in (("abstained", entry.abstained), ("refused", entry.refused), ("failed", entry.failed)):
            ends[word] += sum(counts.values())
        ends["open at the end"] += entry.open
    rest = listed([f"{number:,} {word}" for word, number in ends.items() if number])
    if not run.requests:
        return Entry(run.label, "-", "nothing was asked for")
    return Entry(
        run.label, f"{_number_completed(run):,} of {run.requests:,}", rest or "none failed, refused or cancelled"
    )


def _times(name: str, metric: Metric, work_class: str, runs: Sequence[Run]) -> Fact:
    def entry(run: Run) -> Entry:
        found = metric.of(run, work_class)
        tail = f"99 % within {duration(found.percentile(990))}" if found.count else "none completed"
        return Entry(run.label, duration(found.percentile(500)), f"median; {tail}" if found.count else tail)

    return Fact(name, tuple(entry(run) for run in runs))


def _longest(run: Run) -> Entry:
    """Preparation is left out: it is to wait for everything else."""
    worst = [found[0] for name in run.statistics.classes if name != PREPARATION and (found := run.waits.worst(name))]
    if not worst:
        return Entry(run.label, "-", "nobody waited" if run.ran else "not told by its source")
    most = max(worst, key=lambda waiter: waiter.ns)
    return Entry(run.label, duration(most.ns), f"{most.work_class} {shown(most.request)}")


def _busy(run: Run) -> Entry:
    device = run.device
    if not run.ran:
        return Entry(run.label, "-", "not told by its source")
    ledger = f"ledger at most {share(device.reserved / device.partition)} of its partition" if device.partition else ""
    return Entry(run.label, share(device.utilisation), ledger)


def _against(first: Run, run: Run, most: int) -> str:
    """``b against a: decision arrival to end, p99, +40 % (10 ms to 14 ms); ...``."""
    found: list[tuple[float, str]] = []
    for name, read in _JUDGED:
        before, now = read(first), read(run)
        if before and now and max(before, now) / min(before, now) >= _NOTEWORTHY:
            words = f"{name} {relation(before, now)} ({duration(before)} to {duration(now)})"
            found.append((max(before, now) / min(before, now), words))
    other = not all(same_requests([first, run], name) for name in CLASSES)
    than = f"{run.label} had other requests than {first.label}" if other else f"{run.label} against {first.label}"
    ranked = [words for _, words in sorted(found, key=lambda entry: -entry[0])[:most]]
    if not other:
        ranked = [*_completions(first, run), *ranked]
    if not ranked:
        return f"{than}: of the times that are judged here none differs by a tenth."
    return f"{than}: {'; '.join(ranked)}."


def _completions(first: Run, run: Run) -> list[str]:
    """How many more or fewer of the same requests completed."""
    more = _number_completed(run) - _number_completed(first)
    return [f"{count(abs(more), 'request')} {'more' if more > 0 else 'fewer'} completed"] if more else []


def _number_completed(run: Run) -> int:
    return sum(entry.completed for name, entry in run.statistics.classes.items() if name != PREPARATION)


def _judge(metric: Metric, work_class: str, permille: int) -> tuple[str, Callable[[Run], int | None]]:
    word = "worst" if permille == 1000 else f"p{permille // 10}"
    return f"{work_class} {metric.name}, {word},", lambda run: metric.of(run, work_class).percentile(permille)


_JUDGED = (
    _judge(LATENCY, "decision", 500),
    _judge(LATENCY, "decision", 990),
    _judge(FIRST, "foreground", 500),
    _judge(FIRST, "foreground", 990),
    _judge(GAP, "foreground", 990),
    _judge(WAIT, "foreground", 1000),
    _judge(WAIT, "utility", 1000),
)
