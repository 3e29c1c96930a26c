"""``coresident show``: the samples and recorded runs, as text and as JSON."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import coresident.traces
import pytest
from coresident.traces.blocks import BlockTable
from coresident.traces.codec import encode
from coresident.traces.events_schedule import (
    Advance,
    ChargeFault,
    Drop,
    EndCheckpoint,
    EndDecision,
    EndGeneration,
    EndPreparation,
    Grant,
    Measures,
    PolicyFaulted,
    Ready,
    Refuse,
    Retain,
    Reuse,
    Seat,
    Step,
    Tokens,
    Yield,
)
from coresident.traces.events_workload import (
    ArriveCheckpoint,
    ArriveDecision,
    ArriveGeneration,
    ArrivePreparation,
    Pin,
    Release,
)
from coresident.traces.reader import TraceReader

from support.commands import write_trace
from support.reporting import never_run, with_outcomes

SAMPLES = sorted((Path(coresident.traces.__file__).parent / "samples").glob("*.jsonl"))
BLOCKS = BlockTable(64)
ODD = "talk\x1b[2J"


def content(tokens):
    return BLOCKS.describe(range(tokens))


EVENTS = (
    Ready(0, 1, "ready", 1024),
    ArrivePreparation(10**9, "p1", content(130), 10, "i", ODD),
    Seat(10**9, "p1", 0),
    Grant(10**9, 1, "generation/1", "generation", ("p1",), "preparation", "prefill", 8, 0, False, 1, 128, 128),
    ArriveDecision(10**9, "d1", content(4), (content(2),), ("rank",), "i"),
    Yield(10**9, 1, "generation/1", "decision/1"),
    Step(2 * 10**9, 1, "generation/1", "suspended", Measures(8, 10**9, 2, 10**9, 10**9)),
    Grant(2 * 10**9, 2, "decision/1", "decision", ("d1",), "decision", "decision", 8, 10**9),
    Step(3 * 10**9, 2, "decision/1", "finished", Measures(8, 10**9, 1, 10**9, 10**9)),
    EndDecision(3 * 10**9, "d1", "abstained", "deadline", 1, 2, 0),
    Grant(3 * 10**9, 3, "generation/1", "generation", ("p1",), "preparation", "prefill", 8, 0, True, 1, 128, 128),
    Step(4 * 10**9, 3, "generation/1", "finished", Measures(8, 10**9, 1, 10**9, 2 * 10**9)),
    Advance(4 * 10**9, "p1", 128, 128),
    EndPreparation(4 * 10**9, "p1", "prepared", 128, 0, 128),
    Retain(4 * 10**9, "generation", 1, 128, 4096, "p1"),
    ArriveGeneration(5 * 10**9, "g1", "foreground", content(100), 5, "i"),
    Reuse(5 * 10**9, "g1", 100, 99, 64, "static_prefix", 1),
    ArrivePreparation(5 * 10**9, "p2", content(128), 10, "i"),
    Seat(5 * 10**9, "p2", 128, 1),
    ArriveGeneration(6 * 10**9, "g2", "foreground", content(129), 5, "i"),
    Reuse(6 * 10**9, "g2", 129, 128, 0, "none", taken_from="p2"),
    EndPreparation(6 * 10**9, "p2", "promoted", 128, 128, 0),
    Tokens(7 * 10**9, "g1", (2 * 10**9,)),
    EndGeneration(7 * 10**9, "g1", "completed", "length", 100, 64, 36, 1),
    Drop(7 * 10**9, "generation", 1, 128, 4096, "evicted"),
    Refuse(7 * 10**9, "g2", "Overloaded"),
    Pin(8 * 10**9, ODD),
    Pin(8 * 10**9, ODD, pinned=False),
    Release(8 * 10**9, ""),
    ArriveCheckpoint(8 * 10**9, "c1", "store", 128, "i"),
    EndCheckpoint(8 * 10**9, "c1", "completed", "", 128, 4096),
    ArriveCheckpoint(8 * 10**9, "c2", "fetch", 128, "i"),
    EndCheckpoint(8 * 10**9, "c2", "failed", "ArtifactInvalid", 128, 4096, "ArtifactInvalid"),
    Retain(8 * 10**9, "generation", 2, 140, 384, "g3", 128, 1),
    ChargeFault(8 * 10**9, "generation/9", 1024, 2048),
    PolicyFaulted(8 * 10**9, "quantum", "it raised"),
    Ready(9 * 10**9, 2, "faulted", 0, "DeviceLost"),
)
TOLD = (
    (0, "ready, with a context of 1,024 tokens"),
    (3, "decision d1 abstained (deadline) after 2.00 s; it interrupted the prefill of p1"),
    (4, "preparation p1 prepared: 128 of 128 tokens there, 128 of them computed; it gave way 1 time"),
    (6, "preparation p2 promoted: g2 takes it over at token 0 of 128"),
    (7, "foreground g1 completed (length): 1 token, the first after 2.00 s; 64 of 100 prompt tokens reused"),
    (7, "a retained prefix of 128 tokens (4.0 KiB) is evicted"),
    (7, "foreground g2 is refused: Overloaded"),
    (8, r"what is retained for talk\x1b[2J is pinned"),
    (8, r"what is retained for talk\x1b[2J is no longer pinned"),
    (8, "what is retained for no conversation is released"),
    (8, "store of a prefix c1 completed: 128 tokens, 4.0 KiB"),
    (8, "fetch of a prefix c2 failed (ArtifactInvalid)"),
    (8, "step generation/9 used 2.0 KiB, and was charged 1.0 KiB"),
    (8, "the quantum policy failed and was replaced: it raised"),
    (9, "faulted: DeviceLost"),
)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    with TraceReader(SAMPLES[0]) as reader:
        header = encode(reader.header)
    return write_trace(tmp_path / "t.jsonl", [header, *map(encode, EVENTS)])


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.stem)
def test_the_samples_are_shown(cli: Callable, monkeypatch: pytest.MonkeyPatch, sample: Path, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    done = cli("show", sample)
    assert done.code == 0
    for words in ("Model: Smollm2", "Policies: ordering strict", "foreground", "Ledger:", "ready, with a context"):
        assert words in done.out
    assert "\x1b" not in done.out
    tables = [line for line in done.out.splitlines() if line.startswith(" ") or " s  " in line]
    assert max(len(line.rstrip()) for line in tables) <= columns


def test_the_preparation_sample_says_what_its_tokens_were_worth(cli: Callable) -> None:
    (sample,) = (path for path in SAMPLES if path.stem == "preparation")
    done, data = cli("show", sample), cli("show", sample, "--json").json()
    total = data["statistics"]["preparation"]
    assert {"prepared", "superseded", "promoted"} <= set(total["outcomes"])
    assert f"{total['used']:,} of {total['computed']:,} prepared tokens were used" in done.out
    assert total["used"] + total["kept"] + total["evicted"] + total["wasted"] == total["computed"]
    assert data["statistics"]["classes"]["foreground"]["prepared"] >= total["used"] > 0
    for account in total["accounts"]:
        assert sum(use["tokens"] for use in account["uses"]) == account["used"]


def test_notable_things_are_told_in_words(cli: Callable, trace: Path) -> None:
    data = cli("show", trace, "--json").json()
    assert [(moment["at"], moment["words"]) for moment in data["timeline"]] == [
        (seconds * 10**9, words) for seconds, words in TOLD
    ]


def test_files_and_shared_heads_are_summed_up(cli: Callable, trace: Path) -> None:
    done = cli("show", trace)
    for line in (
        "Prefixes to store: 1 (1 completed); 128 tokens, 4.0 KiB.",
        "Prefixes to fetch: 1 (1 failed); 0 tokens, 0 B.",
        "Retained prefixes: at most 4.0 KiB; 128 tokens of heads were not stored again.",
    ):
        assert line in done.out


def test_the_account_by_hand(cli: Callable, trace: Path) -> None:
    """128 tokens in 2 s are 15.6 ms each: 64 of them saved 1 s, the others went unused with their prefix."""
    done = cli("show", trace)
    row = next(line for line in done.out.splitlines() if line.startswith("1.00 s  p1"))
    assert " ".join(row.split()) == r"1.00 s p1 talk\x1b[2J prepared 128 128 g1 64 1.00 s 64 evicted"
    assert (
        "64 of 128 prepared tokens were used, which saved about 1.00 s before first tokens, at 16 ms a token in this "
        "run; 0 were kept, 64 evicted, 0 wasted."
    ) in done.out
    assert "64 of these prepared" in done.out
    assert "\x1b" not in done.out


def test_a_limit_cuts_the_text_and_not_the_json(cli: Callable, trace: Path) -> None:
    done = cli("show", trace, "--limit", 1)
    assert f"and {len(TOLD) - 1} more: --limit" in done.out
    assert "and 1 more: --limit" in done.out
    assert "g2 takes it over" not in done.out
    assert len(cli("show", trace, "--limit", 1, "--json").json()["timeline"]) == len(TOLD)


def test_a_run_without_preparation_has_no_account(cli: Callable) -> None:
    (sample,) = (path for path in SAMPLES if path.stem == "chat")
    assert "prepared tokens" not in cli("show", sample).out
    assert cli("show", sample, "--json").json()["statistics"]["preparation"] is None


def test_an_import_that_never_ran_says_what_it_asks_for_and_no_more(cli: Callable, tmp_path: Path) -> None:
    path = never_run(tmp_path / "azure.jsonl")
    done = cli("show", path)
    assert (done.code, done.err) == (0, "")
    told, advice = done.out.splitlines()
    assert told == (
        f"{path}, imported from azure, not run: 1 decision and 2 foreground requests, arriving over 2.00 s; "
        "235 prompt tokens, 7 generated at the source, longest context 107 tokens."
    )
    assert f"coresident replay {path} --backend modelled" in advice
    assert "coresident simulate" in advice
    assert cli("show", path, "--json").json()["header"]["imported"] == "azure"


def test_an_import_with_outcomes_shows_those_and_no_device(cli: Callable, tmp_path: Path) -> None:
    done = cli("show", with_outcomes(tmp_path / "vllm.jsonl"))
    for words in ("imported from vllm, not run: 2 foreground requests", "At its source:", "2 completed"):
        assert words in done.out
    assert not any(words in done.out for words in ("Device:", "Ledger:", "timeline", "context of 0"))


def test_a_trace_that_is_cut_or_missing_is_refused(cli: Callable, trace: Path, tmp_path: Path) -> None:
    trace.write_bytes(trace.read_bytes()[:-40])
    cut, missing = cli("show", trace), cli("show", tmp_path / "none.jsonl")
    assert (cut.code, missing.code) == (2, 2)
    assert (cut.out, missing.out) == ("", "")
    assert "cut" in cut.err
    assert cli("show", trace, "--limit", 0).code == 2
