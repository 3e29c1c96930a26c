"""The front door without an event loop, and how programs end that hold a scheduler open from outside of Trio."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from coresident import Closed, Config, InvalidRequest, blocking
from coresident.engine import Call
from support.live import Bench, config, device_threads

PROMPT = "The sea is wide and the wind is"
SMALL = config()


def bench_open(bench: Bench):
    return blocking.opened(bench.open, lambda thread, desk: (blocking.Scheduler(thread, desk.scheduler), desk))()


def test_a_script_generates_streams_decides_and_prepares():
    with blocking.open_scheduler(SMALL) as scheduler:
        whole = scheduler.generate(PROMPT, max_tokens=8).whole()
        with scheduler.generate(PROMPT, max_tokens=8) as stream:
            pieces = list(stream)
            assert stream.result().text == "".join(piece.text for piece in pieces) == whole.text
        assert scheduler.decide("Yes?", ["a", "b"]).outcome == "completed"
        preparation = scheduler.prepare("You know the sea. " * 3)
        assert preparation.result().outcome == "prepared"
        assert (preparation.ended, preparation.progress) == (True, (48, 48))
        assert scheduler.measure(PROMPT).prompt_tokens == len(PROMPT)
    assert device_threads() == []


def test_many_threads_share_one_scheduler():
    bench = Bench(SMALL)
    with bench_open(bench) as (scheduler, _), ThreadPoolExecutor(8) as pool:
        alone = scheduler.generate(PROMPT, max_tokens=6).whole().tokens
        answers = list(pool.map(lambda _: scheduler.generate(PROMPT, max_tokens=6).whole().tokens, range(24)))
        assert answers == [alone] * 24
    bench.check_closed()


def test_leaving_a_stream_early_cancels_it():
    bench = Bench(SMALL)
    with bench_open(bench) as (scheduler, desk):
        with scheduler.generate(PROMPT, max_tokens=400) as stream:
            next(stream)
        assert stream.result().outcome == "cancelled"
        assert len(stream.result().tokens) < 400
        assert desk.runtime.host.listening == 0
    bench.check_closed()


def test_what_was_made_before_the_end_is_refused_after_it():
    bench = Bench(SMALL)
    with bench_open(bench) as (scheduler, _):
        late = scheduler.generate(PROMPT, max_tokens=2)
    for call in (late.__enter__, late.whole, late.result, lambda: scheduler.decide("Yes?", ["a"])):
        with pytest.raises(Closed):
            call()
    with pytest.raises(InvalidRequest, match="was not started"):
        next(late)
    assert scheduler.readiness().state == "closed"


def test_the_schedulers_own_thread_is_refused_instead_of_waiting_for_itself():
    bench = Bench(SMALL)
    with blocking.opened(bench.open, lambda thread, desk: (thread, desk))() as (thread, desk):
        scheduler = blocking.Scheduler(thread, desk.scheduler)
        with pytest.raises(InvalidRequest, match="would wait for itself"):
            thread.call(lambda: scheduler.decide("Yes?", ["a"]))
        with pytest.raises(InvalidRequest, match="would wait for itself"):
            thread.call(scheduler.statistics)


def test_E3_an_engine_without_a_loop():
    with blocking.open_engine(Config(), name="plain") as engine:
        done = engine.complete(Call(b"The sea", 5))
        assert (done.engine, done.input_tokens, done.output_tokens) == ("plain", 7, 5)
    with pytest.raises(Closed):
        engine.complete(Call(b"The sea", 5))


PROGRAM = """
import sys, threading
from coresident import blocking, aio
import asyncio

def ready():
    print("ready", flush=True)

{body}
"""

BODIES = {
    "stream": """
try:
    with blocking.open_scheduler() as scheduler:
        with scheduler.generate("The sea " * 100, max_tokens=20000) as stream:
            next(stream)
            ready()
            for piece in stream: pass
except KeyboardInterrupt:
    print("interrupted", [t.name for t in threading.enumerate() if t.name.startswith("coresident")])
""",
    "whole": """
try:
    with blocking.open_scheduler() as scheduler:
        threading.Timer(0.5, ready).start()
        scheduler.generate("The sea " * 100, max_tokens=20000).whole()
except KeyboardInterrupt:
    print("interrupted", [t.name for t in threading.enumerate() if t.name.startswith("coresident")])
""",
    "asyncio": """
async def main():
    async with aio.open_scheduler() as scheduler:
        async with scheduler.generate("The sea " * 100, max_tokens=20000) as stream:
            await anext(stream)
            ready()
            async for piece in stream: pass
try:
    asyncio.run(main())
except KeyboardInterrupt:
    print("interrupted", [t.name for t in threading.enumerate() if t.name.startswith("coresident")])
""",
}


def program(body: str) -> subprocess.Popen[str]:
    """A program of its own that can be interrupted."""
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(body=body)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "CORESIDENT_MODEL": "synthetic"},
    )


@pytest.mark.parametrize("what", BODIES)
def test_ctrl_c_ends_everything_and_comes_out_as_itself(what):
    child = program(BODIES[what])
    assert child.stdout.readline() == "ready\n"
    child.send_signal(signal.SIGINT)
    out, error = child.communicate(timeout=60)
    assert (child.returncode, out, error) == (0, "interrupted []\n", "")


@pytest.mark.parametrize("door", ["blocking", "asyncio"])
def test_an_interpreter_that_exits_with_work_in_flight_ends_it_first(door, tmp_path):
    """Nobody left the block: the recording is whole all the same, so the scheduler ended in order."""
    record = tmp_path / "run.jsonl"
    blocks = {
        "blocking": f"""
block = blocking.open_scheduler(record={str(record)!r})
scheduler = block.__enter__()
stream = scheduler.generate("The sea " * 100, max_tokens=20000).__enter__()
next(stream)
print("exits", flush=True)
""",
        "asyncio": f"""
loop = asyncio.new_event_loop()
block = aio.open_scheduler(record={str(record)!r})
async def main():
    scheduler = await block.__aenter__()
    stream = await scheduler.generate("The sea " * 100, max_tokens=20000).__aenter__()
    await anext(stream)
loop.run_until_complete(main())
print("exits", flush=True)
""",
    }
    child = program(blocks[door])
    out, error = child.communicate(timeout=60)
    assert (child.returncode, out) == (0, "exits\n"), error
    last = record.read_text().splitlines()[-1]
    assert '"complete":true' in last


def test_no_thread_is_left_by_all_this():
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("coresident")] == []
