"""Bodies: flat, the same bytes for the same message, and the same message out of them."""

from __future__ import annotations

import math
import os
from contextlib import suppress

import attrs
import pytest
from coresident.actors.errors import (
    ArtifactInvalid,
    BackendFault,
    BudgetExceeded,
    ContextExceeded,
    CoresidentError,
    DeviceLost,
    InvalidRequest,
)
from coresident.actors.messages import Failed, Finished, Suspended, Withdrawn
from coresident.actors.work import (
    CopyWork,
    DecisionRow,
    DecisionWork,
    DecodeRow,
    DecodeWork,
    FetchWork,
    Grant,
    LoadWork,
    Measured,
    PrefillWork,
    PrefixFile,
    RestoreWork,
    RowResult,
    RowScores,
    SaveWork,
    StepRequest,
    StepResult,
    StoreWork,
    WarmupWork,
)
from coresident.policies.views import WorkClass
from coresident.runtime.backends.contract import PlanRequest, Sampled
from coresident.runtime.host.executor import as_failure
from coresident.runtime.models.sampling import SamplingParams
from coresident.runtime.worker import messages
from coresident.runtime.worker.carried import CarriedError
from coresident.runtime.worker.files import FileClaim
from coresident.runtime.worker.flat import decode_body, encode_body, unflatten
from coresident.runtime.worker.frames import FrameInvalid
from hypothesis import given
from hypothesis import strategies as st

FILE = PrefixFile("/tmp/x", "launch", "identity", (1, 2), 0, 16)
WORKS = [
    LoadWork("generation", False, True),
    WarmupWork("generation"),
    PrefillWork("generation", "generation", "g1", 0, 16, (5, 6, 7), True),
    DecodeWork("generation", (DecodeRow("g1", 0, 3, 7, 9), DecodeRow("g2", 1, 5, 8, 2)), 4),
    DecisionWork("decision", "d1", (DecisionRow(0, 0, 4, (1, 2, 3)), DecisionRow(1, 1, 4, ())), ("rank", "choice")),
    CopyWork("generation", "decision", 0, (1, 2), 40),
    SaveWork("generation", 1, 30, 7, None, 0),
    SaveWork("generation", 1, 30, 8, 7, 16),
    RestoreWork("generation", 1, 30, 7),
    StoreWork("generation", 7, FILE),
    FetchWork("generation", 9, FILE),
]
MEASURED = Measured(workspace=10, device_ns=20, segments=3, longest_segment_ns=9, step_ns=25)


def _over(body):
    return decode_body(encode_body(body))


def _grant(work, resumed=False):
    return Grant(12, StepRequest("generation/3", "", "", WorkClass.FOREGROUND, work, 4096, 0, 0), resumed)


@pytest.mark.parametrize("work", WORKS, ids=lambda work: type(work).__name__)
def test_R44_every_kind_of_step_comes_out_as_itself(work):
    for grant in (_grant(work), _grant(work, resumed=True)):
        assert messages.step_of(_over(messages.step_body(grant))) == grant


def test_a_file_whose_name_is_no_text_comes_out_as_itself():
    name = os.fsdecode(b"/tmp/caf\xe9")
    grant = _grant(StoreWork("generation", 7, attrs.evolve(FILE, path=name)))
    assert messages.step_of(_over(messages.step_body(grant))) == grant


# Row by row what goes over the pipe: a change of any of these is a change of the protocol.
GOLDEN = [
    (
        messages.step_body(_grant(WORKS[3])),
        b'{"kind":"decode","id":12,"step":"generation/3","charge":4096,"resumed":false,"model":"generation",'
        b'"rows_request":["g1","g2"],"rows_slot":[0,1],"rows_position":[3,5],"rows_token":[7,8],"rows_limit":[9,2],'
        b'"quantum":4}',
    ),
    (
        messages.step_body(_grant(WORKS[4])),
        b'{"kind":"decision","id":12,"step":"generation/3","charge":4096,"resumed":false,"model":"decision",'
        b'"request":"d1","rows_index":[0,1],"rows_slot":[0,1],"rows_start":[4,4],"rows_tokens":[1,2,3],'
        b'"rows_tokens_counts":[3,0],"heads":["rank","choice"]}',
    ),
    (
        {**messages.step_body(_grant(WORKS[0])), **messages.load_fields(PlanRequest(64, 2, 16), ())},
        b'{"kind":"load","id":12,"step":"generation/3","charge":4096,"resumed":false,"model":"generation",'
        b'"weights":false,"repair":true,"plan_context":64,"plan_slots":2,"plan_chunk":16,"plan_decision_slots":0,'
        b'"plan_decision_context":0,"plan_rows_per_slice":0,"plan_heads":[],"manifest_path":[],"manifest_digest":[],'
        b'"manifest_size":[]}',
    ),
    (
        messages.sampler_body("g1", SamplingParams(0.5, 4, 0.9, 3, 2)),
        b'{"kind":"sampler","id":0,"request":"g1","temperature":0.5,"top_k":4,"top_p":0.9,"seed":3,"logprobs":2}',
    ),
    (
        messages.tokens_body(12, [("g1", Sampled(7, -0.5, ((7, -0.5), (8, -1.25)))), ("g2", Sampled(9))]),
        b'{"kind":"tokens","id":12,"rows_request":["g1","g2"],"rows_token":[7,9],"rows_logprob":[-0.5,null],'
        b'"rows_top_tokens":[7,8],"rows_top_tokens_counts":[2,0],"rows_top_logprobs":[-0.5,-1.25],'
        b'"rows_top_logprobs_counts":[2,0]}',
    ),
    (
        messages.ended_body(12, Finished(StepResult((RowResult("g1", (7, 8), "stop_token"),)), MEASURED)),
        b'{"kind":"ended","id":12,"outcome":"finished","measured_workspace":10,"measured_device_ns":20,'
        b'"measured_segments":3,"measured_longest_segment_ns":9,"measured_step_ns":25,"rows_request":["g1"],'
        b'"rows_tokens":[7,8],"rows_tokens_counts":[2],"rows_stop":["stop_token"],"scores_index":[],'
        b'"scores_values":[],"scores_values_counts":[]}',
    ),
    (
        messages.ended_body(12, Failed(DeviceLost("gone", pid=4), sticky=True)),
        b'{"kind":"ended","id":12,"outcome":"failed","error_type":"DeviceLost","error_message":"gone",'
        b'"error_details":"{\\"pid\\": 4}","error_cause":null,"sticky":true}',
    ),
]


