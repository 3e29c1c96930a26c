"""Every live run, whatever order Trio delivered in, comes out of an audit as it was recorded."""

from __future__ import annotations

from functools import partial

import pytest
import trio
from audited_runs import audited, quietly, recorded_desk
from coresident.actors.errors import BackendFault, DeviceLost, InvalidRequest
from coresident.traces.audit.run import audit
from hypothesis import given, settings
from hypothesis import strategies as st

from coresident import Scheduler
from support.cancelling import cancelled_at
from support.live import LONG, run

SHORT = "The sea is wide"


async def conversation(it) -> None:
    """Two turns with decisions between them, a title beside, and what is retained pinned and given up."""
    scheduler: Scheduler = it.scheduler
    messages = [{"role": "user", "content": SHORT}]
    answer = await scheduler.generate(messages, max_tokens=9, conversation="talk")
    gate = await scheduler.decide("Is it a question?", ["yes", "no", "maybe"], after=answer.request)
    messages += [{"role": "assistant", "content": answer.text}, {"role": "user", "content": LONG}]
    scheduler.pin("talk")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_title, scheduler)
        await scheduler.generate(messages, max_tokens=7, after=gate.request, conversation="talk")
    scheduler.release("talk")
    with pytest.raises(InvalidRequest):
        await scheduler.generate([7] * 500, max_tokens=100)


async def _title(scheduler) -> None:
    await scheduler.generate("Title:", max_tokens=20, work_class="utility", retain=False)


async def crowd(it) -> None:
    """Requests of every class at once, some given up, in whatever order tasks run."""

    async def given_up(steps: int) -> None:
        with trio.CancelScope() as scope:
            async with it.scheduler.generate(LONG, max_tokens=20) as stream:
                async for _ in stream:
                    steps -= 1
                    if not steps:
                        scope.cancel()

    async def decided(text: str) -> None:
        await it.scheduler.decide("Food?", [text, text + "!"], heads=("rank", "choice"), deadline=60)

    async def prepared(text: str) -> None:
        await it.scheduler.prepare("You help.", text, conversation="c").result()

    async with trio.open_nursery() as nursery:
        for count in (1, 3, 6):
            nursery.start_soon(given_up, count)
        for text in (SHORT, "Z"):
            nursery.start_soon(decided, text)
            nursery.start_soon(prepared, text + LONG)
        for index in range(3):
            nursery.start_soon(quietly, partial(it.scheduler.generate, f"{LONG}{index}", max_tokens=6))


@pytest.mark.parametrize("content", [False, True])
def test_a_conversation_with_decisions_and_pins(content):
    audited(conversation, content=content)


@settings(max_examples=5, deadline=None)
@given(st.random_module())
def test_a_crowd_in_any_order_that_trio_may_choose(order):
    audited(crowd, generation={"sequences": 2})


@pytest.mark.parametrize(
    ("operation", "segment"),
    [("prefill", 0), ("prefill", 2), ("decode", 0), ("decode", 1), ("save", 0), ("restore", 0)],
)
def test_a_request_given_up_inside_a_step(operation, segment):
    async def story(it):
        await it.scheduler.generate(LONG, max_tokens=3)
        await it.scheduler.generate("Z", max_tokens=3)
        held = it.backend.hold(operation, segment)

        async def asked(scope):
            with scope:
                await it.scheduler.generate(LONG + "And again.", max_tokens=40)

        async with trio.open_nursery() as nursery:
            scope = trio.CancelScope()
            nursery.start_soon(asked, scope)
            await held.reached()
            scope.cancel()
            held.release()
        await it.scheduler.generate(LONG, max_tokens=2)

    audited(story, generation={"sequences": 1})


@pytest.mark.parametrize("action", ["retry", "repair"])
def test_a_lost_device_and_the_way_back(action):
    async def story(it):
        await it.scheduler.generate(SHORT, max_tokens=3)
        it.backend.fail("decode", DeviceLost("gone"), skip=2)
        async with trio.open_nursery() as nursery:
            for text in (SHORT, LONG, LONG + "!"):
                nursery.start_soon(quietly, partial(it.scheduler.generate, text, max_tokens=12))
            nursery.start_soon(quietly, partial(it.scheduler.decide, "Food?", ["a", "b", "c"]))
        assert not it.scheduler.readiness().ready
        await quietly(lambda: it.scheduler.generate(SHORT, max_tokens=2))
        await getattr(it.scheduler, action)()
        await it.scheduler.generate(SHORT, max_tokens=3)

    audited(story)


def test_a_device_that_fails_outside_any_step():
    async def story(it):
        await it.scheduler.generate(SHORT, max_tokens=3, conversation="talk")
        await it.settled()
        it.backend.fail("drop", RuntimeError("stuck"))
        it.scheduler.release("talk")
        while it.scheduler.readiness().ready:
            await trio.lowlevel.checkpoint()
        await it.scheduler.retry()
        await it.scheduler.generate(SHORT, max_tokens=3)

    assert '"message":"DeviceFault","digest"' in audited(story)


