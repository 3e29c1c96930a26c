"""Building actors from facts: what they are told of models and memory, whoever found it out.

Facts come from a backend (:func:`facts_of`) or from the header of a trace, so that an audit needs neither model nor
device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeAlias

import attrs

from ...actors.decision import DecisionActor
from ...actors.device import DeviceController
from ...actors.effects import Actor
from ...actors.generation import GenerationActor
from ...actors.memory.ledger import WORKSPACE, Ledger
from ...actors.memory.plan import AllocationPlan
from ...actors.scoring import DecisionSetup
from ...actors.sequences import GenerationSetup
from ...actors.supervisor import ModelSetup, Restarts, Supervisor
from ...actors.work import StepKind, StepShape
from ...policies.catalog import resolve
from ..backends.contract import Backend, PlanRequest
from ..config import Config
from .admission import DECISION, GENERATION, Account, plan_requests

ChargeOf: TypeAlias = Callable[[str, StepShape], int]


@attrs.frozen
class ModelFacts:
    """One resident model: its key, ledger bytes by account, workspace of its warm-up, bytes of a token's KV state.

    ``windows`` has one entry a layer where some see only their last positions, else none. Retained storage shares heads
    in blocks of ``retained_block`` tokens, where that is not 0.
    """

    key: str
    accounts: Mapping[str, int]
    warmup_charge: int
    kv_bytes_per_token: int
    windows: tuple[int | None, ...] = ()
    retained_block: int = 0


@attrs.frozen
class Facts:
    """All that actors are told besides the configuration.

    ``context`` is the admitted one in tokens; ``budgets`` are the bytes that are reserved from the start, by account.
    """

    context: int
    budgets: Mapping[str, int]
    models: tuple[ModelFacts, ...]

    def model(self, key: str) -> ModelFacts:
        """The facts of a model. Raises ``KeyError``."""
        return {model.key: model for model in self.models}[key]


@attrs.frozen
class Actors:
    """The actors of one scheduler."""

    device: DeviceController
    generation: GenerationActor
    decision: DecisionActor | None
    supervisor: Supervisor

    @property
    def all(self) -> tuple[Actor, ...]:
        some: tuple[Actor, ...] = (self.device, self.generation, self.supervisor)
        return some if self.decision is None else (*some, self.decision)


def decision_model(config: Config) -> str | None:
    """The key of the model that decides, if one does."""
    if config.decision is None:
        return None
    return GENERATION if config.decision.shares_weights else DECISION


def facts_of(config: Config, backend: Backend, account: Account, heads: tuple[str, ...]) -> Facts:
    """What a backend says of the models of an account."""
    totals = AllocationPlan(account.buffers).by_account()
    budgets = {name: totals[name] for name in (WORKSPACE, f"retained/{GENERATION}") if totals[name]}
    plans = plan_requests(config, account.context, heads)
    return Facts(account.context, budgets, tuple(_model(model, plan, backend) for model, plan in plans.items()))


def _model(model: str, plan: PlanRequest, backend: Backend) -> ModelFacts:
    shapes = []
    if plan.slots:
        shapes.append(StepShape(StepKind.PREFILL, 1, min(plan.chunk, plan.context), min(plan.chunk, plan.context)))
        # Some backends warm up steps of several rows too; none takes more than a step over all slots.
        shapes.append(StepShape(StepKind.DECODE, plan.slots, 1, min(plan.chunk, plan.context)))
    if plan.decision_slots:
        tokens = min(plan.chunk, plan.decision_context)
        shapes.append(StepShape(StepKind.DECISION, 1, tokens, tokens))
    description = backend.describe(model)
    return ModelFacts(
        key=model,
        accounts=dict(sorted(backend.plan(model, plan).by_account().items())),
        warmup_charge=max(backend.charge(model, shape) for shape in shapes),
        kv_bytes_per_token=description.kv_bytes_per_token,
        windows=description.windows,
        retained_block=backend.capabilities.retained_block,
    )


def build(config: Config, facts: Facts, heads: Mapping[str, str], charge: ChargeOf) -> Actors:
    """New actors. ``heads`` maps the decision model's heads to their kinds; ``charge`` is the backend's.

    Raises ``PolicyFault`` for a policy that cannot be made.
    """
    ledger = Ledger(config.device.partition)
    ledger.reserve(facts.budgets)
    ordering = resolve("ordering", config.policies.ordering.name, **config.policies.ordering.parameters)
    setups = tuple(ModelSetup(m.key, tuple(m.accounts.items()), m.warmup_charge) for m in facts.models)
    decision = _decision(config, heads, charge)
    roles = (GENERATION,) if decision is None else (GENERATION, DECISION)
    restarts = Restarts(config.limits.restarts, config.limits.restart_seconds * 1_000_000_000)
    return Actors(
        device=DeviceController(ledger, ordering, yield_ns=config.device.yield_ms * 1_000_000),
        generation=_generation(config, facts, charge),
        decision=decision,
        supervisor=Supervisor(setups, facts.context, roles, restarts=restarts),
    )


def _generation(config: Config, facts: Facts, charge: ChargeOf) -> GenerationActor:
    policies, model = config.policies, facts.model(GENERATION)
    return GenerationActor(
        GenerationSetup(
            model=GENERATION,
            context=facts.context,
            slots=config.generation.sequences,
            chunk=config.generation.chunk,
            queue=config.limits.requests,
            kv_bytes_per_token=model.kv_bytes_per_token,
            retained_bytes=config.generation.retained,
            charge=partial(charge, GENERATION),
            quantum=resolve("quantum", policies.quantum.name, **policies.quantum.parameters),
            retention=resolve("retention", policies.retention.name, **policies.retention.parameters),
            preparation=resolve("preparation", policies.preparation.name, **policies.preparation.parameters),
            reuse_grid=config.generation.chunk if config.generation.reuse == "grid" else 1,
            windows=model.windows,
            retained_block=model.retained_block,
            reruns=_reruns(config),
        )
    )


def _decision(config: Config, heads: Mapping[str, str], charge: ChargeOf) -> DecisionActor | None:
    model = decision_model(config)
    if config.decision is None or model is None:
        return None
    policy = config.policies.abstention
    return DecisionActor(
        DecisionSetup(
            model=model,
            context=config.decision.context,
            rows_per_slice=config.decision.rows_per_slice,
            chunk=config.generation.chunk,
            max_rows=config.decision.max_rows,
            queue=config.limits.decisions,
            heads=heads,
            charge=partial(charge, model),
            abstention=resolve("abstention", policy.name, **policy.parameters),
            reruns=_reruns(config),
        )
    )


def _reruns(config: Config) -> int:
    """Once, where the device comes back by itself: a request that loses it twice is likely the reason."""
    return 1 if config.limits.restarts else 0
