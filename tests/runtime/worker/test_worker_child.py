"""The real child process, spoken to frame by frame: it says nothing else, and it does not outlive its parent."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from contextlib import contextmanager

import pytest
from coresident.runtime.host.worker_setup import COMMAND
from coresident.runtime.worker import messages
from coresident.runtime.worker.child import EXIT_CLEAN, EXIT_DAMAGED
from coresident.runtime.worker.flat import decode_body, encode_body
from coresident.runtime.worker.frames import FrameDecoder, encode_frame

from support.workers import SCRIPT, command_in, needs_proc, pids_in, state_of

CONFIG = json.dumps({"generation": {"model": "synthetic", "context": 64, "chunk": 16}, "decision": False})


class Child:
    """A worker process and what it writes."""

    def __init__(self, process):
        self.process = process
        self._decoder = FrameDecoder()
        self._bodies = []

    def say(self, **body):
        self.process.stdin.write(encode_frame(encode_body(body)))
        self.process.stdin.flush()

    def hear(self):
        while not self._bodies:
            data = os.read(self.process.stdout.fileno(), 65536)
            assert data, self.process.stderr.read()
            self._bodies += [decode_body(frame) for frame in self._decoder.feed(data)]
        return self._bodies.pop(0)

    def ask(self, **body):
        self.say(**body)
        return self.hear()

    def open(self):
        hello = dict(messages.hello_body(-1))
        assert self.ask(**hello) == hello
        assert self.ask(kind="open", id=-2, config=CONFIG, models=["generation"])["kind"] == "opened"

    def end(self):
        """Its exit code and the rest of what it wrote to standard error; its standard output is silent."""
        out, err = self.process.communicate(timeout=30)
        assert out == b""
        return self.process.returncode, err.decode()


@contextmanager
def child(command=COMMAND, **options):
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, **options) as process:
        watchdog = threading.Timer(60, process.kill)
        watchdog.start()
        try:
            yield Child(process)
        finally:
            watchdog.cancel()
            process.kill()


def test_R43_R46_R77_the_worker_answers_in_frames_alone_and_ends_with_its_input():
    with child() as it:
        it.open()
        it.process.send_signal(signal.SIGINT)
        assert it.ask(kind="dance", id=5)["error_type"] == "InvalidRequest"
        assert it.end() == (EXIT_CLEAN, "")


@pytest.mark.parametrize(
    ("data", "said"),
    [(b"\x05\x00\x00\x00ab", "inside a frame"), (b"\xff" * 8, "the limit is"), (encode_frame(b"{}"), "no object with")],
)
def test_R43_a_worker_whose_input_is_damaged_says_so_and_ends(data, said, tmp_path):
    with child(command_in(tmp_path)) as it:
        it.process.stdin.write(data)
        code, err = it.end()
        assert code == EXIT_DAMAGED
        assert said in err


@needs_proc
@pytest.mark.parametrize("held", [False, True], ids=["alone", "another child holds the pipe"])
def test_a_worker_ends_with_its_parent_even_in_the_middle_of_a_step(held, tmp_path):
    """The parent is killed while its worker stands inside a segment, which never ends."""
    parent = textwrap.dedent(
        f"""
        import os, sys, time
        sys.path.insert(0, {str(SCRIPT.parents[1])!r})
        from pathlib import Path
        import trio
        from support.live import LONG
        from support.workers import workers

        async def main():
            async with workers(Path({str(tmp_path)!r})) as it:
                it.arm("prefill", "hold")
                async with it.scheduler.generate(LONG, max_tokens=4):
                    await it.reached()
                    if {held} and os.fork() == 0:
                        os.close(1)
                        while not Path({str(tmp_path / "done")!r}).exists():
                            time.sleep(0.01)
                        os._exit(0)
                    print("ready", flush=True)
                    await trio.sleep_forever()

        trio.run(main)
        """
    )
    with subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE) as process:
        try:
            while process.stdout.readline().strip() != b"ready":
                assert process.poll() is None
            (worker,) = pids_in(tmp_path)
            process.kill()
            assert process.wait(30) == -signal.SIGKILL
            # Its new parent reaps it, or leaves it a zombie where none does.
            limit = time.monotonic() + 60
            while state_of(worker) not in ("", "Z"):
                assert time.monotonic() < limit
        finally:
            (tmp_path / "done").touch()
