"""Named heads: files that must fit their backbone, and values that equal their formulas."""

from __future__ import annotations

import numpy as np
import pytest
from coresident.actors.errors import ArtifactInvalid, InvalidRequest
from coresident.runtime.models.heads import (
    HeadFile,
    LinearHead,
    VerbalizerHead,
    read_linear_heads,
    resolve_heads,
    write_linear_heads,
)
from coresident.runtime.models.locate import ModelSource
from coresident.runtime.models.synthetic import synthetic_checkpoint
from safetensors.numpy import load_file, save_file

from support.reference import HEADS, MODEL, opened, prefill, score

DIGEST = synthetic_checkpoint().digest
RNG = np.random.default_rng(11)
LINEAR = (
    LinearHead("fit", "rank", RNG.standard_normal(64).astype(np.float32), 0.25),
    LinearHead("safe", "probability", RNG.standard_normal(64).astype(np.float32), 0.0),
)
INSTRUCTION = list(range(30, 50))
ROW = [100, 7, 45, 8]


@pytest.fixture
def head_file(tmp_path):
    path = tmp_path / "heads.safetensors"
    write_linear_heads(path, LINEAR, DIGEST)
    return path


@pytest.fixture
def backend(head_file):
    backend = opened(ModelSource(heads=(*HEADS, HeadFile(str(head_file)))))
    prefill(backend, 0, INSTRUCTION, role="decision")
    return backend


def logsumexp(values):
    return np.log(np.exp(values.astype(np.float64)).sum())


def test_verbalizer_heads_equal_their_formula(backend):
    logits = prefill(backend, 0, INSTRUCTION + ROW)
    yes, rest = score(backend, 0, len(INSTRUCTION), ROW)
    assert yes == pytest.approx(logsumexp(logits[[3, 7]]) - logits[5], abs=1e-4)
    assert rest == pytest.approx(logits[9] - logsumexp(np.delete(logits, 9)), abs=1e-4)


def test_linear_heads_equal_the_product_with_the_last_hidden_state(backend):
    """The tied output matrix gives the hidden state back: 256 logits determine its 64 numbers."""
    logits = prefill(backend, 0, INSTRUCTION + ROW)
    embedding = np.concatenate([block for _, block in synthetic_checkpoint().tensors["embedding"].blocks()])
    hidden = np.linalg.lstsq(embedding.astype(np.float64), logits.astype(np.float64), rcond=None)[0]
    values = score(backend, 0, len(INSTRUCTION), ROW, ("safe", "fit"))
    expected = (LINEAR[1].weight @ hidden, LINEAR[0].weight @ hidden + 0.25)
    np.testing.assert_allclose(values, expected, atol=1e-3)


def test_heads_are_listed_with_their_kinds(backend):
    assert backend.describe(MODEL).heads == ("yes", "rest", "fit", "safe")
    assert backend.head_kinds(MODEL) == {"yes": "probability", "rest": "rank", "fit": "rank", "safe": "probability"}


def test_scores_do_not_depend_on_slicing_slot_or_what_ran_between(backend):
    rows = [ROW, ROW[::-1], [1], [2, 3]]
    together = [score(backend, 0, len(INSTRUCTION), row, ("yes", "fit")) for row in rows]
    for slot in (1, 2):
        for row, expected in zip(reversed(rows), reversed(together), strict=True):
            prefill(backend, slot, INSTRUCTION, role="decision")
            prefill(backend, 0, ROW * 5)
            assert score(backend, slot, len(INSTRUCTION), row, ("fit", "yes")) == expected[::-1]


def test_R78_a_changed_instruction_must_be_prefilled_again(backend):
    before = score(backend, 0, len(INSTRUCTION), ROW)
    changed = [*INSTRUCTION[:-1], 99]
    prefill(backend, 0, changed[:16], role="decision")
    with pytest.raises(InvalidRequest, match=r"first 20 positions.*16 are evaluated"):
        score(backend, 0, len(INSTRUCTION), ROW)
    prefill(backend, 0, changed[16:], start=16, role="decision")
    assert score(backend, 0, len(INSTRUCTION), ROW) != before
    prefill(backend, 0, INSTRUCTION, role="decision")
    assert score(backend, 0, len(INSTRUCTION), ROW) == before


