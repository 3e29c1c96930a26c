"""A child process that speaks in frames, from its start to its reaping.

One task supervises it. Whatever goes wrong (its death, the end of a pipe, a frame that is none) ends in the same way:
the child is killed and reaped, everybody who waits for an answer is told why, and then the owner is.
"""

from __future__ import annotations

import signal
import subprocess
from collections import deque
from collections.abc import Awaitable, Callable

import trio

from ...actors.errors import CoresidentError, DeviceLost
from ..logged import Logged, complain, warn
from ..worker.drivers import WorkerEnvironment
from ..worker.flat import Body, decode_body, encode_body
from ..worker.frames import FrameDecoder, FrameInvalid, encode_frame
from ..worker.messages import end_body
from .groups import raise_only
from .pipes import receive, send
from .replies import Replies

LAST_LINES = 8
LONGEST_LINE = 2000
MOST_LINES = 1000
EXIT_SECONDS = 0.2
DRAIN_SECONDS = 1.0
REAP_SECONDS = 10.0


class WorkerProcess:
    """One child. ``on_frame`` is awaited for each of its messages that answers no question."""

    def __init__(
        self,
        process: trio.Process,
        environment: WorkerEnvironment,
        on_frame: Callable[[Body], Awaitable[None]],
    ) -> None:
        self._process = process
        self._environment = environment
        self._on_frame = on_frame
        self._replies = Replies()
        self._writing = trio.Lock()
        self._lines: deque[str] = deque(maxlen=LAST_LINES)
        self._reason: CoresidentError | None = None
        self._killed = trio.Event()
        self._reaped = trio.Event()
        self._silent = False
        self.closing = False

    @classmethod
    async def start(
        cls, command: tuple[str, ...], environment: WorkerEnvironment, on_frame: Callable[[Body], Awaitable[None]]
    ) -> WorkerProcess:
        """Start a child. Raises ``DeviceLost`` when there can be none."""
        try:
            process = await trio.lowlevel.open_process(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment.variables,
            )
        except OSError as error:
            environment.close()
            raise DeviceLost(f"no worker process can be started ({error}): retry", command=command[0]) from error
        return cls(process, environment, on_frame)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it runs and nothing is known against it."""
        known = self._killed.is_set() or self._silent or self.closing
        return not known and self._process.poll() is None

    # --- talking ------------------------------------------------------------------------------------------------

    async def send(self, body: Body) -> None:
        """Write a message; a child that no longer reads is killed, which tells everybody. Raises ``FrameInvalid``."""
        data = encode_frame(encode_body(body))
        stdin = self._process.stdin
        if stdin is None or self._killed.is_set():
            return
        # Nearly always free, and then a turn of the event loop is saved for each token.
        try:
            self._writing.acquire_nowait()
        except trio.WouldBlock:
            await self._writing.acquire()
        try:
            await send(stdin, data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self.kill(None)
        finally:
            self._writing.release()

    async def ask(self, body: Body) -> Body:
        """Send a question and wait for its answer. Raises what the child answers, or ``DeviceLost`` when it ends."""
        with self._replies.expect(body["id"]) as reply:
            await self.send(body)
            return await reply.wait()

    def kill(self, reason: CoresidentError | None) -> None:
        """End the child at once, because of ``reason`` if that isn't its own end; the supervising task goes on."""
        self._reason = self._reason or reason
        self._killed.set()
        self._process.kill()

    # --- supervising --------------------------------------------------------------------------------------------

    # An interrupt is for the client's task: here it would leave a message half taken.
    @trio.lowlevel.enable_ki_protection
    async def supervise(self, on_lost: Callable[[WorkerProcess, DeviceLost], None]) -> None:
        """Read and wait until the child has been reaped; then tell why."""
        try:
            async with trio.open_nursery() as nursery:
                ended = [trio.Event(), trio.Event()]
                nursery.start_soon(self._read, ended[0])
                nursery.start_soon(self._listen, ended[1])
                nursery.start_soon(self._give_up, nursery.cancel_scope)
                await self._process.wait()
                # What it had written is still in the pipes; somebody else may hold them open.
                with trio.move_on_after(DRAIN_SECONDS):
                    for event in ended:
                        await event.wait()
                nursery.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            raise_only(group)
        finally:
            with trio.CancelScope(shield=True):
                await self._reap()
        error = self._error()
        self._replies.fail_all(error)
        on_lost(self, error)

    async def close(self, grace: float) -> None:
        """The clean end: it is asked, within ``grace`` seconds each it ends, is told by the system, is killed."""
        self.closing = True
        with trio.CancelScope(shield=True):
            with trio.move_on_after(grace):
                await self.send(end_body())
                if self._process.stdin is not None:
                    await self._process.stdin.aclose()
                await self._reaped.wait()
                return
            self._process.terminate()
            with trio.move_on_after(grace):
                await self._reaped.wait()
                return
            self.kill(None)
            await self._reaped.wait()

    @trio.lowlevel.enable_ki_protection
    async def _give_up(self, scope: trio.CancelScope) -> None:
        """A process that stands inside of a driver can't be killed, and must not keep others waiting for ever."""
        await self._killed.wait()
        await trio.sleep(REAP_SECONDS)
        complain(Logged.WORKER_ABANDONED, pid=self.pid, waited_seconds=REAP_SECONDS)
        scope.cancel()

    async def _reap(self) -> None:
        """However this ends, there is no child afterwards that can be ended, no open pipe and no file made for it."""
        if self._process.poll() is None:
            self._process.kill()
        with trio.move_on_after(REAP_SECONDS):
            await self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                await pipe.aclose()
        self._environment.close()
        self._reaped.set()

    @trio.lowlevel.enable_ki_protection
    async def _read(self, ended: trio.Event) -> None:
        stdout = self._process.stdout
        decoder = FrameDecoder()
        try:
            while stdout is not None and (data := await receive(stdout)):
                for frame in decoder.feed(data):
                    await self._take(decode_body(frame))
            decoder.end()
        except (FrameInvalid, trio.BrokenResourceError, trio.ClosedResourceError) as error:
            self.kill(error if isinstance(error, FrameInvalid) else None)
        self._silent = True
        ended.set()
        if not self.closing:
            await self._outlived()

    async def _outlived(self) -> None:
        """Its output has ended: mostly since it ends, and then how says more than being killed."""
        with trio.move_on_after(EXIT_SECONDS):
            await self._process.wait()
        self.kill(FrameInvalid("it closed its output") if self._process.poll() is None else None)

    async def _take(self, body: Body) -> None:
        if not self._replies.settle(body):
            await self._on_frame(body)

    @trio.lowlevel.enable_ki_protection
    async def _listen(self, ended: trio.Event) -> None:
        """Its standard error goes to the log line by line, for as long as there are not too many."""
        stderr, count, rest = self._process.stderr, 0, b""
        while stderr is not None and (data := await receive(stderr)):
            *lines, rest = (rest + data).split(b"\n")
            if len(rest) > LONGEST_LINE:
                lines, rest = [*lines, rest], b""
            for line in lines:
                count += 1
                self._heard(line, count)
        if rest:
            self._heard(rest, count + 1)
        ended.set()

    def _heard(self, line: bytes, count: int) -> None:
        text = line[:LONGEST_LINE].decode("utf-8", "replace")
        self._lines.append(text)
        if count < MOST_LINES:
            warn(Logged.WORKER_STDERR, pid=self.pid, line=text)
        elif count == MOST_LINES:
            warn(Logged.WORKER_STDERR_CUT, pid=self.pid, lines=count)

    def _error(self) -> DeviceLost:
        code = self._process.returncode
        how = f"exit code {code}"
        if code is not None and code < 0:
            how = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        why = "" if self._reason is None else f"{self._reason.message}; "
        # The signal is ours then, and no reason of its own to look for.
        did = "was killed for it" if self._reason is not None and code == -signal.SIGKILL else "ended"
        said = f"; it last said: {' | '.join(self._lines)}" if self._lines else ""
        details = dict(self._reason.details) if self._reason is not None else {}
        return DeviceLost(
            f"{why}the worker process {self.pid} {did} ({how}); a retry or a repair starts another one{said}",
            **{**details, "pid": self.pid, "exit": code},
        )
