"""KV sessions: incremental evaluation equals a full one, and sessions branch, shrink and stop cleanly."""

from __future__ import annotations

import numpy as np
import pytest
from coresident.actors.errors import InvalidRequest
from coresident.runtime.backends.contract import Capabilities
from coresident.runtime.backends.session import KVSession
from hypothesis import given, settings
from hypothesis import strategies as st

from support.backends import NAMES, opened_on
from support.reference import MODEL, REQUEST, Keep

TOKENS = [int(token) for token in np.random.default_rng(3).integers(0, 256, 80)]


@pytest.fixture(scope="module", params=NAMES)
def backend(request):
    return opened_on(request.param)


def session(backend, slot=0) -> KVSession:
    return KVSession(backend, MODEL, slot, REQUEST.chunk)


@given(parts=st.lists(st.integers(1, 30), min_size=1, max_size=4))
@settings(max_examples=20, deadline=None)
def test_E7_incremental_equals_full_forward(backend, parts):
    full = session(backend).logits(TOKENS)
    growing, at = session(backend, 1), 0
    for count in parts:
        part = TOKENS[at : at + count]
        if not part:
            break
        logits = growing.step(part[0]) if count == 1 else growing.prefill(part)
        at += len(part)
        np.testing.assert_allclose(logits, full[at - 1], atol=1e-4)
    assert growing.tokens == TOKENS[:at]


def test_E7_teacher_forced_logits_repeat_exactly_and_end_where_prefill_does(backend):
    full = session(backend).logits(TOKENS)
    last = session(backend, 1).prefill(TOKENS)
    np.testing.assert_allclose(last, full[-1], atol=1e-5)
    again = session(backend, 2).logits(TOKENS)
    assert again.tobytes() == full.tobytes()


def test_E7_a_clone_goes_on_like_its_original_and_apart_from_it(backend):
    original = session(backend)
    original.prefill(TOKENS[:40])
    clone = original.clone(slot=1)
    assert clone.generate(6, Keep()) == original.generate(6, Keep())
    original.prefill(TOKENS[50:70])
    assert clone.step(9).tobytes() != original.step(9).tobytes()
    assert len(clone.tokens) == 47


def test_E7_a_session_from_a_prefix_equals_a_cold_one(backend):
    whole = session(backend)
    whole.prefill(TOKENS[:64])
    branch = whole.from_prefix(slot=1, tokens=32)
    cold = session(backend, 2)
    tail = TOKENS[70:80]
    assert branch.prefill(tail).tobytes() == cold.prefill(TOKENS[:32] + tail).tobytes()
    assert whole.from_prefix(slot=1, tokens=0).tokens == []


def test_E7_a_trimmed_session_goes_on_from_where_it_was_cut(backend):
    trimmed = session(backend)
    trimmed.prefill(TOKENS[:60])
    trimmed.trim(16)
    with pytest.raises(InvalidRequest, match="no logits to go on from"):
        trimmed.generate(1, Keep())
    cold = session(backend, 1)
    assert trimmed.prefill(TOKENS[30:50]).tobytes() == cold.prefill(TOKENS[:16] + TOKENS[30:50]).tobytes()
    before = trimmed.next_logits
    trimmed.trim(36)
    assert trimmed.next_logits is before


def test_E7_generating_in_two_goes_equals_one(backend):
    one, two = session(backend), session(backend, 1)
    one.prefill(TOKENS[:20])
    two.prefill(TOKENS[:20])
    assert one.generate(8, Keep()) == two.generate(3, Keep()) + two.generate(5, Keep())


def test_R5_generate_is_cancelled_between_steps_and_keeps_what_it_made(backend):
    going = session(backend)
    going.prefill(TOKENS[:20])
    asked = iter([False, False, True])
    first = going.generate(8, Keep(), cancelled=lambda: next(asked))
    assert len(first) == 2
    assert going.tokens == TOKENS[:20] + list(first)
    uncancelled = session(backend, 1)
    uncancelled.prefill(TOKENS[:20])
    assert first + going.generate(3, Keep()) == uncancelled.generate(5, Keep())


def test_generate_ends_before_a_stop_token(backend):
    going = session(backend)
    going.prefill(TOKENS[:20])
    (token,) = going.clone(slot=1).generate(1, Keep())
    assert going.generate(5, Keep(), stop_tokens=(token,)) == ()
    assert going.tokens == TOKENS[:20]


@pytest.mark.parametrize(
    "call", [lambda s: s.prefill([]), lambda s: s.logits([]), lambda s: s.trim(5), lambda s: s.from_prefix(1, 1)]
)
def test_calls_without_meaning_are_refused(backend, call):
    with pytest.raises(InvalidRequest):
        call(session(backend))


def test_a_session_may_fill_its_slot_and_no_more(backend):
    full = session(backend)
    full.prefill((TOKENS * 2)[:96])
    with pytest.raises(InvalidRequest, match="the slot holds 96"):
        full.step(1)


def test_teacher_forcing_is_refused_where_a_backend_lacks_it(backend, monkeypatch):
    monkeypatch.setattr(backend, "capabilities", Capabilities(suspend=False, grid_bound=False))
    with pytest.raises(InvalidRequest, match="teacher_forced_logits"):
        session(backend).logits([1])