@pytest.mark.parametrize(("body", "golden"), GOLDEN, ids=[body["kind"] for body, _ in GOLDEN])
def test_R44_golden_bytes(body, golden):
    assert encode_body(body) == golden


@pytest.mark.parametrize(
    "outcome",
    [
        Finished(StepResult((RowResult("g1", (1,), None), RowResult("g2", (), "x"))), MEASURED),
        Finished(StepResult(scores=(RowScores(0, (0.1, -3.5)), RowScores(1, (math.pi, 1e-300)))), MEASURED),
        Finished(StepResult(), MEASURED),
        Suspended(MEASURED),
        Withdrawn(MEASURED),
        Failed(BackendFault("x", a=1)),
        Failed(DeviceLost("y"), sticky=True),
    ],
    ids=str,
)
def test_every_outcome_comes_out_as_itself(outcome):
    assert messages.ended_of(_over(messages.ended_body(3, outcome))) == outcome


@given(st.lists(st.floats(allow_nan=False), max_size=5), st.integers(0, 2**40))
def test_numbers_are_equal_to_the_bit(values, token):
    rows = [("g", Sampled(token, value, ((token, value),))) for value in values]
    assert messages.tokens_of(_over(messages.tokens_body(1, rows))) == rows


@pytest.mark.parametrize(
    "error",
    [
        ContextExceeded(700, 20, 512),
        BudgetExceeded("a step", 10, 4, "ask for less"),
        ArtifactInvalid("bad", file="m.gguf", field="shape", value=(2, 3)),
        InvalidRequest("no"),
        CoresidentError("base"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_come_out_as_themselves(error):
    again = unflatten(CarriedError, _over(messages.error_body(1, error)), "error_").error()
    assert again == error
    assert str(again) == str(error)


def test_a_cause_comes_along_as_text_and_a_foreign_error_as_a_fault():
    try:
        raise KeyError("layer 3")
    except KeyError as cause:
        error = as_failure(cause).error
    again = messages.error_of(_over(messages.error_body(1, error)))
    assert isinstance(again, BackendFault)
    assert "KeyError: 'layer 3'" in str(again.__cause__)
    assert "test_worker_messages.py" in str(again.__cause__)
    unknown = CarriedError("ArtifactOdd", "it is odd", "not json", None).error()
    assert (type(unknown), unknown.message) == (BackendFault, "ArtifactOdd: it is odd")


def test_R47_an_empty_manifest_is_sent_and_its_absence_is_refused_by_name():
    body = {**messages.step_body(_grant(WORKS[0])), **messages.load_fields(PlanRequest(64, 2, 16), ())}
    assert messages.load_of(_over(body)) == (PlanRequest(64, 2, 16), ())
    with pytest.raises(InvalidRequest, match="the load carries no manifest"):
        messages.load_of({name: value for name, value in body.items() if not name.startswith("manifest_")})
    claims = (FileClaim("/m.gguf", "ab", 4),)
    full = {**body, **messages.load_fields(PlanRequest(64, 2, 16), claims)}
    assert messages.load_of(_over(full))[1] == claims


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4)


@given(st.data(), st.sampled_from(WORKS))
def test_a_damaged_step_is_refused_and_nothing_else_is_raised(data, work):
    body = dict(messages.step_body(_grant(work)))
    for name in data.draw(st.lists(st.sampled_from(sorted(set(body) - {"kind", "id"})), min_size=1, max_size=3)):
        damage = data.draw(st.sampled_from(["drop", "scalar", "list"]))
        if damage == "drop":
            body.pop(name, None)
        else:
            body[name] = data.draw(scalars if damage == "scalar" else st.lists(scalars, max_size=3))
    with suppress(FrameInvalid):
        assert type(messages.step_of(_over(body)).step.work) is type(work)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"protocol": 2}, "the host speaks protocol 2, this side speaks 1"),
        ({"protocol": None}, "speaks protocol None"),
        ({"capabilities": []}, "lacks copy, decision, decode"),
        ({"capabilities": ["decode"]}, "lacks copy, decision, fetch"),
        ({"capabilities": "everything"}, "lacks copy"),
    ],
)
def test_R46_another_protocol_or_fewer_capabilities_are_refused_by_name(change, complaint):
    hello = dict(messages.hello_body(-1))
    messages.check_hello(hello, "the host")
    with pytest.raises(InvalidRequest, match=complaint):
        messages.check_hello(hello | change, "the host")
