"""An import is whole or not at all, the same for the same input, and takes the same memory at any length."""

from __future__ import annotations

import gzip
import json
import tracemalloc

import pytest
from coresident.actors.errors import InvalidRequest, TraceInvalid
from coresident.traces.importers import FORMATS, Settings, emit, import_trace, summary
from coresident.traces.importers.names import Recent
from coresident.traces.reader import TraceReader
from imported_traces import AZURE, SMALL, imported


def azure_lines(count):
    yield "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
    for row in range(count):
        yield f"2023-11-16 {row // 3600:02}:{row // 60 % 60:02}:{row % 60:02}.0000001,{100 + row % 900},{row % 7}\r\n"


def mooncake_lines(count):
    for row in range(count):
        ids = [row % 3, 10 + row % 50, 70 + row % 11]
        yield json.dumps({"timestamp": row, "input_length": 1500, "output_length": 9, "hash_ids": ids}) + "\n"


def vllm_lines(count):
    for row in range(count):
        stamps = {"queued_ts": row, "first_token_ts": row + 1, "last_token_ts": row + 9 - row % 5}
        yield json.dumps({"input_toks": 70, "output_toks": 3} | stamps) + "\n"


LINES = {"azure": azure_lines, "mooncake": mooncake_lines, "vllm": vllm_lines}


def peak(folder, name, count):
    """The most that importing so many rows, and reading them again, takes."""
    source, output = folder / f"{name}.{count}", folder / "out.jsonl"
    with source.open("w", newline="") as file:
        file.writelines(LINES[name](count))
    tracemalloc.start()
    try:
        assert import_trace(name, source, output).rows == count
        with TraceReader(output) as reader:
            for _ in reader:
                pass
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", LINES)
def test_memory_does_not_grow_with_the_trace(tmp_path, name):
    peak(tmp_path, name, 10)
    short, long = peak(tmp_path, name, 300), peak(tmp_path, name, 4500)
    # Buffers fill up and garbage comes and goes: less than the smallest object a row would be more than that.
    assert long < short + 230_000


def test_names_are_remembered_up_to_a_number():
    names = Recent(size=2)
    for name in ("a", "b", "a", "c"):
        names.put(name, name)
    assert [names.get(name, "") for name in "abc"] == ["a", "", "c"]


@pytest.mark.parametrize("name", FORMATS)
def test_equal_inputs_give_equal_bytes_however_they_are_packed(tmp_path, name):
    plain = SMALL[name].encode()
    variants = [plain, gzip.compress(plain), b"\xef\xbb\xbf" + plain, plain.replace(b"\n", b"\r\n"), plain.rstrip()]
    found = set()
    for data in variants:
        imported(tmp_path, name, data)
        found.add((tmp_path / "out.jsonl").read_bytes())
    assert len(found) == 1


@pytest.mark.parametrize(
    ("error", "seen_as"), [(KeyboardInterrupt, KeyboardInterrupt), (OSError, InvalidRequest), (TypeError, TypeError)]
)
def test_nothing_half_written_is_left_and_what_was_there_stays(tmp_path, error, seen_as):
    (tmp_path / "source").write_text("".join(azure_lines(3000)))
    output = tmp_path / "out.jsonl"
    output.write_text("before")
    seen = []

    def stop(rows, read, total):
        seen.append((rows, read, total))
        assert len(list(tmp_path.glob(".out.jsonl.*"))) == 1
        if rows == 2000:
            raise error

    with pytest.raises(seen_as):
        import_trace("azure", tmp_path / "source", output, progress=stop)
    assert output.read_text() == "before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.jsonl", "source"]
    assert [rows for rows, _, _ in seen] == [1000, 2000]
    assert 0 < seen[0][1] <= seen[1][1] <= seen[1][2] == (tmp_path / "source").stat().st_size


def test_an_output_that_was_there_is_replaced_by_a_whole_import(tmp_path):
    (tmp_path / "out.jsonl").write_text("before")
    _, events, _ = imported(tmp_path, "azure", AZURE)
    assert len(events) == 2


def test_a_link_leads_to_its_file(tmp_path):
    (tmp_path / "real.jsonl").write_text("before")
    (tmp_path / "out.jsonl").symlink_to(tmp_path / "real.jsonl")
    imported(tmp_path, "azure", AZURE)
    assert (tmp_path / "out.jsonl").is_symlink()
    assert b"arrive.generation" in (tmp_path / "real.jsonl").read_bytes()


def test_a_limit_takes_the_first_requests_and_is_the_head_of_the_whole(tmp_path):
    text = "".join(mooncake_lines(50))
    _, whole, _ = imported(tmp_path, "mooncake", text, decisions=0.5)
    _, head, summary = imported(tmp_path, "mooncake", text, decisions=0.5, limit=20)
    assert summary.rows == 20
    assert head == whole[:20]


def test_hits_are_not_told_when_there_are_more_blocks_than_are_counted(tmp_path, monkeypatch):
    text = "".join(mooncake_lines(60))
    monkeypatch.setattr(summary, "_REMEMBERED", 63)
    assert imported(tmp_path, "mooncake", text)[2].hit_share is None
    monkeypatch.setattr(summary, "_REMEMBERED", 64)
    assert imported(tmp_path, "mooncake", text)[2].hit_share is not None


def test_a_row_behind_the_limit_is_not_read(tmp_path):
    _, events, _ = imported(tmp_path, "mooncake", "".join(mooncake_lines(2)) + "damage\n", limit=2)
    assert len(events) == 2


def test_a_prompt_of_too_many_blocks_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(emit, "MOST_BLOCKS", 2)
    with pytest.raises(TraceInvalid, match="row 1: its prompt has 3 blocks of 512 tokens; up to 2 are written"):
        imported(tmp_path, "mooncake", "".join(mooncake_lines(1)))


def test_a_prompt_of_a_million_tokens_is_written_and_read(tmp_path):
    _, events, _ = imported(tmp_path, "azure", AZURE.replace("374", str(2**20)), block_size=16)
    assert (events[0].prompt.tokens, len(events[0].prompt.blocks)) == (2**20, 2**16)


def test_settings_have_neutral_defaults():
    assert Settings() == Settings(limit=None, seed=0, decisions=0.0, block_size=None, shared_head=0, spacing_s=0.0)
