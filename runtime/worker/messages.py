"""What the host and its worker say to each other. One flat object a frame: ``kind``, ``id``, and the fields below.

Host to worker: ``hello`` (protocol, capabilities), ``open`` (config, models), a step under the name of its kind
(answered by one ``ended`` of the same id), ``sampler`` and ``forget`` for the requests that steps name, ``yield``,
``verdict``, ``drop_suspended``, ``drop_retained``, ``unload``, ``end``. Worker to host: ``hello``, ``opened``,
``tokens`` (awaits one ``verdict``), ``ended``, ``fault``, and ``error`` in place of any answer. Ids of steps are their
grants; other questions have negative ones. Closing the worker's input ends it, and so does ``end``: a process that the
host has forked may hold the pipe open.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import attrs

from ...actors.errors import CoresidentError, InvalidRequest
from ...actors.messages import Failed, Finished, Suspended, Withdrawn
from ...actors.work import (
    CopyWork,
    DecisionWork,
    DecodeWork,
    FetchWork,
    Grant,
    LoadWork,
    Measured,
    PrefillWork,
    RestoreWork,
    RowResult,
    RowScores,
    SaveWork,
    StepKind,
    StepRequest,
    StepResult,
    StoreWork,
    WarmupWork,
    Work,
)
from ...policies.views import WorkClass
from ..backends.contract import PlanRequest, Sampled
from ..models.sampling import SamplingParams
from .carried import CarriedError
from .files import FileClaim
from .flat import Body, flatten, flatten_rows, unflatten, unflatten_rows
from .frames import FrameInvalid

PROTOCOL = 1
WORKS: dict[str, type[Work]] = {
    StepKind.LOAD: LoadWork,
    StepKind.WARMUP: WarmupWork,
    StepKind.PREFILL: PrefillWork,
    StepKind.DECODE: DecodeWork,
    StepKind.DECISION: DecisionWork,
    StepKind.COPY: CopyWork,
    StepKind.SAVE: SaveWork,
    StepKind.RESTORE: RestoreWork,
    StepKind.STORE: StoreWork,
    StepKind.FETCH: FetchWork,
}
CAPABILITIES = (
    *sorted(str(kind) for kind in WORKS),
    *("drop_retained", "drop_suspended", "end", "forget", "open", "sampler", "unload", "verdict", "yield"),
)
TEXT_FAILED = "text_failed"


@attrs.frozen
class _Opened:
    models: tuple[str, ...]
    digests: tuple[str, ...]


@attrs.frozen
class _Step:
    """A step as the worker needs it: owner, class and times stay with the host."""

    step: str
    charge: int
    resumed: bool


@attrs.frozen
class _Row:
    """A row of a result. The error of a client that failed to take a token never left the host."""

    request: str
    tokens: tuple[int, ...]
    stop: str | None


@attrs.frozen
class _Token:
    request: str
    token: int
    logprob: float | None
    top_tokens: tuple[int, ...]
    top_logprobs: tuple[float, ...]


def hello_body(identifier: int) -> Body:
    return {"kind": "hello", "id": identifier, "protocol": PROTOCOL, "capabilities": list(CAPABILITIES)}


def end_body() -> Body:
    return {"kind": "end", "id": 0}


def check_hello(body: Body, who: str) -> None:
    """Raises ``InvalidRequest`` naming what the other end speaks or lacks."""
    if body.get("protocol") != PROTOCOL:
        raise InvalidRequest(
            f"{who} speaks protocol {body.get('protocol')!r}, this side speaks {PROTOCOL}: run the same version of "
            "coresident on both",
            field="protocol",
            value=body.get("protocol"),
        )
    has = body.get("capabilities")
    missing = [name for name in CAPABILITIES if name not in (has if isinstance(has, list) else ())]
    if missing:
        raise InvalidRequest(
            f"{who} lacks {', '.join(missing)}: run the same version of coresident on both",
            field="capabilities",
            value=", ".join(missing),
        )


def open_body(identifier: int, config: str, models: Sequence[str]) -> Body:
    """Open the backend of a configuration (JSON), which has these models."""
    return {"kind": "open", "id": identifier, "config": config, "models": list(models)}


def digests_of(body: Body, models: Sequence[str]) -> dict[str, str]:
    """What the worker says of the models it was opened with. Raises ``FrameInvalid``."""
    opened = unflatten(_Opened, body)
    if opened.models != tuple(models) or len(opened.digests) != len(opened.models):
        raise FrameInvalid(f"the worker opened {', '.join(opened.models)}, not {', '.join(models)}")
    return dict(zip(opened.models, opened.digests, strict=True))


# --- steps ----------------------------------------------------------------------------------------------------


def step_body(grant: Grant) -> dict[str, Any]:
    """A step of any kind; a load also needs ``load_fields``."""
    step = grant.step
    head = _Step(step.step, step.charge, grant.resumed)
    return {"kind": str(step.work.kind), "id": grant.grant, **flatten(head), **flatten(step.work)}


def step_of(body: Body) -> Grant:
    """The grant of a step's frame. Raises ``FrameInvalid``."""
    head = unflatten(_Step, body)
    work: Work = unflatten(WORKS[body["kind"]], body)
    step = StepRequest(head.step, "", "", WorkClass.FOREGROUND, work, head.charge, 0, 0)
    return Grant(body["id"], step, head.resumed)


