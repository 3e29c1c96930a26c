"""Decisions on MLX: the workspace bound, live, and the heads' values."""

from __future__ import annotations

import numpy as np
import pytest
from coresident.actors.errors import BackendFault
from coresident.runtime.backends.contract import PlanRequest
from coresident.runtime.config import structure
from coresident.runtime.host.assembly import assemble
from coresident.runtime.host.live import open_live
from coresident.runtime.models.heads import HeadFile, LinearHead, VerbalizerHead, write_linear_heads
from coresident.runtime.models.locate import ModelSource
from coresident.runtime.models.text import TextKit

from coresident.scheduler import Scheduler
from support.backends import opened_on
from support.live import run
from support.mlx_models import needs_mlx, write_random
from support.reference import HEADS, MODEL, prefill, score

needs_mlx()

MIB = 1024**2
LENGTH = 1024
TWELVE_HEADS = {
    "model_type": "llama",
    "hidden_size": 96,
    "num_hidden_layers": 1,
    "intermediate_size": 1152,
    "num_attention_heads": 12,
    "num_key_value_heads": 4,
    "vocab_size": 256,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 2048,
    "eos_token_id": 2,
    "tie_word_embeddings": True,
}
SIX = tuple(VerbalizerHead(f"head{n}", "rank", positive=(40 + n,), negative=(60 + n,)) for n in range(6))


@pytest.fixture(scope="module")
def twelve_heads(tmp_path_factory):
    return ModelSource(str(write_random(tmp_path_factory.mktemp("twelve") / "model", TWELVE_HEADS, 0.1)), SIX)


async def decided(source, workspace):
    """Two rows that fill 1,024 tokens each with their instruction, then a small one, and what was measured."""
    from coresident.runtime.backends.mlx.backend import MlxBackend

    config = structure(
        {
            "device": {"backend": "mlx", "partition": "1 GiB", "workspace": workspace},
            "generation": {"context": 512, "chunk": 64, "retained": 0},
            "decision": {"context": LENGTH, "rows_per_slice": 2},
        }
    )
    backend = MlxBackend({"generation": source})
    kit = TextKit.of(ModelSource(), backend.describe("generation").digest)
    framed = kit.render_decision("Rank.", ["", ""])
    row = "x" * (LENGTH - len(framed.instruction) - len(framed.rows[0]))
    assembly = assemble(config, backend, backend.head_kinds("generation"))
    async with open_live(assembly) as runtime:
        scheduler = Scheduler(runtime, {"generation": kit})
        heads = tuple(assembly.heads)
        large = await scheduler.decide("Rank.", [row, row[::-1]], heads=heads)
        assert len((await scheduler.generate("and on", max_tokens=2)).tokens) == 2
        small = await scheduler.decide("Rank.", ["a", "b"], heads=heads)
        device = scheduler.statistics().device
        return large, small, device


def test_R14_two_full_rows_with_six_heads_pass_at_512_mib_within_their_charge(twelve_heads):
    large, small, device = run(lambda: decided(twelve_heads, "512 MiB"), seconds=120)
    assert (large.outcome, small.outcome) == ("completed", "completed")
    assert len(large.scores) == 6
    assert 256 * MIB < device.ledger.accounts["workspace"].peak <= 512 * MIB
    assert device.exceeded == 0


def test_R14_they_are_refused_at_256_mib_before_running_and_the_runtime_goes_on(twelve_heads):
    large, small, device = run(lambda: decided(twelve_heads, "256 MiB"), seconds=120)
    assert (large.outcome, large.reason, small.outcome) == ("abstained", "over_budget", "completed")
    assert device.exceeded == 0
    assert device.ledger.accounts["workspace"].peak < 256 * MIB


@pytest.fixture(scope="module")
def heads(tmp_path_factory):
    """Verbalizers of both kinds and two linear heads, one with a bias."""
    digest = opened_on("reference").describe(MODEL).digest
    random = np.random.default_rng(3)
    linear = [
        LinearHead(name, "rank", random.normal(size=64).astype(np.float32), bias)
        for name, bias in [("fit", 0.0), ("late", -2.5)]
    ]
    path = tmp_path_factory.mktemp("heads") / "heads.safetensors"
    write_linear_heads(path, linear, digest)
    return ModelSource(heads=(*HEADS, HeadFile(str(path))))


def test_scores_are_the_references_within_1e_4(heads):
    """Every kind of head, behind an instruction, in the order they are asked for."""
    request = PlanRequest(96, 1, 16, decision_slots=1, decision_context=96, heads=("yes", "rest", "fit", "late"))
    names = ("late", "yes", "fit", "rest")
    values = []
    for name in ("reference", "mlx"):
        backend = opened_on(name, heads, request)
        prefill(backend, 0, list(range(40)), role="decision")
        values.append(score(backend, 0, 40, [9, 8, 7, 100], names))
    np.testing.assert_allclose(values[1], values[0], atol=1e-4)
    assert len(set(values[1])) == 4


def test_a_score_that_is_not_finite_is_a_fault_and_not_an_answer():
    import mlx.core as mx

    backend = opened_on("mlx")
    good = score(backend, 0, 0, [1, 2, 3])
    norm = backend._residents[MODEL].loaded().model.weights.model.norm
    kept, norm.weight = norm.weight, mx.full(norm.weight.shape, mx.nan)
    with pytest.raises(BackendFault, match=r"head 'yes' gives nan.*damaged"):
        score(backend, 0, 0, [1, 2, 3])
    norm.weight = kept
    assert score(backend, 0, 0, [1, 2, 3]) == good
