"""Configuration: every key, its units, and errors that name source, key and value."""

from __future__ import annotations

import sys
import types

import attrs
import pytest
from coresident.actors.errors import BudgetExceeded, InvalidRequest, PolicyFault
from coresident.policies.ordering.fifo import fifo
from coresident.runtime.config import (
    Config,
    DecisionConfig,
    DeviceConfig,
    DriverConfig,
    GenerationConfig,
    HostConfig,
    LimitsConfig,
    PoliciesConfig,
    PolicyConfig,
    StoreConfig,
    VerbalizerConfig,
    load_config,
    structure,
)

from support.live import Bench
from support.virtual import Sim

EVERY_KEY = """
[device]
backend = "modelled"
partition = "1.5 GiB"
workspace = 1048576
yield_ms = 10
threads = 2
id = "card"
physical = "8 GiB"
executor = "process"
step_seconds = 9
load_seconds = 90
margin = 10
driver = { manifest = "icd.json", versions = { api_version = "1.3.274" } }

[generation]
model = "smollm2"
context = 4096
sequences = 3
chunk = 128
retained = "100 MB"
reuse = "grid"

[decision]
model = "synthetic"
context = 512
rows_per_slice = 4
max_rows = 16
heads = "heads.safetensors"

[[decision.verbalizers]]
name = "food"
kind = "choice"
positive = ["Yes"]
negative = []

[policies]
ordering = "fifo"
quantum = { name = "fixed", tokens = 3 }
retention = { name = "cost" }
abstention = { name = "mine:abstain", parameters = { name = "x" } }
preparation = "never"

[limits]
requests = 5
decisions = 6
mailbox = 7
restarts = 8
restart_seconds = 30

[store]
path = "models"
keys = ["ours.pub"]
device = "card"
seed = "packaged"

[host]
registry = "required"
folder = "run"
"""


def test_every_key_is_read(tmp_path):
    path = tmp_path / "c.toml"
    path.write_text(EVERY_KEY)
    assert (
        load_config(path)
        == load_config(str(path))
        == Config(
            DeviceConfig(
                "modelled",
                3 * 2**29,
                2**20,
                10,
                2,
                id="card",
                physical=2**33,
                executor="process",
                step_seconds=9,
                load_seconds=90,
                driver=DriverConfig("icd.json", {"api_version": "1.3.274"}),
            ),
            GenerationConfig("smollm2", 4096, 3, 128, 100_000_000, "grid"),
            DecisionConfig(
                "synthetic", 512, 4, 16, "heads.safetensors", (VerbalizerConfig("food", "choice", ("Yes",), ()),)
            ),
            PoliciesConfig(
                PolicyConfig("fifo"),
                PolicyConfig("fixed", {"tokens": 3}),
                PolicyConfig("cost"),
                PolicyConfig("mine:abstain", {"name": "x"}),
                PolicyConfig("never"),
            ),
            LimitsConfig(5, 6, 7, 8, 30),
            StoreConfig("models", ("ours.pub",), "card", "packaged"),
            HostConfig("required", "run"),
        )
    )


def test_the_file_above_has_every_key():
    """A key that is added must be added there too."""

    def keys(cls):
        fields = attrs.fields_dict(attrs.resolve_types(cls))
        return set(fields).union(*(keys(field.type) for field in fields.values() if attrs.has(field.type)))

    # TOML can't write what the modelled device has instead of what a Vulkan device has: none.
    unwritten = {"index", "share"}
    missing = [key for key in keys(Config) | keys(DecisionConfig) | keys(VerbalizerConfig) if key not in EVERY_KEY]
    assert set(missing) == unwritten


def test_nothing_given_is_the_defaults(tmp_path):
    path = tmp_path / "c.toml"
    path.write_text("")
    assert load_config(path) == structure({}) == Config()
    assert structure({"decision": {}}).decision == DecisionConfig()


