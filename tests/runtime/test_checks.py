"""Checks for other people's machines: a backend that keeps its promises passes, and each broken one is found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
import pytest
from coresident.actors.errors import InvalidRequest
from coresident.actors.work import StepKind, StepShape
from coresident.runtime.backends.checks import FAILED, OK, SKIPPED, Bench, Finding, guarded
from coresident.runtime.backends.checks_workspace import largest
from coresident.runtime.backends.contract import Capabilities, PlanRequest, Segment
from coresident.runtime.backends.diagnosis import Diagnosis, diagnose
from coresident.runtime.backends.modelled import SleepingBackend
from coresident.runtime.backends.reference import ReferenceBackend
from coresident.runtime.models.locate import ModelSource

from support.reference import HEADS, MODEL, REQUEST


class Changed:
    """The reference backend with some of its methods replaced; each gets the backend first."""

    def __init__(self, **methods: Any) -> None:
        self.inner = ReferenceBackend({MODEL: ModelSource(heads=HEADS)})
        for name, method in methods.items():
            setattr(self, name, method(self.inner) if callable(method) else method)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def examined(**methods: Any) -> Diagnosis:
    return diagnose(Changed(**methods), MODEL, REQUEST.heads, quick=True)  # type: ignore[arg-type]


def failed(found: Diagnosis) -> set[tuple[str, str]]:
    return {(finding.check, finding.what) for finding in found.findings if finding.outcome == FAILED}


def test_a_backend_that_keeps_its_promises_passes():
    heard: list[str | Finding] = []
    backend = ReferenceBackend({MODEL: ModelSource(heads=HEADS)})
    found = diagnose(backend, MODEL, REQUEST.heads, quick=True, told=heard.append)
    assert found.good
    names = [each for each in heard if isinstance(each, str)]
    assert names == ["memory", "identity", "decision", "workspace"]
    assert [each for each in heard if isinstance(each, Finding)] == list(found.findings), "each when it is there"
    assert {finding.outcome for finding in found.findings} == {OK}
    assert {finding.check for finding in found.findings} == set(names)
    assert sum(finding.what == "negative control" for finding in found.findings) == 2
    assert all(step.peak <= step.charge for step in found.steps)
    assert found.digest == backend.describe(MODEL).digest
    assert {"coresident", "python", "numpy", "blas"} <= set(found.environment)


def noisy(backend: ReferenceBackend) -> Callable:
    """Prefill with a last bit that comes and goes."""
    seen = iter(range(1 << 30))

    def prefill(workspace, model, role, slot, start, tokens, sampler):
        class Noise:
            def sample(self, logits):
                return sampler.sample(logits + np.float32(1e-6) * (next(seen) % 2))

        return backend.prefill(workspace, model, role, slot, start, tokens, Noise() if sampler else None)

    return prefill


def test_bits_that_change_are_found():
    found = failed(examined(prefill=noisy))
    assert found
    assert found <= {(check, what) for check in ("identity", "workspace") for _, what in found}
    assert ("identity", "repeated in another slot") in found
    assert ("decision", "a row alone is as beside another") not in found


def test_a_restore_of_other_positions_is_found():
    def restore(backend: ReferenceBackend) -> Callable:
        def begin(model, slot, tokens, handle):
            yield from backend.restore(model, slot, tokens, handle)
            backend._residents[model].slots["generation"][slot].keys[1][:, 0] += 1
            yield Segment()

        return begin

    assert failed(examined(restore=restore)) == {
        ("identity", "saved and restored"),
        ("identity", "written to a file and read back"),
    }


def scoring(change: Callable[[int, int, tuple[float, ...]], tuple[float, ...]]) -> Callable:
    def of(backend: ReferenceBackend) -> Callable:
        def score(workspace, model, slot, start, tokens, heads):
            values = yield from backend.score(workspace, model, slot, start, tokens, heads)
            return change(slot, len(tokens), values)

        return score

    return of


def test_a_score_that_depends_on_its_place_is_found():
    found = examined(score=scoring(lambda slot, _, values: tuple(value + slot for value in values)))
    assert ("decision", "a row alone is as beside another") in failed(found)


def test_a_score_that_is_not_finite_is_found():
    broken = examined(score=scoring(lambda _, size, values: (float("nan"),) if size == 128 else values))
    assert ("decision", "scores are finite") in failed(broken)


def test_scores_that_do_not_depend_on_the_row_are_found():
    constant = examined(score=scoring(lambda slot, size, values: (1.0, 2.0)))
    assert failed(constant) == {("decision", "negative control")}


def test_steps_beyond_their_charge_are_found_with_the_figures():
    def workspace(backend: ReferenceBackend) -> Callable:
        def open_workspace(charge):
            space = backend.open_workspace(charge)
            peak = space.peak
            space.peak = lambda: peak() + charge
            return space

        return open_workspace

    found = examined(open_workspace=workspace)
    kinds = ("warmup", "prefill", "decode", "decision")
    assert failed(found) >= {("workspace", f"{kind} within its charge") for kind in kinds}
    prefill = next(finding for finding in found.findings if finding.what == "prefill within its charge")
    assert prefill.figures["peak"] > prefill.figures["charge"]
    assert prefill.figures["breaches"] == prefill.figures["steps"]


def test_a_step_that_runs_with_too_small_a_charge_is_found():
    def workspace(backend: ReferenceBackend) -> Callable:
        return lambda charge: backend.open_workspace(charge * 9)

    assert ("workspace", "a step over its charge is refused") in failed(examined(open_workspace=workspace))


def test_memory_that_is_not_in_the_plan_is_found():
    def plan(backend: ReferenceBackend) -> Callable:
        def smaller(model, request):
            real = backend.plan(model, request)
            return attrs.evolve(real, buffers=(attrs.evolve(real.buffers[0], bytes=8 << 20),))

        return smaller

    assert failed(examined(plan=plan)) == {("memory", "plan against measured")}


def test_a_check_that_breaks_is_a_failed_one_and_the_others_still_run():
    def copy(_: ReferenceBackend) -> Callable:
        def broken(*_: Any) -> None:
            raise RuntimeError("the driver said no")

        return broken

    found = examined(copy=copy)
    assert ("decision", "the check itself") in failed(found)
    assert any("the driver said no" in finding.detail for finding in found.findings)
    assert any(finding.check == "workspace" and finding.outcome == OK for finding in found.findings)
    assert [finding.detail for finding in guarded("x", lambda: 1 / 0)] == ["ZeroDivisionError: division by zero"]  # type: ignore[arg-type, return-value]


def test_what_a_backend_cannot_do_is_skipped():
    whole = Capabilities(suspend=False, grid_bound=True)
    found = examined(capabilities=whole, name="another")
    skipped = {(finding.check, finding.what) for finding in found.findings if finding.outcome == SKIPPED}
    assert skipped == {("identity", "suspended and resumed"), ("memory", "plan against measured")}
    without = diagnose(ReferenceBackend({MODEL: ModelSource()}), MODEL, (), quick=True)
    assert ("decision", "two rows") in {(f.check, f.what) for f in without.findings if f.outcome == SKIPPED}


def test_a_probe_prefills_a_context_once_for_all_steps_behind_it():
    bench = Bench(ReferenceBackend({MODEL: ModelSource(heads=HEADS)}), MODEL, PlanRequest(300, 2, 64))
    bench.load()
    largest(bench, [StepShape(StepKind.PREFILL, 1, 64, 300), StepShape(StepKind.DECODE, 2, 1, 300)])
    kinds = [step.shape.kind for step in bench.measured]
    assert kinds == [StepKind.WARMUP, *[StepKind.PREFILL] * 5, StepKind.DECODE]
    assert [(step.shape.rows, step.shape.context) for step in bench.measured[-2:]] == [(1, 300), (2, 300)]


def test_a_backend_that_computes_nothing_is_refused():
    with pytest.raises(InvalidRequest, match="computes nothing"):
        diagnose(SleepingBackend(), "generation", ())
