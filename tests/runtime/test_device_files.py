"""Device files: what is read, what is refused and how, what ships, and what a configuration makes of it."""

from __future__ import annotations

import csv
import statistics
from collections import defaultdict
from pathlib import Path

import attrs
import pytest
from coresident.actors.errors import InvalidRequest
from coresident.runtime.backends.catalog import open_backend, open_virtual
from coresident.runtime.backends.costs import Linear, Table
from coresident.runtime.backends.device_file import load_device, shipped
from coresident.runtime.backends.device_model import DeviceModel, Memory, StepTimes
from coresident.runtime.backends.device_text import device_text
from coresident.runtime.config import Config, DeviceConfig, GenerationConfig, on_device, structure
from coresident.runtime.host.assembly import assemble
from hypothesis import given
from hypothesis import strategies as st

SPLITWISE = Path(__file__).parents[3] / "shared" / "traces" / "splitwise_perf_model.csv"
TEXT = """
schema = "coresident.device/1"
label = "a device"
source = "made up"
[device]
partition = "4 GiB"
workspace = "64 MiB"
segments = 5
gap_ns = 300
suspend = false
noise = 0.25
[model]
context_limit = 8192
vocabulary = 1000
windows = [0, 128]
[memory]
weights = "1 GiB"
kv_per_token = 1000
workspace_per_token = "1 KiB"
workspace_per_pair = 4
[times]
load = { unit_ns = 0.5 }
warmup = 12
prefill = { fixed_ns = 1000, unit_ns = 20.25, pair_ns = 0.000001 }
decode = { sizes = [1, 2], contexts = [0, 100], times_ns = [[5, 6], [7, 8.4]], beyond = "hold" }
copy = { unit_ns = 3 }
"""


def load(tmp_path, text=TEXT) -> DeviceModel:
    path = tmp_path / "a.toml"
    path.write_text(text)
    return load_device(path)


