"""Retained KV copies on every backend: exact size, geometry that must fit, handles that must exist."""

from __future__ import annotations

import attrs
import pytest
from coresident.actors.errors import ArtifactInvalid, BackendFault, InvalidRequest
from coresident.runtime.backends.contract import PlanRequest
from coresident.runtime.models.locate import ModelSource

from support import tiny_models
from support.backends import NAMES, opened_on
from support.reference import MODEL, REQUEST, drain, prefill

TOKENS = list(range(40))
COPYING = {"reference": "reference.cache", "mlx": "mlx.retained", "vulkan": "vulkan.retained"}


@pytest.fixture(params=NAMES)
def backend(request):
    backend = opened_on(request.param)
    prefill(backend, 0, TOKENS)
    drain(backend.save(MODEL, 0, 33, handle=5))
    return backend


def test_E10_a_copy_has_exactly_the_bytes_of_its_tokens(backend):
    blob = backend._residents[MODEL].retained[5]
    arrays = [part for layer in blob.layers for part in layer] if backend.name == "mlx" else blob.blocks
    assert sum(array.nbytes for array in arrays) == 33 * backend.describe(MODEL).kv_bytes_per_token
    assert all(getattr(array, "base", None) is None for array in arrays)


@pytest.mark.parametrize(
    ("field", "value"),
    [("digest", "0" * 64), ("layers", 4), ("kv_heads", 1), ("head_dim", 8), ("dtype", "float16")],
)
def test_E10_a_copy_of_another_geometry_is_refused(backend, field, value):
    retained = backend._residents[MODEL].retained
    blob = retained[5]
    retained[5] = attrs.evolve(blob, geometry=attrs.evolve(blob.geometry, **{field: value}))
    with pytest.raises(InvalidRequest, match=f"retained KV has {field}"):
        drain(backend.restore(MODEL, 1, 16, handle=5))
    prefill(backend, 1, TOKENS)


def test_E10_restoring_more_than_was_kept_is_refused(backend):
    with pytest.raises(InvalidRequest, match="34 positions were asked of retained KV that holds 33"):
        drain(backend.restore(MODEL, 1, 34, handle=5))


def test_saving_more_than_was_evaluated_is_refused(backend):
    with pytest.raises(InvalidRequest, match=r"first 41 positions.*40 are evaluated"):
        drain(backend.save(MODEL, 0, 41, handle=6))


def test_a_handle_is_saved_once_and_may_be_dropped_again(backend):
    with pytest.raises(InvalidRequest, match="handle 5 is in use"):
        drain(backend.save(MODEL, 0, 8, handle=5))
    backend.drop(MODEL, 5)
    backend.drop(MODEL, 5)
    with pytest.raises(InvalidRequest, match="no retained KV 5"):
        drain(backend.restore(MODEL, 0, 8, handle=5))
    backend.unload(MODEL)
    with pytest.raises(BackendFault, match="not loaded"):
        backend.drop(MODEL, 5)


@pytest.mark.parametrize("weights", [True, False])
def test_a_new_load_forgets_the_copies(backend, weights):
    """After a lost device nobody drops them one by one."""
    drain(backend.load(MODEL, REQUEST, weights=weights))
    with pytest.raises(InvalidRequest, match="no retained KV 5"):
        drain(backend.restore(MODEL, 2, 33, handle=5))


def test_a_save_given_up_keeps_nothing(backend, monkeypatch):
    monkeypatch.setattr(f"coresident.runtime.backends.{COPYING[backend.name]}.COPY_BYTES", 1)
    saving = backend.save(MODEL, 0, 20, handle=1)
    next(saving)
    saving.close()
    with pytest.raises(InvalidRequest, match="no retained KV 1"):
        drain(backend.restore(MODEL, 1, 8, handle=1))


@pytest.mark.parametrize("name", NAMES)
def test_a_model_changed_on_disk_is_not_loaded_as_the_described_one(name, tmp_path):
    path = tiny_models.write_gguf(tmp_path / "model.gguf", "llama")
    backend = opened_on(name, ModelSource(str(path)), PlanRequest(16, 1, 16))
    content = bytearray(path.read_bytes())
    content[-4] ^= 1
    path.write_bytes(content + b"\0" * 32)
    with pytest.raises(ArtifactInvalid, match="digest"):
        drain(backend.load(MODEL, PlanRequest(16, 1, 16), weights=True))
