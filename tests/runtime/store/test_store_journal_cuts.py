"""A journal cut at every byte and flipped in every record: recovered where an append can have torn it, refused else."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import attrs
import pytest
from coresident.actors.errors import ArtifactInvalid
from coresident.runtime.store.canonical import canonical
from coresident.runtime.store.folders import Folder
from coresident.runtime.store.journal import NAME, Journal
from coresident.runtime.store.records import Contents, Record, read_records

from support.faulty_layer import FaultyLayer
from support.stores import Unsynced

DIGESTS = ("ab" * 32, "cd" * 32, "ef" * 32)


def written() -> tuple[bytes, list[Record], list[int]]:
    """Three records: their bytes, themselves, and where each of them ends."""
    contents, data, ends = Contents(), b"", []
    for digest in DIGESTS:
        data += contents.following("org/J-model", "any", digest).line()
        ends.append(len(data))
        contents = read_records(data, "journal")
    return data, list(contents.records), ends


DATA, RECORDS, ENDS = written()


def test_R38_cut_at_every_byte_the_whole_records_stand_and_the_next_append_follows_them(tmp_path: Path) -> None:
    path = tmp_path / NAME
    with Folder.at(tmp_path, Unsynced()) as folder:
        journal = Journal(folder)
        for cut in range(len(DATA) + 1):
            whole = sum(end <= cut for end in ENDS)
            path.write_bytes(DATA[:cut])
            read = journal.read()
            assert list(read.records) == RECORDS[:whole]
            assert read.torn == cut - read.whole
            assert path.read_bytes() == DATA[:cut], "a reader changes nothing"
            added = journal.append("org/J-model", "any", DIGESTS[0])
            assert path.read_bytes() == DATA[: read.whole] + added.line()


def test_R38_a_torn_rest_is_cut_off_and_synced_under_the_lock_before_the_append(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(DATA[:-9])
    layer = FaultyLayer()
    with Folder.at(tmp_path, layer) as folder, Journal(folder).held() as journal:
        assert journal.recover() == len(DATA) - ENDS[1] - 9
        assert (journal.recover(), journal.contents.torn) == (0, 0)
        journal.append("org/J-model", "any", DIGESTS[2])
    mattering = [name for name in layer.operations if name in ("lock", "truncate", "write", "fsync")]
    assert mattering == ["lock", "truncate", "fsync", "write", "fsync", "fsync"]
    assert (tmp_path / NAME).read_bytes() == DATA


@pytest.mark.parametrize("bit", range(8))
def test_R39_R41_one_bit_flipped_in_any_byte_of_any_record_is_an_error(bit: int) -> None:
    for position in range(len(DATA)):
        damaged = bytearray(DATA)
        damaged[position] ^= 1 << bit
        with pytest.raises(ArtifactInvalid, match="the journal is damaged"):
            read_records(bytes(damaged), "journal")


def test_R41_the_last_end_of_line_changed_into_any_other_byte_is_an_error() -> None:
    for byte in range(256):
        if byte != ord("\n"):
            with pytest.raises(ArtifactInvalid, match="whole record without its end of line"):
                read_records(DATA[:-1] + bytes([byte]), "journal")


@pytest.mark.parametrize("left", [40, ENDS[0] - 1])
def test_R39_damage_before_a_torn_rest_is_an_error_and_in_it_never_costs_a_whole_record(left: int) -> None:
    data = DATA[: ENDS[1] + left]
    for position in range(len(data)):
        for bit in range(8) if position >= ENDS[1] else (position % 8,):
            damaged = bytearray(data)
            damaged[position] ^= 1 << bit
            allowed = (RECORDS[:2], "refused") if position >= ENDS[1] else ("refused",)
            assert outcome(bytes(damaged)) in allowed


def outcome(data: bytes) -> list[Record] | str:
    """The records that are read, or that they are refused."""
    try:
        return list(read_records(data, "journal").records)
    except ArtifactInvalid:
        return "refused"


def test_R39_every_byte_inserted_or_removed_before_the_end_is_an_error() -> None:
    for position in range(len(DATA)):
        for other in (DATA[:position] + b"a" + DATA[position:], DATA[:position] + b"\n" + DATA[position:]):
            with pytest.raises(ArtifactInvalid):
                read_records(other, "journal")
        if position < len(DATA) - 1:
            with pytest.raises(ArtifactInvalid):
                read_records(DATA[:position] + DATA[position + 1 :], "journal")


def test_R39_records_out_of_order_repeated_or_left_out_are_an_error() -> None:
    first, second, third = DATA.splitlines(keepends=True)
    for lines in ([second], [first, third], [second, first], [first, first], [first, second, second], [third, DATA]):
        with pytest.raises(ArtifactInvalid, match="does not follow"):
            read_records(b"".join(lines), "journal")


def test_R41_a_whole_last_record_that_is_not_valid_is_an_error_and_nothing_is_cut(tmp_path: Path) -> None:
    forged = attrs.evolve(RECORDS[2], manifest=DIGESTS[0])
    checked = {**attrs.asdict(forged), "version": True, "checksum": forged.checksum}
    for last in (
        b"\n",
        b"{}\n",
        DATA[ENDS[1] : -2] + b"\n",
        DATA[ENDS[1] :].replace(DIGESTS[2].encode(), DIGESTS[0].encode()),
        attrs.evolve(RECORDS[2], sequence=4).line(),
        attrs.evolve(RECORDS[2], previous="0" * 64).line(),
        attrs.evolve(RECORDS[2], manifest="../../x").line(),
        attrs.evolve(RECORDS[2], model="a b").line(),
        canonical(checked) + b"\n",
    ):
        path = tmp_path / NAME
        path.write_bytes(DATA[: ENDS[1]] + last)
        with Folder.at(tmp_path) as folder:
            for use in (Journal(folder).read, partial(Journal(folder).append, "a", "any", None)):
                with pytest.raises(ArtifactInvalid, match="line 3: the journal is damaged"):
                    use()
        assert path.read_bytes() == DATA[: ENDS[1]] + last


def test_what_zeros_a_disk_left_at_the_end_is_not_taken_for_a_torn_record() -> None:
    for zeros in (1, 100, 5000):
        with pytest.raises(ArtifactInvalid, match="not the beginning of a record"):
            read_records(DATA + bytes(zeros), "journal")
        with pytest.raises(ArtifactInvalid, match="damaged"):
            read_records(DATA[: ENDS[1]] + bytes(zeros), "journal")


def test_what_the_chain_cannot_tell_whole_records_cut_from_the_end_leave_the_selection_before() -> None:
    for whole, end in enumerate(ENDS, 1):
        assert list(read_records(DATA[:end], "journal").records) == RECORDS[:whole]
