"""One story three times: run live on the reference backend, audited, and replayed in virtual time.

The replay has the recorded step times, but not the host's own time between steps (some tenths of a millisecond each),
nor the moment at which a thread was woken. So what inputs order must come out the same: every grant of requests that
follow each other, with its step's kind, requests and shape, and every outcome. What only time orders is compared as far
as the story holds it apart by more than that: a decision that comes inside a chunk runs before the next chunk, but
where in its chunk the prefill was suspended may differ. A cancel races with the token that is on its way, so a request
that was given up may have a token more or less, and its grants are left out.
"""

from __future__ import annotations

import attrs
import pytest
import trio
from coresident.actors.events import YieldAsked
from coresident.actors.messages import Cancel
from coresident.runtime.backends.modelled import CostModel
from coresident.runtime.host.assembly import assemble
from coresident.traces.audit.run import audit
from coresident.traces.events_schedule import Grant
from coresident.traces.opening import modelled
from coresident.traces.outcomes import compare
from coresident.traces.reader import TraceReader
from coresident.traces.recorder import Recorder
from coresident.traces.replay_virtual import replay_virtual
from coresident.traces.workload import load_workload

from support.live import LONG, Bench, Heard, config, run
from support.recorded_times import RecordedTimes, StepTimes

PATIENCE = 2000


def recorded_live(story, kind, path) -> Bench:
    """Record a live run of a story, which hears of the first message or event of a ``kind``."""
    bench = Bench(config())
    recorder = Recorder.open(path, bench.assembly)

    async def main():
        heard = Heard(kind)
        bench.observers = (recorder, heard)
        async with bench.open() as it:
            await story(it, heard)
            await it.settled()

    run(main)
    recorder.close()
    assert recorder.error is None
    bench.check_closed()
    return bench


def replayed_virtually(bench, path, out):
    """Replay a trace in virtual time with its own step times; what it came to, and the device that it ran on."""
    workload = load_workload(path)
    facts = bench.assembly.facts.model("generation")
    cost = CostModel(
        weights=1 << 20,
        kv_bytes_per_token=facts.kv_bytes_per_token,
        workspace_per_token=1024,
        context_limit=512,
        vocabulary=256,
    )
    heads = dict(bench.assembly.heads)
    device = RecordedTimes(StepTimes(path), cost, tuple(heads), facts.retained_block)
    assembly = assemble(modelled(bench.config), device, heads)
    recorder = Recorder.open(out, assembly)
    played = replay_virtual(assembly, workload, (recorder, device))
    recorder.close()
    return workload, played, device


def grants_of(path):
    """Grants of requests, in order: what a step does, for whom, of which shape."""
    with TraceReader(path) as reader:
        return [
            (e.kind, e.requests, e.rows, e.tokens, e.context, e.resumed)
            for e in reader
            if isinstance(e, Grant) and e.owner != "supervisor"
        ]


async def followed(it, heard) -> None:
    """Each request follows another's end: a preparation, turns, decisions, a title, and an answer that is given up.

    The device stands before its sixth token until the cancel has come.
    """
    scheduler = it.scheduler
    messages = [{"role": "system", "content": "You help."}, {"role": "user", "content": "The sea is wide"}]
    prepared = await scheduler.prepare(messages[:1], messages[1:], conversation="talk").result()
    answer = await scheduler.generate(messages, max_tokens=9, conversation="talk", after=prepared.request)
    gate = await scheduler.decide("Is it a question?", ["yes", "no", "maybe"], after=answer.request)
    messages += [{"role": "assistant", "content": answer.text}, {"role": "user", "content": LONG}]
    second = await scheduler.generate(messages, max_tokens=12, conversation="talk", after=gate.request)
    title = await scheduler.generate("Title:", max_tokens=5, work_class="utility", retain=False, after=second.request)
    again = await scheduler.decide("Is it a question?", ["no"], after=title.request)
    held = it.backend.hold("decode", segment=0, skip=4)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_released, held, heard)
        async with scheduler.generate(LONG, max_tokens=60, retain=False, after=again.request) as stream:
            count = 0
            async for _ in stream:
                count += 1
                if count == 5:
                    break


async def interrupted(it, heard) -> None:
    """A decision comes while a chunk of a long prompt is on the device, and stays there long after that."""
    held = it.backend.hold("prefill", segment=2)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_generate, it.scheduler)
        await held.reached()
        nursery.start_soon(it.scheduler.decide, "Food?", ["a", "b"])
        await _released(held, heard)


async def _released(held, heard) -> None:
    """Some milliseconds after the news, so that the replay, which is ahead by less than that, is in the same step."""
    await heard.event.wait()
    for _ in range(PATIENCE):
        await trio.lowlevel.checkpoint()
    held.release()


async def _generate(scheduler) -> None:
    await scheduler.generate(LONG, max_tokens=4)


@pytest.fixture
def paths(tmp_path):
    return tmp_path / "live.jsonl", tmp_path / "virtual.jsonl"


def test_a_live_run_its_audit_and_its_virtual_replay_agree(paths):
    live, virtual = paths
    bench = recorded_live(followed, Cancel, live)
    workload, played, device = replayed_virtually(bench, live, virtual)

    audit(live).check()
    audit(virtual).check()
    assert device.unknown == 0
    recorded = {item.request: item.outcome for item in workload.items}
    given_up = [request for request, outcome in recorded.items() if outcome.outcome == "cancelled"]
    assert len(given_up) == 1
    assert compare(recorded, played.outcomes).same
    for request in recorded.keys() - given_up:
        assert played.outcomes[request] == recorded[request]
    ordered = [grant for grant in grants_of(live) if grant[1][0] not in given_up]
    assert ordered == [grant for grant in grants_of(virtual) if grant[1][0] not in given_up]
    assert {grant[0] for grant in ordered} == {"prefill", "decode", "decision", "copy", "save"}


def test_a_decision_inside_a_chunk_comes_before_the_next_one_in_all_three(paths):
    live, virtual = paths
    bench = recorded_live(interrupted, YieldAsked, live)
    workload, played, _ = replayed_virtually(bench, live, virtual)

    audit(live).check()
    audit(virtual).check()
    assert played.outcomes == {item.request: item.outcome for item in workload.items}
    begun, again = ([grant[:5] for grant in grants_of(path) if not grant[5]] for path in paths)
    assert begun == again
    decision = next(index for index, grant in enumerate(begun) if grant[0] == "decision")
    assert 0 < decision < max(index for index, grant in enumerate(begun) if grant[1] == begun[0][1])
    assert any(grant[5] for grant in grants_of(live))
    assert any(grant[5] for grant in grants_of(virtual))
    assert attrs.asdict(played.statistics.device)["suspensions"] >= 1
