"""Readiness that is false the moment the worker dies; ends that were intended; requests that run again."""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import SimpleNamespace

import attrs
import pytest
import trio
from coresident.actors.errors import ArtifactInvalid, DeviceLost, InvalidRequest
from coresident.actors.events import GenerationEnded
from coresident.actors.messages import Finished, SubmitGeneration, Withdrawn
from coresident.actors.work import LoadWork, PrefillWork
from coresident.runtime.host.executors import setup_of
from coresident.runtime.host.steps import Stream
from coresident.runtime.models.sampling import make_sampler
from coresident.runtime.worker.child import EXIT_CLEAN
from structlog.testing import capture_logs

from coresident import SamplingParams
from support.live import LONG, run
from support.workers import Direct, command_in, needs_proc, pids_in, small_assembly, state_of, workers

pytestmark = needs_proc

PROMPT = "The sea is wide and the wind is"


def kill_and_wait(pid):
    """Without letting Trio run: when this returns the worker is dead, and nobody has been told."""
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


def test_FIELD_63_readiness_is_false_before_anybody_was_told_and_its_revision_only_grows(tmp_path):
    async def main():
        async with workers(tmp_path) as it:
            before = it.scheduler.readiness()
            assert before.ready
            kill_and_wait(it.pid)
            now = it.scheduler.readiness()
            assert (now.ready, now.state, now.admitted_context, now.actions) == (False, "faulted", 0, ())
            assert now.revision > before.revision
            assert isinstance(now.error, DeviceLost)
            assert it.runtime.assembly.supervisor.readiness().ready
            assert not it.scheduler.statistics().executor.alive
            assert (await it.scheduler.repair()).ready
            later = it.scheduler.readiness()
            assert later.revision > now.revision
            kill_and_wait(it.pid)
            with pytest.raises(DeviceLost):
                await it.scheduler.generate(PROMPT, max_tokens=3)
            assert (await it.scheduler.retry()).ready
            assert (await it.scheduler.generate(PROMPT, max_tokens=3)).outcome == "completed"

    with capture_logs():
        run(main)


def test_a_cancel_while_the_worker_dies_ends_the_request_once_and_typed(tmp_path):
    async def main():
        async with workers(tmp_path) as it:
            it.arm("prefill", "hold")
            async with it.scheduler.generate(LONG, max_tokens=3) as stream:
                await it.reached()
                stream.cancel()
                kill_and_wait(it.pid)
                with pytest.raises(DeviceLost):
                    await stream.result()
            it.check_empty()
            assert (await it.scheduler.repair()).ready

    with capture_logs():
        run(main)


@pytest.mark.parametrize("moment", ["prefill", "score"])
def test_what_had_shown_nothing_is_run_again_by_a_new_worker_and_answered_as_ever(moment, tmp_path):
    sampling = SamplingParams(temperature=1.0, seed=11, logprobs=1)

    async def main():
        async with workers(tmp_path, limits={"restarts": 1}) as it:
            expected = await it.scheduler.generate(LONG, max_tokens=6, sampling=sampling, retain=False)
            scores = (await it.scheduler.decide("Food?", ["a", "b"])).scores
            it.arm(moment, "kill")
            again = await it.scheduler.generate(LONG, max_tokens=6, sampling=sampling, retain=False)
            decided = await it.scheduler.decide("Food?", ["a", "b"])
            assert (again.tokens, decided.scores, it.armed) == (expected.tokens, scores, False)
            assert it.scheduler.statistics().executor.starts == 2
            assert it.scheduler.readiness().ready

    with capture_logs():
        run(main)


CHUNK = PrefillWork("generation", "generation", "g1", 0, 0, tuple(range(16)), last=False)


def test_R76_a_completion_that_arrives_after_a_stop_is_an_intentional_stop(tmp_path):
    async def main():
        bench = Direct(tmp_path)
        async with bench.executor.running():
            bench.run(1, LoadWork("generation"))
            assert isinstance(await bench.ended(1), Finished)
            bench.arm("prefill", "hold")
            bench.run(2, CHUNK, 1 << 20)
            while not (tmp_path / "reached").exists():
                await trio.sleep(0.002)
            (tmp_path / "release").touch()
        assert [(to, type(m.outcome)) for to, m in bench.posted] == [("device", Finished), ("device", Withdrawn)]
        assert [pid for pid in pids_in(tmp_path) if state_of(pid)] == []
        assert not bench.executor.alive

    run(main)


def test_an_interrupt_that_comes_while_a_token_is_taken_goes_to_the_program_and_ends_nothing_else(tmp_path):
    tokens = []

    def interrupted(request, sampled):
        tokens.append(sampled.token)
        if len(tokens) == 1:
            signal.raise_signal(signal.SIGINT)

    async def main():
        async with workers(tmp_path) as it:
            events = []
            message = SubmitGeneration("x", tuple(range(20)), 4, "raw", retain=False)
            stream = Stream(make_sampler(SamplingParams()), interrupted)
            it.runtime.generate(message, stream, lambda event, at: events.append(event))
            with pytest.raises(KeyboardInterrupt):
                await trio.sleep_forever()
            await it.until(lambda: any(isinstance(event, GenerationEnded) for event in events))
            it.runtime.finished("x")
            assert (len(tokens), events[-1].outcome) == (4, "completed")
            it.check_empty()
            assert it.scheduler.readiness().ready
            assert it.scheduler.statistics().executor.starts == 1

    run(main)


