"""``coresident calibrate`` and what a device model does for other commands."""

from __future__ import annotations

from collections.abc import Callable
from importlib import resources
from pathlib import Path

import pytest
from coresident.runtime.backends.device_file import load_device, shipped

SAMPLE = str(resources.files("coresident.traces").joinpath("samples/chat.jsonl"))
MODELLED = '[device]\nbackend = "modelled"\nmodel = "{}"\n'


@pytest.fixture
def recording(cli: Callable, tmp_path: Path) -> Path:
    """Forty requests in virtual time, every third of them a decision or so."""
    rows = "".join(f"{5 * index},large,{20 + 37 * index % 400},{5 + index},0,API log\n" for index in range(40))
    source, workload, path = (tmp_path / name for name in ("b.csv", "workload.jsonl", "recording.jsonl"))
    source.write_text(f"Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n{rows}")
    assert cli("import", "burstgpt", source, workload, "--decisions", "0.3").code == 0
    assert cli("replay", workload, "--backend", "modelled", "--record", path).code == 0
    return path


def test_the_model_is_written_and_the_errors_are_told_metric_by_metric(
    cli: Callable, recording: Path, tmp_path: Path
) -> None:
    output = tmp_path / "device.toml"
    output.write_text("what was there before")
    done = cli("calibrate", recording, "--holdout", "0.4", "-o", output)
    assert done.code == 0
    for words in ("step times", "errors on 16 held-out requests", "queue wait", "gap of tokens", "A guess: copy"):
        assert words in done.out
    device = load_device(output)
    assert "calibrated" in device.label
    config = tmp_path / "c.toml"
    config.write_text(MODELLED.format(output))
    planned = cli("plan", "--config", config, "--json").json()
    assert planned["partition"] == device.partition


def test_for_machines_it_is_one_object(cli: Callable, recording: Path) -> None:
    found = cli("calibrate", recording, "--holdout", "0.4", "--json").json()
    assert set(found["errors"]) == {"queue_wait", "first_token", "token_gap", "decision"}
    assert (found["held_out"], found["output"]) == (16, None)
    assert {fit["kind"] for fit in found["fits"]} >= {"prefill", "decode", "decision"}
    assert set(found["above_goal"]) <= set(found["errors"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((SAMPLE, "--holdout", "1.5"), "holdout is 1.5"),
        (("missing.jsonl",), "missing.jsonl"),
        ((SAMPLE, "-o", "no/such/folder/d.toml"), "no/such/folder"),
        ((SAMPLE, "-o", SAMPLE), "chat.jsonl"),
        ((SAMPLE, "--holdout", "0.4"), "the part to fit has 10 steps of prefill, decode and decisions"),
    ],
)
def test_what_cannot_be_calibrated_is_told_with_its_name(cli: Callable, arguments: tuple[str, ...], message) -> None:
    done = cli("calibrate", *arguments)
    assert done.code != 0
    assert message in done.err


def test_plan_takes_the_limits_of_a_device_model(cli: Callable, tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    config.write_text(MODELLED.format("a100-llama2-70b"))
    planned = cli("plan", "--config", config, "--json").json()
    assert planned["partition"] == load_device("a100-llama2-70b").partition
    assert "A100" in planned["models"]["generation"]
    config.write_text(MODELLED.format("abacus"))
    refused = cli("plan", "--config", config)
    assert refused.code == 2
    assert "'abacus' is none of" in refused.err


def test_devices_lists_the_models_with_their_sources(cli: Callable) -> None:
    listed = cli("devices", "--json").json()["device_models"]
    assert [device["name"] for device in listed] == list(shipped())
    assert all(device["source"] and device["partition"] > 0 for device in listed)
    assert "a100-llama2-70b" in cli("devices").out
