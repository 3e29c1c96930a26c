"""The worker's end of requests: samplers that were sent, and tokens that wait for the host's verdict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from queue import SimpleQueue

from ...actors.errors import BackendFault
from ..backends.contract import Sampled, Sampler
from ..host.steps import Stop
from ..models.sampling import SamplingParams, make_sampler
from .flat import Body
from .frames import FrameInvalid
from .messages import tokens_body


class RemoteStreams:
    """Where runs in a worker find samplers and leave tokens. Tokens of one position make one round trip."""

    def __init__(self, send: Callable[[Body], None]) -> None:
        self._send = send
        self._samplers: dict[str, Sampler] = {}
        self._verdicts: SimpleQueue[Body | None] = SimpleQueue()
        self._gone = False
        self.grant = 0

    def open(self, request: str, params: SamplingParams) -> None:
        self._samplers[request] = make_sampler(params)

    def close(self, request: str) -> None:
        """Forget a request; one that is not known is no error."""
        self._samplers.pop(request, None)

    def sampler(self, request: str) -> Sampler:
        """The sampler of a request. Raises ``BackendFault`` when it was not sent."""
        try:
            return self._samplers[request]
        except KeyError:
            raise BackendFault(f"request {request} has no sampler in the worker") from None

    def take(self, rows: Sequence[tuple[str, Sampled]]) -> list[Stop | None]:
        """Send the tokens of a step and wait for what becomes of each row. Raises ``BackendFault`` when that fails."""
        grant = self.grant
        self._send(tokens_body(grant, rows))
        while not self._gone and (verdict := self._verdicts.get()) is not None:
            if verdict["id"] != grant:
                continue
            if verdict["raised"] is not None:
                raise BackendFault(verdict["raised"])
            stops = verdict["stops"]
            if len(stops) != len(rows):
                raise BackendFault(f"the host judged {len(stops)} rows of {len(rows)}")
            return list(stops)
        raise BackendFault("the host is gone")

    def judged(self, body: Body) -> None:
        """The host's verdict has come. Raises ``FrameInvalid`` for what is none."""
        stops, raised = body.get("stops"), body.get("raised")
        if not isinstance(stops, list) or not all(stop is None or isinstance(stop, str) for stop in stops):
            raise FrameInvalid("stops of a verdict frame are not a list of reasons")
        if raised is not None and not isinstance(raised, str):
            raise FrameInvalid("raised of a verdict frame is not a text")
        self._verdicts.put({"id": body["id"], "stops": stops, "raised": raised})

    def hang_up(self) -> None:
        """The host is gone: nobody waits any longer."""
        self._gone = True
        self._verdicts.put(None)
