"""From a configuration and a backend to actors: admit, ask for facts, and build."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from ...actors.decision import DecisionActor
from ...actors.device import DeviceController
from ...actors.effects import Actor
from ...actors.generation import GenerationActor
from ...actors.supervisor import Supervisor
from ..backends.contract import Backend, ModelDescription, PlanRequest
from ..config import Config
from ..models.stored import pinned
from .admission import DECISION, GENERATION, Account, admit, plan_requests
from .building import Facts, build, decision_model, facts_of

__all__ = ["DECISION", "GENERATION", "Account", "Assembly", "assemble"]


@attrs.frozen
class Assembly:
    """Actors ready for a host, and what they were built from. ``models`` maps a model key to its description."""

    config: Config
    backend: Backend
    account: Account
    models: Mapping[str, ModelDescription]
    plans: Mapping[str, PlanRequest]
    heads: Mapping[str, str]
    generation_model: str
    decision_model: str | None
    device: DeviceController
    generation: GenerationActor
    decision: DecisionActor | None
    supervisor: Supervisor
    facts: Facts

    @property
    def context(self) -> int:
        """The admitted context in tokens."""
        return self.account.context

    @property
    def actors(self) -> tuple[Actor, ...]:
        some: tuple[Actor, ...] = (self.device, self.generation, self.supervisor)
        return some if self.decision is None else (*some, self.decision)


def assemble(config: Config, backend: Backend, head_kinds: Mapping[str, str]) -> Assembly:
    """Build the actors of a configuration. ``head_kinds`` maps the decision model's heads to their kinds."""
    heads = dict(head_kinds)
    account = admit(config, backend, tuple(heads))
    plans = plan_requests(config, account.context, tuple(heads))
    facts = facts_of(config, backend, account, tuple(heads))
    actors = build(config, facts, heads, backend.charge)
    return Assembly(
        config=pinned(config, backend),
        backend=backend,
        account=account,
        models={model: backend.describe(model) for model in plans},
        plans=plans,
        heads=heads,
        generation_model=GENERATION,
        decision_model=decision_model(config),
        device=actors.device,
        generation=actors.generation,
        decision=actors.decision,
        supervisor=actors.supervisor,
        facts=facts,
    )
