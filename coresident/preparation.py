"""One preparation as its client sees it: progress, an end, and a way to give it up."""

from __future__ import annotations

import attrs
import trio

from .actors.errors import BackendFault, CoresidentError
from .actors.events import PreparationAdvanced, PreparationEnded, Refused, RequestEvent
from .actors.messages import SubmitPreparation
from .runtime.host.assembly import GENERATION
from .runtime.host.live import LiveRuntime
from .runtime.models.known import Known


@attrs.frozen
class PreparationResult:
    """How a preparation ended.

    ``outcome``: ``prepared``, ``promoted`` (a generation took it over), ``superseded`` by a newer one of the same
    conversation, ``declined`` by the policy, or ``cancelled``. ``goal`` tokens were to be there, ``reused`` were
    retained already, ``computed`` were prefilled, and ``wasted`` of those can't serve what came in its place.
    ``limited`` says why less was prepared than was given, and is empty when nothing was left out.

    Whole chunks are prepared: what is shorter than one chunk ends ``prepared`` with a goal of 0.
    """

    request: str
    outcome: str
    goal: int
    reused: int
    computed: int
    wasted: int
    limited: str


class Preparation:
    """Runs while the device is idle, from when it was made; ``await`` its ``result``, or leave it alone."""

    def __init__(self, runtime: LiveRuntime, known: Known, conversation: str, after: str | None) -> None:
        self.request = runtime.new_id("p")
        self.limited = known.limited
        self._runtime = runtime
        self._progress = (0, 0)
        self._ended = trio.Event()
        self._end: PreparationEnded | None = None
        self._error: CoresidentError | None = None
        message = SubmitPreparation(self.request, known.tokens, known.standing, known.identity, conversation, after)
        runtime.prepare(message, self._event)

    @property
    def progress(self) -> tuple[int, int]:
        """Tokens that are there, and tokens that are to be; ``(0, 0)`` before the first chunk."""
        return self._progress

    @property
    def ended(self) -> bool:
        return self._ended.is_set()

    def cancel(self) -> None:
        """Give it up within one segment; the chunks that finished are kept."""
        self._runtime.cancel(GENERATION, self.request)

    async def result(self) -> PreparationResult:
        """Wait for the end. Cancelling the wait leaves the preparation alone. Raises when it was refused or failed."""
        await self._ended.wait()
        if self._error is not None:
            raise self._error.again()
        end = self._end
        if end is None:
            raise BackendFault(f"preparation {self.request} ended without saying how")
        return PreparationResult(
            request=self.request,
            outcome=end.outcome,
            goal=end.goal,
            reused=end.reused,
            computed=end.computed,
            wasted=end.wasted,
            limited=self.limited,
        )

    def _event(self, event: RequestEvent, at: int) -> None:
        match event:
            case PreparationAdvanced(position=position, goal=goal):
                self._progress = (position, goal)
            case PreparationEnded(error=error):
                self._end = event
                self._finish(error)
            case Refused(error=error):
                self._finish(error)
            case _:
                pass

    def _finish(self, error: CoresidentError | None) -> None:
        self._error = error
        self._runtime.finished(self.request)
        self._ended.set()
