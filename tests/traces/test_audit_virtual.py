"""Recordings of the virtual host audit too, and whatever is changed in one is found."""

from __future__ import annotations

import copy
from functools import partial

import attrs
import pytest
from coresident.actors.errors import InvalidRequest, TraceDiverged, TraceInvalid
from coresident.actors.messages import Cancel, PinConversation, Start, SubmitDecision, SubmitGeneration
from coresident.runtime.backends.modelled import ModelledBackend
from coresident.runtime.config import PolicyConfig
from coresident.runtime.host.virtual import VirtualHost
from coresident.traces.audit.run import BEFORE, audit
from coresident.traces.blocks import BlockTable
from coresident.traces.header import header_of
from coresident.traces.recorder import Recorder
from resealed import changed, lines_of, reseal
from traced_runs import CONFIG, HEADS, MS, Client, chat, modelled_assembly, play, prepared_chat, record_chat


def short(client):
    """A few messages of many kinds."""
    client.generate("talk", range(150), 9)
    client.decide("gate", [[1, 2], [1, 3]], deadline=client.host.now + 9000 * MS)
    client.decide("late", [[3]], deadline=client.host.now - 5 * MS)
    client.prepare("ahead", range(300))
    client.host.send("generation", Cancel("nobody"))
    client.host.send("generation", SubmitGeneration("talk", (1, 2), 3, "template"))
    client.host.call_at(client.host.now + 110 * MS, lambda: client.host.send("generation", Cancel("talk")))
    client.host.call_at(client.host.now + 120 * MS, lambda: client.host.send("generation", PinConversation("c")))


STORIES = {"chat": chat, "prepared": prepared_chat, "short": short}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """One recording of each story."""
    folder = tmp_path_factory.mktemp("recorded")
    for name, story in STORIES.items():
        record_chat(folder / name, story=story)
    return {name: folder / name for name in STORIES}


def sampled(lines):
    """Places of message lines: the second of every kind that there is, or the only one."""
    kinds = {}
    for place, line in enumerate(lines):
        if line.get("type") == "took":
            kinds.setdefault((line["actor"], line["message"], *sorted(line.get("given", ["sent"]))), []).append(place)
    return [places[min(1, len(places) - 1)] for places in kinds.values()]


def found(path, lines) -> bool:
    """Whether an audit of these lines sees that something is wrong."""
    reseal(path, lines)
    try:
        return not audit(path).same
    except TraceInvalid:
        return True


@pytest.mark.parametrize("content", [False, True])
@pytest.mark.parametrize("story", STORIES)
def test_a_virtual_recording_comes_out_as_recorded(tmp_path, story, content):
    record_chat(tmp_path / "t", story=STORIES[story], content=content)
    report = audit(tmp_path / "t")
    report.check()
    assert (report.same, report.divergence) == (True, None)
    assert report.messages == sum(line.get("type") == "took" for line in lines_of(tmp_path / "t"))


@pytest.mark.parametrize(
    "policies",
    [
        {"ordering": PolicyConfig("aging"), "retention": PolicyConfig("cost")},
        {"ordering": PolicyConfig("deadline"), "quantum": PolicyConfig("timed"), "preparation": PolicyConfig("never")},
        {"ordering": PolicyConfig("fifo"), "quantum": PolicyConfig("fixed", {"tokens": 3})},
        {"abstention": PolicyConfig("confident"), "preparation": PolicyConfig("after_quiet", {"quiet_ms": 20})},
    ],
    ids=lambda policies: "-".join(policy.name for policy in policies.values()),
)
def test_any_policy_with_its_parameters(tmp_path, policies):
    config = attrs.evolve(CONFIG, policies=attrs.evolve(CONFIG.policies, **policies))
    for name, story in STORIES.items():
        assembly = modelled_assembly(config)
        recorder = Recorder.open(tmp_path / name, assembly)
        play(assembly, story, (recorder,))
        recorder.close()
        audit(tmp_path / name).check()


def test_ids_that_are_open_cancels_of_nobody_and_deadlines_long_past(tmp_path):
    def story(client):
        host = client.host
        host.send("generation", Cancel("nobody"))
        client.generate("same", range(300), 4)
        host.send("generation", SubmitGeneration("same", (1, 2), 3, "template"))
        host.send("decision", SubmitDecision("same", (7, 8), ((1, 2),), tuple(HEADS), "judge"))
        client.decide("late", [[3]], deadline=host.now - 5 * MS)
        client.generate("later", range(40), 4, deadline=host.now - 5 * MS)

    record_chat(tmp_path / "t", story=story)
    lines = lines_of(tmp_path / "t")
    assert [line["given"]["overdue_ns"] for line in lines if "overdue_ns" in line.get("given", {})] == [5 * MS] * 2
    audit(tmp_path / "t").check()


@pytest.mark.parametrize("content", [False, True])
def test_a_recording_that_ends_before_its_requests_do(tmp_path, content):
    assembly = modelled_assembly()
    recorder = Recorder.open(tmp_path / "t", assembly, content=content)
    host = VirtualHost(assembly.actors, assembly.backend, assembly.plans, (recorder,))
    host.send("supervisor", Start())
    host.run()
    Client(host).generate("cut", range(200), 50)
    host.run(until=host.now + 400 * MS)
    recorder.close()
    assert not any(line.get("type") == "end.generation" for line in lines_of(tmp_path / "t"))
    audit(tmp_path / "t").check()


