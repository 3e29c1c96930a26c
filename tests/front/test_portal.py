"""The thread under the asyncio and the blocking front doors: starts, ends and failures at awkward moments."""

from __future__ import annotations

import asyncio
import atexit
import gc
import os
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

import pytest
import trio
from coresident.runtime.host.executor import DEVICE_THREAD

from coresident import BlockingEngineRegistry, Closed, Config, InvalidRequest, aio, blocking
from coresident.engine import Call
from coresident.portal import TrioThread
from support.live import Bench, config

PROMPT = "The sea is wide and the wind is"
SMALL = config()


@asynccontextmanager
async def nothing():
    yield "nothing"


def our_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("coresident")]


def bench_open(bench: Bench):
    return blocking.opened(bench.open, lambda thread, desk: (blocking.Scheduler(thread, desk.scheduler), thread))()


def open_nothing() -> None:
    with blocking.opened(nothing, lambda thread, value: value)():
        raise AssertionError("never opened")


async def open_nothing_in_asyncio() -> None:
    async with aio.opened(nothing, lambda thread, value: value)():
        raise AssertionError("never opened")


@pytest.mark.parametrize("door", [open_nothing, lambda: asyncio.run(open_nothing_in_asyncio())])
def test_a_thread_that_can_not_be_started_is_said_and_not_waited_for(monkeypatch, door):
    """As it is while the interpreter ends, or where the process has too many."""

    def refused(thread):
        raise RuntimeError("can't start new thread")

    at_exit = []
    monkeypatch.setattr(atexit, "register", at_exit.append)
    monkeypatch.setattr(atexit, "unregister", at_exit.remove)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refused)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            door()
    assert at_exit == []


def test_an_end_that_is_asked_before_the_thread_can_hear_is_heard():
    """A Ctrl-C in the middle of ``start`` leaves the thread to itself: ``close`` is all that it is told."""
    reached = threading.Event()

    @asynccontextmanager
    async def slow():
        reached.set()
        await trio.sleep_forever()
        yield

    class Interrupted(TrioThread[None]):
        def _run(self) -> None:
            closing.wait()
            super()._run()

    closing = threading.Event()
    thread = Interrupted(slow)
    starter = threading.Thread(target=thread.start)
    starter.start()
    while not thread.alive:
        pass
    ended = thread.close()
    closing.set()
    assert ended.result(timeout=30) is None
    starter.join()
    thread.join()
    assert our_threads() == []


def test_calls_end_when_trio_itself_fails():
    def broken() -> None:
        raise LookupError("defect")

    block = blocking.opened(nothing, lambda thread, value: thread)()
    thread = block.__enter__()
    job = thread.submit(trio.sleep_forever)
    thread._soon(broken)
    assert isinstance(job.future.exception(timeout=30), Closed)
    thread.join()
    assert isinstance(thread.submit(trio.sleep_forever).future.exception(timeout=30), Closed)
    with pytest.raises(trio.TrioInternalError):
        block.__exit__(None, None, None)
    assert our_threads() == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_process_is_told_that_it_has_no_scheduler():
    read, write = os.pipe()
    with blocking.open_scheduler(SMALL) as scheduler:
        with scheduler.generate(PROMPT, max_tokens=400) as stream:
            next(stream)
            child = os.fork()
            if child == 0:
                said = []
                for call in (scheduler.statistics, stream.result, lambda: list(stream), lambda: scheduler.prepare("x")):
                    try:
                        call()
                    except Closed:
                        said.append("closed")
                stream.__exit__(None, None, None)
                scheduler._thread.close().result()
                os.write(write, " ".join(said).encode())
                os._exit(0)
            os.waitpid(child, 0)
        assert os.read(read, 100) == b"closed closed closed closed"
        assert scheduler.generate(PROMPT, max_tokens=3).whole().outcome == "completed"
    os.close(read)
    os.close(write)


def test_leaving_a_stream_after_the_end_hides_no_error():
    bench = Bench(SMALL)
    with bench_open(bench) as (scheduler, _):
        stream = scheduler.generate(PROMPT, max_tokens=400).__enter__()
        next(stream)
    stream.__exit__(None, None, None)
    with pytest.raises(Closed):
        list(stream)
    bench.check_closed()


