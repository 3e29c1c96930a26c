"""Bad input: an exit code, one message that says what to do, and no traceback."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import structlog

from coresident.cli.logs import Level, configure
from support.tiny_models import write_folder


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("plan", "--partition", "12x"), "--partition"),
        (("plan", "--partition", "0"), "--partition is 0"),
        (("plan", "--context", "-1"), "--context is -1"),
        (("plan", "--backend", "abacus"), "abacus"),
        (("plan", "--model", "no/such.gguf"), "no/such.gguf"),
        (("plan", "--config", "no/such.toml"), "no/such.toml"),
        (("demo", "--model", "synthetic", "--policy", "chaos"), "chaos"),
        (("demo", "--model", "synthetic", "--policy", "no.such.module:policy"), "no.such.module"),
        (("chat", "--backend", "abacus"), "abacus"),
        (("replay", "no/such.jsonl"), "no/such.jsonl"),
    ],
)
def test_bad_input_ends_with_2_and_names_what_is_wrong(cli: Callable, arguments: tuple[str, ...], named: str) -> None:
    done = cli(*arguments)
    assert (done.code, done.out) == (2, "")
    assert named in done.err
    assert len(done.err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[device]\npartitoin = 1", "partitoin"),
        ("[device]\npartition = 'much'", "much"),
        ("[generation]\ncontext = -3", "context"),
        ("[device", "toml"),
    ],
)
def test_a_bad_configuration_names_file_and_key(cli: Callable, tmp_path: Path, text: str, named: str) -> None:
    path = tmp_path / "my.toml"
    path.write_text(text)
    done = cli("plan", "--config", path)
    assert done.code == 2
    assert named in done.err
    assert "my.toml" in done.err


def test_with_json_errors_are_json(cli: Callable) -> None:
    done = cli("plan", "--json", "--model", "no/such.gguf")
    error = json.loads(done.err)
    assert done.code == 2
    assert error["error"] == "ArtifactInvalid"
    assert error["details"]["value"] == "no/such.gguf"
    assert "no/such.gguf" in error["message"]


def test_debug_shows_where_it_was_raised(cli: Callable) -> None:
    assert cli("--debug", "plan", "--model", "no/such.gguf").code == 1


def test_usage_errors_end_with_2_and_help_documents_the_codes(cli: Callable) -> None:
    assert cli("plan", "--bogus").code == 2
    assert cli("plan", "--context", "many").code == 2
    for arguments in (("--help",), ("plan", "--help"), ("replay", "-h")):
        done = cli(*arguments)
        assert done.code == 0
        assert "Exit codes" in done.out
    assert "130 interrupted" in " ".join(cli("--help").out.split())
    assert "130" not in cli("plan", "--help").out, "the list is in one place, and every command says where"
    assert cli("--version").out.startswith("coresident ")


def test_a_prompt_that_does_not_fit_ends_with_3(cli: Callable, small: Path, tmp_path: Path) -> None:
    tight = tmp_path / "tight.toml"
    tight.write_text(small.read_text().replace("2048", "512"))
    done = cli("demo", "--config", tight, "--tokens", 10, "--no-check")
    assert done.code == 3
    assert "512 tokens" in done.err


def test_a_partition_too_small_ends_with_3(cli: Callable, small: Path, tmp_path: Path) -> None:
    tight = tmp_path / "tight.toml"
    tight.write_text(small.read_text().replace("64 MiB", "13 MiB"))
    done = cli("demo", "--config", tight, "--tokens", 10)
    assert done.code == 3
    assert "missing" in done.err


@pytest.mark.parametrize("kept", [1000, 1_000_000, 50_000_000])
def test_a_truncated_gguf_is_refused(cli: Callable, smollm2_path: Path, tmp_path: Path, kept: int) -> None:
    cut = tmp_path / "cut.gguf"
    with smollm2_path.open("rb") as file:
        cut.write_bytes(file.read(kept))
    done = cli("plan", "--model", cut)
    assert done.code == 2
    assert "cut.gguf" in done.err


def test_a_missing_shard_is_refused(cli: Callable, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "tiny", "llama", shards=2)
    missing = sorted(folder.glob("*.safetensors"))[1]
    missing.unlink()
    done = cli("plan", "--model", folder)
    assert done.code == 2
    assert missing.name in done.err


def test_logs_are_json_where_nobody_reads(capsys: pytest.CaptureFixture[str]) -> None:
    configure(Level.WARNING)
    log = structlog.get_logger()
    log.info("quiet")
    log.warning("loud", request="g1")
    out, err = capsys.readouterr()
    line = json.loads(err)
    assert out == ""
    assert (line["event"], line["level"], line["request"]) == ("loud", "warning", "g1")


def test_importing_the_library_configures_no_logging() -> None:
    probe = "import coresident, structlog, sys; sys.exit(structlog.is_configured())"
    assert subprocess.run([sys.executable, "-c", probe], check=False).returncode == 0
