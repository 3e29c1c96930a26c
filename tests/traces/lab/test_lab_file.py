"""Lab files: what is read, and every refusal with the file, the key and the value."""

from __future__ import annotations

import re

import pytest
from coresident.actors.errors import InvalidRequest
from coresident.runtime.config import PoliciesConfig, PolicyConfig
from coresident.traces.lab.file import load_lab, samples
from coresident.traces.lab.plan import plan

from support.labs import lab_in

FULL = """
seeds = [3, 1]
record = true
traces = ["chat", {file = "own.jsonl", limit = 2, name = "mine"}]
devices = [{name = "box", partition = ["2 GiB", 4294967296], workspace = "64 MiB"}]
[policies.first]
[policies.swept]
ordering = {name = "aging", rate = [0.5, 2]}
quantum = {name = "timed", parameters = {target_ms = [50.0, 80.0], most = 8}}
[generation]
retained = "32 MiB"
sequences = 3
[decision]
max_rows = 16
[limits]
requests = 9
[output]
folder = "there"
format = "parquet"
"""


@pytest.fixture
def own(tmp_path):
    (tmp_path / "own.jsonl").write_bytes(samples()["prefill"].read_bytes())
    return tmp_path


def test_a_lab_is_read_with_every_list_spread_out(own):
    lab = lab_in(own, FULL)
    assert [(trace.name, trace.path, trace.limit) for trace in lab.traces] == [
        ("chat", samples()["chat"], None),
        ("mine", own / "own.jsonl", 2),
    ]
    assert (lab.seeds, lab.record, lab.folder, lab.format) == ((3, 1), True, own / "there", "parquet")
    swept = [(rate, target) for rate in (0.5, 2) for target in (50.0, 80.0)]
    assert [choice.label for choice in lab.policies] == [
        "first",
        *(f"swept (rate={rate}, target_ms={target})" for rate, target in swept),
    ]
    assert lab.policies[0].policies == PoliciesConfig()
    assert lab.policies[2].policies.ordering == PolicyConfig("aging", {"rate": 0.5})
    assert lab.policies[2].policies.quantum == PolicyConfig("timed", {"target_ms": 80.0, "most": 8})
    assert [choice.label for choice in lab.devices] == ["box (partition=2 GiB)", "box (partition=4294967296)"]


def test_a_run_has_the_recorded_configuration_with_what_the_lab_gives(own):
    runs = plan(lab_in(own, FULL))
    assert len(runs) == 2 * 2 * 5 * 2
    assert [run.seed for run in runs[:4]] == [3, 1, 3, 1]
    config = runs[0].config
    assert (config.device.backend, config.device.partition, config.device.workspace) == ("modelled", 2 << 30, 64 << 20)
    assert (config.generation.retained, config.generation.sequences) == (32 << 20, 3)
    assert (config.decision.max_rows, config.limits.requests) == (16, 9)
    recorded = plan(lab_in(own, 'traces = ["chat"]'))[0].config
    assert config.generation.chunk == recorded.generation.chunk
    assert plan(lab_in(own, 'traces = ["chat"]\ndecision = false'))[0].config.decision is None


def test_the_least_lab_is_one_run(tmp_path):
    lab = lab_in(tmp_path, 'traces = ["chat"]')
    (run,) = plan(lab)
    assert run.label == "chat, default, default model, seed 0"
    assert (lab.folder, lab.format, lab.record) == (tmp_path / "lab-results", "csv", False)


def test_names_of_recorded_traces_are_plain_short_and_one_for_runs_that_are_the_same(tmp_path):
    text = """
        record = true
        traces = [{file = "chat", name = "../a b\\u00e9"}]
        [policies."one/two"]
        [policies.two]
        [policies.LONG]
        ordering = "fifo"
    """.replace("LONG", "x" * 300)
    one, two, long = plan(lab_in(tmp_path, text))
    assert one.record == two.record == tmp_path / "lab-results" / "traces" / one.record.name
    assert one.record.name == f"a_b-one_two-default_model-0-{one.id[:8]}.jsonl"
    assert long.record.name.endswith(f"-{long.id[:8]}.jsonl")
    assert len(long.record.name) < 200


