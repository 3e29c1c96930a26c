"""MLX: decode steps and decisions in turn, many times; what the process holds before and after them.

Threads and open files of the process and its resident pages are counted where there is ``/proc``.
"""

from __future__ import annotations

import os
import time
from typing import Any

import mlx.core as mx
from common import arguments, report
from coresident.actors.work import StepKind, StepShape
from coresident.runtime.backends.contract import DecodeInput, PlanRequest
from coresident.runtime.backends.mlx.backend import MlxBackend
from coresident.runtime.models.heads import VerbalizerHead
from coresident.runtime.models.locate import find_model
from coresident.runtime.models.sampling import SamplingParams, make_sampler
from overhead import drain

MODEL, HEAD = "model", VerbalizerHead("words", "rank", positive=(65,), negative=(66,))
PROMPT, ROW = [1] * 8, [3, 4]


def held() -> dict[str, int]:
    """What the process holds: system threads, open files, bytes of MLX's live arrays, resident pages."""
    folder = "/proc/self"
    with open(f"{folder}/statm") as file:
        pages = int(file.read().split()[1])
    threads, files = (len(os.listdir(f"{folder}/{name}")) for name in ("task", "fd"))
    return {"threads": threads, "files": files, "live_array_bytes": mx.get_active_memory(), "resident_pages": pages}


class Alternation:
    """A loaded model, with a sequence to decode and a decision to score."""

    def __init__(self, model: str) -> None:
        self.backend = MlxBackend({MODEL: find_model(model, (HEAD,))})
        drain(self.backend.load(MODEL, PlanRequest(64, 1, 16, 1, 64, 1, (HEAD.name,)), True))
        self.sampler = make_sampler(SamplingParams())
        self.step(StepKind.PREFILL, len(PROMPT), self._prefill)

    def step(self, kind: StepKind, tokens: int, operation: Any) -> Any:
        """One step in a workspace of its own."""
        charge = self.backend.charge(MODEL, StepShape(kind, 1, tokens, len(PROMPT) + tokens))
        space = self.backend.open_workspace(charge)
        try:
            return drain(operation(space))
        finally:
            space.close()

    def turn(self) -> tuple[Any, Any]:
        """A decode step and a decision."""
        return self.step(StepKind.DECODE, 1, self._decode), self.step(StepKind.DECISION, len(ROW), self._score)

    def _prefill(self, space: Any) -> Any:
        return self.backend.prefill(space, MODEL, "generation", 0, 0, PROMPT, None)

    def _decode(self, space: Any) -> Any:
        return self.backend.decode(space, MODEL, [DecodeInput(0, len(PROMPT), 11)], [self.sampler])

    def _score(self, space: Any) -> Any:
        return self.backend.score(space, MODEL, 0, 0, ROW, (HEAD.name,))


def main() -> None:
    options = arguments(__doc__, turns=10_000)
    alternation = Alternation(options.model)
    for _ in range(100):
        expected = alternation.turn()
    before, begin = held(), time.process_time()
    different = sum(alternation.turn() != expected for _ in range(options.turns))
    seconds, after = time.process_time() - begin, held()
    report(
        "mlx_growth",
        {
            "model": alternation.backend.describe(MODEL).label,
            "turns": options.turns,
            "different_results": different,
            "cpu_ms_per_turn": 1000 * seconds / options.turns,
            "before": before,
            "after": after,
        },
        options.save,
    )


if __name__ == "__main__":
    main()
