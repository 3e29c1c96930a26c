"""The header of an imported trace: the workload is the source's, the scheduler is a neutral one.

A source says nothing of the device and the policies that are to be tried, so the header has the configuration that says
nothing either, with room for long prompts and long queues. A replay or a simulation chooses its own.
"""

from __future__ import annotations

from importlib.metadata import version

import attrs

from ...runtime.config import GIB, Config
from ...runtime.host.assembly import DECISION, GENERATION
from ..format import SCHEMA, VERSION
from ..header import DecisionHeader, DeviceHeader, GenerationHeader, Header, LimitsHeader, ModelHeader, PolicyHeader

PARTITION = 8 * GIB
QUEUE = 4096
VOCABULARY = 32_000
BACKEND = "modelled"


def imported_header(name: str, block_size: int, seed: int, decisions: bool, ends: bool) -> Header:
    """The header of an import from the format ``name``; ``decisions`` says whether there are any, ``ends`` whether the
    source tells them.
    """
    config = Config()
    return Header(
        schema=SCHEMA,
        version=VERSION,
        time_unit="ns",
        block_size=block_size,
        block_scope="source",
        content="counts",
        seed=seed,
        recorded_by=version("coresident"),
        models=(
            ModelHeader(
                key=GENERATION,
                roles=(GENERATION, DECISION) if decisions else (GENERATION,),
                label=f"of a trace of {name}",
                digest="",
                vocabulary=VOCABULARY,
            ),
        ),
        device=DeviceHeader(
            backend=BACKEND,
            partition=PARTITION,
            workspace=config.device.workspace,
            yield_ms=config.device.yield_ms,
            admitted_context=0,
        ),
        generation=GenerationHeader(
            context=config.generation.context,
            sequences=config.generation.sequences,
            chunk=config.generation.chunk,
            retained=config.generation.retained,
            reuse=config.generation.reuse,
        ),
        decision=_decision(config) if decisions else None,
        policies={kind: PolicyHeader(policy["name"]) for kind, policy in attrs.asdict(config.policies).items()},
        limits=LimitsHeader(QUEUE, QUEUE, config.limits.mailbox),
        imported=name,
        ends=ends,
    )


def _decision(config: Config) -> DecisionHeader | None:
    decision = config.decision
    if decision is None:
        return None
    return DecisionHeader(
        shares_weights=decision.shares_weights,
        context=decision.context,
        rows_per_slice=decision.rows_per_slice,
        max_rows=decision.max_rows,
        heads={head.name: head.kind for head in decision.verbalizers},
    )
