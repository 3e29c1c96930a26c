"""``coresident plan`` and ``devices``: accounts, exactly, and what is missing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.backends import needs

MIB = 1024**2


def test_the_account_adds_up(cli: Callable, small: Path) -> None:
    done = cli("plan", "--config", small, "--json")
    plan = done.json()
    assert done.code == 0
    assert plan["fits"] is True
    assert set(plan) == {
        "fits",
        "backend",
        "models",
        "partition",
        "total",
        "free",
        "missing",
        "refusal",
        "context",
        "accounts",
        "margin",
        "buffers",
        "steps",
    }
    assert all(buffer["total"] == buffer["bytes"] * buffer["count"] for buffer in plan["buffers"])
    assert sum(buffer["total"] for buffer in plan["buffers"]) == sum(plan["accounts"].values()) == plan["total"]
    assert plan["free"] == plan["partition"] - plan["total"] >= 0
    assert plan["missing"] == 0
    assert plan["context"] == {"admitted": 2048, "shown": 2048, "cap": 2048, "next": None, "next_missing": None}
    assert {step["kind"] for step in plan["steps"]} == {"prefill", "decode", "decision"}


@given(partition=st.integers(20 * MIB, 30 * MIB))
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_the_next_step_misses_is_exactly_what_it_misses(cli: Callable, small: Path, partition: int) -> None:
    options = ("plan", "--config", small, "--context", 16384, "--retained", 0, "--json")
    plan = cli(*options, "--partition", partition).json()
    context = plan["context"]
    assert context["admitted"] < 16384
    assert context["next"] == context["admitted"] + 256
    assert context["next_missing"] > 0
    enough = partition + context["next_missing"]
    assert cli(*options, "--partition", enough).json()["context"]["admitted"] == context["next"]
    assert cli(*options, "--partition", enough - 1).json()["context"]["admitted"] == context["admitted"]


def test_a_partition_too_small_says_what_is_missing(cli: Callable, small: Path) -> None:
    done = cli("plan", "--config", small, "--partition", "12 MiB", "--json")
    plan = done.json()
    assert done.code == 3
    assert plan["fits"] is False
    assert plan["context"]["admitted"] == 0
    assert plan["context"]["shown"] == 256
    assert plan["missing"] == plan["total"] - 12 * MIB > 0
    shown = cli("plan", "--config", small, "--partition", "12 MiB")
    assert shown.code == 3
    assert "keys and values" in shown.out
    assert f"{plan['total']:,} bytes" in shown.out
    assert cli("plan", "--config", small, "--context", 256, "--partition", plan["total"]).code == 0


def test_budgets_larger_than_the_partition_are_shown_too(cli: Callable, small: Path) -> None:
    done = cli("plan", "--config", small, "--partition", "4 MiB", "--json")
    assert done.code == 3
    assert done.json()["missing"] > 0


def test_a_workspace_too_small_for_a_step_does_not_fit(cli: Callable, small: Path) -> None:
    done = cli("plan", "--config", small, "--workspace", "64 KiB", "--json")
    assert done.code == 3
    steps = done.json()["steps"]
    assert [step["fits"] for step in steps] == [step["charge"] <= 64 * 1024 for step in steps]
    assert not all(step["fits"] for step in steps)


def test_tables_are_for_people(cli: Callable, small: Path) -> None:
    done = cli("plan", "--config", small)
    assert done.code == 0
    for words in ("synthetic", "weights/generation", "workspace budget", "free", "Admitted context: 2,048 tokens"):
        assert words in done.out


def test_the_margin_of_estimated_charges_is_shown(cli: Callable, tmp_path: Path) -> None:
    needs("mlx")
    assert cli("plan", "--json").json()["margin"] is None
    path = tmp_path / "mlx.toml"
    path.write_text('device = { backend = "mlx", margin = 25 }\ngeneration = { model = "synthetic", context = 512 }')
    assert cli("plan", "--config", path, "--json").json()["margin"] == 25
    assert "with a margin of 25 %" in cli("plan", "--config", path).out


def test_devices_names_what_is_here(cli: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORESIDENT_MODEL", "missing.gguf")
    found = cli("devices", "--json").json()
    backends = {backend["name"]: backend["available"] for backend in found["backends"]}
    models = {model["name"]: model["available"] for model in found["models"]}
    assert backends["reference"] is True
    assert {"modelled", "mlx", "vulkan"} <= set(backends)
    assert (models["synthetic"], models["missing.gguf"]) == (True, False)
    assert found["machine"]["cores"] >= 1
    assert found["machine"]["memory"] > MIB
    shown = cli("devices")
    assert (shown.code, "reference" in shown.out) == (0, True)
