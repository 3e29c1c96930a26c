"""Calibration: what a known device took comes back out of its recordings, and predicts others to the nanosecond."""

from __future__ import annotations

import random
from functools import partial
from importlib import resources
from itertools import product

import attrs
import pytest
from coresident.actors.errors import InvalidRequest, TraceInvalid
from coresident.runtime.backends.costs import Linear, Table
from coresident.runtime.backends.device_file import load_device
from coresident.runtime.backends.device_model import DeviceModel, Memory, StepTimes
from coresident.runtime.backends.device_text import device_text
from coresident.runtime.backends.modelled import ModelledBackend
from coresident.traces.calibrate.error import FLOOR_NS, errors
from coresident.traces.calibrate.fit import fit
from coresident.traces.calibrate.observe import Sample
from coresident.traces.calibrate.run import calibrate
from coresident.traces.recorder import Recorder
from hypothesis import given, settings
from hypothesis import strategies as st
from traced_runs import CONFIG, HEADS, MS, modelled_assembly, play

CONTEXT = 2048
DEVICE = DeviceModel(
    label="known",
    source="this test",
    partition=CONFIG.device.partition,
    workspace=CONFIG.device.workspace,
    context_limit=CONTEXT,
    vocabulary=5000,
    memory=Memory(2**20, 1000, 2000, kv_fixed=64, workspace_fixed=300, workspace_per_pair=3),
    times=StepTimes(
        load=Linear.of(70 * MS),
        warmup=Linear.of(30 * MS),
        prefill=Linear.of(2 * MS, 0.5 * MS, 90),
        decode=Linear.of(10 * MS, 2 * MS, 3000),
        decision=Linear.of(1 * MS, 0.4 * MS, 300),
        copy=Linear.of(0, 4000),
        save=Linear.of(0.05 * MS, 2000),
        restore=Linear.of(0.02 * MS, 1000),
        store=Linear(),
        fetch=Linear(),
    ),
    segments=6,
    gap_ns=1_300_000,
)


def busy(seed, client):
    """Forty requests close together: conversations of two turns, utilities, decisions of one to three rows."""
    host, draw = client.host, random.Random(seed)
    start = host.now

    def converse(name, prompt):
        def again():
            known = (*prompt, *client.outputs[name], *(draw.randrange(5000) for _ in range(draw.randint(5, 90))))
            client.generate(f"{name}b", known, draw.randint(2, 12), after=name)

        client.then[name] = lambda: host.call_at(host.now + draw.randint(1, 40) * MS, again)
        client.generate(name, prompt, draw.randint(2, 20))

    for index in range(20):
        prompt = tuple(draw.randrange(5000) for _ in range(draw.randint(10, 600)))
        rows = [tuple(draw.randrange(5000) for _ in range(draw.randint(2, 50))) for _ in range(draw.randint(1, 3))]
        instruction = tuple(range(draw.choice([40, 90])))
        host.call_at(start + draw.randint(0, 4000) * MS, partial(converse, f"g{index}", prompt))
        host.call_at(start + draw.randint(0, 6000) * MS, partial(client.decide, f"d{index}", rows, instruction))


def record(path, seed, device=DEVICE):
    assembly = modelled_assembly(backend=ModelledBackend(device, tuple(HEADS)))
    recorder = Recorder.open(path, assembly)
    play(assembly, partial(busy, seed), (recorder,))
    recorder.close()
    assert recorder.error is None
    return path


@pytest.fixture(scope="module")
def traces(tmp_path_factory):
    folder = tmp_path_factory.mktemp("known")
    return [record(folder / f"{seed}.jsonl", seed) for seed in (1, 2)]


@pytest.fixture(scope="module")
def found(traces):
    return calibrate(traces)


@pytest.mark.parametrize(
    ("kind", "part"), [*product(("prefill", "decode", "decision", "save", "restore"), ("fixed", "unit", "pair"))]
)
def test_the_coefficients_of_a_known_device_come_back_within_a_thousandth(found, kind, part):
    known, fitted = (getattr(getattr(device.times, kind), part) for device in (DEVICE, found.device))
    assert fitted == pytest.approx(known, rel=1e-3, abs=500)


