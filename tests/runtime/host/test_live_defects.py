"""The live host and what misbehaves around it: observers, clients, actors, threads; and what stays behind."""

from __future__ import annotations

import gc
import threading
import weakref
from types import SimpleNamespace

import pytest
import trio
import trio.testing
from coresident.actors.errors import BackendFault, CoresidentError
from coresident.actors.work import Grant, LoadWork, PrefillWork, StepRequest
from coresident.policies.views import WorkClass
from coresident.runtime.host.executor import DeviceExecutor
from coresident.runtime.host.steps import Streams

from support.live import LONG, Bench, config, desk, device_threads, run

PROMPT = "The sea is wide and the wind is"


class Bad:
    """An observer that raises from one of its methods, the more often it is told the worse."""

    def __init__(self, method: str) -> None:
        self.method = method
        self.told: list[str] = []

    def delivered(self, delivery) -> None:
        self._told("delivered")

    def token(self, request: str, index: int, at: int) -> None:
        self._told("token")

    def dropped(self, error: Exception) -> None:
        self.told.append("dropped")
        raise RuntimeError("and again")

    def _told(self, method: str) -> None:
        self.told.append(method)
        if method == self.method:
            raise RuntimeError(f"bad {method}")


@pytest.mark.parametrize("method", ["delivered", "token"])
def test_an_observer_that_raises_is_dropped_and_the_run_goes_on(method, capsys):
    async def main():
        bad, good = Bad(method), Bad("nothing")
        async with desk([bad, good]) as it:
            assert len((await it.scheduler.generate(PROMPT, max_tokens=9)).tokens) == 9
            await it.settled()
        assert bad.told[-2:] == [method, "dropped"]
        assert bad.told.count(method) == 1
        assert good.told.count("token") == 9

    run(main)


def test_what_goes_wrong_with_one_answers_text_ends_only_that_answer(monkeypatch):
    """Rows of one decode run share a step, not their faults."""

    async def main():
        async with desk() as it:
            expected = await it.scheduler.generate(PROMPT, max_tokens=20, retain=False)
            before = it.scheduler.statistics().generation
            bad = it.scheduler.generate(PROMPT, max_tokens=20, retain=False)
            pushed = []

            def push(token):
                pushed.append(token)
                if len(pushed) == 5:
                    raise UnicodeError("no text")
                return "x"

            monkeypatch.setattr(bad._sink, "detokenizer", SimpleNamespace(push=push))
            async with it.scheduler.generate(PROMPT, max_tokens=20, retain=False) as good:
                with pytest.raises(BackendFault, match="no text"):
                    await bad
                assert (await good.result()).tokens == expected.tokens
            assert len(pushed) == 5
            await it.settled()
            after = it.scheduler.statistics().generation
            assert (after.failed, after.completed) == (before.failed + 1, before.completed + 1)

    run(main)


def test_held_back_text_that_goes_wrong_at_the_end_is_that_requests_error(monkeypatch):
    async def main():
        async with desk() as it:
            bad = it.scheduler.generate(PROMPT, max_tokens=3)
            monkeypatch.setattr(bad._sink, "detokenizer", SimpleNamespace(push=lambda token: "x", flush=_no_text))
            with pytest.raises(BackendFault, match="no text"):
                await bad
            assert (await it.scheduler.generate(PROMPT, max_tokens=3)).outcome == "completed"
            await it.settled()

    run(main)


def _no_text():
    raise UnicodeError("no text")


@pytest.mark.usefixtures("front_door")
def test_errors_of_the_body_come_out_as_they_are():
    """Neither wrapped, nor unwrapped further than our own nursery wrapped them, and with their own cause."""

    async def main():
        cause = KeyError("why")
        with pytest.raises(ZeroDivisionError) as caught:
            async with desk():
                raise ZeroDivisionError("mine") from cause
        assert caught.value.__cause__ is cause
        with pytest.raises(ExceptionGroup, match="mine") as caught:
            async with desk():
                raise ExceptionGroup("mine", [ZeroDivisionError()])
        assert len(caught.value.exceptions) == 1

    run(main)


def test_a_defect_in_an_actor_ends_the_host_and_tells_everybody(monkeypatch):
    async def main():
        bench = Bench()
        told = []

        async def client(call):
            with pytest.raises(CoresidentError, match="ended before"):
                await call
            told.append(True)

        async def broken(outer):
            async with bench.open() as it:
                held = it.backend.hold("decode")
                outer.start_soon(client, it.scheduler.generate(PROMPT, max_tokens=50).whole())
                await held.reached()
                outer.start_soon(client, it.scheduler.decide("Food?", ["a"]))
                await trio.testing.wait_all_tasks_blocked()
                monkeypatch.setattr(bench.assembly.generation, "handle", _raise)
                it.runtime.host.send("generation", None)
                held.release()
                await trio.sleep_forever()

        async with trio.open_nursery() as outer:
            with pytest.raises(LookupError, match="defect"):
                await broken(outer)
        assert told == [True, True]
        assert device_threads() == []
        assert bench.backend.open_workspaces == 0

    run(main)


def _raise(message, at):
    raise LookupError("defect")


def test_calls_from_threads_are_ignored_after_the_end():
    async def main():
        async with desk() as it:
            heard = trio.Event()
            thread = threading.Thread(target=it.runtime.host.call, args=(heard.set,))
            thread.start()
            await heard.wait()
            thread.join()
        ignored = []
        it.runtime.host.call(lambda: ignored.append(True))
        await trio.testing.wait_all_tasks_blocked()
        assert ignored == []
        return it.runtime.host

    host = run(main)
    host.call(lambda: None)


def test_an_executor_stopped_inside_a_step_ends_after_the_segment(monkeypatch):
    """Without actors: what was queued behind the running step still ends, each with one outcome."""

    async def main():
        bench = Bench(config())
        ended = []
        executor = DeviceExecutor(
            bench.backend, Streams(lambda request, index: None), bench.assembly.plans, lambda to, m: ended.append(m)
        )

        def step(name, work, charge):
            return StepRequest(name, "generation", "g1", WorkClass.FOREGROUND, work, charge, 0, 0)

        chunk = PrefillWork("generation", "generation", "g1", 0, 0, tuple(range(16)), last=False)
        executor.start()
        executor.run(Grant(1, step("load", LoadWork("generation"), 0)))
        held = bench.backend.hold("prefill", 2)
        executor.run(Grant(2, step("one", chunk, 1 << 20)))
        executor.run(Grant(3, step("two", chunk, 1 << 20)))
        await held.reached()
        join = executor._thread.join
        monkeypatch.setattr(executor._thread, "join", lambda: (held.release(), join()))
        executor.stop()
        assert [(m.grant, type(m.outcome).__name__) for m in ended] == [
            (1, "Finished"),
            (2, "Withdrawn"),
            (3, "Withdrawn"),
        ]
        assert bench.backend.segments["prefill"] == 3
        assert bench.backend.open_workspaces == 0
        assert device_threads() == []
        executor.stop()

    run(main)


@pytest.mark.usefixtures("front_door")
def test_after_its_end_nothing_holds_a_request():
    async def main():
        async with desk() as it:
            streams = [it.scheduler.generate(LONG, max_tokens=4) for _ in range(3)]
            for stream in streams:
                await stream
            await it.scheduler.decide("Food?", ["a", "b"])
            await it.settled()
            gone = [weakref.ref(stream) for stream in streams]
            streams.clear()
            del stream
            gc.collect()
            assert [ref() for ref in gone] == [None] * 3
            assert it.assembly.generation._steps == {}
            assert it.assembly.generation._open == {}

    run(main)