CHAT = 'traces = ["chat"]\n'
REFUSALS = {
    "sweeps = 3": "sweeps is 3: no such option is read; known here are traces, policies, devices, seeds, generation",
    "seeds = []": r"seeds is []: a list of at least one value",
    "seeds = [-1]": "seeds[0] is -1: a whole number of at least 0",
    "seeds = [true]": "seeds[0] is True: a whole number",
    "seeds = [1.5]": "seeds[0] is 1.5: a whole number",
    "seeds = [1, 1]": "seeds is '1': this is there more than once",
    "seeds = 4": "seeds is 4: a list",
    "record = 1": "record is 1: true or false",
    "policies = 3": "policies is 3: a table",
    "[policies.a]\nordering = 'no-such'": "policies.a.ordering is 'no-such': no ordering policy is called",
    "[policies.a]\nordering = {name = 'aging', rate = nan}": "policies.a.ordering is {'name': 'aging', 'rate': nan}:",
    "[policies.a]\nordering = {name = 'aging', rate = [1, -1]}": "given rate=-1: it takes a number from 0.01",
    "[policies.a]\nordering = {name = 'aging', speed = 1}": "its parameters are rate",
    "[policies.a]\nordering = {name = 'aging', rate = []}": "policies.a.ordering.rate is []: a list of no values",
    "[policies.a]\nordering = {rate = 1}": "policies.a.ordering is {'rate': 1}: required field missing",
    "[policies.a]\nordering = 'nowhere:decide'": "policies.a.ordering is 'nowhere:decide': ordering policy",
    "[policies.a]\norder = 'fifo'": "policies.a.order is 'fifo': no such option is read; known here are ordering",
    "[policies.a]\nquantum = {name = 'fixed', tokens = 0}": "given tokens=0: it takes a whole number from 1",
    "[policies.a]\nordering = {name = 'aging', rate = [1, 1]}": "more than once",
    "devices = ['no-such-device']": "devices[0].model is 'no-such-device': device model 'no-such-device' is none of",
    "devices = [3]": "devices[0] is 3: a table",
    "devices = [{partition = '-1 GiB'}]": "devices[0].partition is '-1 GiB': '-1 GiB' is not a size",
    "devices = [{partition = [1024, 0]}]": "devices[0].partition is 0: partition is 0: it must be at least 1",
    "devices = [{threads = 2}]": "devices[0].threads is 2: no such option is read; known here are name, model",
    "devices = [{yield_ms = 2.5}]": "devices[0].yield_ms is 2.5: 2.5 is not an integer",
    "devices = [{name = 'x'}, {name = 'x'}]": "devices is 'x': this is there more than once",
    "[generation]\nchunk = 0": "generation.chunk is 0: chunk is 0: it must be at least 1",
    "[generation]\nchunks = 4": "generation.chunks is 4: unknown keys chunks; known are model, context",
    "[generation]\nmodel = 'smollm2'": "generation.model is 'smollm2': a modelled device has no weights",
    "[generation]\nretained = inf": "generation.retained is inf: inf is not a size",
    "[decision]\nheads = 'h.safetensors'": "decision.heads is 'h.safetensors': a modelled device has no weights",
    "[limits]\nrequests = 0": "limits.requests is 0: requests is 0",
    "limits = 4": "limits is 4: a table",
    "[output]\nformat = 'xlsx'": "output.format is 'xlsx': formats are csv and parquet",
    "[output]\nfolder = ''": "output.folder is '': a string that is not empty",
    "[output]\nfile = 'x'": "output.file is 'x': no such option is read; known here are folder, format",
    "[device]\npartition = 4": "device is {'partition': 4}: no such option is read",
}


@pytest.mark.parametrize("text", REFUSALS)
def test_a_lab_with_anything_unread_or_out_of_range_is_refused(tmp_path, text):
    with pytest.raises(InvalidRequest, match=re.escape(REFUSALS[text])) as refused:
        lab_in(tmp_path, CHAT + text)
    assert refused.value.message.startswith(f"lab {tmp_path / 'lab.toml'}: ")
    assert refused.value.details["file"] == str(tmp_path / "lab.toml")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "traces is []: name at least one trace: a file, or one of cancels, chat"),
        ("traces = []", "traces is []: a list of at least one value"),
        ("traces = ['gone.jsonl']", "traces[0].file is 'gone.jsonl': there is no file"),
        ("traces = [{limit = 3}]", "traces[0].file is missing"),
        ("traces = [{file = 'chat', limit = 0}]", "traces[0].limit is 0: a whole number of at least 1"),
        ("traces = [{file = 'chat', most = 0}]", "traces[0].most is 0: no such option is read; known here are file"),
        ("traces = ['chat', 'chat']", "traces is 'chat': this is there more than once"),
        ("traces = [", "Invalid value"),
        ("traces = ['chat']\ntraces = ['chat']", "Cannot overwrite a value"),
    ],
)
def test_a_lab_without_traces_that_can_be_found_is_refused(tmp_path, text, words):
    with pytest.raises(InvalidRequest, match=re.escape(words)):
        lab_in(tmp_path, text)


def test_a_file_that_is_no_trace_is_refused_before_anything_runs(tmp_path):
    (tmp_path / "azure.csv").write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.68,374,44\n")
    with pytest.raises(InvalidRequest, match=r"traces is 'azure': .*Azure"):
        plan(lab_in(tmp_path, 'traces = ["azure.csv"]'))


def test_a_lab_that_is_not_there_or_no_text_is_refused(tmp_path):
    with pytest.raises(InvalidRequest, match="No such file"):
        load_lab(tmp_path / "lab.toml")
    (tmp_path / "lab.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidRequest, match="can't decode"):
        load_lab(tmp_path / "lab.toml")


def test_a_policy_that_is_a_list_itself_is_written_as_a_list_of_lists(tmp_path, monkeypatch):
    monkeypatch.setattr("support.lab_policies.plain", lambda orders=(): lambda view, memory: (None, memory))
    lab = lab_in(tmp_path, CHAT + "[policies.a]\nordering = {name='support.lab_policies:plain', orders=[[1, 2], [3]]}")
    assert [choice.policies.ordering.parameters for choice in lab.policies] == [{"orders": [1, 2]}, {"orders": [3]}]


def test_two_parameters_of_one_name_are_told_apart_by_their_kinds(tmp_path, monkeypatch):
    monkeypatch.setattr("support.lab_policies.plain", lambda tokens=1: lambda view, memory: (None, memory))
    text = "[policies.a]\nordering = {name = 'support.lab_policies:plain', tokens = [1]}\n"
    lab = lab_in(tmp_path, CHAT + text + "quantum = {name = 'fixed', tokens = [8, 9]}")
    labels = [choice.label for choice in lab.policies]
    assert labels == [f"a (ordering.tokens=1, quantum.tokens={tokens})" for tokens in (8, 9)]
