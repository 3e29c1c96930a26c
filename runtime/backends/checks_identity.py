"""The identity check: on one chunk grid, runs that differ in what happened around them give the same bits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import attrs
import numpy as np

from ...actors.work import PrefixFile, StepKind, StepShape
from .checks import SKIPPED, Bench, Finding, Keep, Logits, drain, furthest, same, with_workspace
from .contract import Workspace

NAME = "identity"
DECODED = (5, 3, 7)
NEAR = 0.01
HANDLE = 1


@attrs.frozen
class _Run:
    """A prompt of two chunks and a rest, and three tokens decoded behind it."""

    bench: Bench
    tokens: Sequence[int]

    @property
    def grid(self) -> int:
        """The positions of the whole chunks."""
        return 2 * self.bench.chunk

    def whole(self, slot: int, tokens: Sequence[int] | None = None, chunk: int | None = None) -> list[Logits]:
        prompt = self.tokens if tokens is None else tokens
        return [self.bench.prefill(slot, prompt, chunk=chunk), *self.decoded(slot)]

    def rest(self, slot: int) -> list[Logits]:
        """What follows the whole chunks that the slot holds."""
        return [self.bench.prefill(slot, self.tokens[self.grid :], self.grid), *self.decoded(slot)]

    def decoded(self, slot: int) -> list[Logits]:
        return [self.bench.decode([(slot, len(self.tokens) + n, token)])[0] for n, token in enumerate(DECODED)]


def check_identity(bench: Bench) -> Iterator[Finding]:
    """Repeated, suspended, cancelled, saved and restored runs against an undisturbed one; needs three slots."""
    run = _Run(bench, bench.tokens(2 * bench.chunk + bench.chunk // 2 + 3))
    alone = run.whole(0)
    yield _finding("repeated in another slot", alone, run.whole(1))
    yield _suspended(run, alone)
    yield _finding("a chunk given up and done again", alone, _given_up(run))
    yield _finding("beside another sequence", alone, _beside(run))
    yield _finding("saved and restored", alone, _restored(run))
    yield _finding("written to a file and read back", alone, _read_back(run))
    yield _control(run, alone)
    yield _other_grid(run, alone)


def _finding(what: str, alone: list[Logits], other: list[Logits]) -> Finding:
    good, share = same(alone, other), furthest(alone, other)
    count = sum(values.size for values in alone)
    detail = f"{count:,} logits bit-equal" if good else f"logits differ by up to {share:.2g} of the largest"
    return Finding.of(NAME, what, good, detail, logits=count, difference=share)


def _suspended(run: _Run, alone: list[Logits]) -> Finding:
    """Every few segments, other work uses the device while the chunk waits."""
    what, seen = "suspended and resumed", 0
    other = run.bench.tokens(run.bench.chunk, seed=2)

    def disturb() -> None:
        nonlocal seen
        seen += 1
        if seen % 4 == 1:
            run.bench.prefill(1, other)

    resumed = [run.bench.prefill(0, run.tokens, between=disturb), *run.decoded(0)]
    if not seen or not run.bench.backend.capabilities.suspend:
        return Finding(NAME, what, SKIPPED, "this backend cannot suspend a chunk")
    found = _finding(what, alone, resumed)
    return attrs.evolve(found, detail=f"{found.detail}; {seen} segments", figures={**found.figures, "segments": seen})


def _given_up(run: _Run) -> list[Logits]:
    bench = run.bench
    bench.prefill(0, run.tokens[: bench.chunk])
    shape = StepShape(StepKind.PREFILL, 1, bench.chunk, run.grid)
    second = run.tokens[bench.chunk : run.grid]

    def begin(workspace: Workspace) -> None:
        steps = bench.backend.prefill(workspace, bench.model, "generation", 0, bench.chunk, second, Keep())
        next(steps, None)
        steps.close()

    with_workspace(bench, shape, begin)
    return [bench.prefill(0, run.tokens[bench.chunk :], bench.chunk), *run.decoded(0)]


def _beside(run: _Run) -> list[Logits]:
    """Decode steps of two rows; the other one is in another place."""
    bench = run.bench
    other = bench.tokens(bench.chunk + 5, seed=3)
    found = [bench.prefill(0, run.tokens)]
    bench.prefill(2, other)
    for n, token in enumerate(DECODED):
        rows = [(2, len(other) + n, 1), (0, len(run.tokens) + n, token)]
        found.append(bench.decode(rows)[1])
    return found


def _restored(run: _Run) -> list[Logits]:
    bench = run.bench
    bench.prefill(0, run.tokens[: run.grid])
    drain(bench.backend.save(bench.model, 0, run.grid, HANDLE))
    bench.prefill(0, bench.tokens(run.grid, seed=4))
    drain(bench.backend.restore(bench.model, 2, run.grid, HANDLE))
    bench.backend.drop(bench.model, HANDLE)
    return run.rest(2)


def _read_back(run: _Run) -> list[Logits]:
    bench = run.bench
    bench.prefill(0, run.tokens[: run.grid])
    drain(bench.backend.save(bench.model, 0, run.grid, HANDLE))
    with TemporaryDirectory() as folder:
        path = str(Path(folder) / "prefix.safetensors")
        tokens = tuple(run.tokens[: run.grid])
        file = PrefixFile(path, "check", "check", tokens, run.grid, bench.chunk)
        drain(bench.backend.store(bench.model, HANDLE, file))
        bench.backend.drop(bench.model, HANDLE)
        drain(bench.backend.fetch(bench.model, HANDLE, file))
    drain(bench.backend.restore(bench.model, 1, run.grid, HANDLE))
    bench.backend.drop(bench.model, HANDLE)
    return run.rest(1)


def _control(run: _Run, alone: list[Logits]) -> Finding:
    """Without it, a comparison that can't tell anything apart would pass."""
    tokens = list(run.tokens)
    tokens[3] = (tokens[3] + 1) % run.bench.backend.describe(run.bench.model).vocabulary
    changed = run.whole(1, tokens)
    good, share = not same(alone, changed), furthest(alone, changed)
    detail = (
        f"one other token changes logits by {share:.2g} of the largest" if good else "another token changes nothing"
    )
    return Finding.of(NAME, "negative control", good, detail, difference=share)


def _other_grid(run: _Run, alone: list[Logits]) -> Finding:
    """Bits may differ on another grid where the backend says so; the numbers may not."""
    other = run.whole(1, chunk=run.bench.chunk // 2 + 1)
    share, equal = furthest(alone, other), same(alone, other)
    good = bool(np.isfinite(share)) and (share <= NEAR if run.bench.backend.capabilities.grid_bound else equal)
    detail = "bit-equal" if equal else f"within {share:.2g} of the largest logit; promised on one grid only"
    if not good:
        detail = f"differs by {share:.2g} of the largest logit"
    return Finding.of(NAME, "on another chunk grid", good, detail, difference=share)