def load_fields(plan: PlanRequest, manifest: Sequence[FileClaim]) -> dict[str, Any]:
    """What a load carries besides its work: the plan, and the files to verify, be they none."""
    return {**flatten(plan, "plan_"), **flatten_rows(FileClaim, manifest, "manifest_")}


def load_of(body: Body) -> tuple[PlanRequest, tuple[FileClaim, ...]]:
    """The plan and the manifest of a load. Raises ``InvalidRequest`` without a manifest, else ``FrameInvalid``."""
    if not any(name.startswith("manifest_") for name in body):
        raise InvalidRequest(
            "the load carries no manifest: send the list of its files, empty if none", field="manifest"
        )
    return unflatten(PlanRequest, body, "plan_"), unflatten_rows(FileClaim, body, "manifest_")


def sampler_body(request: str, params: SamplingParams) -> dict[str, Any]:
    return {"kind": "sampler", "id": 0, "request": request, **flatten(params)}


# --- tokens ---------------------------------------------------------------------------------------------------


def tokens_body(grant: int, rows: Iterable[tuple[str, Sampled]]) -> dict[str, Any]:
    """All rows' tokens of one position of a step."""
    tokens = [
        _Token(request, one.token, one.logprob, tuple([t for t, _ in one.top]), tuple([p for _, p in one.top]))
        for request, one in rows
    ]
    return {"kind": "tokens", "id": grant, **flatten_rows(_Token, tokens, "rows_")}


def tokens_of(body: Body) -> list[tuple[str, Sampled]]:
    """Raises ``FrameInvalid``."""
    rows = []
    for row in unflatten_rows(_Token, body, "rows_"):
        if len(row.top_tokens) != len(row.top_logprobs):
            raise FrameInvalid("a token has alternatives without log-probabilities")
        top = tuple(zip(row.top_tokens, row.top_logprobs, strict=True))
        rows.append((row.request, Sampled(row.token, row.logprob, top)))
    return rows


# --- ends -----------------------------------------------------------------------------------------------------


def ended_body(grant: int, outcome: Finished | Suspended | Failed | Withdrawn) -> dict[str, Any]:
    """How a grant ended."""
    body: dict[str, Any] = {"kind": "ended", "id": grant, "outcome": type(outcome).__name__.lower()}
    if isinstance(outcome, Failed):
        return {**body, **flatten(CarriedError.of(outcome.error), "error_"), "sticky": outcome.sticky}
    if outcome.measured is not None:
        body |= flatten(outcome.measured, "measured_")
    if isinstance(outcome, Finished):
        rows = [_Row(row.request, row.tokens, row.stop) for row in outcome.result.rows]
        body |= flatten_rows(_Row, rows, "rows_")
        body |= flatten_rows(RowScores, outcome.result.scores, "scores_")
    return body


def ended_of(body: Body) -> Finished | Suspended | Failed | Withdrawn:
    """Raises ``FrameInvalid``."""
    kind = body.get("outcome")
    if kind == "failed":
        return Failed(error_of(body), body.get("sticky") is True)
    measured = unflatten(Measured, body, "measured_")
    if kind == "suspended":
        return Suspended(measured)
    if kind == "withdrawn":
        return Withdrawn(measured)
    if kind != "finished":
        raise FrameInvalid(f"outcome {kind!r} of a grant is not known", field="outcome")
    rows = tuple(RowResult(row.request, row.tokens, row.stop) for row in unflatten_rows(_Row, body, "rows_"))
    return Finished(StepResult(rows, unflatten_rows(RowScores, body, "scores_")), measured)


def error_body(identifier: int, error: CoresidentError, kind: str = "error") -> dict[str, Any]:
    """An error in place of an answer, or a ``fault`` that belongs to none."""
    return {"kind": kind, "id": identifier, **flatten(CarriedError.of(error), "error_")}


def error_of(body: Body) -> CoresidentError:
    """Raises ``FrameInvalid``."""
    return unflatten(CarriedError, body, "error_").error()