def test_there_is_a_way_to_have_no_decision_model():
    assert structure({"decision": False}).decision is None
    assert structure({"decision": None}).decision is None


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"devices": {}}, "unknown keys devices; known are device, generation, .*, limits, store, host @ here$"),
        ({"device": {"b": 1, "a": 1}}, "unknown keys a, b; known are backend, .* @ here.device$"),
        ({"generation": {"ctx": 1}}, "unknown keys ctx; .* @ here.generation$"),
        ({"decision": {"rows": 1}}, "unknown keys rows; .* @ here.decision$"),
        (
            {"decision": {"verbalizers": [{"name": "a", "x": 1}]}},
            r"unknown keys x; .* @ here.decision.verbalizers\[0\]$",
        ),
        ({"policies": {"order": "fifo"}}, "unknown keys order; .* @ here.policies$"),
        (
            {"policies": {"quantum": {"name": "a", "parameters": {}, "x": 1}}},
            "unknown keys x; .* @ here.policies.quantum$",
        ),
        ({"limits": {"queue": 1}}, "unknown keys queue; .* @ here.limits$"),
        ([], r"\[\] is not a table of keys and values @ here$"),
        ({"device": "fast"}, "'fast' is not a table of keys and values @ here.device$"),
        ({"decision": 3}, "3 is not a table of keys and values @ here.decision$"),
        ({"decision": True}, "True is not a table of keys and values @ here.decision$"),
        ({"decision": 0}, "0 is not a table of keys and values @ here.decision$"),
        ({"policies": {"ordering": 3}}, "3 is not a table of keys and values @ here.policies.ordering$"),
        ({"policies": {"ordering": {"share": 0.1}}}, "required field missing @ here.policies.ordering.name$"),
        ({"policies": {"ordering": {"name": 4}}}, "4 is not a string @ here.policies.ordering.name$"),
        ({"decision": {"verbalizers": "abc"}}, "'abc' is not a list @ here.decision.verbalizers$"),
        ({"decision": {"verbalizers": [{}]}}, r"required field missing @ here.decision.verbalizers\[0\].name$"),
        (
            {"decision": {"verbalizers": [{"name": "a", "positive": "Yes"}]}},
            r"'Yes' is not a list @ here.decision.verbalizers\[0\].positive$",
        ),
        ({"decision": {"verbalizers": [{"name": "a", "negative": [1]}]}}, r"1 is not a string @ .*negative\[0\]$"),
        ({"decision": {"verbalizers": [{"name": "a", "kind": "b"}]}}, r"'kind' must be in .* \(got 'b'\) @ here"),
        (
            {"decision": {"verbalizers": [{"name": "a", "positive": []}]}},
            r"positive is \[\]: it needs at least 1 words",
        ),
        (
            {"decision": {"verbalizers": [{"name": "a", "negative": [""]}]}},
            r"negative is \[''\]: .* none of them empty",
        ),
        ({"decision": {"verbalizers": [{"name": "a"}] * 2}}, "verbalizers have the names a, a: .* @ here.decision$"),
        ({"decision": {"verbalizers": []}}, "there are no heads: .* @ here.decision$"),
        ({"device": {"partition": "2 XB"}}, "'2 XB' is not a size: .* @ here.device.partition$"),
        ({"device": {"workspace": 1.5}}, "1.5 is not a size: .* @ here.device.workspace$"),
        ({"device": {"threads": True}}, "True is not an integer @ here.device.threads$"),
        ({"device": {"backend": 1}}, "1 is not a string @ here.device.backend$"),
        ({"generation": {"chunk": "16"}}, "'16' is not an integer @ here.generation.chunk$"),
        ({"generation": {"reuse": "all"}}, r"'reuse' must be in .* \(got 'all'\) @ here.generation$"),
        ({"device": {"partition": -1}}, "partition is -1: it must be at least 1 @ here.device$"),
        ({"device": {"workspace": 0}}, "workspace is 0: it must be at least 1 @ here.device$"),
        ({"device": {"yield_ms": 0}}, "yield_ms is 0: it must be at least 1 @ here.device$"),
        ({"decision": {"model": ""}}, "model is empty: name a model, or 'same' .* @ here.decision$"),
        ({"device": {"threads": -1}}, "threads is -1: it must be at least 0 @ here.device$"),
        ({"generation": {"context": -1}}, "context is -1: it must be at least 0 @ here.generation$"),
        ({"generation": {"retained": -1}}, "retained is -1: it must be at least 0 @ here.generation$"),
        ({"decision": {"rows_per_slice": 0}}, "rows_per_slice is 0: it must be at least 1 @ here.decision$"),
        ({"limits": {"mailbox": 0}}, "mailbox is 0: it must be at least 1 @ here.limits$"),
        ({"device": {"physical": -1}}, "physical is -1: it must be at least 0 @ here.device$"),
        ({"host": {"registry": "on"}}, r"registry.*'auto', 'required', 'off'.* @ here.host$"),
        ({"store": {"keys": "ours.pub"}}, r"'ours.pub' is not a list @ here.store.keys$"),
    ],
)
def test_errors_name_source_key_and_value(data, message):
    with pytest.raises(InvalidRequest, match=message) as caught:
        structure(data, "here")
    assert caught.value.details == {"file": "here"}


