"""Retained copies with one head on the reference backend: stored once, the same bits whoever goes first."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import attrs
import numpy as np
import pytest
from coresident.actors.errors import InvalidRequest
from coresident.actors.work import PrefixFile
from coresident.runtime.backends.blobs import BLOCK

from support.reference import MODEL, REQUEST, drain, opened, prefill

HEAD = list(range(150))
COPIES = {1: None, 2: (1, 2 * BLOCK), 3: (2, BLOCK)}


def whole(backend, slot, tokens):
    """Keys and values of the first positions of a slot."""
    held = backend._residents[MODEL].slot("generation", slot)
    return [part[:, :tokens].copy() for part in (*held.keys, *held.values)]


def stored(backend):
    """Bytes of retained storage, each block once."""
    blobs = backend._residents[MODEL].retained.values()
    return sum(block.nbytes for block in {id(b): b for blob in blobs for b in blob.blocks}.values())


@pytest.fixture
def kept():
    """Three prompts with one head, kept as ``COPIES`` says; their states by handle."""
    backend = opened(request=attrs.evolve(REQUEST, context=192))
    states = {}
    for handle, base in COPIES.items():
        prefill(backend, 0, [*HEAD, *range(200, 200 + 10 * handle)])
        states[handle] = whole(backend, 0, 150 + 10 * handle)
        drain(backend.save(MODEL, 0, 150 + 10 * handle, handle, *(base or ())))
    return backend, states


def test_a_head_is_stored_once(kept):
    backend, _ = kept
    token = backend.describe(MODEL).kv_bytes_per_token
    assert stored(backend) == (160 + 170 - 2 * BLOCK + 180 - BLOCK) * token


@pytest.mark.parametrize("order", list(permutations(COPIES)), ids=str)
def test_in_whatever_order_they_go_the_others_come_back_to_the_bit(kept, order):
    backend, states = kept
    left = set(COPIES)
    for handle in order:
        backend.drop(MODEL, handle)
        left.remove(handle)
        for other in left:
            drain(backend.restore(MODEL, 1, 150 + 10 * other, other))
            for there, wanted in zip(whole(backend, 1, 150 + 10 * other), states[other], strict=True):
                np.testing.assert_array_equal(there, wanted)
    assert stored(backend) == 0


def test_a_block_is_free_once_nobody_holds_it(kept):
    backend, _ = kept
    token = backend.describe(MODEL).kv_bytes_per_token
    before = stored(backend)
    backend.drop(MODEL, 1)
    assert before - stored(backend) == (160 - 2 * BLOCK) * token
    backend.drop(MODEL, 2)
    assert stored(backend) == 180 * token


@pytest.mark.parametrize(("shared", "message"), [(100, "whole blocks of 64"), (192, "holds 160 are to be shared")])
def test_only_whole_blocks_that_are_there_are_shared(kept, shared, message):
    backend, _ = kept
    prefill(backend, 0, [*HEAD, *range(200, 242)])
    with pytest.raises(InvalidRequest, match=message):
        drain(backend.save(MODEL, 0, 192, 4, 1, shared))
    with pytest.raises(InvalidRequest, match="no retained KV 9"):
        drain(backend.save(MODEL, 0, 192, 4, 9, BLOCK))


def test_R67_a_file_of_a_shared_prefix_is_the_file_of_a_whole_one(kept, tmp_path):
    backend, states = kept
    prompt = (*HEAD, *range(200, 220))
    prefill(backend, 0, prompt)
    drain(backend.save(MODEL, 0, 170, 7))
    contents = []
    for handle in (2, 7):
        path = tmp_path / f"{handle}.safetensors"
        drain(backend.store(MODEL, handle, PrefixFile(str(path), "launch", "m", prompt, 160, 16)))
        contents.append(Path(path).read_bytes())
    assert contents[0] == contents[1]
    for handle in (1, 2, 7):
        backend.drop(MODEL, handle)
    drain(backend.fetch(MODEL, 8, PrefixFile(str(path), "launch", "m", prompt, 160, 16)))
    drain(backend.restore(MODEL, 2, 170, 8))
    for there, wanted in zip(whole(backend, 2, 170), states[2], strict=True):
        np.testing.assert_array_equal(there, wanted)


def test_a_save_behind_another_given_up_keeps_nothing(kept, monkeypatch):
    monkeypatch.setattr("coresident.runtime.backends.reference.cache.COPY_BYTES", 1)
    backend, _ = kept
    before = stored(backend)
    saving = backend.save(MODEL, 0, 180, 4, 3, BLOCK)
    next(saving)
    saving.close()
    assert stored(backend) == before
