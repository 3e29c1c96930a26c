"""``coresident doctor`` and ``coresident plan --probe``: verdicts to attach to a report."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from coresident.runtime.backends.reference.workspace import ScratchWorkspace
from coresident.runtime.models.tokenizer import Tokenizer

from coresident.cli.demo import modest
from support import tiny_models
from support.backends import NAMES, needs
from support.mlx_models import write_quantized


@pytest.fixture
def breaching(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps that took more than they were charged for."""
    monkeypatch.setattr(ScratchWorkspace, "peak", lambda space: space.charge + 1)


@pytest.mark.parametrize("backend", NAMES)
def test_the_doctor_finds_this_machine_well(backend: str, cli: Callable) -> None:
    needs(backend)
    done = cli("doctor", "--backend", backend, "--model", "synthetic", "--quick", "--json")
    report = done.json()
    assert (done.code, report["good"], report["backend"]) == (0, True, backend)
    assert {finding["check"] for finding in report["findings"]} == {"memory", "identity", "decision", "workspace"}
    assert {finding["outcome"] for finding in report["findings"]} == {"ok"}
    assert {step["kind"] for step in report["tightest_steps"]} == {"warmup", "prefill", "decode", "decision"}
    assert report["environment"]["coresident"]
    for named in ("mlx", "vulkan"):
        assert (f"{named} device" in report["environment"]) == (backend == named)


def test_a_quantized_folder_goes_through_the_commands(cli: Callable, tmp_path: Path) -> None:
    """One in the MLX community's form, which the other backends don't read; its characters are its tokens."""
    needs("mlx")
    folder = write_quantized(tmp_path / "tiny-4bit", tiny_models.write_folder(tmp_path / "plain", "llama"))
    lettered = Tokenizer.from_gguf(tiny_models.write_gguf(tmp_path / "letters.gguf", "llama", tokenizer=True))
    (folder / "tokenizer.json").write_text(lettered.inner.to_str(), encoding="utf-8")
    report = cli("doctor", "--backend", "mlx", "--model", folder, "--quick", "--json").json()
    assert report["good"], [finding for finding in report["findings"] if finding["outcome"] == "FAILED"]
    assert report["model"] == "tiny-4bit (llama, 4 bits in groups of 32, safetensors)"
    assert modest(str(folder), "mlx").generation.context == 256
    refused = cli("doctor", "--backend", "reference", "--model", folder)
    assert (refused.code, "quantization" in refused.err) == (2, True)


def test_the_doctors_tables_are_for_people(cli: Callable) -> None:
    done = cli("doctor", "--quick")
    assert done.code == 0
    for words in ("synthetic checkpoint", "environment", "suspended and resumed", "bit-equal", "All 18 checks passed"):
        assert words in done.out


def test_a_failed_check_is_said_and_ends_with_exit_code_1(cli: Callable, breaching: None) -> None:
    done = cli("doctor", "--quick")
    assert done.code == 1
    assert "FAILED" in done.out
    assert "please report this" in done.out
    machine = cli("doctor", "--quick", "--json")
    assert (machine.code, machine.json()["good"]) == (1, False)


def test_a_backend_that_computes_nothing_has_no_doctor(cli: Callable) -> None:
    done = cli("doctor", "--backend", "modelled")
    assert done.code == 2
    assert "computes nothing" in done.err


@pytest.mark.parametrize("backend", NAMES)
def test_a_probe_measures_the_largest_steps(backend: str, cli: Callable, small: Path) -> None:
    needs(backend)
    options = ("plan", "--config", small, "--backend", backend, "--context", 300, "--workspace", "32 MiB", "--probe")
    done = cli(*options, "--json")
    plan = done.json()
    assert done.code == 0
    probed = {step["kind"]: step for step in plan["probe"]}
    assert set(probed) == {"warmup", "prefill", "decode", "decision"}
    for kind in ("prefill", "decode", "decision"):
        # Prefills are of both roles: an instruction may be longer here than a prompt.
        planned = [step["charge"] for step in plan["steps"] if step["kind"] == kind]
        assert len(planned) == 1 + (kind == "prefill")
        assert probed[kind]["largest"]["charge"] == max(planned)
    assert not any(step["breach"] for step in probed.values())
    assert all(0 < step["tightest"]["peak"] <= step["tightest"]["charge"] for step in probed.values())
    assert "within the charge" in cli(*options).out


def test_a_probe_that_finds_a_breach_ends_with_exit_code_1(cli: Callable, small: Path, breaching: None) -> None:
    done = cli("plan", "--config", small, "--context", 256, "--probe")
    assert done.code == 1
    assert "MORE THAN CHARGED" in done.out


def test_what_does_not_fit_is_not_probed(cli: Callable, small: Path) -> None:
    done = cli("plan", "--config", small, "--workspace", "64 KiB", "--probe", "--json")
    assert done.code == 3
    assert "probe" not in done.json()


def test_a_modelled_device_has_nothing_to_probe(cli: Callable) -> None:
    done = cli("plan", "--backend", "modelled", "--context", 256, "--probe")
    assert done.code == 2
    assert "computes nothing" in done.err
