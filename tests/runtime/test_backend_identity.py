"""Bit-identity on every backend: nothing depends on suspension, neighbours, slots or history."""

from __future__ import annotations

import numpy as np
import pytest
from coresident.actors.errors import InvalidRequest
from coresident.actors.work import PrefixFile, StepKind
from coresident.runtime.backends.contract import DecodeInput, PlanRequest
from coresident.runtime.backends.session import KVSession
from hypothesis import given, settings
from hypothesis import strategies as st

from support.backends import NAMES, needs_rounding_by_shape, opened_on
from support.openblas import interposed
from support.reference import MODEL, REQUEST, Keep, decode, drain, prefill, score, workspace

TOKENS = [int(token) for token in np.random.default_rng(7).integers(0, 256, 90)]


@pytest.fixture(scope="module", params=NAMES)
def backend(request):
    return opened_on(request.param)


def same(one: np.ndarray, other: np.ndarray) -> bool:
    return one.tobytes() == other.tobytes()


def test_a_suspended_chunk_goes_on_exactly(backend):
    alone = prefill(backend, 0, TOKENS[:48])
    keep = Keep()
    for start in (0, 16, 32):
        space = workspace(backend, StepKind.PREFILL, 16, start + 16)
        chunk = backend.prefill(space, MODEL, "generation", 0, start, TOKENS[start : start + 16], keep)
        for number, _ in enumerate(chunk):
            if number < 3 or number % 5 == 0:
                length = 40 - number % 7
                prefill(backend, 1, TOKENS[:length])
                score(backend, 0, 0, TOKENS[:9])
                decode(backend, [(1, length, 7)])
        space.close()
    assert same(keep.seen[-1], alone)


@given(rows=st.permutations([(0, 48), (1, 33), (2, 7)]), count=st.integers(1, 3))
@settings(max_examples=20, deadline=None)
def test_R10_a_decode_row_gives_the_same_alone_and_with_others(backend, rows, count):
    for slot, length in rows:
        prefill(backend, slot, TOKENS[:length])
    chosen = rows[:count]
    together = decode(backend, [(slot, length, 5 + slot) for slot, length in chosen])
    for (slot, length), logits in zip(chosen, together, strict=True):
        assert same(decode(backend, [(slot, length, 5 + slot)])[0], logits)


@given(cut=st.integers(1, 80), slot=st.integers(0, 2))
@settings(max_examples=20, deadline=None)
def test_saved_copied_and_restored_positions_go_on_exactly(backend, cut, slot):
    cold = prefill(backend, 0, TOKENS)
    kept = cut - cut % REQUEST.chunk
    if kept:
        drain(backend.save(MODEL, 0, kept, handle=1))
        prefill(backend, slot, TOKENS[::-1])
        drain(backend.restore(MODEL, slot, kept, handle=1))
        backend.drop(MODEL, 1)
    assert same(prefill(backend, slot, TOKENS[kept:], start=kept), cold)
    if kept:
        other = (slot + 1) % 3
        drain(backend.copy(MODEL, "generation", slot, (other,), kept))
        assert same(prefill(backend, other, TOKENS[kept:], start=kept), cold)


def test_another_grid_is_close_and_equal_where_that_is_promised(backend):
    """The negative control where it is not: products of other shapes round differently on a BLAS made for speed."""
    on_grid = prefill(backend, 0, TOKENS)
    keep = Keep()
    space = workspace(backend, StepKind.PREFILL, len(TOKENS), len(TOKENS))
    drain(backend.prefill(space, MODEL, "generation", 1, 0, TOKENS, keep))
    space.close()
    assert backend.capabilities.grid_bound == (backend.name != "vulkan")
    if not backend.capabilities.grid_bound:
        assert same(keep.seen[-1], on_grid)
    elif interposed():
        assert not same(keep.seen[-1], on_grid)
    np.testing.assert_allclose(keep.seen[-1], on_grid, atol=1e-4)