def test_every_fault_is_named_at_once():
    with pytest.raises(InvalidRequest, match=r"here.device.threads; .* @ here.generation.chunk"):
        structure({"device": {"threads": "x"}, "generation": {"chunk": "y"}}, "here")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[device\n", "Expected .*line 1"),
        (b"a = 1\na = 2\n", "Cannot overwrite"),
        (b"\xff\xfe", "decode"),
        (None, "No such file"),
    ],
)
def test_a_bad_file_is_named(tmp_path, content, message):
    path = tmp_path / "bad.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InvalidRequest, match=message) as caught:
        load_config(path)
    assert str(path) in str(caught.value)


def test_policies_by_module_and_attribute(monkeypatch):
    module = types.ModuleType("my_policies")
    module.newest = lambda: lambda view, memory: (fifo()(view, memory)[0], memory)
    module.broken = lambda: 3
    monkeypatch.setitem(sys.modules, "my_policies", module)

    def bench(name):
        return Bench(structure({"generation": {"model": "synthetic", "context": 64}, "policies": {"ordering": name}}))

    assert bench("my_policies:newest").assembly.device.statistics().policy_faults == 0
    for name, message in [
        ("nothing", "no ordering policy is called 'nothing'"),
        ("no_module:x", "cannot be loaded: ModuleNotFoundError"),
        ("my_policies:oldest", "cannot be loaded: AttributeError"),
        ("my_policies:broken", "gave 3"),
        ({"name": "strict", "shares": 1}, "was given shares"),
    ]:
        with pytest.raises(PolicyFault, match=message):
            bench(name)


@pytest.mark.parametrize(
    ("device", "what"),
    [
        ({"partition": "64 MiB", "workspace": "32 MiB"}, "workspace and retained budgets"),
        ({"partition": "289 MiB", "workspace": "32 MiB"}, "synthetic"),
    ],
)
def test_R11_a_partition_that_is_too_small_says_what_is_missing(device, what):
    with pytest.raises(BudgetExceeded, match=f"{what}.* are missing: ") as caught:
        Bench(structure({"device": device, "generation": {"model": "synthetic"}}))
    assert caught.value.details["asked"] > caught.value.details["available"] > 0


def test_R13_the_admitted_context_is_the_cap_or_a_multiple_of_256():
    from support.virtual import config

    assert Sim(config(generation={"context": 50})).assembly.context == 50
    squeezed = Sim(config(device={"partition": "300 MiB"}, generation={"context": 50_001})).assembly
    assert 0 < squeezed.context < 50_001
    assert squeezed.context % 256 == 0
    assert squeezed.account.free >= 0
