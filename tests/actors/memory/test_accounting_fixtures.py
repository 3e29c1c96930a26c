"""What fits an 8 GiB partition, as accounting: the sizes are given, nothing is loaded, and no speed is claimed."""

from __future__ import annotations

import numpy as np
import pytest
from coresident.actors.memory.plan import AllocationPlan, Buffer, admit_context, fits
from coresident.actors.memory.prefixes import PrefixIndex
from coresident.policies.retention.lru import lru

GIB, MIB = 1024**3, 1024**2
PARTITION = 8 * GIB
SIX_HEADS = 793_616_604
WORKSPACES = 2 * 512 * MIB
LABEL = "accounting fixture"


def account(weights: int, per_token: int, fixed: int, copies: int, reserve: int):
    """A plan for a context: weights, KV in one or two copies (live and retained), the decision model, workspaces."""

    def plan_for(context: int) -> AllocationPlan:
        return AllocationPlan(
            (
                Buffer(f"{LABEL}: weights", "weights", weights),
                Buffer(f"{LABEL}: KV", "kv", per_token * context + fixed, copies),
                Buffer(f"{LABEL}: decision model with six heads", "decision", SIX_HEADS),
                Buffer(f"{LABEL}: workspaces", "workspace", WORKSPACES),
                Buffer(f"{LABEL}: host reserve", "reserve", reserve),
            )
        )

    return plan_for


@pytest.mark.parametrize(("copies", "admitted"), [(1, 131_072), (2, 77_312)])
def test_R15_a_48k_context_and_six_heads_fit_beside_a_host_reserve(copies, admitted):
    plan_for = account(3_610_000_000, 6_144, 6 * MIB, copies, 2 * GIB)
    admission = admit_context(131_072, plan_for, PARTITION)
    assert admission.context == admitted
    assert fits(plan_for(49_152), PARTITION)
    assert copies == 1 or not fits(plan_for(admitted + 256), PARTITION)


@pytest.mark.parametrize(("copies", "admitted", "fits_48k"), [(1, 91_648, True), (2, 45_056, False)])
def test_R15_a_larger_model_takes_48k_only_with_one_copy(copies, admitted, fits_48k):
    """Two copies leave too little: the retained prefix would have to share what the live one holds."""
    plan_for = account(5_200_000_000, 16_384, 20 * MIB, copies, 0)
    assert admit_context(131_072, plan_for, PARTITION).context == admitted
    assert fits(plan_for(49_152), PARTITION) is fits_48k


@pytest.mark.parametrize(("block", "kept"), [(64, [36_864, 36_864]), (0, [36_864])])
def test_R15_beside_48k_two_conversations_are_retained_where_their_head_is_stored_once(block, kept):
    """The larger model with one live copy of 49,152 tokens; what is left is for retained prefixes."""
    token = 16_384
    live = account(5_200_000_000, token, 20 * MIB, 1, 0)(49_152)
    budget = PARTITION - sum(buffer.total for buffer in live.buffers)
    index = PrefixIndex(budget, lru(), token_bytes=token, block=block)
    for name in (1, 2):
        tokens = np.concatenate([np.arange(33_000), np.full(3_864, -name)])
        base, shared = index.base(LABEL, tokens, 32_768, (None, 0))
        for evicted in index.room((len(tokens) - shared) * token, name, base=base) or ():
            index.remove(evicted.handle, evicted=True)
        entry = index.add(LABEL, tokens, 0, name, 32_768, base=base, shared=shared)
        index.save_ended(entry)
        entry.ready, entry.users = True, 0
    assert [len(entry.tokens) for entry in index.entries()] == kept
    assert index.used <= budget


def test_R16_fixtures_are_labelled_accounting():
    plan = account(1, 1, 1, 1, 1)(256)
    assert all(buffer.name.startswith(LABEL) for buffer in plan.buffers)
