"""Whatever is prepared, asked and cancelled when: every computed token has one fate, and a replay tells the same."""

from __future__ import annotations

import tempfile
from pathlib import Path

import attrs
import trio
from coresident.actors.messages import Cancel
from coresident.runtime.backends.modelled import ModelledBackend
from coresident.traces.events_schedule import EndPreparation
from coresident.traces.reader import TraceReader
from coresident.traces.recorder import Recorder
from coresident.traces.replay import replay
from coresident.traces.workload import load_workload
from hypothesis import given, settings
from hypothesis import strategies as st
from traced_runs import CONFIG, HEADS, MS, modelled_assembly, play

TEXTS = (range(600), (*range(300), *range(900, 1300)), range(2000, 2500), (*range(200), 5, 5))
ACTIONS = st.lists(
    st.tuples(
        st.integers(0, 120),
        st.sampled_from(["prepare", "generate", "decide", "cancel"]),
        st.integers(0, len(TEXTS) - 1),
        st.integers(160, 600),
    ),
    min_size=1,
    max_size=10,
)
# Room for about one of the texts, so that retained prefixes are evicted.
KEPT = CONFIG.generation.retained // 32


def story_of(actions):
    def story(client):
        host, when, names = client.host, client.host.now, ["nobody"]
        for place, (pause, what, text, length) in enumerate(actions):
            when += pause * MS
            name, tokens = f"{what}{place}", tuple(TEXTS[text][:length])
            if what in ("prepare", "generate"):
                names.append(name)
            acts = {
                "prepare": lambda name=name, tokens=tokens, text=text: client.prepare(name, tokens, f"c{text % 2}"),
                "generate": lambda name=name, tokens=tokens: client.generate(name, tokens, 3),
                "decide": lambda name=name, tokens=tokens: client.decide(name, [tokens[:9]]),
                "cancel": lambda names=tuple(names): host.send("generation", Cancel(names[len(names) // 2])),
            }
            host.call_at(when, acts[what])

    return story


def timeless(statistics):
    """Without when the scheduler was closed: a cancel of what has ended, which is in no trace, puts that off."""
    return attrs.evolve(statistics, span_ns=0, device=attrs.evolve(statistics.device, span_ns=0))


@settings(max_examples=30, deadline=None)
@given(ACTIONS, st.integers(1, 2), st.booleans())
def test_every_prepared_token_has_one_fate_and_a_replay_tells_the_same(actions, slots, tight):
    generation = attrs.evolve(CONFIG.generation, sequences=slots)
    if tight:
        generation = attrs.evolve(generation, retained=KEPT)
    config = attrs.evolve(CONFIG, generation=generation)
    assembly = modelled_assembly(config, ModelledBackend(heads=tuple(HEADS)))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.jsonl"
        recorder = Recorder.open(path, assembly)
        play(assembly, story_of([(0, "decide", 0, 130), *actions]), (recorder,))
        recorder.close()
        with TraceReader(path) as reader:
            ends = {event.request: event for event in reader if isinstance(event, EndPreparation)}
        total = load_workload(path).recorded.preparation
        for account in total.accounts if total else ():
            assert account.computed == ends[account.request].computed
            assert account.computed == account.used + account.kept + account.evicted + account.wasted
            assert min(account.used, account.kept, account.evicted, account.wasted) >= 0
            assert account.used == sum(use.tokens for use in account.uses)
        report = trio.run(replay, path)
        assert report.comparison.same
        assert timeless(report.statistics) == timeless(report.recorded)