def test_gap_segments_memory_and_limits_of_a_known_device_come_back(found):
    device = found.device
    assert (device.gap_ns, device.segments, device.context_limit) == (DEVICE.gap_ns, DEVICE.segments, CONTEXT)
    assert device.times.load == DEVICE.times.load
    assert device.times.warmup == DEVICE.times.warmup
    assert device.times.copy.ns(90, 90) == DEVICE.times.copy.ns(90, 90)
    known = attrs.evolve(DEVICE.memory, workspace_fixed=device.memory.workspace_fixed)
    assert device.memory == attrs.evolve(known, decision_kv_fixed=device.memory.decision_kv_fixed)
    assert device.memory.workspace_fixed == pytest.approx(DEVICE.memory.workspace_fixed, abs=2)


def test_FIELD_68_every_metric_of_held_out_requests_is_predicted_and_judged_by_itself(found, traces):
    assert found.judged_on == (str(traces[1]),)
    assert found.held_out == 60
    assert set(found.errors) == {"queue_wait", "first_token", "token_gap", "decision"}
    for error in found.errors.values():
        assert error.count >= 20
        assert error.median < 1e-4
        assert error.p90 < 1e-3
    assert found.above_goal == ()


def test_the_last_requests_of_one_trace_are_held_out(traces):
    found = calibrate(traces[:1], holdout=0.2)
    assert found.held_out == 12
    assert found.errors["token_gap"].count < 200
    assert all(error.median < 1e-4 for error in found.errors.values() if error.count)
    assert sum(each.samples for each in found.fits) < sum(each.samples for each in calibrate(traces).fits)


def test_a_device_that_changed_since_is_seen_in_every_metric(traces, tmp_path):
    """Judged on a device that decodes twice as slowly: gaps between tokens are off by half, and what waits for them."""
    times = attrs.evolve(DEVICE.times, decode=Linear.of(20 * MS, 4 * MS, 6000))
    slow = record(tmp_path / "slow.jsonl", 2, attrs.evolve(DEVICE, times=times))
    found = calibrate([traces[0], slow])
    assert found.errors["token_gap"].median == pytest.approx(0.5, abs=0.05)
    assert "token_gap" in found.above_goal
    assert found.errors["first_token"].median > 0.05


def test_a_few_slow_steps_do_not_move_the_fit():
    """One step in five took ten times as long, as when something else had the machine."""
    cost = Linear.of(1000, 20, 0.5)
    samples = []
    for index in range(50):
        size, context = 10 + index * 7 % 90, 100 + index * 53 % 900
        ns = cost.ns(size, context) * (10 if index % 5 == 0 else 1)
        samples.append(Sample(index, "prefill", ns, 1, size, size * context))
    fitted = fit("prefill", samples).cost
    assert [fitted.ns(size, 500) for size in (10, 50, 90)] == pytest.approx(
        [cost.ns(size, 500) for size in (10, 50, 90)], rel=1e-3
    )


def test_a_time_that_bends_with_size_becomes_a_table():
    """Up to 16 tokens one way, above it another: no line has both, the table has each to a hundredth."""

    def ns(size, context):
        return 50_000 + 6000 * min(size, 16) + 2000 * max(size - 16, 0) + size * context // 10

    draw = random.Random(0)
    pairs = [(draw.choice([1, 2, 4, 8, 16, 100, 256, 256]), draw.randint(256, 4000)) for _ in range(80)]
    samples = [Sample(0, "prefill", ns(*pair), 1, pair[0], pair[0] * pair[1], (pair[0],)) for pair in pairs]
    found = fit("prefill", samples)
    assert isinstance(found.cost, Table)
    assert found.median < 0.05
    assert list(found.cost.sizes) == sorted(found.cost.sizes)
    for size, context in ((1, 256), (256, 300), (256, 4000), (100, 1000)):
        assert found.cost.ns(size, context) == pytest.approx(ns(size, context), rel=0.05)


def test_a_line_stays_a_line_however_many_sizes_there_are():
    cost, draw = Linear.of(1000, 20, 0.5), random.Random(0)
    shapes = [(draw.randint(1, 256), draw.randint(256, 4000)) for _ in range(80)]
    samples = [
        Sample(0, "prefill", round(cost.ns(n, c) * draw.uniform(0.95, 1.05)), 1, n, n * c, (n,)) for n, c in shapes
    ]
    assert isinstance(fit("prefill", samples).cost, Linear)


