"""A scheduler over worker processes does what it does over a thread: same numbers, same manners."""

from __future__ import annotations

import pytest
import trio
from coresident.actors.errors import BackendFault, DeviceLost, InvalidRequest
from coresident.actors.events import GenerationEnded
from coresident.actors.messages import SubmitGeneration
from coresident.runtime.host.steps import Stream
from coresident.runtime.host.worker_setup import COMMAND
from coresident.runtime.models.sampling import make_sampler

from coresident import SamplingParams
from support.live import LONG, desk, numbers_of, run
from support.workers import workers

PROMPT = "The sea is wide and the wind is"
SAMPLING = SamplingParams(temperature=0.9, top_k=40, top_p=0.95, seed=7, logprobs=3)


async def _everything(scheduler):
    """Tokens with their log-probabilities, greedy and seeded, two at a time, text that stops, and scores."""
    seen = {}

    async def stream(name, sampling):
        seen[name] = await numbers_of(scheduler.generate(PROMPT, max_tokens=24, sampling=sampling, retain=False))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(stream, "greedy", SamplingParams(logprobs=2))
        nursery.start_soon(stream, "seeded", SAMPLING)
    seen["long"] = await numbers_of(scheduler.generate(LONG, max_tokens=8))
    seen["again"] = await numbers_of(scheduler.generate(LONG + " more", max_tokens=8))
    whole = (await scheduler.generate(PROMPT, max_tokens=40, sampling=SAMPLING)).text
    seen["stopped"] = (await scheduler.generate(PROMPT, max_tokens=40, sampling=SAMPLING, stop=[whole[20:24]])).text
    assert 0 < len(seen["stopped"]) < len(whole)
    heads = ("rank", "probability", "choice")
    seen["scores"] = (await scheduler.decide("Is it food?", ["bread", "stone", "a longer row"], heads=heads)).scores
    return seen


def test_R46_R62_the_real_worker_gives_the_numbers_of_the_thread(tmp_path):
    async def main():
        async with desk() as it:
            expected = await _everything(it.scheduler)
        async with workers(tmp_path, command=COMMAND) as it:
            assert await _everything(it.scheduler) == expected
            executor = it.runtime.statistics().executor
            assert (executor.kind, executor.alive, executor.starts) == ("process", True, 1)

    run(main)


def test_R5_R29_a_cancel_at_a_segment_keeps_the_process(tmp_path):
    async def main():
        async with workers(tmp_path) as it:
            pid, expected = it.pid, await it.scheduler.generate(PROMPT, max_tokens=6, retain=False)
            for operation in ("prefill", "decode"):
                it.arm(operation, "hold")
                async with it.scheduler.generate(LONG, max_tokens=30, retain=False) as stream:
                    await it.reached()
                    stream.cancel()
                    await it.heard()
                    it.release()
                    assert (await stream.result()).outcome == "cancelled"
                it.check_empty()
            assert (await it.scheduler.generate(PROMPT, max_tokens=6, retain=False)).tokens == expected.tokens
            assert (it.pid, it.scheduler.statistics().executor.starts) == (pid, 1)

    run(main)


def test_a_chunk_yields_to_a_decision_in_the_worker_and_goes_on(tmp_path):
    async def main():
        async with workers(tmp_path, generation={"retained": 0}) as it:
            expected = await it.scheduler.generate(LONG, max_tokens=6)
            scores = (await it.scheduler.decide("Food?", ["bread"])).scores
            it.arm("prefill", "hold")
            async with it.scheduler.generate(LONG, max_tokens=6) as stream, trio.open_nursery() as nursery:
                await it.reached()
                decided = []

                async def decide():
                    decided.append(await it.scheduler.decide("Food?", ["bread"]))

                nursery.start_soon(decide)
                await it.until(lambda: it.scheduler.statistics().device.yields)
                await it.heard()
                it.release()
                assert (await stream.result()).tokens == expected.tokens
                await it.until(lambda: decided)
            assert decided[0].scores == scores
            assert it.scheduler.statistics().device.suspensions == 1

    run(main)


def test_a_suspended_chunk_that_is_cancelled_is_dropped_in_the_worker(tmp_path):
    async def main():
        async with workers(tmp_path, generation={"retained": 0}) as it:
            expected = await it.scheduler.generate(LONG, max_tokens=6)
            it.arm("prefill", "hold")
            async with it.scheduler.generate(LONG, max_tokens=6) as stream, trio.open_nursery() as nursery:
                await it.reached()
                nursery.start_soon(it.scheduler.decide, "Food?", ["bread"])
                await it.until(lambda: it.scheduler.statistics().device.yields)
                await it.heard()
                it.arm("score", "hold")
                it.release()
                await it.reached()
                assert it.scheduler.statistics().device.suspensions == 1
                stream.cancel()
                assert (await stream.result()).outcome == "cancelled"
                it.release()
            it.check_empty()
            assert (await it.scheduler.generate(LONG, max_tokens=6)).tokens == expected.tokens
            assert it.scheduler.readiness().ready

    run(main)