@pytest.mark.parametrize("step", [1, 2, 3, 5, 8, 13, 21, 34])
def test_a_client_whose_task_is_cancelled_at_any_step(step):
    async def story(it):
        await cancelled_at(step, "before", partial(conversation, it))
        await it.scheduler.generate(SHORT, max_tokens=3)

    audited(story)


def test_a_scheduler_that_is_closed_while_everything_is_at_work(tmp_path):
    path = tmp_path / "run.jsonl"

    async def main():
        async with trio.open_nursery() as nursery, recorded_desk(path) as it:
            held = it.backend.hold("prefill")
            nursery.start_soon(quietly, partial(it.scheduler.generate, LONG, max_tokens=20))
            nursery.start_soon(quietly, partial(it.scheduler.decide, "Food?", ["a", "b"]))
            it.scheduler.prepare("You help.", LONG)
            await held.reached()
            held.release()

    run(main)
    audit(path).check()


class Worn(BackendFault):
    """A backend's own kind of fault."""


@pytest.mark.parametrize("operation", ["prefill", "decode", "save", "restore", "score", "copy"])
@pytest.mark.parametrize("error", [RuntimeError("broken"), Worn("worn")], ids=["untyped", "own"])
def test_a_step_of_any_kind_that_fails(operation, error):
    async def story(it):
        it.backend.fail(operation, error)
        for text in (SHORT, "Z", SHORT + "!", LONG):
            await quietly(partial(it.scheduler.generate, text, max_tokens=3))
        await quietly(lambda: it.scheduler.decide("Food?", ["a", "b"]))

    audited(story, generation={"sequences": 1})


@pytest.mark.parametrize("operation", ["prefill", "decode", "score", "copy"])
@pytest.mark.parametrize("restarts", [0, 2])
def test_a_lost_device_that_comes_back_by_itself_or_not(operation, restarts):
    async def story(it):
        it.backend.fail(operation, DeviceLost("gone"))
        for text in (SHORT, "Z"):
            await quietly(partial(it.scheduler.generate, text, max_tokens=3))
        await quietly(lambda: it.scheduler.decide("Food?", ["a", "b"]))
        if not restarts:
            await it.scheduler.repair()

    audited(story, generation={"sequences": 1}, limits={"restarts": restarts})


def test_prefixes_stored_and_fetched_also_where_that_fails(tmp_path):
    async def story(it):
        await quietly(lambda: it.scheduler.save_prefix(LONG, tmp_path / "nothing"))
        await it.scheduler.generate(LONG, max_tokens=3)
        await it.scheduler.save_prefix(LONG, tmp_path / "prefix")
        await it.scheduler.restore_prefix(tmp_path / "prefix")
        it.backend.fail("store", BackendFault("full"))
        await quietly(lambda: it.scheduler.save_prefix(LONG, tmp_path / "other"))
        for index in range(4):
            await it.scheduler.generate(f"{index} {LONG}", max_tokens=2)
        await it.scheduler.restore_prefix(tmp_path / "prefix")
        await it.scheduler.generate(LONG, max_tokens=2)

    path = tmp_path / "run.jsonl"
    audited(story, path, generation={"retained": "512 KiB"})
    text = path.read_text()
    assert str(tmp_path) not in text
    assert '"FetchPrefix"' in text


def test_deadlines_ahead_and_past_and_an_overloaded_queue():
    async def story(it):
        held = it.backend.hold("prefill")

        async def asked(deadline):
            await quietly(lambda: it.scheduler.decide("Food?", ["a"] * 8, deadline=deadline))
            await quietly(lambda: it.scheduler.generate(LONG, max_tokens=9, deadline=deadline))

        async with trio.open_nursery() as nursery:
            for deadline in (0.001, 0.01, 60, 60):
                nursery.start_soon(asked, deadline)
            await held.reached()
            held.release()

    audited(story, limits={"requests": 2, "decisions": 2})


def test_preparations_that_are_taken_over_superseded_and_given_up():
    async def story(it):
        held = it.backend.hold("prefill", skip=1)
        first = it.scheduler.prepare("You help.", LONG, conversation="a")
        await held.reached()
        second = it.scheduler.prepare("You help.", LONG + LONG, conversation="a")
        held.release()
        await first.result()
        await it.scheduler.generate("You help." + LONG, max_tokens=3, conversation="a")
        third = it.scheduler.prepare("You judge.", LONG, conversation="b")
        third.cancel()
        await quietly(second.result)
        await quietly(third.result)

    audited(story, generation={"sequences": 1})


@pytest.mark.parametrize("name", ["moody", "absurd"])
def test_a_policy_of_ones_own_that_misbehaves(name):
    own = f"audited_runs:{name}"
    audited(conversation, policies={"ordering": own})