def test_an_interrupt_while_a_stream_is_entered_ends_what_was_submitted(monkeypatch):
    bench = Bench(SMALL)
    with bench_open(bench) as (scheduler, _):
        done = blocking._done
        told = iter([KeyboardInterrupt()])

        def interrupted(job) -> None:
            done(job)
            for error in told:
                raise error

        monkeypatch.setattr(blocking, "_done", interrupted)
        stream = scheduler.generate(PROMPT, max_tokens=400)
        with pytest.raises(KeyboardInterrupt):
            stream.__enter__()
        assert stream.result().outcome == "cancelled"
        assert scheduler.statistics().streams == 0
    bench.check_closed()


def test_waits_go_on_where_they_look_up_at_times(monkeypatch):
    """As on Windows, where a wait has to end by itself for Ctrl-C to be heard."""
    monkeypatch.setattr(blocking, "_PATIENCE", 0.001)
    with blocking.open_scheduler(SMALL) as scheduler:
        whole = scheduler.generate(PROMPT, max_tokens=20).whole()
        with scheduler.generate(PROMPT, max_tokens=20) as stream:
            assert "".join(piece.text for piece in stream) == whole.text


def test_readers_on_several_threads_share_the_pieces_of_a_stream(monkeypatch):
    with blocking.open_scheduler(SMALL) as scheduler, scheduler.generate(PROMPT, max_tokens=60) as stream:
        stream.result()
        piece = stream._inner.piece

        def looked(index: int):
            found = piece(index)
            time.sleep(0)  # let another thread run
            return found

        monkeypatch.setattr(stream._inner, "piece", looked)
        with ThreadPoolExecutor(4) as pool:
            got = [piece for part in pool.map(lambda _: list(stream), range(4)) for piece in part]
        assert sorted(map(id, got)) == sorted(map(id, stream._inner._pieces))


@pytest.mark.parametrize("where", ["trio", "device"])
def test_blocks_that_are_collected_on_the_schedulers_own_threads_end_without_a_wait(where):
    """Garbage is collected on whatever thread allocates; generators that hold a block open are garbage too."""

    def on_the_thread(function) -> None:
        if where == "trio":
            thread.call(function)
            return
        other = threading.Thread(target=function, name=DEVICE_THREAD)
        other.start()
        other.join(30)
        assert not other.is_alive()

    bench = Bench(SMALL)
    block = bench_open(bench)
    scheduler, thread = block.__enter__()
    held = thread.call(lambda: bench.backend.hold("decode"))
    stream = scheduler.generate(PROMPT, max_tokens=400).__enter__()
    thread.submit(held.reached).future.result()
    on_the_thread(lambda: stream.__exit__(None, None, None))
    held.release()
    assert stream.result().outcome == "cancelled"
    on_the_thread(block.gen.close)
    thread.join()
    bench.check_closed()


@pytest.mark.parametrize("door", [aio, blocking])
def test_a_generation_that_has_ended_keeps_nothing_alive(door):
    gone = []
    with blocking.open_scheduler(SMALL) as scheduler:
        seen = door.Scheduler(scheduler._thread, scheduler._inner)
        gc.collect()
        gc.disable()
        try:
            stream = seen.generate(PROMPT, max_tokens=2)
            gone.append(weakref.ref(stream))
            done = stream.whole() if door is blocking else asyncio.run(stream.whole())
            del stream
            assert done.outcome == "completed"
            assert gone[0]() is None
        finally:
            gc.enable()


def test_E1_a_registry_holds_engines_without_a_loop_too():
    registry = BlockingEngineRegistry()
    with blocking.open_engine(Config(), name="lazy") as lazy, blocking.open_scheduler(Config()) as scheduler:
        registry.register("lazy", lazy)
        registry.register("open", scheduler.engine("open"))
        assert registry.get("lazy").preload("synthetic")
        assert registry.get("open").negotiate(["preload", "complete", "dance"]) == {"complete"}
        done = [engine.complete(Call(b"The sea", 4)) for engine in registry.snapshot().values()]
        assert [(one.engine, one.tokens) for one in done] == [("lazy", done[0].tokens), ("open", done[0].tokens)]
        with pytest.raises(InvalidRequest, match="already open"):
            registry.get("open").preload("synthetic")