@settings(max_examples=25)
@given(
    st.lists(
        st.builds(Sample, st.just(0), st.just("decode"), st.integers(1, 10**12), st.integers(1, 64),
                  st.integers(1, 10**4), st.integers(0, 10**9)),
        min_size=1, max_size=20,
    )
)  # fmt: skip
def test_whatever_was_recorded_coefficients_are_finite_and_not_negative(samples):
    fitted = fit("decode", samples)
    assert min(attrs.astuple(fitted.cost)) >= 0
    assert fitted.median is not None
    assert fitted.median <= 1


def test_what_the_recordings_do_not_tell_is_said_to_be_a_guess(tmp_path):
    """All prompts and answers alike: nothing of decisions, one row, one copy of nothing."""
    path = tmp_path / "one.jsonl"
    assembly = modelled_assembly(backend=ModelledBackend(DEVICE, tuple(HEADS)))
    recorder = Recorder.open(path, assembly)

    def story(client):
        for number in range(20):
            prompt = range(100 * number, 100 * number + 100)
            client.host.call_at(client.host.now + number * 1000 * MS, partial(client.generate, f"g{number}", prompt, 3))

    play(assembly, story, (recorder,))
    recorder.close()
    guesses = " ".join(calibrate([path], 0.5).guesses)
    assert "decode: recorded 10 times, too few or too alike to tell a fixed part and a part for context" in guesses
    assert "prefill: recorded" in guesses
    assert "decision: not recorded, taken like prefill" in guesses
    assert "copy: not recorded, taken like save" in guesses


def test_a_calibrated_device_is_written_and_opened(found, tmp_path):
    path = tmp_path / "device.toml"
    path.write_text(device_text(found.device))
    assert load_device(path) == found.device


@pytest.mark.parametrize("holdout", [0, 1, -0.5, float("nan")])
def test_a_share_that_leaves_nothing_is_refused(traces, holdout):
    with pytest.raises(InvalidRequest, match="holdout is"):
        calibrate(traces, holdout)


def test_recordings_of_different_models_are_refused(traces, tmp_path):
    other = record(tmp_path / "other.jsonl", 3, attrs.evolve(DEVICE, label="another"))
    with pytest.raises(InvalidRequest, match=r"another .*but .* of modelled, known"):
        calibrate([*traces, other])


def test_a_trace_without_step_times_is_refused(tmp_path):
    path = tmp_path / "empty.jsonl"
    assembly = modelled_assembly()
    Recorder.open(path, assembly).close()
    with pytest.raises(TraceInvalid, match="no finished step"):
        calibrate([path])


def test_relative_errors_have_a_floor_and_pair_what_both_sides_have():
    recorded = {"a": {"queue_wait": [0], "token_gap": [4 * FLOOR_NS, 10 * FLOOR_NS]}, "b": {"decision": [5]}}
    predicted = {"a": {"queue_wait": [FLOOR_NS // 4], "token_gap": [5 * FLOOR_NS]}, "c": {}}
    found = errors(recorded, predicted, ["a", "b"])
    assert (found["queue_wait"].median, found["queue_wait"].median_ns) == (0.25, FLOOR_NS // 4)
    assert (found["queue_wait"].recorded_ns, found["queue_wait"].predicted_ns) == (0, FLOOR_NS // 4)
    assert (found["token_gap"].count, found["token_gap"].median, found["token_gap"].recorded_ns) == (
        1,
        0.25,
        4 * FLOOR_NS,
    )
    assert (found["decision"].count, found["decision"].median) == (0, None)


def test_too_little_to_judge_is_refused_with_what_to_record(traces):
    what = r"held-out part has 3 requests with measured times: at least 8 are needed.*varied lengths.*after="
    with pytest.raises(InvalidRequest, match=what):
        calibrate(traces[:1], 0.05)


def test_too_little_to_fit_is_refused_with_what_to_record():
    sample = resources.files("coresident.traces").joinpath("samples/chat.jsonl")
    with pytest.raises(InvalidRequest, match=r"part to fit has 10 steps .* at least 16 are needed.*varied lengths"):
        calibrate([str(sample)], 0.4)
