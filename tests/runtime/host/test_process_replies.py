"""Answers find who asked, whatever their order; an end is told to all; and no frame of a worker harms its host."""

from __future__ import annotations

import pytest
import trio
import trio.testing
from coresident.actors.errors import DeviceLost, InvalidRequest
from coresident.actors.messages import GrantEnded
from coresident.actors.work import DecodeRow, DecodeWork, Grant, StepRequest
from coresident.policies.views import WorkClass
from coresident.runtime.backends.contract import Sampled
from coresident.runtime.host.flights import Flight
from coresident.runtime.host.replies import Replies
from coresident.runtime.host.steps import Stream, Streams
from coresident.runtime.models.sampling import SamplingParams, make_sampler
from coresident.runtime.worker.flat import decode_body, encode_body
from coresident.runtime.worker.frames import FrameInvalid
from coresident.runtime.worker.messages import error_body, tokens_body
from hypothesis import given
from hypothesis import strategies as st

from support.live import run
from support.workers import Direct


def _ask(replies, number, seen):
    async def wait():
        with replies.expect(number) as reply:
            try:
                seen[number] = await reply.wait()
            except (DeviceLost, InvalidRequest) as error:
                seen[number] = error

    return wait


@pytest.mark.parametrize("order", [(1, 2, 3), (3, 1, 2), (2, 3, 1)])
def test_R45_replies_demultiplex_by_id_and_an_exit_fails_every_waiter(order):
    lost = DeviceLost("the worker ended", pid=3)

    async def main():
        replies, seen = Replies(), {}
        async with trio.open_nursery() as nursery:
            for number in (1, 2, 3, 4, 5):
                nursery.start_soon(_ask(replies, number, seen))
            await trio.testing.wait_all_tasks_blocked()
            assert not replies.settle({"kind": "x", "id": 9})
            answers = {number: {"kind": "x", "id": number} for number in order}
            answers[2] = error_body(2, InvalidRequest("no", field="y"))
            for number in order:
                assert replies.settle(answers[number])
            await trio.testing.wait_all_tasks_blocked()
            assert seen == {**answers, 2: InvalidRequest("no", field="y")}
            replies.fail_all(lost)
        assert (seen[4], seen[5], len(replies)) == (lost, lost, 0)
        await _ask(replies, 6, seen)()
        assert seen[6] == lost

    run(main)


ROW = DecodeRow("g", 0, 1, 1, 4)
STEP = StepRequest("s", "s", "g", WorkClass.FOREGROUND, DecodeWork("m", (ROW,), 2), 0, 0, 0)


@pytest.mark.parametrize("fault", [None, "mine"])
def test_a_verdict_has_one_reason_a_row_in_order(fault):
    streams, mine = Streams(lambda request, index: None), InvalidRequest("mine")
    answers = {"a": None, "b": mine if fault else "enough", "c": "stop_token"}
    for request in answers:
        streams.open(request, Stream(make_sampler(SamplingParams()), lambda request, sampled: answers[request]))
    verdict = Flight(Grant(4, STEP)).judge(streams, [(request, Sampled(1)) for request in answers])
    stops = [None, "text_failed" if fault else "enough", "stop_token"]
    assert verdict == {"kind": "verdict", "id": 4, "stops": stops, "raised": None}
    assert decode_body(encode_body(verdict)) == verdict
    missing = Flight(Grant(4, STEP)).judge(streams, [("a", Sampled(1)), ("z", Sampled(1))])
    assert "request z has no stream" in missing["raised"]
    assert tokens_body(4, [])["rows_token"] == []


KINDS = ["tokens", "ended", "error", "fault", "hello", "opened", "x"]
OUTCOMES = ["finished", "suspended", "failed", "withdrawn", "else"]
scalars = st.none() | st.booleans() | st.integers(-3, 3) | st.floats() | st.text(max_size=3)
fields = st.dictionaries(
    st.sampled_from(
        ["outcome", "error_type", "error_message", "error_details", "error_cause", "sticky", "measured_workspace"]
        + [f"rows_{name}" for name in ("request", "token", "tokens", "tokens_counts", "stop", "logprob")]
    ),
    scalars | st.lists(scalars, max_size=2) | st.sampled_from(OUTCOMES),
)


@given(st.sampled_from(KINDS), st.integers(0, 1), fields)
def test_a_frame_of_a_worker_ends_its_grant_or_is_refused(kind, number, extra):
    async def main():
        bench = Direct()
        flight = Flight(Grant(1, STEP), sent=True)
        bench.executor._flights[1] = flight
        body = decode_body(encode_body({"kind": kind, "id": number, **extra}))
        refused = False
        try:
            await bench.executor._heard(body)
        except FrameInvalid:
            refused = True
        ended = [message for _, message in bench.posted if isinstance(message, GrantEnded)]
        assert len(ended) == (1 not in bench.executor._flights)
        assert refused or ended or kind in ("tokens", "fault") or number == 0

    trio.run(main)
