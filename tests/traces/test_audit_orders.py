"""Mailboxes may be emptied in any order between them: whatever order it was, an audit finds it in the trace."""

from __future__ import annotations

import tempfile
from pathlib import Path

import attrs
import pytest
from coresident.actors.errors import BackendFault, DeviceLost
from coresident.actors.messages import Failed, Start
from coresident.actors.supervisor import RECOVERIES
from coresident.runtime.host.observers import Delivery
from coresident.traces.audit.run import audit
from coresident.traces.header import header_of
from coresident.traces.recorder import Recorder
from hypothesis import given, settings
from hypothesis import strategies as st
from traced_runs import modelled_assembly

from support.bench_host import BenchHost
from support.bench_setup import Bench

HEADS = (tuple(range(30)), tuple(range(12)), tuple(range(100, 140)))
ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["generate", "decide", "prepare", "cancel", "segment", "deliver", "break", "lose", "recover"]),
        st.integers(0, 30),
    ),
    min_size=1,
    max_size=25,
)


@attrs.define
class Watched:
    """An actor, every delivery of which a recorder sees."""

    inner: object
    recorder: Recorder

    def handle(self, message, at):
        effects = self.inner.handle(message, at)
        self.recorder.delivered(Delivery(0, at, self.inner.name, message, tuple(effects)))
        return effects


def act(host: BenchHost, what: str, number: int) -> None:
    prompt = (*HEADS[number % 3][: 5 + number], number)
    match what:
        case "generate":
            host.generate(prompt, 1 + number % 6, conversation=f"c{number % 2}", retain=number % 5 > 0)
        case "decide":
            host.decide([prompt[:4], (number,)], HEADS[number % 2][:9])
        case "prepare":
            host.prepare(prompt, 3, conversation=f"c{number % 2}")
        case "cancel" if host.submitted:
            host.cancel(list(host.submitted)[number % len(host.submitted)])
        case "deliver":
            for _ in range(number):
                host.deliver()
        case "segment":
            host.segment()
        case "break":
            host.device.inject = Failed(BackendFault("broken"))
        case "lose":
            host.device.inject = Failed(DeviceLost("gone"), sticky=True)
        case "recover":
            host.recover(RECOVERIES[number % 2])


@settings(max_examples=25, deadline=None)
@given(
    ACTIONS,
    st.integers(0, 2**32),
    st.sampled_from(["strict", "aging", "fifo"]),
    st.integers(1, 3),
    st.sampled_from([0, 2]),
)
def test_any_order_between_mailboxes(actions, seed, ordering, slots, restarts):
    bench = Bench(seed=seed, ordering=ordering, slots=slots, retained=1500, restarts=restarts)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        path = Path(folder) / "t.jsonl"
        recorder = Recorder(path.open("wb", buffering=0), header_of(modelled_assembly()))
        host = BenchHost(bench)
        host.actors = {name: Watched(actor, recorder) for name, actor in host.actors.items()}
        host.send("supervisor", Start())
        host.run()
        for what, number in actions:
            act(host, what, number)
        host.run_on()
        host.close()
        recorder.close()
        patch.setattr("coresident.traces.audit.run.actors_of", lambda *_: BenchHost(bench).actors)
        report = audit(path)
    report.check()
    assert report.messages > len(actions)
