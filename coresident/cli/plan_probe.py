"""``coresident plan --probe``: the largest steps run, and what they took beside what they are charged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import attrs
from rich.console import Console

from ..actors.errors import InvalidRequest
from ..actors.work import StepShape
from ..runtime.backends.catalog import Opened
from ..runtime.backends.checks import Bench, Measured
from ..runtime.backends.checks_workspace import largest, role_of, tightest
from ..runtime.backends.contract import Backend, PlanRequest
from ..runtime.config import Config
from ..runtime.host.admission import largest_steps, plan_requests
from .progress import Progress
from .wording import size, table_of


@attrs.frozen
class Probed:
    """Steps of one kind on one model: the largest one, the one closest to its charge, and how many there were."""

    model: str
    largest: Measured
    tightest: Measured
    count: int

    def as_json(self) -> dict[str, Any]:
        """Exact figures: bytes and tokens as integers."""
        return {
            "model": self.model,
            "kind": self.largest.shape.kind.value,
            "steps": self.count,
            "breach": self.tightest.breach,
            "largest": _figures(self.largest),
            "tightest": _figures(self.tightest),
        }


def _figures(step: Measured) -> dict[str, int]:
    shape = step.shape
    sizes = {"rows": shape.rows, "tokens": shape.tokens, "context": shape.context}
    return {**sizes, "charge": step.charge, "peak": step.peak}


def measure(config: Config, opened: Opened, context: int, progress: Progress) -> tuple[Probed, ...]:
    """Load the models of a configuration one after the other, and run the largest steps that requests can lead to.

    ``progress`` is told before what is going to run.

    Raises:
        InvalidRequest: the backend computes nothing.
    """
    backend, heads = opened.backend, tuple(opened.heads)
    if backend.name == "modelled":
        raise InvalidRequest("the backend 'modelled' computes nothing: plan without --probe", backend=backend.name)
    found: list[Probed] = []
    steps = largest_steps(config, backend, context, heads)
    for model, request in plan_requests(config, context, heads).items():
        shapes = [step.shape for step in steps if step.model == model]
        bench = Bench(backend, model, request, stepped=lambda step: progress.counts(_where(step)))
        progress.begins(_beforehand(backend, model, request, shapes))
        try:
            bench.load()
            progress.goes_on(f"{model}: loaded and warm; running the steps ...")
            largest(bench, shapes)
        finally:
            backend.unload(model)
        found += _by_kind(model, bench.measured)
    return tuple(found)


def _beforehand(backend: Backend, model: str, request: PlanRequest, shapes: Sequence[StepShape]) -> str:
    """What is loaded, and roughly what has to run before the largest steps can."""
    weights = backend.plan(model, request).by_account()[f"weights/{model}"]
    longest = {role_of(request, shape): shape.context for shape in shapes}
    ahead = " and ".join(f"{context:,} tokens ({role})" for role, context in longest.items())
    return (
        f"{model}: loading {backend.describe(model).label} ({size(weights)}), then prefilling {ahead} in chunks of "
        f"{request.chunk}: the largest steps come behind them. A smaller --context takes less time ..."
    )


def _where(step: Measured) -> str:
    shape = step.shape
    return f"  {shape.kind.value} up to token {shape.context:,}"


def _by_kind(model: str, steps: Sequence[Measured]) -> Iterator[Probed]:
    for kind, closest in tightest(steps).items():
        alike = [step for step in steps if step.shape.kind is kind]
        yield Probed(model, max(alike, key=lambda step: step.charge), closest, len(alike))


def show_probe(probed: Sequence[Probed] | None, console: Console) -> None:
    """Measured against charged, kind by kind; nothing when nothing was probed."""
    if probed is None:
        return
    table = table_of("measured", "model", "largest step", ">took", ">charged", ">share", ">most of", ">steps")
    for each in probed:
        step, shape = each.largest, each.largest.shape
        what = f"{shape.kind.value}, {shape.tokens:,} at {shape.context:,}"
        shares = (_share(step), _share(each.tightest), f"{each.count:,}")
        style = "bold red" if each.tightest.breach else None
        table.add_row(each.model, what, size(step.peak), size(step.charge), *shares, style=style)
    console.print()
    console.print(table)
    console.print()
    beyond = [each.largest.shape.kind.value for each in probed if each.tightest.breach]
    if beyond:
        console.print(f"MORE THAN CHARGED: {', '.join(beyond)}.", style="bold red", soft_wrap=True)
    else:
        console.print("All steps stayed within the charge.", style="bold green", soft_wrap=True)


def _share(step: Measured) -> str:
    return f"{step.peak / max(1, step.charge):.0%}"