def test_a_prefix_file_is_written_and_read_by_the_worker(tmp_path):
    path = tmp_path / "kept.prefix"

    async def main():
        async with workers(tmp_path) as it:
            expected = await it.scheduler.generate(LONG + " more", max_tokens=6, retain=False)
            await it.scheduler.generate(LONG, max_tokens=1)
            await it.scheduler.save_prefix(LONG, path)
            it.arm("decode", "lose")
            with pytest.raises(DeviceLost):
                await it.scheduler.generate(PROMPT, max_tokens=4)
            await it.scheduler.repair()
            await it.scheduler.restore_prefix(path)
            again = await it.scheduler.generate(LONG + " more", max_tokens=6)
            assert again.tokens == expected.tokens
            assert again.reused > 0

    run(main)


def _heard(events):
    return lambda event, at: events.append(event)


async def _raw(it, request, on_token):
    """A generation of tokens with a stream of the test's own; its last event."""
    events, prompt = [], tuple(range(40))
    message = SubmitGeneration(request, prompt, 6, "raw", retain=False)
    it.runtime.generate(message, Stream(make_sampler(SamplingParams()), on_token), _heard(events))
    await it.until(lambda: any(isinstance(event, GenerationEnded) for event in events))
    it.runtime.finished(request)
    return events[-1]


def test_what_a_client_answers_to_a_token_counts_as_in_a_thread(tmp_path):
    mine, raised = BackendFault("mine"), LookupError("a defect in a client")
    answers = iter([None, None, mine])
    taken = []

    def stop(request, sampled):
        taken.append(sampled.token)
        return "enough" if len(taken) == 3 else None

    def failing(request, sampled):
        raise raised

    async def main():
        async with workers(tmp_path) as it:
            assert (await _raw(it, "a", stop)).reason == "enough"
            assert len(taken) == 3
            failed = await _raw(it, "b", lambda request, sampled: next(answers))
            assert failed.error is mine
            failed = await _raw(it, "c", failing)
            assert isinstance(failed.error, BackendFault)
            assert failed.error.__cause__ is raised
            assert (await _raw(it, "d", lambda request, sampled: None)).outcome == "completed"
            it.check_empty()
            assert it.scheduler.statistics().executor.starts == 1

    run(main)


class _ForeignSampler:
    def sample(self, logits):
        raise AssertionError("never called")


def test_a_sampler_that_cannot_be_sent_is_refused(tmp_path):
    async def main():
        async with workers(tmp_path) as it:
            message = SubmitGeneration("x", (1, 2, 3), 6, "raw")
            with pytest.raises(InvalidRequest, match=r"_ForeignSampler can't be sent .* device.executor to \"thread\""):
                it.runtime.generate(message, Stream(_ForeignSampler(), lambda request, sampled: None), _heard([]))
            it.check_empty()

    run(main)


def test_R49_an_error_in_the_worker_comes_out_typed_and_the_worker_lives_on(tmp_path):
    async def main():
        async with workers(tmp_path) as it:
            pid = it.pid
            it.arm("prefill", "fail")
            with pytest.raises(BackendFault, match="the step raised RuntimeError: broken on command") as caught:
                await it.scheduler.generate(PROMPT, max_tokens=3)
            assert not isinstance(caught.value, DeviceLost)
            assert "broken on command" in str(caught.value.__cause__)
            it.check_empty()
            it.arm("decode", "print")
            assert (await it.scheduler.generate(PROMPT, max_tokens=3)).outcome == "completed"
            assert it.pid == pid
            it.arm("drop", "fail", 0)
            for prompt in (LONG, LONG + "more"):
                await it.scheduler.generate(prompt, max_tokens=1)
            await it.faulted()
            assert (await it.scheduler.retry()).ready

    run(main)


def test_R29_R80_retry_keeps_the_process_and_repair_replaces_it(tmp_path):
    async def main():
        async with workers(tmp_path) as it:
            expected = await it.scheduler.generate(PROMPT, max_tokens=6)
            first = it.pid
            for action, kept in (("retry", True), ("repair", False)):
                pid = it.pid
                it.arm("prefill", "lose")
                with pytest.raises(DeviceLost, match="lost on command"):
                    await it.scheduler.generate(LONG, max_tokens=6)
                assert it.scheduler.readiness().state == "faulted"
                assert (await getattr(it.scheduler, action)()).ready
                assert (it.pid == pid) == kept
                again = await it.scheduler.generate(PROMPT, max_tokens=6)
                assert (again.tokens, again.reused) == (expected.tokens, 0)
            assert it.pid != first

    run(main)
