"""A virtual scheduler on a modelled device with round numbers, and a readable log of what it did.

A prompt token takes 1 ms, a chunk has 4 segments, a decoded token takes 10 ms, a decision row 1 ms a token; nothing
else takes time.
"""

from __future__ import annotations

from typing import Any

import attrs
from coresident.actors.events import (
    DecisionEnded,
    GenerationEnded,
    Granted,
    PrefixReused,
    ReadinessChanged,
    Refused,
    Released,
)
from coresident.actors.messages import Cancel, Close, Start, SubmitDecision, SubmitGeneration
from coresident.policies.views import WorkClass
from coresident.runtime.backends.modelled import CostModel, CountingSampler, ModelledBackend
from coresident.runtime.config import structure
from coresident.runtime.host.assembly import Assembly, assemble
from coresident.runtime.host.steps import Stream
from coresident.runtime.host.virtual import VirtualHost

MS = 1_000_000
COST = CostModel(
    step_ns=0,
    prefill_ns=MS,
    attention_ns=0,
    decode_ns=10 * MS,
    row_ns=0,
    copy_ns=0,
    load_ns=0,
    segments=4,
    weights=1 << 20,
    kv_bytes_per_token=1024,
    workspace_per_token=1024,
    context_limit=65_536,
)
HEADS = {"rank": "rank"}


def config(**sections: Any):
    base: dict[str, Any] = {
        "device": {"backend": "modelled", "partition": "1 GiB", "workspace": "32 MiB"},
        "generation": {"context": 4096, "chunk": 16, "sequences": 2, "retained": "256 MiB"},
        "decision": {"context": 256},
        "limits": {"requests": 256},
    }
    for name, section in sections.items():
        base[name] = {**base.get(name, {}), **section} if isinstance(section, dict) else section
    return structure(base)


class Log:
    """An observer: every delivery as text, and grants and ends as readable lines."""

    def __init__(self) -> None:
        self.deliveries: list[str] = []
        self.tokens: dict[str, list[int]] = {}
        self.lines: list[str] = []
        self.grants: list[Granted] = []
        self.starts: dict[str, list[int]] = {}
        self.ends: dict[str, GenerationEnded | DecisionEnded | Refused] = {}
        self.ended_at: dict[str, int] = {}
        self.reuse: dict[str, PrefixReused] = {}
        self.readiness: list[ReadinessChanged] = []

    def delivered(self, delivery) -> None:
        self.deliveries.append(repr(delivery))
        for event in delivery.events():
            self._note(event, delivery.at)

    def token(self, request: str, index: int, at: int) -> None:
        self.tokens.setdefault(request, []).append(at)

    def dropped(self, error: Exception) -> None:
        raise error

    def _note(self, event, at: int) -> None:
        match event:
            case Granted() if event.owner != "supervisor":
                self.grants.append(event)
                self.starts.setdefault(event.request, []).append(at)
                self._line(at, event.request, "resumes" if event.resumed else event.kind.value)
            case Released() if event.outcome not in ("finished",):
                self._line(at, event.step, event.outcome)
            case GenerationEnded() | DecisionEnded() | Refused():
                self.ends[event.request] = event
                self.ended_at[event.request] = at
                outcome = "refused" if isinstance(event, Refused) else f"{event.outcome} {event.reason}".strip()
                self._line(at, event.request, outcome)
            case PrefixReused():
                self.reuse[event.request] = event
            case ReadinessChanged():
                self.readiness.append(event)

    def _line(self, at: int, who: str, what: str) -> None:
        self.lines.append(f"{at / MS:g} {who} {what}")


@attrs.define
class Sim:
    """A virtual host that is ready at time 0. Times are milliseconds."""

    config: Any = attrs.field(factory=config)
    cost: CostModel = COST
    backend: Any = None
    log: Log = attrs.field(factory=Log)
    host: VirtualHost = attrs.field(init=False)
    assembly: Assembly = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.backend = self.backend or ModelledBackend(self.cost, tuple(HEADS))
        self.assembly = assemble(self.config, self.backend, HEADS if self.config.decision else {})
        self.host = VirtualHost(self.assembly.actors, self.backend, self.assembly.plans, [self.log])
        self.host.listen_all(self._ended)
        self.host.send("supervisor", Start())
        self.host.run()
        assert self.assembly.supervisor.readiness().ready
        assert self.host.now == 0

    def generate(
        self, at: float, request: str, prompt, max_tokens: int = 1, *, stop_after: int | None = None, **options
    ):
        """Submit at a time; ``prompt`` is token ids, or how many different ones."""
        tokens = tuple(range(prompt)) if isinstance(prompt, int) else tuple(prompt)
        deadline = options.pop("deadline", None)
        message = SubmitGeneration(
            request, tokens, max_tokens, "model", deadline=None if deadline is None else int(deadline * MS), **options
        )

        def submit() -> None:
            left = iter(range(stop_after or 0, -1, -1))
            stop = (lambda r, s: "stop_token" if next(left) <= 1 else None) if stop_after else (lambda r, s: None)
            self.host.streams.open(request, Stream(CountingSampler(7), stop))
            self.host.send("generation", message)

        self.at(at, submit)

    def decide(self, at: float, request: str, instruction: int = 0, rows=(4,), deadline: float | None = None):
        """Submit a decision at a time; rows are token counts."""
        message = SubmitDecision(
            request,
            tuple(range(instruction)),
            tuple(tuple(range(1000 + n, 1000 + n + size)) for n, size in enumerate(rows)),
            ("rank",),
            "model",
            None if deadline is None else int(deadline * MS),
        )
        self.at(at, lambda: self.host.send("decision", message))

    def cancel(self, at: float, request: str, role: str = "generation") -> None:
        self.at(at, lambda: self.host.send(role, Cancel(request)))

    def at(self, at: float, function) -> None:
        self.host.call_at(int(at * MS), function)

    def run(self, until: float | None = None) -> list[str]:
        """Run, check that nothing is left when it ran to the end, and give the log's lines."""
        self.host.run(None if until is None else int(until * MS))
        if until is None:
            self.check_idle()
        return self.log.lines

    def check_idle(self) -> None:
        device = self.assembly.device.statistics()
        assert (device.state, device.waiting, device.ledger.accounts["workspace"].used) == ("idle", 0, 0)
        generation = self.assembly.generation.statistics()
        assert (generation.open, generation.slots) == (0, self.config.generation.sequences)
        assert len(self.host.streams) == 0
        assert self.host.suspended == 0

    def close(self) -> None:
        self.host.send("supervisor", Close())
        self.host.run()
        assert self.host.stopped
        assert self.assembly.device.statistics().ledger.reserved == 0

    def wait_of(self, request: str) -> float:
        """Milliseconds between the first grant and the submission of a request."""
        return next(grant.waited_ns for grant in self.log.grants if grant.request == request) / MS

    def _ended(self, event, at: int) -> None:
        if isinstance(event, GenerationEnded | Refused):
            self.host.streams.close(event.request)


UTILITY = WorkClass.UTILITY
