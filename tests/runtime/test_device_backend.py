"""The modelled backend under the virtual host: what it takes for a step, the gap between steps, and noise."""

from __future__ import annotations

from itertools import pairwise

import attrs
import pytest
from coresident.actors.messages import Start, SubmitDecision, SubmitGeneration
from coresident.actors.work import StepKind, StepShape
from coresident.runtime.backends.contract import DecodeInput, Segment
from coresident.runtime.backends.costs import Linear, Table
from coresident.runtime.backends.modelled import CountingSampler, ModelledBackend
from coresident.runtime.host.assembly import assemble
from coresident.runtime.host.steps import Stream
from coresident.runtime.host.virtual import VirtualHost

from support.virtual import COST, HEADS, MS, Log, config

GAP = 3 * MS
PLAIN = COST.device()


class Stage:
    """A virtual host that is ready, with one device; ``ready`` is when that was."""

    def __init__(self, device, seed=0, **sections):
        self.log = Log()
        backend = ModelledBackend(device, tuple(HEADS), seed)
        assembly = assemble(config(**sections), backend, HEADS)
        self.host = VirtualHost(assembly.actors, backend, assembly.plans, [self.log])
        self.host.send("supervisor", Start())
        self.host.run()
        self.ready = self.host.now

    def generate(self, at, request, prompt, tokens, **fields):
        message = SubmitGeneration(request, tuple(range(prompt)), tokens, "model", **fields)

        def submit():
            self.host.streams.open(request, Stream(CountingSampler(1), lambda *_: None))
            self.host.send("generation", message)

        self.host.call_at(self.ready + int(at * MS), submit)

    def decide(self, at, request, *rows):
        tokens = tuple(tuple(range(row)) for row in rows)
        message = SubmitDecision(request, (), tokens, ("rank",), "model")
        self.host.call_at(self.ready + int(at * MS), lambda: self.host.send("decision", message))

    def tokens(self, request):
        return [(at - self.ready) / MS for at in self.log.tokens[request]]

    def run(self):
        self.host.run()
        return self


def test_FIELD_67_the_gap_between_steps_is_in_the_time_to_first_token_and_between_tokens():
    """Two chunks of 16 tokens at 1 ms each, then runs of two tokens at 10 ms each: every grant is 3 ms later."""
    quantum = {"policies": {"quantum": {"name": "fixed", "tokens": 2}}}
    without = Stage(PLAIN, **quantum)
    without.generate(0, "g", 32, 5)
    assert without.run().tokens("g") == [32, 42, 52, 62, 72]
    stage = Stage(attrs.evolve(PLAIN, gap_ns=GAP), **quantum)
    stage.generate(0, "g", 32, 5)
    assert stage.run().tokens("g") == [32 + 6, 38 + 13, 38 + 23, 61 + 13, 61 + 23]


def test_FIELD_67_the_gap_is_in_the_wait_of_others_and_not_in_device_time():
    stage = Stage(attrs.evolve(PLAIN, gap_ns=GAP))
    stage.generate(0, "first", 16, 1)
    stage.generate(1, "second", 16, 1)
    stage.run()
    waited = {grant.request: grant.waited_ns for grant in stage.log.grants if grant.kind.value == "prefill"}
    assert waited == {"first": 0, "second": 18 * MS}
    assert stage.tokens("second") == [19 + 19]


def test_a_step_that_yields_pays_the_gap_again():
    """A decision at 9 ms stops a chunk after its second segment, at 3 + 8 ms; it takes 3 + 4 ms."""
    stage = Stage(attrs.evolve(PLAIN, gap_ns=GAP))
    stage.generate(0, "g", 16, 1)
    stage.decide(9, "d", 4)
    stage.run()
    assert (stage.log.ended_at["d"] - stage.ready) / MS == 11 + 7
    assert stage.tokens("g") == [18 + 3 + 8]


def test_a_decode_step_takes_the_time_of_the_mean_position_of_its_rows():
    decode = Table((1, 2), (16, 24, 40), ((1, 2, 3), (10, 30, 50)))
    backend = ModelledBackend(attrs.evolve(PLAIN, times=attrs.evolve(PLAIN.times, decode=decode)))
    rows = [DecodeInput(0, 16, 1), DecodeInput(1, 33, 1)]
    samplers = [CountingSampler(seed) for seed in (1, 2)]
    (segment,) = backend.decode(backend.open_workspace(1), "generation", rows, samplers)
    assert segment == Segment(30, last=True)


def test_noise_is_drawn_from_the_seed_within_its_bounds():
    device = attrs.evolve(PLAIN, noise=0.2)

    def gaps(seed):
        stage = Stage(device, seed)
        stage.generate(0, "g", 16, 40)
        times = stage.run().tokens("g")
        return [later - earlier for earlier, later in pairwise(times)]

    one, again, other = gaps(1), gaps(1), gaps(2)
    assert one == again != other
    assert all(8 <= gap <= 12 for gap in one + other)
    assert len(set(one)) > 30
    assert min(one + other) < 8.8
    assert max(one + other) > 11.2


def test_the_account_has_the_fixed_parts_of_slots_and_steps():
    memory = attrs.evolve(
        PLAIN.memory, kv_fixed=1000, decision_kv_per_token=7, decision_kv_fixed=50, workspace_fixed=900
    )
    device = attrs.evolve(PLAIN, memory=attrs.evolve(memory, workspace_per_pair=2))
    backend = ModelledBackend(device, tuple(HEADS))
    assembly = assemble(config(), backend, HEADS)
    totals = {buffer.name: buffer.total for buffer in assembly.account.buffers}
    assert totals["KV"] == 2 * (1000 + 4096 * 1024)
    assert totals["decision KV"] == 2 * (50 + 256 * 7)
    chunk, run = StepShape(StepKind.PREFILL, 1, 16, 100), StepShape(StepKind.DECODE, 2, 8, 100)
    assert backend.charge("generation", chunk) == 900 + 16 * (1024 + 100 * 2)
    assert backend.charge("generation", run) == 900 + 2 * (1024 + 100 * 2)


def test_no_step_lasts_longer_than_a_trace_can_say():
    device = attrs.evolve(PLAIN, times=attrs.evolve(PLAIN.times, load=Linear(10**40)))
    assert Stage(device).ready == 10**15


@pytest.mark.parametrize("seed", [0, 2**63, -1])
def test_any_integer_is_a_seed(seed):
    stage = Stage(attrs.evolve(PLAIN, noise=1.0), seed)
    stage.generate(0, "g", 4, 3)
    assert len(stage.run().tokens("g")) == 3
