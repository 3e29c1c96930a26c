"""Files of a store's model: each is read to its last byte, and anything but the signed bytes is refused."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import structlog
from coresident.actors.errors import ArtifactInvalid
from coresident.runtime import logged
from coresident.runtime.models import stored
from coresident.runtime.models.stored import StoredFile
from hypothesis import given
from hypothesis import strategies as st

from support.live import desk, run

DATA = bytes(range(256)) * 8


@pytest.fixture
def file(tmp_path: Path) -> StoredFile:
    path = tmp_path / "weights"
    path.write_bytes(DATA)
    return StoredFile(str(path), hashlib.sha256(DATA).hexdigest(), len(DATA))


def test_a_whole_file_is_read_in_pieces_of_a_bounded_size(file, monkeypatch):
    monkeypatch.setattr(stored, "BLOCK", 100)
    pieces = list(file.verify())
    assert sum(pieces) == len(DATA)
    assert max(pieces) == 100
    file.check()


@given(place=st.integers(0, len(DATA) - 1), flip=st.integers(1, 255))
def test_R27_a_flip_of_any_byte_is_found(tmp_path_factory, place, flip):
    path = tmp_path_factory.mktemp("flip") / "weights"
    path.write_bytes(DATA[:place] + bytes([DATA[place] ^ flip]) + DATA[place + 1 :])
    file = StoredFile(str(path), hashlib.sha256(DATA).hexdigest(), len(DATA))
    with pytest.raises(ArtifactInvalid) as refused:
        list(file.verify())
    assert refused.value.details["digest"] == file.digest
    with pytest.raises(ArtifactInvalid):
        file.check()


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "0 bytes of 2048"),
        (DATA[:-1], "2047 bytes of 2048"),
        (DATA + b"x", "more bytes of 2048"),
        (DATA * 99, "more"),
    ],
)
def test_R27_a_file_of_another_length_is_refused_without_reading_beyond_it(file, data, what):
    Path(file.path).write_bytes(data)
    with pytest.raises(ArtifactInvalid, match=what):
        assert sum(file.verify()) <= len(DATA) + 1


def test_R27_a_file_that_is_gone_a_folder_or_a_link_is_refused(file, tmp_path):
    path = Path(file.path)
    path.rename(tmp_path / "elsewhere")
    with pytest.raises(ArtifactInvalid, match="can't be read"):
        list(file.verify())
    with pytest.raises(ArtifactInvalid, match="is not there"):
        file.check()
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ArtifactInvalid, match="can't be read"):
        list(file.verify())
    path.unlink()
    path.mkdir()
    with pytest.raises(ArtifactInvalid, match="can't be read"):
        list(file.verify())


def test_nothing_informative_goes_to_the_stdout_of_a_program_that_has_not_configured_logging(capsys):
    before = structlog.get_config()
    structlog.reset_defaults()

    async def main():
        async with desk() as it:
            assert it.scheduler.readiness().ready

    run(main)
    said = capsys.readouterr().out
    logged.warn(logged.Logged.LEASE_UNAVAILABLE, model="x")
    warned = capsys.readouterr().out
    structlog.configure(**before)
    assert said == ""
    assert "lease.unavailable" in warned