def test_every_key_is_read(tmp_path):
    prefill, copy = Linear.of(1000, 20.25, 0.000001), Linear.of(0, 3)
    assert load(tmp_path) == DeviceModel(
        label="a device",
        source="made up",
        partition=4 * 2**30,
        workspace=64 * 2**20,
        context_limit=8192,
        vocabulary=1000,
        memory=Memory(2**30, 1000, 1024, workspace_per_pair=4),
        times=StepTimes(
            load=Linear.of(0, 0.5),
            warmup=Linear.of(12),
            prefill=prefill,
            decode=Table((1, 2), (0, 100), ((5, 6), (7, 8)), extend=False),
            decision=prefill,
            copy=copy,
            save=copy,
            restore=copy,
            store=copy,
            fetch=copy,
        ),
        segments=5,
        gap_ns=300,
        suspend=False,
        windows=(None, 128),
        noise=0.25,
    )


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"coresident.device/1"', '"coresident.device/2"', "schema is 'coresident.device/2'"),
        ('source = "made up"', 'source = " "', "source is ' ': it must be a text"),
        ('source = "made up"', "", "source is missing"),
        ("segments = 5", "segments = 5\ncolour = 1", "device has unknown keys colour; known are"),
        ("segments = 5", "segments = 5.0", r"device.segments is 5.0: it must be an integer from 1"),
        ("segments = 5", "segments = true", "device.segments is True: it must be an integer"),
        ("gap_ns = 300", "gap_ns = -1", "device.gap_ns is -1: it must be an integer from 0"),
        ("noise = 0.25", "noise = nan", "device.noise is NaN: it must be a number from 0 to 1"),
        ("noise = 0.25", "noise = 1.5", "device.noise is 1.5"),
        ("suspend = false", "suspend = 0", "device.suspend is 0: it must be true or false"),
        ('"4 GiB"', '"4 parsecs"', "device.partition is '4 parsecs'"),
        ('"4 GiB"', "-1", "device.partition is -1"),
        ('"4 GiB"', "true", "device.partition is True"),
        ('"4 GiB"', "inf", "device.partition is Infinity"),
        ("context_limit = 8192", "", "model.context_limit is missing"),
        ("windows = [0, 128]", "windows = [0, -1]", "model.windows is -1"),
        ("windows = [0, 128]", 'windows = "no"', "model.windows is 'no': it must be a list"),
        ("kv_per_token = 1000", "kv_per_token = -1000", "memory.kv_per_token is -1000"),
        ("workspace_per_pair = 4", "workspace_per_row = 4", "memory has unknown keys workspace_per_row"),
        ("copy = { unit_ns = 3 }", "", "times.copy is missing"),
        ("unit_ns = 3", "unit_ns = -3", "times.copy.unit_ns is -3: it must be a number from 0"),
        ("unit_ns = 3", "unit_ns = inf", "times.copy.unit_ns is Infinity"),
        ("unit_ns = 3", "unit_ns = 1e300", "times.copy.unit_ns is 1E[+]300"),
        ("unit_ns = 3", "unit_ns = false", "times.copy.unit_ns is False"),
        ("unit_ns = 3", 'unit_ns = "3"', "times.copy.unit_ns is '3'"),
        ("unit_ns = 3", "units = 3", "times.copy has unknown keys units"),
        ("warmup = 12", "warmup = -inf", "times.warmup is -Infinity"),
        ("warmup = 12", "warmup = [12]", r"times.warmup is \[12\]"),
        ("[5, 6]", "[5, nan]", "times.decode.times_ns is NaN"),
        ("[5, 6]", "[5, -6]", "times.decode.times_ns is -6"),
        ("[5, 6]", "[5]", "times.decode: size 1 has 1 times for 2 contexts"),
        ("sizes = [1, 2]", "sizes = [2, 1]", r"times.decode: sizes are \[2, 1\]"),
        ('"hold"', '"guess"', "times.decode.beyond is 'guess': it must be one of extend, hold"),
        ("[times]", "[time]", "times is missing"),
        ("[times]", "[times]\nprepare = 1", "times has unknown keys prepare"),
        ("[times]", "times", "Expected '='"),
    ],
)
def test_what_is_wrong_is_refused_with_the_file_the_key_and_the_value(tmp_path, old, new, message):
    assert TEXT.count(old) >= 1
    with pytest.raises(InvalidRequest, match=message) as caught:
        load(tmp_path, TEXT.replace(old, new, 1))
    assert "a.toml" in str(caught.value)


def test_a_device_that_is_not_there_is_refused_with_those_that_are(tmp_path):
    with pytest.raises(InvalidRequest, match=f"'gpu' is none of .*{shipped()[0]}"):
        load_device("gpu")
    with pytest.raises(InvalidRequest, match=r"missing\.toml.*No such file"):
        load_device(tmp_path / "missing.toml")
    (tmp_path / "b.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidRequest, match=r"b\.toml"):
        load_device(tmp_path / "b.toml")


@pytest.mark.parametrize("name", shipped())
def test_shipped_devices_say_where_they_come_from_and_serve(name):
    device = load_device(name)
    assert len(device.source) > 100
    assert device.times.prefill.ns(256, 256) > 0 < device.times.decode.ns(1, 256)
    config = structure({"device": {"backend": "modelled", "model": name}, "decision": {"context": 512}})
    opened = open_virtual(config)
    assembly = assemble(config, opened.backend, opened.heads)
    assert assembly.account.partition == device.partition
    assert 0 < assembly.context <= device.context_limit


@pytest.mark.parametrize(("name", "hardware"), [("a100-llama2-70b", "a100-80gb"), ("h100-llama2-70b", "h100-80gb")])
def test_shipped_tables_are_medians_of_the_public_one(name, hardware):
    if not SPLITWISE.exists():
        pytest.skip(f"there is no {SPLITWISE}")
    runs = defaultdict(list)
    with SPLITWISE.open() as file:
        for row in csv.DictReader(file):
            if (row["model"], row["hardware"], row["tensor_parallel"], row["token_size"]) == (
                "llama2-70b",
                hardware,
                "8",
                "128",
            ):
                runs[int(row["prompt_size"]), int(row["batch_size"])].append(row)
    times = load_device(name).times
    for (prompt, rows), measured in runs.items():
        token = statistics.median(float(row["token_time"]) for row in measured)
        assert times.decode.ns(rows, prompt + 64) == pytest.approx(token * 1e6, abs=2)
        if rows == 1:
            whole = statistics.median(float(row["prompt_time"]) for row in measured)
            assert times.prefill.ns(prompt, prompt) == pytest.approx(whole * 1e6, abs=1)


TIME, SIZE = st.integers(0, 10**12), st.integers(0, 10**9)
COST = st.one_of(
    st.builds(Linear, TIME, TIME, TIME),
    st.builds(
        lambda a, b, low, more, extend: Table((a, a + 1 + more), (b,), ((low,), (low + more,)), extend),
        SIZE,
        SIZE,
        SIZE,
        SIZE,
        st.booleans(),
    ),
)
TIMES = st.builds(StepTimes, **{field.name: COST for field in attrs.fields(StepTimes)})
WORDS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20).filter(str.strip)
DEVICES = st.builds(
    DeviceModel,
    label=WORDS,
    source=WORDS,
    partition=st.integers(1, 2**50),
    workspace=st.integers(1, 2**40),
    context_limit=st.integers(1, 10**6),
    vocabulary=st.integers(1, 10**6),
    memory=st.builds(Memory, SIZE, SIZE, SIZE, SIZE, st.none() | SIZE, SIZE, SIZE, SIZE),
    times=TIMES,
    segments=st.integers(1, 1000),
    gap_ns=st.integers(0, 10**9),
    suspend=st.booleans(),
    windows=st.lists(st.none() | st.integers(1, 10**6), max_size=3).map(tuple),
    noise=st.floats(0, 1),
)  # fmt: skip