def test_an_unknown_head_is_refused_with_those_there_are(backend):
    with pytest.raises(InvalidRequest, match="no head 'mood': the model has yes, rest, fit, safe"):
        score(backend, 0, len(INSTRUCTION), ROW, ("yes", "mood"))


def test_a_head_file_round_trips(head_file):
    for read, written in zip(read_linear_heads(head_file, DIGEST, 64), LINEAR, strict=True):
        assert (read.name, read.kind, read.bias) == (written.name, written.kind, written.bias)
        np.testing.assert_array_equal(read.weight, written.weight)


def rewritten(path, *, drop=(), add=None, **metadata):
    """The head file with tensors and header fields changed."""
    tensors = {name: value for name, value in load_file(path).items() if name not in drop} | (add or {})
    header = {
        "format": "coresident-heads",
        "version": "1",
        "backbone": DIGEST,
        "kind.fit": "rank",
        "kind.safe": "probability",
    } | metadata
    save_file(tensors, path, metadata={key: value for key, value in header.items() if value is not None})


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"backbone": "0" * 64}, "backbone is '0000"),
        ({"backbone": None}, "backbone is 'missing'"),
        ({"format": "other"}, "format is 'other'"),
        ({"version": "2"}, "version is '2'"),
        ({"kind.fit": "mood"}, "kind.fit is 'mood'"),
        ({"kind.fit": None}, "tensor is 'fit"),
        ({"kind.fit": None, "kind.safe": None}, "kind.<name> is 'missing'"),
        ({"drop": ("safe.weight",)}, "tensor safe.weight is 'missing'"),
        ({"add": {"odd.weight": np.ones((1, 64), np.float32)}}, "tensor is 'odd.weight'"),
        ({"add": {"fit.weight": np.ones((1, 63), np.float32)}}, r"shape of fit.weight is \(1, 63\)"),
        ({"add": {"fit.bias": np.ones((2,), np.float32)}}, r"shape of fit.bias is \(2,\)"),
        ({"add": {"fit.bias": np.ones((1,), np.int32)}}, "dtype of fit.bias is 'I32'"),
    ],
)
def test_a_head_file_that_does_not_fit_is_refused(head_file, change, named):
    rewritten(head_file, **change)
    with pytest.raises(ArtifactInvalid, match=named) as refusal:
        resolve_heads((HeadFile(str(head_file)),), DIGEST, 64, 256)
    assert str(head_file) in refusal.value.message


def test_a_damaged_or_missing_head_file_is_refused(head_file, tmp_path):
    head_file.write_bytes(head_file.read_bytes()[:-8])
    for path in (head_file, tmp_path / "missing.safetensors"):
        with pytest.raises(ArtifactInvalid, match="cannot be read as safetensors"):
            read_linear_heads(path, DIGEST, 64)


@pytest.mark.parametrize(
    ("head", "why"),
    [
        (VerbalizerHead("h", "mood", (1,)), "kinds are rank, probability, choice"),
        (VerbalizerHead("h", "rank", ()), "no positive tokens"),
        (VerbalizerHead("h", "rank", (1, 2), (2,)), "names a token twice"),
        (VerbalizerHead("h", "rank", (256,)), "256 tokens, 0 to 255"),
        (VerbalizerHead("h", "rank", (-1,)), "names token -1"),
        (VerbalizerHead("h", "rank", tuple(range(256))), "no other token"),
    ],
)
def test_a_verbalizer_without_meaning_is_refused(head, why):
    with pytest.raises(InvalidRequest, match=why):
        resolve_heads((head,), DIGEST, 64, 256)


def test_a_name_given_twice_is_refused():
    with pytest.raises(InvalidRequest, match="'yes' is defined twice"):
        resolve_heads((HEADS[0], HEADS[0]), DIGEST, 64, 256)
