"""Limits of a device hold for all resident models together: the largest allocation, and how many there may be."""

from __future__ import annotations

import pytest
from coresident.actors.errors import BudgetExceeded
from coresident.actors.memory.plan import AllocationPlan, Buffer, admit_context
from coresident.runtime.backends.catalog import open_backend
from coresident.runtime.host.admission import plan_at

from support.live import config

GENERATION, DECISION = (9000, 40), (7000, 30)
"""Largest allocation and number of allocations that each model's plan allows."""


class Limited:
    """Two models that plan one allocation for every 256 tokens of context, one beside it, and their limits."""

    def plan(self, model, request):
        limits = GENERATION if model == "generation" else DECISION
        cut = Buffer("kv", "kv", 10, count=-(-request.context // 256))
        return AllocationPlan((Buffer("weights", "weights", 10), cut), *limits)


@pytest.fixture
def two_models():
    given = config(decision={"model": "synthetic"})
    assert given.decision is not None
    return given


def test_the_least_limits_of_all_plans_hold_for_the_sum_of_them(two_models):
    plan = plan_at(two_models, Limited(), (), 1024)
    assert (plan.max_buffer, plan.max_buffers) == (7000, 30)
    assert plan.allocations == 6


def test_a_context_shrinks_until_all_models_have_few_enough_allocations(two_models):
    admission = admit_context(100_000, lambda context: plan_at(two_models, Limited(), (), context), 1 << 30)
    assert admission.context == 28 * 256


def test_a_backend_without_limits_has_none(two_models):
    opened = open_backend(two_models)
    plan = plan_at(two_models, opened.backend, tuple(opened.heads), 256)
    assert (plan.max_buffer, plan.max_buffers) == (None, None)
    assert BudgetExceeded("x", 2, 1, "y", unit="allocations").details["asked"] == 2
