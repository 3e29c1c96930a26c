"""Context admission by what a backend says it will allocate."""

from __future__ import annotations

import attrs
import pytest
from coresident.actors.errors import BudgetExceeded, InvalidRequest
from coresident.actors.memory.plan import AllocationPlan, Buffer, admit_context, fits
from hypothesis import given
from hypothesis import strategies as st

MIB = 1 << 20


def linear(per_token, fixed=0, max_buffer=None):
    def plan_for(context):
        buffers = (Buffer("weights", "weights", fixed), Buffer("kv", "kv", per_token * context))
        return AllocationPlan(buffers, max_buffer)

    return plan_for


def test_R13_the_configured_cap_is_admitted_exactly_when_it_fits():
    admission = admit_context(50_000, linear(100), 5_000_000)
    assert (admission.context, admission.capped) == (50_000, True)


@given(blocks=st.integers(1, 300), over=st.integers(0, 255))
def test_R12_the_largest_multiple_of_256_that_fits(blocks, over):
    """Capacity for exactly so many blocks and less than one more."""
    capacity = 64 * (256 * blocks + over)
    admission = admit_context(256 * 301, linear(64), capacity)
    assert (admission.context, admission.capped) == (256 * blocks, False)
    assert admission.plan.total <= capacity


def test_R12_one_byte_less_than_256_tokens_more_admits_256_fewer():
    plan_for = linear(1000, fixed=12345)
    needed = plan_for(256 * 20).total
    assert admit_context(100_000, plan_for, needed).context == 256 * 20
    assert admit_context(100_000, plan_for, needed - 1).context == 256 * 19


@pytest.mark.parametrize("cap", [1, 255, 256])
def test_a_cap_of_one_block_or_less_is_all_or_nothing(cap):
    assert admit_context(cap, linear(10), 10 * cap).context == cap
    with pytest.raises(BudgetExceeded, match=rf"context of {cap} tokens asks for {10 * cap} bytes"):
        admit_context(cap, linear(10), 10 * cap - 1)


def stepped(context):
    """A plan that no formula in one term gives: paged KV, a quadratic mask, a buffer for long contexts only."""
    pages = -(-context // 1000) * 1000
    buffers = [Buffer("kv", "kv", 64 * pages), Buffer("mask", "workspace", context * context // 64)]
    if context > 4096:
        buffers.append(Buffer("spill", "kv", 3 * MIB))
    return AllocationPlan(tuple(buffers))


@given(available=st.integers(0, 16 * MIB))
def test_R11_admission_asks_the_plan_and_not_a_formula(available):
    candidates = [9000, *range(8960, 0, -256)]
    fitting = [context for context in candidates if stepped(context).total <= available]
    if fitting:
        assert admit_context(9000, stepped, available).context == fitting[0]
    else:
        with pytest.raises(BudgetExceeded) as caught:
            admit_context(9000, stepped, available)
        assert caught.value.details["asked"] == stepped(256).total


def test_R11_a_plan_that_shrinks_with_the_context_still_gets_its_largest():
    """Some kernels only exist for long contexts, so a longer one may need less."""

    def plan_for(context):
        return AllocationPlan((Buffer("scratch", "workspace", 100 if 1024 <= context <= 2048 else 1000),))

    assert admit_context(4096, plan_for, 500).context == 2048


def test_a_limit_of_a_single_allocation_shrinks_the_context():
    """Two GiB in one piece at the most, though twice as much is free."""
    limit = 2 << 30
    admission = admit_context(100_000, linear(1 << 16, max_buffer=limit), 2 * limit)
    assert admission.context == 32_768
    assert admission.plan.oversized() is None


def test_a_buffer_that_no_context_makes_small_enough_is_named():
    with pytest.raises(BudgetExceeded, match=r"buffer weights of tiny asks for 900 bytes, 500 are available") as caught:
        admit_context(1024, linear(0, fixed=900, max_buffer=500), 10_000, what="tiny")
    assert caught.value.details == {"what": "buffer weights of tiny", "asked": 900, "available": 500}


def test_a_limit_of_the_number_of_allocations_shrinks_the_context():
    """A cache that is cut into allocations of 1,024 tokens, beside two others."""

    def plan_for(context):
        cut = Buffer("kv", "kv/generation", 1 << 20, count=-(-context // 1024))
        return AllocationPlan((Buffer("weights", "weights", 1000, count=2), cut), max_buffers=10)

    admission = admit_context(100_000, plan_for, 1 << 30)
    assert admission.context == 8192
    assert admission.plan.allocations == 10


def test_an_allocation_counts_though_its_bytes_are_few():
    plan = AllocationPlan((Buffer("kv", "kv/generation", 1, count=3),), max_buffers=2)
    assert plan.too_many()
    assert not fits(plan, 1 << 30)
    assert fits(attrs.evolve(plan, max_buffers=3), 1 << 30)


def test_allocations_that_no_context_makes_few_enough_are_counted_in_the_refusal():
    def plan_for(context):
        return AllocationPlan((Buffer("weights", "weights", 10, count=7),), max_buffers=4)

    with pytest.raises(BudgetExceeded, match=r"tiny with .* asks for 7 allocations, 4 are available, 3 are missing"):
        admit_context(1024, plan_for, 10_000, what="tiny")
    with pytest.raises(BudgetExceeded, match="asks for 70 bytes, 60 are available"):
        admit_context(1024, plan_for, 60, what="tiny")


def test_a_refusal_says_what_is_missing():
    with pytest.raises(BudgetExceeded, match=r"asks for 2660 bytes, 2000 are available, 660 are missing: enlarge"):
        admit_context(4096, linear(10, fixed=100), 2000)


@pytest.mark.parametrize("cap", [0, -256])
def test_a_cap_must_be_positive(cap):
    with pytest.raises(InvalidRequest, match=f"is {cap}"):
        admit_context(cap, linear(1), 100)


def test_a_plan_counts_every_allocation_and_every_account():
    """What a late head adds is in the plan as soon as the plan names it."""
    head = Buffer("head", "weights", 7)
    plan = AllocationPlan((Buffer("kv", "kv", 100, count=6), Buffer("weights", "weights", 50), head))
    assert plan.total == 657
    assert plan.by_account() == {"kv": 600, "weights": 57}
    assert plan.missing(600) == 57
    assert plan.missing(657) == 0
