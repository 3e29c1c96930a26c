"""The MLX backend's workspace: what steps of many rows, lengths and contexts take, beside what they are charged.

One line a step; freed buffers are not kept meanwhile, so that the peaks are those of the arrays themselves.
"""

from __future__ import annotations

from common import arguments, report
from coresident.actors.work import StepKind, StepShape
from coresident.runtime.backends.checks import Bench
from coresident.runtime.backends.checks_workspace import largest
from coresident.runtime.backends.contract import PlanRequest
from coresident.runtime.backends.mlx.backend import MlxBackend
from coresident.runtime.backends.mlx.limits import nothing_cached
from coresident.runtime.models.heads import VerbalizerHead
from coresident.runtime.models.locate import find_model

LENGTHS = (1, 16, 127, 256, 1024)
ROWS = (1, 2, 4)
HEADS = (VerbalizerHead("words", "rank", positive=(65,), negative=(66,)), VerbalizerHead("rest", "rank", (67,)))


def shapes(context: int) -> list[StepShape]:
    """Chunks and decision rows of several lengths at the front, in the middle and at the end of a slot; decode rows."""
    found = []
    for end in sorted({min(length, context) for length in (*LENGTHS, 288, context // 2, context)}):
        found += [StepShape(StepKind.DECODE, rows, 1, end) for rows in ROWS]
        for tokens in (length for length in LENGTHS if length <= end):
            found.append(StepShape(StepKind.PREFILL, 1, tokens, end))
            found += [StepShape(StepKind.DECISION, rows, tokens, end) for rows in ROWS]
    return found


def main() -> None:
    options = arguments(__doc__, context=2048)
    backend = MlxBackend({"model": find_model(options.model, HEADS)})
    names = tuple(head.name for head in HEADS)
    slots = max(ROWS)
    request = PlanRequest(options.context, slots, 256, slots, options.context, slots, names)
    bench = Bench(backend, "model", request)
    with nothing_cached():
        bench.load()
        largest(bench, shapes(options.context))
    lines = [
        {
            "kind": step.shape.kind.value,
            "rows": step.shape.rows,
            "tokens": step.shape.tokens,
            "context": step.shape.context,
            "charge": step.charge,
            "peak": step.peak,
            "share": step.peak / step.charge,
        }
        for step in bench.measured
    ]
    by_kind = {
        kind: {
            "steps": sum(line["kind"] == kind for line in lines),
            "most_of_charge": max(line["share"] for line in lines if line["kind"] == kind),
            "breaches": sum(line["peak"] > line["charge"] for line in lines if line["kind"] == kind),
        }
        for kind in dict.fromkeys(line["kind"] for line in lines)
    }
    wide = [line for line in lines if line["tokens"] > 1 or line["kind"] == "decode"]
    report(
        "mlx_workspace",
        {
            "model": backend.describe("model").label,
            "by_kind": by_kind,
            "largest": sorted(wide, key=lambda line: -line["charge"])[:24],
        },
        options.save,
    )


if __name__ == "__main__":
    main()