def test_an_audit_is_exact_although_the_recorder_forgets_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr("coresident.traces.recorder.BlockTable", partial(BlockTable, limit=4))
    for name, story in STORIES.items():
        record_chat(tmp_path / name, story=story)
        audit(tmp_path / name).check()
    heads = [line["reused"] for line in lines_of(tmp_path / "chat") if line.get("type") == "prefix.reused"]
    assert sum(heads) > 300


def test_a_change_of_any_field_of_a_message_line_is_found(tmp_path, recorded):
    lines = lines_of(recorded["short"])
    missed = [
        other
        for place in sampled(lines)
        for other in changed(lines[place])
        if not found(tmp_path / "t", [*lines[:place], other, *lines[place + 1 :]])
    ]
    assert missed == []


@pytest.mark.parametrize("story", ["short", "chat"])
def test_a_message_that_is_missing_or_in_another_place_is_found(tmp_path, recorded, story):
    lines = lines_of(recorded[story])
    places = [place for place, line in enumerate(lines) if line.get("type") == "took"]
    for place in sampled(lines):
        assert found(tmp_path / "t", [*lines[:place], *lines[place + 1 :]]), lines[place]
        other = places[places.index(place) - 1]
        swapped = list(lines)
        swapped[place], swapped[other] = swapped[other], swapped[place]
        assert found(tmp_path / "t", swapped), lines[place]


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("policies", "ordering", {"name": "fifo"}),
        ("policies", "quantum", {"name": "fixed", "parameters": {"tokens": 3}}),
        ("policies", "preparation", {"name": "never"}),
        ("generation", "chunk", 64),
        ("generation", "retained", 1 << 20),
        ("generation", "sequences", 1),
        ("decision", "rows_per_slice", 1),
        ("device", "workspace", 1 << 20),
    ],
)
def test_another_policy_or_configuration_is_found(tmp_path, recorded, section, key, value):
    lines = copy.deepcopy(lines_of(recorded["prepared" if key == "preparation" else "chat"]))
    lines[0][section][key] = value
    if key in ("retained", "workspace"):
        budget = "workspace" if key == "workspace" else "retained/generation"
        lines[0]["facts"]["budgets"][budget] = value
    assert found(tmp_path / "t", lines)


def test_a_difference_is_told_in_words_with_the_messages_before_it(tmp_path, recorded):
    lines = copy.deepcopy(lines_of(recorded["chat"]))
    lines[0]["policies"]["quantum"] = {"name": "fixed", "parameters": {"tokens": 3}}
    reseal(tmp_path / "t", lines)
    report = audit(tmp_path / "t")
    divergence = report.divergence
    assert lines[divergence.line - 1]["type"] == "took"
    assert lines[divergence.line - 1]["message"] == divergence.message
    assert divergence.number == report.messages + 1
    assert [message.number for message in divergence.before] == list(
        range(report.messages - BEFORE + 1, report.messages + 1)
    )
    assert any("quantum=3" in effect for effect in divergence.effects)
    with pytest.raises(TraceDiverged, match=rf"line {divergence.line}, message {divergence.number}"):
        report.check()
    assert report.as_dict()["same"] is False


def test_a_changed_grant_line_is_named(tmp_path, recorded):
    lines = copy.deepcopy(lines_of(recorded["chat"]))
    grant = next(line for line in lines if line.get("type") == "grant" and line["requests"] == ["gate1"])
    grant["requests"] = ["turn1"]
    reseal(tmp_path / "t", lines)
    what = audit(tmp_path / "t").divergence.what
    assert f"recorded was grant {grant['grant']}" in what
    assert "for turn1" in what
    assert "for gate1" in what.split("now it is")[1]


def test_a_trace_without_messages_is_refused(tmp_path):
    assembly = modelled_assembly()
    recorder = Recorder((tmp_path / "t").open("wb", buffering=0), header_of(assembly, messages=False))
    play(assembly, chat, (recorder,))
    recorder.close()
    assert all(line.get("type") != "took" for line in lines_of(tmp_path / "t"))
    with pytest.raises(InvalidRequest, match="recorded without messages"):
        audit(tmp_path / "t")


def test_a_users_own_policy_is_named_by_its_user_and_only_by_him(tmp_path, recorded):
    own = attrs.evolve(CONFIG.policies, ordering=PolicyConfig("audited_runs:moody"))
    assembly = modelled_assembly(attrs.evolve(CONFIG, policies=own), ModelledBackend(heads=tuple(HEADS)))
    recorder = Recorder.open(tmp_path / "t", assembly)
    play(assembly, chat, (recorder,))
    recorder.close()
    audit(tmp_path / "t", {"ordering": "audited_runs:moody"}).check()
    with pytest.raises(InvalidRequest, match="--policy ordering=audited_runs:moody"):
        audit(tmp_path / "t")
    with pytest.raises(InvalidRequest, match="ran the ordering policy strict"):
        audit(recorded["chat"], {"ordering": "audited_runs:moody"})
    with pytest.raises(InvalidRequest, match="no policies of kind taste"):
        audit(tmp_path / "t", {"taste": "audited_runs:moody"})