def test_R77_a_worker_ends_by_itself_though_somebody_else_holds_its_pipe_open(tmp_path):
    """As a process does that the application has forked."""

    async def main():
        bench = Direct(tmp_path)
        async with bench.executor.running():
            bench.run(1, LoadWork("generation"))
            assert isinstance(await bench.ended(1), Finished)
            process = bench.executor._worker._process
            held = os.dup(process.stdin.fileno())
        os.close(held)
        assert process.returncode == EXIT_CLEAN

    run(main)


def test_a_load_that_is_given_up_while_its_worker_starts_ends_at_once(tmp_path):
    async def main():
        bench = Direct(tmp_path, grace=0.2)
        async with bench.executor.running():
            bench.run(1, LoadWork("generation"))
            bench.executor.ask_yield(1, give_up=True)
            assert await bench.ended(1) == Withdrawn()
        assert [pid for pid in pids_in(tmp_path) if state_of(pid)] == []

    run(main)


def test_what_fails_in_a_worker_that_a_repair_replaces_is_no_fault_of_the_repair(tmp_path):
    async def main():
        bench = Direct(tmp_path, grace=30.0, command=command_in(tmp_path, last_seconds=30.0))
        async with bench.executor.running():
            bench.run(1, LoadWork("generation"))
            assert isinstance(await bench.ended(1), Finished)
            bench.arm("drop", "fail", 0)
            worker = bench.executor._worker
            os.kill(worker.pid, signal.SIGSTOP)
            bench.executor.drop_retained("generation", 9)
            bench.run(2, LoadWork("generation", repair=True))
            while not worker.closing:
                await trio.sleep(0.002)
            os.kill(worker.pid, signal.SIGCONT)
            assert isinstance(await bench.ended(2), Finished)
            assert bench.executor.statistics().starts == 2
            assert [to for to, _ in bench.posted] == ["device", "device"]

    with capture_logs() as logs:
        run(main)
    assert any("device.housekeeping_failed" in log.get("line", "") for log in logs)


def test_a_repair_of_files_is_given_up_when_the_scheduler_closes(tmp_path):
    asked = threading.Event()

    class Endless:
        path = digest = "x"

        def verify(self):
            while True:
                asked.set()
                yield 1

    async def main():
        stored = SimpleNamespace(name="m", manifest="d", files=(Endless(),), place=lambda: None)
        assembly = attrs.evolve(small_assembly(), backend=SimpleNamespace(stored={"generation": stored}))
        bench = Direct(tmp_path, grace=0.05, repair=setup_of(assembly).repair)
        async with bench.executor.running():
            bench.run(1, LoadWork("generation", repair=True))
            while not asked.is_set():
                await trio.sleep(0.002)
        assert bench.executor.statistics().starts == 0
        assert [type(message.outcome) for _, message in bench.posted] == [Withdrawn]

    run(main)


def test_R77_a_prefix_file_that_a_killed_worker_was_writing_leaves_nothing_behind(tmp_path):
    async def main():
        async with workers(tmp_path) as it:
            await it.scheduler.generate(LONG, max_tokens=1)
            mine, others = tmp_path / f".kept.{it.pid}.a1_.part", tmp_path / ".kept.1.a1_.part"
            of_another_name = tmp_path / f".kept.{it.pid}.1.a1_.part"
            for path in (mine, others, of_another_name):
                path.touch()
            it.arm("store", "kill", 0)
            with pytest.raises(DeviceLost):
                await it.scheduler.save_prefix(LONG, tmp_path / "kept")
            assert sorted(tmp_path.glob(".kept*")) == sorted([others, of_another_name])

    with capture_logs():
        run(main)


HELLO = "import struct, sys, time; sys.stdout.buffer.write({}); sys.stdout.flush(); time.sleep(60)"
ANSWER = b'{"kind":"hello","id":-1,"protocol":7,"capabilities":[]}'


@pytest.mark.parametrize(
    ("command", "kind", "complaint"),
    [
        (("no-such-program-anywhere",), DeviceLost, "no worker process can be started"),
        ((sys.executable, "-c", "import sys; sys.exit('no module')"), DeviceLost, r"exit code 1.*last said: no module"),
        ((sys.executable, "-c", HELLO.format(b"Python 3.11")), DeviceLost, "a frame announces"),
        (
            (sys.executable, "-c", HELLO.format(len(ANSWER).to_bytes(4, "little") + ANSWER)),
            InvalidRequest,
            "the worker speaks protocol 7, this side speaks 1",
        ),
    ],
    ids=["missing", "exits", "prints", "other protocol"],
)
def test_R46_what_is_no_worker_of_this_version_is_refused_by_name(command, kind, complaint, tmp_path):
    async def main():
        bench = Direct(tmp_path, command=command, grace=0.1)
        async with bench.executor.running():
            bench.run(1, LoadWork("generation"))
            failed = await bench.ended(1)
            with pytest.raises(kind, match=complaint):
                raise failed.error
            bench.run(2, CHUNK)
            assert isinstance((await bench.ended(2)).error, DeviceLost)

    with capture_logs():
        run(main)


def test_a_worker_that_finds_another_model_than_was_admitted_is_refused(tmp_path):
    async def main():
        bench = Direct(tmp_path, digests={"generation": "0123"})
        async with bench.executor.running():
            bench.run(1, LoadWork("generation"))
            with pytest.raises(ArtifactInvalid, match=r"another generation model .* than was admitted \(0123\)"):
                raise (await bench.ended(1)).error
        assert [pid for pid in pids_in(tmp_path) if state_of(pid)] == []

    run(main)
