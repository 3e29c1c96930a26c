"""What must be true of a bench once everything has ended, whatever happened on it."""

from __future__ import annotations

from collections import Counter

import pytest
from coresident.actors.events import GenerationEnded, PrefixDropped, PreparationEnded, Refused, Released
from coresident.actors.messages import SubmitDecision, SubmitGeneration, SubmitPreparation
from coresident.actors.scoring import finish
from coresident.actors.work import DecodeWork, PrefillWork, SaveWork, StepKind
from coresident.policies.views import WorkClass

from .bench_host import BenchHost
from .bench_setup import HEADS, KV_BYTES
from .scripted_device import score, solo_tokens


def check_promises(host: BenchHost) -> None:
    """Ends, tokens, scores, and work that was done once."""
    for request, spec in host.submitted.items():
        ended = host.ends[request]
        if isinstance(ended, Refused):
            continue
        if isinstance(spec, SubmitGeneration):
            check_generation(host, spec, ended)
        elif isinstance(spec, SubmitPreparation):
            check_preparation(host, spec, ended)
        elif ended.outcome == "completed":
            check_decision(host, spec)
    check_nothing_twice(host)


def check_generation(host: BenchHost, spec: SubmitGeneration, ended: GenerationEnded) -> None:
    solo = solo_tokens(spec.prompt, spec.max_tokens)
    tokens = host.tokens(spec.request)
    assert tokens == solo[: len(tokens)]
    if ended.outcome != "failed":
        assert len(tokens) == ended.tokens
    if ended.outcome == "completed":
        assert tokens == solo
        assert ended.prefilled == ended.prompt - ended.reused
    computed = len(host.prefilled(spec.request))
    # What was computed before the device was lost is computed again.
    assert ended.prefilled <= computed if host.bench.restarts and host.failures else ended.prefilled == computed


def check_preparation(host: BenchHost, spec: SubmitPreparation, ended: PreparationEnded) -> None:
    """Whole chunks, counted once, and computed once unless what was kept of them was lost or evicted."""
    bench = host.bench
    assert ended.goal == min(len(spec.tokens), bench.retained // KV_BYTES) // bench.chunk * bench.chunk
    assert ended.outcome in ("prepared", "promoted", "superseded", "declined", "cancelled", "failed")
    assert 0 <= ended.wasted <= ended.computed
    if ended.outcome == "prepared":
        assert ended.computed + ended.reused >= ended.goal
    done = host.prefilled(spec.request)
    given_up = sum(
        len(s.work.tokens)
        for s in host.device.finished
        if s.step in host.withdrawn and isinstance(s.work, PrefillWork) and host.owner(s) == spec.request
    )
    assert len(done) - given_up <= ended.computed <= len(done)
    assert all(position < ended.goal for position in done)
    dropped = {e.why for e in host.events if isinstance(e, PrefixDropped)}
    if ended.outcome != "failed" and not dropped & {"evicted", "invalidated"} and not given_up and not host.failures:
        assert len(set(done)) == len(done)


def solo_scores(spec: SubmitDecision) -> dict[str, tuple[float, ...]]:
    """The finished values of a decision that has the device to itself."""
    rows = [[*spec.instruction, *row] for row in spec.rows]
    return {head: finish(head, HEADS[head], [score(row, head) for row in rows]).values for head in spec.heads}


def check_decision(host: BenchHost, spec: SubmitDecision) -> None:
    scores = host.scores(spec.request)
    assert scores == solo_scores(spec)
    for head, values in scores.items():
        if HEADS[head] == "choice":
            assert sum(values) == pytest.approx(1)


def check_nothing_twice(host: BenchHost) -> None:
    """A step that was suspended went on where it was: only a dropped one ran again, and that once."""
    drops = Counter(e.step for e in host.events if isinstance(e, Released) and e.outcome == "dropped")
    ran = Counter(segment.step.step for segment in host.device.segments)
    assert all(count == 1 for count in drops.values())
    for step in host.device.finished:
        whole = host.device.segments_of(step.work)
        if step.work.kind is not StepKind.DECODE:
            assert whole <= ran[step.step] <= whole * (1 + drops[step.step])


def own_segments(host: BenchHost, request: str, since: int) -> int:
    """Segments that ran for a request after the first ``since``; what saves its state is not for it."""
    count = 0
    for segment in host.device.segments[since:]:
        work = segment.step.work
        if isinstance(work, DecodeWork):
            count += request in {row.request for row in work.rows}
        elif not isinstance(work, SaveWork):
            count += host.owner(segment.step) == request
    return count


def less_urgent_before(host: BenchHost, request: str, since: int) -> int:
    """Segments of less urgent work between the first ``since`` and a decision's own first one."""
    count = 0
    for segment in host.device.segments[since:]:
        if segment.step.request == request:
            return count
        count += segment.work_class is not WorkClass.DECISION
    return 0 if request in host.ends else count