@given(DEVICES)
def test_what_is_written_is_read_back_equal(tmp_path_factory, device):
    path = tmp_path_factory.getbasetemp() / "written.toml"
    path.write_text(device_text(device), encoding="utf-8")
    assert load_device(path) == device


def test_a_configuration_takes_the_limits_of_its_device_unless_it_sets_its_own(tmp_path):
    device = load(tmp_path)
    path = str(tmp_path / "a.toml")
    taken = structure({"device": {"backend": "modelled", "model": path}}).device
    assert (taken.partition, taken.workspace) == (device.partition, device.workspace)
    own = structure({"device": {"backend": "modelled", "model": path, "partition": "2 GiB"}}).device
    assert (own.partition, own.workspace) == (2 * 2**30, device.workspace)
    assert DeviceConfig("modelled", model=path).partition == device.partition


def test_a_configuration_moves_to_another_device(tmp_path):
    load(tmp_path)
    path = str(tmp_path / "a.toml")
    moved = on_device(Config(DeviceConfig(partition=5), GenerationConfig("smollm2", context=100_000)), path)
    assert (moved.device.backend, moved.device.model, moved.device.partition) == ("modelled", path, 4 * 2**30)
    assert moved.generation.context == 8192
    assert on_device(Config(), path).generation.context == 0


@pytest.mark.parametrize(
    ("device", "message"),
    [
        ({"model": "a100-llama2-70b"}, "only 'modelled' has one"),
        ({"backend": "reference", "model": "gpu"}, "gpu"),
        ({"backend": "modelled", "model": "gpu"}, "device model 'gpu' is none of"),
        ({"backend": "modelled", "model": 7}, "7 is not a string"),
    ],
)
def test_a_device_model_in_the_wrong_place_is_refused(device, message):
    with pytest.raises(InvalidRequest, match=message):
        structure({"device": device})


def test_opened_backends_are_of_the_configured_device(tmp_path):
    device = load(tmp_path)
    config = structure({"device": {"backend": "modelled", "model": str(tmp_path / "a.toml")}})
    for opened in (open_backend(config), open_virtual(config)):
        described = opened.backend.describe("generation")
        assert (described.label, described.context_limit, described.windows) == ("a device", 8192, (None, 128))
        assert opened.backend.capabilities.suspend is False
        assert opened.backend.capabilities.gap_ns == device.gap_ns
    with pytest.raises(InvalidRequest, match="virtual time needs 'modelled'"):
        open_virtual(Config())
