"""``coresident import``: a workload from another format, told in a few lines, or an error that can be acted on."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from coresident.traces.reader import TraceReader

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.68,374,44\n2023-11-16 18:15:50.99,396,9\n"
MOONCAKE = (
    '{"timestamp": 0, "input_length": 1024, "output_length": 5, "hash_ids": [0, 1]}\n'
    '{"timestamp": 1500, "input_length": 1030, "output_length": 2, "hash_ids": [0, 1, 2]}\n'
)


@pytest.fixture
def azure(tmp_path: Path) -> Path:
    path = tmp_path / "azure.csv"
    path.write_text(AZURE)
    return path


def test_an_import_is_told_in_a_few_lines_and_can_be_shown_and_replayed(
    cli: Callable, azure: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out.jsonl"
    done = cli("import", "azure", azure, output)
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == [
        f"{output}: 2 requests of {azure} (azure).",
        "Arrivals: 2 foreground, over 4.3 s; 0 failed at the source.",
        "Tokens: 770 in prompts, 53 generated, in blocks of 64; the longest request needs a context of 418.",
        "The source tells no ends, and nothing of what prompts share.",
    ]
    assert cli("show", output).code == 0
    replayed = cli("replay", output, "--backend", "modelled")
    assert replayed.code == 0
    assert "2 completed" in replayed.out


def test_the_share_of_blocks_seen_before_is_told_where_the_source_names_them(cli: Callable, tmp_path: Path) -> None:
    (tmp_path / "m.jsonl").write_text(MOONCAKE)
    done = cli("import", "mooncake", tmp_path / "m.jsonl", tmp_path / "out.jsonl", "--decisions", "1", "--json")
    assert done.code == 0
    summary = done.json()["import"]
    assert summary["hit_share"] == 2 / 5
    assert summary["requests"] == {"decision": 2}
    done = cli("import", "mooncake", tmp_path / "m.jsonl", tmp_path / "out.jsonl")
    assert "40.0% of the prompts' blocks were seen before" in done.out


def test_what_is_written_is_told_beside_what_the_source_has(cli: Callable, tmp_path: Path) -> None:
    (tmp_path / "m.jsonl").write_text(MOONCAKE)
    done = cli("import", "mooncake", tmp_path / "m.jsonl", tmp_path / "out.jsonl", "--decisions", "1")
    written = 1024 + 1030 + 2 * 128
    assert "generations with 0 tokens in prompts and 0 to generate" in done.out
    assert f"decisions with {written:,} tokens in instructions and rows" in done.out


def test_the_models_of_the_source_are_told_where_there_are_several(cli: Callable, tmp_path: Path) -> None:
    rows = "5,large,472,18,490,API log\n6,small,10,0,10,API log\n7,large,9,1,10,API log\n"
    source = tmp_path / "b.csv"
    source.write_text(f"Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n{rows}")
    done = cli("import", "burstgpt", source, tmp_path / "out.jsonl")
    assert "the source has 2 models (large 2, small 1): here one model serves all" in done.out


def test_a_row_that_generated_nothing_is_a_failure_and_outcomes_that_no_source_tells_are_not_compared(
    cli: Callable, azure: Path, tmp_path: Path
) -> None:
    azure.write_text(AZURE + "2023-11-16 18:15:51.0,5,0\n")
    output = tmp_path / "out.jsonl"
    assert "1 failed at the source" in cli("import", "azure", azure, output).out
    done = cli("replay", output, "--backend", "modelled")
    told = "Outcomes: 3 completed; 1 had failed when recorded; the source tells no outcomes to compare with."
    assert (done.code, done.out.splitlines()[-1]) == (0, told)
    assert "Drift" not in done.out


@pytest.mark.parametrize(("apart", "overloaded"), [(10, False), (0.001, True)])
def test_a_replay_says_when_the_device_was_offered_more_than_it_can_do(
    cli: Callable, tmp_path: Path, apart: float, overloaded: bool
) -> None:
    rows = "".join(f"{index * apart},large,400,20,420,API log\n" for index in range(20))
    source = tmp_path / "b.csv"
    source.write_text(f"Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n{rows}")
    assert cli("import", "burstgpt", source, tmp_path / "out.jsonl").code == 0
    done = cli("replay", tmp_path / "out.jsonl", "--backend", "modelled")
    assert ("times what it can do" in done.out) is overloaded
    figure = cli("replay", tmp_path / "out.jsonl", "--backend", "modelled", "--json").json()["overload"]
    assert (figure is not None and figure > 2) is overloaded


def test_options_reach_the_import(cli: Callable, azure: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    options = ("--limit", "1", "--seed", "5", "--decisions", "0.0", "--block-size", "16", "--shared-head", "32")
    assert cli("import", "azure", azure, output, *options).code == 0
    with TraceReader(output) as reader:
        (arrival,) = reader
        assert (reader.header.seed, reader.header.block_size) == (5, 16)
        assert arrival.prompt.blocks[:2] == (1, 2)


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("burstgpt",), "it looks like an Azure LLM inference trace (CSV): coresident import azure INPUT OUTPUT"),
        (("mooncake",), "it looks like an Azure LLM inference trace (CSV): coresident import azure INPUT OUTPUT"),
        (("azure", "--prepare"), "azure does not tell when turns ended"),
        (("azure", "--decisions", "2"), "decisions is 2.0: a share from 0 to 1 is taken"),
        (("parquet",), "'parquet' is not one of 'mooncake'"),
        (("azure", "--limit", "0"), "--limit"),
    ],
)
def test_what_cannot_be_imported_ends_with_2_and_leaves_nothing(
    cli: Callable, azure: Path, tmp_path: Path, arguments: tuple[str, ...], what: str
) -> None:
    name, *options = arguments
    done = cli("import", name, azure, tmp_path / "out.jsonl", *options)
    assert done.code == 2
    assert what in " ".join(done.err.replace("│", " ").split())
    assert list(tmp_path.iterdir()) == [azure]


def test_a_trace_in_another_format_says_how_to_import_it(cli: Callable, azure: Path) -> None:
    done = cli("replay", azure)
    assert done.code == 2
    assert "import it first: coresident import azure INPUT OUTPUT" in done.err


@pytest.mark.skipif(os.name != "posix", reason="named pipes and signals are POSIX's")
def test_ctrl_c_ends_it_with_130_and_leaves_nothing(started: Callable, tmp_path: Path) -> None:
    pipe = tmp_path / "endless.csv"
    os.mkfifo(pipe)
    process = started("import", "azure", pipe, tmp_path / "out.jsonl")
    with pipe.open("w") as feed:
        feed.write(AZURE)
        feed.flush()
        while not list(tmp_path.glob(".out.jsonl.*")):
            feed.write("2023-11-16 18:15:59.0,1,1\n" * 1000)
            feed.flush()
        process.send_signal(signal.SIGINT)
        process.wait(60)
    assert process.returncode == 130
    assert list(tmp_path.iterdir()) == [pipe]


@pytest.mark.skipif(os.name != "posix", reason="named pipes are POSIX's")
def test_a_pipe_is_read_to_its_end(started: Callable, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.csv"
    os.mkfifo(pipe)
    process = started("import", "azure", pipe, tmp_path / "out.jsonl")
    with pipe.open("w") as feed:
        feed.write(AZURE + "2023-11-16 18:15:59.0,1,1\n" * 2500)
    assert process.wait(60) == 0
    assert b"2,502 requests" in process.stdout.read()
