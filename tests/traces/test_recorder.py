"""The recorder writes whole traces, or says that it did not; the run never notices."""

from __future__ import annotations

import errno
import io

import pytest
from coresident.actors.errors import InvalidRequest, TraceInvalid
from coresident.actors.messages import SubmitGeneration
from coresident.runtime.backends.modelled import ModelledBackend
from coresident.traces.drivers import Counting
from coresident.traces.events_workload import ArriveDecision, ArriveGeneration
from coresident.traces.header import header_of
from coresident.traces.reader import TraceReader
from coresident.traces.recorder import Recorder
from coresident.traces.workload import load_workload
from structlog.testing import capture_logs
from traced_runs import chat, modelled_assembly, play, record_chat


class SmallDisk(io.BytesIO):
    """A file on a disk with ``room`` bytes; what does not fit is written in part, then refused."""

    def __init__(self, room):
        super().__init__()
        self.room = room
        self.kept = b""

    def write(self, data):
        free = self.room - self.tell()
        if free <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(bytes(data)[:free])

    def close(self):
        self.kept = self.getvalue()
        super().close()


def outcomes_beside(recorder, assembly):
    """The statistics of the chat while ``recorder`` watches."""
    counting = Counting()
    play(assembly, chat, (recorder, counting))
    return counting.result()


@pytest.mark.parametrize("room", [1500, 4000, 9000, 9100, 9200, 15_000])
def test_a_full_disk_marks_the_trace_and_leaves_the_run_alone(tmp_path, room):
    assembly = modelled_assembly()
    disk = SmallDisk(room)
    recorder = Recorder(disk, header_of(assembly))
    with capture_logs() as logs:
        statistics = outcomes_beside(recorder, assembly)
        recorder.close()
    assert statistics == recorded_statistics(tmp_path)
    assert isinstance(recorder.error, OSError)
    assert "recording.incomplete" in [entry["event"] for entry in logs]
    (tmp_path / "t.jsonl").write_bytes(disk.kept)
    with pytest.raises(TraceInvalid, match=r"complete is false: the recorder failed here \(OSError.*No space|ends|cut"):
        load_workload(tmp_path / "t.jsonl")


def recorded_statistics(tmp_path):
    record_chat(tmp_path / "whole.jsonl")
    return load_workload(tmp_path / "whole.jsonl").recorded


def test_a_disk_that_is_full_at_the_end_is_logged_and_close_does_not_raise(tmp_path):
    record_chat(tmp_path / "whole.jsonl")
    assembly = modelled_assembly()
    disk = SmallDisk((tmp_path / "whole.jsonl").stat().st_size - 10)
    recorder = Recorder(disk, header_of(assembly))
    play(assembly, chat, (recorder,))
    with capture_logs() as logs:
        recorder.close()
        recorder.close()
    assert [entry["event"] for entry in logs] == ["recording.not_sealed"]
    assert isinstance(recorder.error, OSError)


def test_a_trace_is_on_disk_line_by_line_before_it_is_closed(tmp_path):
    assembly = modelled_assembly()
    recorder = Recorder.open(tmp_path / "t.jsonl", assembly)
    play(assembly, lambda client: client.decide("d", [[1]]), (recorder,))
    lines = (tmp_path / "t.jsonl").read_bytes().splitlines()
    assert b'"type":"end.decision"' in lines[-2]
    assert b'"type":"took"' in lines[-1]
    with pytest.raises(TraceInvalid, match="it was cut, or is still being written"):
        load_workload(tmp_path / "t.jsonl")
    recorder.close()
    assert load_workload(tmp_path / "t.jsonl").items[0].request == "d"


def test_a_path_that_cannot_be_written_is_refused_before_anything_runs(tmp_path):
    with pytest.raises(InvalidRequest, match=r"missing/t\.jsonl cannot be written: No such file"):
        Recorder.open(tmp_path / "missing" / "t.jsonl", modelled_assembly())


def test_token_ids_are_written_only_when_asked_for(tmp_path):
    record_chat(tmp_path / "counts.jsonl")
    record_chat(tmp_path / "tokens.jsonl", content=True)
    for name, with_ids in (("counts.jsonl", False), ("tokens.jsonl", True)):
        with TraceReader(tmp_path / name) as reader:
            assert reader.header.content == name.removesuffix(".jsonl")
            for event in reader:
                if isinstance(event, ArriveGeneration):
                    assert (event.prompt.ids is not None) is with_ids
                if isinstance(event, ArriveDecision):
                    assert all((part.ids is not None) is with_ids for part in (event.instruction, *event.rows))


def test_a_request_id_given_twice_is_recorded_once_while_it_is_open(tmp_path):
    def story(client):
        client.generate("same", range(50), 3)
        client.host.send("generation", twice)

    twice = SubmitGeneration("same", (1, 2), 3, "template")
    record_chat(tmp_path / "t.jsonl", story=story)
    items = load_workload(tmp_path / "t.jsonl").items
    assert [(item.request, item.outcome.outcome, item.arrival.prompt.tokens) for item in items] == [
        ("same", "completed", 50)
    ]


def test_an_id_used_again_after_its_end_is_refused_by_the_loader(tmp_path):
    def story(client):
        client.decide("again", [[1]])
        client.then["again"] = lambda: client.decide("again", [[2]])

    record_chat(tmp_path / "t.jsonl", story=story)
    with pytest.raises(TraceInvalid, match="'again', which arrived before"):
        load_workload(tmp_path / "t.jsonl")


def test_a_deadline_is_recorded_from_the_arrival_and_none_is_left_when_it_has_passed(tmp_path):
    def story(client):
        now = client.host.now
        client.decide("ahead", [[1]], deadline=now + 9_000_000_000)
        client.decide("passed", [[1]], deadline=now - 1)

    record_chat(tmp_path / "t.jsonl", story=story)
    items = {item.request: item.arrival.deadline_ns for item in load_workload(tmp_path / "t.jsonl").items}
    assert items == {"ahead": 9_000_000_000, "passed": 0}


def test_the_header_names_policies_models_and_the_admitted_context(tmp_path):
    assembly = record_chat(tmp_path / "t.jsonl")
    with TraceReader(tmp_path / "t.jsonl") as reader:
        header = reader.header
    assert header.device.admitted_context == assembly.context == 2048
    assert {kind: policy.name for kind, policy in header.policies.items()} == {
        "ordering": "strict",
        "quantum": "fixed",
        "retention": "lru",
        "abstention": "deadline",
        "preparation": "idle",
    }
    (model,) = header.models
    assert (model.roles, model.digest) == (("generation", "decision"), ModelledBackend().describe("generation").digest)
