"""Calibration: a device model from recordings of a live host, judged on what it was not fitted to.

Stage: traces -> observations -> fits -> device model -> virtual replay of the held-out requests -> errors per metric.
Held out are whole traces when there are several (the last of them), else the last requests of the one trace, in order
of arrival: what the device did from the first of them on is not fitted to. A single trace is replayed from its start,
so that the held-out requests find the same queue and the same retained prefixes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from ...actors.errors import InvalidRequest, TraceInvalid
from ...runtime.backends.costs import Cost, Linear
from ...runtime.backends.device_model import DeviceModel, StepTimes
from ..opening import recorded_config
from ..reader import TraceReader
from .error import MetricError, Timings, errors
from .fit import Fit, fit
from .memory import memory_of
from .observe import Observations, Observer, Sample
from .replay import Recording, predicted, room_for

__all__ = ["GOAL", "Calibration", "calibrate"]

GOAL = 0.05
FEWEST_JUDGED = 8
FEWEST_STEPS = 16
COMPUTING = ("prefill", "decode", "decision")
ADVICE = (
    "record more requests, with prompts of varied lengths, on a machine that does nothing else, each turn linked to "
    "the one before it with after="
)
STANDS_IN = {
    "decision": ("prefill",),
    "restore": ("save", "copy"),
    "save": ("restore", "copy"),
    "copy": ("save", "restore"),
    "store": ("save", "restore", "copy"),
    "fetch": ("restore", "save", "copy"),
}


@attrs.frozen
class Calibration:
    """A device model, how it was fitted, and its errors on ``held_out`` requests of ``judged_on``.

    ``guesses`` say what the recordings could not tell. ``fits`` has the kinds of step that were seen.
    """

    device: DeviceModel
    fits: tuple[Fit, ...]
    guesses: tuple[str, ...]
    errors: Mapping[str, MetricError]
    held_out: int
    judged_on: tuple[str, ...]

    @property
    def above_goal(self) -> tuple[str, ...]:
        """Metrics whose median error is more than the goal."""
        return tuple(name for name, error in self.errors.items() if error.median is not None and error.median > GOAL)

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {**attrs.asdict(self), "above_goal": self.above_goal}


def calibrate(paths: Sequence[str | Path], holdout: float = 0.25) -> Calibration:
    """Fit a device model to recordings; ``holdout`` is the share of traces, or of one trace's requests, to judge it on.

    Raises:
        TraceInvalid: a file is no whole trace, or one that tells no step times.
        InvalidRequest: the share is not between 0 and 1, the traces are of different devices or models, or there is too
            little to fit or to judge.
    """
    if not paths or not 0 < holdout < 1:
        raise InvalidRequest(f"holdout is {holdout} of {len(paths)} traces: give traces, and a share between 0 and 1")
    recordings = [_read(path) for path in paths]
    _check_alike(recordings)
    if len(recordings) == 1:
        return _on_its_end(recordings[0], holdout)
    count = min(max(1, round(holdout * len(recordings))), len(recordings) - 1)
    fitted, judged = recordings[:-count], recordings[-count:]
    return _fit_and_judge(
        [each.seen for each in fitted], [(each, frozenset(each.timings)) for each in judged], recordings
    )


def _on_its_end(recording: Recording, holdout: float) -> Calibration:
    requests = tuple(recording.timings)
    count = min(max(1, round(holdout * len(requests))), len(requests) - 1)
    if count < 1:
        raise InvalidRequest(f"trace {recording.path} has 1 request: at least 2 are needed, to fit one and judge one")
    held_out = requests[-count:]
    seen = recording.seen.before(recording.arrived[held_out[0]])
    return _fit_and_judge([seen], [(recording, frozenset(held_out))], [recording])


def _fit_and_judge(
    seen: Sequence[Observations], judged: Sequence[tuple[Recording, frozenset[str]]], recordings: Sequence[Recording]
) -> Calibration:
    """Refuses what would only give figures without a meaning."""
    steps = sum(sample.kind in COMPUTING and sample.ns > 0 for each in seen for sample in each.samples)
    measured = sum(any(recording.timings[request].values()) for recording, held in judged for request in held)
    if steps < FEWEST_STEPS:
        raise InvalidRequest(
            f"the part to fit has {steps} steps of prefill, decode and decisions with their times: at least "
            f"{FEWEST_STEPS} are needed; hold out less, or {ADVICE}",
            steps=steps,
        )
    if measured < FEWEST_JUDGED:
        raise InvalidRequest(
            f"the held-out part has {measured} requests with measured times: at least {FEWEST_JUDGED} are needed to "
            f"judge a model; hold out more (--holdout), or {ADVICE}",
            requests=measured,
        )
    device, fits, guesses = _fitted(seen, recordings[0])
    return _judged(device, fits, guesses, judged)


def _read(path: str | Path) -> Recording:
    with TraceReader(path) as reader:
        observer, timings = Observer(reader.header), Timings()
        for event in reader:
            observer.add(event)
            timings.add(event)
        seen = observer.result()
        if not seen.samples:
            raise TraceInvalid(f"trace {path} has no finished step with its time: there is nothing to fit")
        return Recording(str(path), reader.header, seen, timings.requests, timings.arrived)


def _check_alike(recordings: Sequence[Recording]) -> None:
    def identity(recording: Recording) -> tuple[str, ...]:
        return (recording.header.device.backend, *(f"{m.label} {m.digest[:12]}" for m in recording.header.models))

    for other in recordings[1:]:
        if identity(other) != identity(recordings[0]):
            raise InvalidRequest(
                f"{other.path} is of {', '.join(identity(other))}, but {recordings[0].path} of "
                f"{', '.join(identity(recordings[0]))}: calibrate one device with one model at a time"
            )


def _fitted(seen: Sequence[Observations], first: Recording) -> tuple[DeviceModel, tuple[Fit, ...], tuple[str, ...]]:
    """The device model that observations lead to."""
    samples: dict[str, list[Sample]] = {}
    for each in seen:
        for sample in each.samples:
            if sample.ns > 0:
                samples.setdefault(sample.kind, []).append(sample)
    fits = {kind: fit(kind, samples[kind]) for kind in sorted(samples)}
    guesses = [guess for each in fits.values() for guess in each.guesses]
    costs = _costs({kind: each.cost for kind, each in fits.items()}, guesses)
    memory, untold = memory_of(first.header, first.seen)
    gaps = [ns for each in seen for _, ns in each.gaps]
    segments = [count for each in seen for count in each.segments]
    if not gaps:
        guesses.append("gap: no two steps of one request came in a row, so it is taken as none")
    device = DeviceModel(
        label=f"{first.header.models[0].label} on {first.header.device.backend}, calibrated",
        source=_source(fits.values(), len(seen)),
        partition=first.header.device.partition,
        workspace=first.header.device.workspace,
        context_limit=first.header.device.admitted_context,
        vocabulary=first.header.models[0].vocabulary,
        memory=memory,
        times=StepTimes(**costs),
        windows=_windows(first),
        segments=max(1, round(float(np.median(segments)))) if segments else 1,
        gap_ns=round(float(np.median(gaps))) if gaps else 0,
    )
    return room_for(device, first.header), tuple(fits.values()), (*guesses, *untold)


def _windows(first: Recording) -> tuple[int | None, ...]:
    return () if first.header.facts is None else first.header.facts.models[0].windows


def _costs(known: Mapping[str, Cost], guesses: list[str]) -> dict[str, Cost]:
    """A time for every kind: its own, that of a like kind, or none, and then it is said."""
    costs = dict(known)
    for kind in (field.name for field in attrs.fields(StepTimes) if field.name not in known):
        stand_in = next((name for name in STANDS_IN.get(kind, ()) if name in known), None)
        costs[kind] = known[stand_in] if stand_in else Linear()
        guesses.append(f"{kind}: not recorded, " + (f"taken like {stand_in}" if stand_in else "taken as no time"))
    return costs


def _source(fits: Iterable[Fit], traces: int) -> str:
    kinds = ", ".join(f"{each.kind} {each.samples}" for each in fits)
    return f"Fitted by 'coresident calibrate'. Recordings: {traces}; steps in them: {kinds}."


def _judged(
    device: DeviceModel,
    fits: tuple[Fit, ...],
    guesses: tuple[str, ...],
    judged: Sequence[tuple[Recording, frozenset[str]]],
) -> Calibration:
    """Replay every judged trace on the device, and compare its held-out requests."""
    recorded, replayed, names = {}, {}, []
    for index, (recording, requests) in enumerate(judged):
        guesses += recorded_config(recording.header, recording.path)[1]
        again = predicted(device, recording)
        for request in requests:
            name = f"{index} {request}"
            names.append(name)
            recorded[name], replayed[name] = recording.timings[request], again.get(request, {})
    found = errors(recorded, replayed, names)
    return Calibration(device, fits, guesses, found, len(names), tuple(each.path for each, _ in judged))