def test_a_retried_chunk_gives_the_same(backend):
    """A chunk that was dropped in the middle left nothing that its retry could see."""
    cold = prefill(backend, 0, TOKENS[:32])
    space = workspace(backend, StepKind.PREFILL, 16, 32)
    prefill(backend, 1, TOKENS[:16])
    _, segments = drain(backend.prefill(space, MODEL, "generation", 1, 16, TOKENS[16:32], None))
    prefill(backend, 0, TOKENS[:16])
    dropped = backend.prefill(space, MODEL, "generation", 0, 16, TOKENS[16:32], None)
    for _ in range((segments + 1) // 2):
        next(dropped)
    dropped.close()
    space.close()
    with pytest.raises(InvalidRequest, match=r"first 32 positions.*16 are evaluated"):
        decode(backend, [(0, 32, 1)])
    assert same(prefill(backend, 0, TOKENS[16:32], start=16), cold)


def test_R7_many_alternations_load_once_and_change_nothing(backend):
    loaded = backend._residents[MODEL].loaded()
    prefill(backend, 0, TOKENS[:8])
    prefill(backend, 0, TOKENS[:8], role="decision")
    tokens, scores = set(), set()
    for _ in range(200):
        scores.add(score(backend, 0, 8, TOKENS[40:42]))
        tokens.add(decode(backend, [(0, 8, 11)])[0].tobytes())
    assert (len(tokens), len(scores)) == (1, 1)
    assert backend._residents[MODEL].loaded() is loaded


def test_R5_a_cancelled_chunk_leaves_the_backend_ready_for_the_next_request(backend):
    expected = prefill(backend, 2, TOKENS[:30])
    space = workspace(backend, StepKind.PREFILL, 16, 16)
    cancelled = backend.prefill(space, MODEL, "generation", 2, 0, TOKENS[50:66], Keep())
    next(cancelled)
    cancelled.close()
    space.close()
    assert same(prefill(backend, 2, TOKENS[:30]), expected)


def test_a_decision_rows_positions_do_not_stay(backend):
    prefill(backend, 2, TOKENS[:6], role="decision")
    score(backend, 2, 6, TOKENS[10:20])
    with pytest.raises(InvalidRequest, match=r"first 16 positions.*6 are evaluated"):
        score(backend, 2, 16, TOKENS[:3])


@pytest.mark.parametrize(("count", "fits"), [(95, True), (96, True), (97, False)])
def test_R4_a_slot_takes_its_admitted_context_and_no_token_more(backend, count, fits):
    tokens = (TOKENS * 2)[:count]
    if fits:
        prefill(backend, 0, tokens)
        return
    with pytest.raises(InvalidRequest, match="end at 97, the slot holds 96"):
        prefill(backend, 0, tokens)


@pytest.mark.parametrize(
    ("rows", "samplers"), [((), 0), ((DecodeInput(0, 4, 1), DecodeInput(0, 5, 1)), 2), ((DecodeInput(0, 4, 1),), 2)]
)
def test_a_decode_step_needs_a_slot_and_a_sampler_for_each_row(backend, rows, samplers):
    space = backend.open_workspace(1 << 20)
    with pytest.raises(InvalidRequest, match="a decode step has"):
        drain(backend.decode(space, MODEL, rows, [Keep()] * samplers))
    space.close()


@pytest.mark.parametrize("token", [-1, 256])
def test_a_token_outside_the_vocabulary_is_refused(backend, token):
    with pytest.raises(InvalidRequest, match=f"token {token}.*256 tokens"):
        prefill(backend, 0, [1, token, 2])


def test_slots_that_do_not_exist_are_refused(backend):
    with pytest.raises(InvalidRequest, match="decision slot 3 was asked for, there are 3"):
        score(backend, 3, 0, [1])
    with pytest.raises(InvalidRequest, match="cannot be copied to itself"):
        drain(backend.copy(MODEL, "generation", 0, (1, 0), 4))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("tokens", [896, 500])
def test_R66_teacher_forced_logits_behind_a_restored_prefix(name, tokens, tmp_path):
    """Whole chunks: to the bit those of a cold run. Off the grid: only where every chunking gives the same bits."""
    needs_rounding_by_shape(name)
    long = [(7 * index + 3) % 251 for index in range(1000)]
    device = opened_on(name, request=PlanRequest(context=1024, slots=3, chunk=128))
    cold = KVSession(device, MODEL, 0, 128).logits(long)[tokens:]
    first = KVSession(device, MODEL, 1, 128)
    first.prefill(long[:tokens])
    file = PrefixFile(str(tmp_path / "prefix"), "launch", "identity", tuple(long[:tokens]), tokens, 128)
    drain(device.save(MODEL, 1, tokens, handle=1))
    drain(device.store(MODEL, 1, file))
    device.drop(MODEL, 1)
    drain(device.fetch(MODEL, 2, file))
    drain(device.restore(MODEL, 2, tokens, handle=2))
    disk = KVSession(device, MODEL, 2, 128, tokens=long[:tokens]).logits(long[tokens:])
    assert np.array_equal(disk, cold) == (tokens == 896 or not device.capabilities.grid_bound)
    np.testing.assert_allclose(disk, cold, atol=1e-3)
