"""The front door: opened from classes, a file or nothing, ready inside, and closed whatever happens."""

from __future__ import annotations

from itertools import count

import attrs
import pytest
import trio

from coresident import (
    ArtifactInvalid,
    BudgetExceeded,
    Config,
    InvalidRequest,
    SamplingParams,
    open_scheduler,
)
from support.cancelling import cancelled_at
from support.live import LONG, config, device_threads, run

TOML = """
[device]
partition = "64 MiB"
workspace = "8 MiB"
[generation]
model = "synthetic"
context = 300
retained = "4 MiB"
"""


@pytest.fixture(autouse=True)
def no_environment(monkeypatch):
    monkeypatch.delenv("CORESIDENT_MODEL", raising=False)


async def label_of(given) -> tuple[str, int]:
    async with open_scheduler(given) as scheduler:
        ready = scheduler.readiness()
        assert (ready.ready, ready.state, ready.actions) == (True, "ready", ())
        assert scheduler.account.total + scheduler.account.free == scheduler.account.partition
        assert len((await scheduler.generate("Hello", max_tokens=2)).tokens) == 2
        return scheduler.label, ready.admitted_context


def test_a_config_a_path_and_nothing_all_open(tmp_path):
    path = tmp_path / "c.toml"
    path.write_text(TOML)
    small = attrs.evolve(Config(), generation=attrs.evolve(Config().generation, context=300))
    labels = [run(lambda given=given: label_of(given)) for given in (None, small, path, str(path))]
    assert {label for label, _ in labels} == {labels[0][0]}
    assert "synthetic" in labels[0][0]
    assert [context for _, context in labels[1:]] == [300, 300, 300]
    assert device_threads() == []


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("[device]\nbackend = 'cuda'\n", InvalidRequest, "device.backend is 'cuda'"),
        ("[generation]\nmodel = 'nowhere.gguf'\n", ArtifactInvalid, "nowhere.gguf"),
        ("[device]\npartition = '1 MiB'\n", BudgetExceeded, "are missing"),
        ("[generation\n", InvalidRequest, "c.toml"),
        (
            "[[decision.verbalizers]]\nname = 'a'\npositive = ['x']\nnegative = ['x']\n",
            InvalidRequest,
            "decision head a: .* begin with the same tokens",
        ),
    ],
)
def test_what_cannot_open_says_why_and_leaves_nothing(tmp_path, text, error, message):
    path = tmp_path / "c.toml"
    path.write_text(text)

    async def main():
        with pytest.raises(error, match=message):
            async with open_scheduler(path):
                raise AssertionError("opened")

    run(main)
    assert device_threads() == []


def test_R4_measure_counts_what_generate_would_render():
    async def main():
        async with open_scheduler(config()) as scheduler:
            messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": LONG}]
            for prompt in ("Hello", messages, list(range(9))):
                measured = scheduler.measure(prompt)
                result = await scheduler.generate(prompt, max_tokens=1)
                assert result.prompt_tokens == measured.prompt_tokens
                assert measured.remaining == measured.admitted_context - measured.prompt_tokens
            assert scheduler.measure("x" * 600).remaining == 0

    run(main)


def test_without_a_decision_model_decide_says_what_to_do():
    async def main():
        async with open_scheduler(config(decision=False)) as scheduler:
            with pytest.raises(InvalidRequest, match=r"add \[decision\] to the configuration"):
                await scheduler.decide("Food?", ["a"])
            assert scheduler.statistics().decision is None
            assert (await scheduler.generate("Hello", max_tokens=2)).outcome == "completed"

    run(main)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rows": []}, "0 rows"),
        ({"rows": ["a"] * 65}, "65 rows"),
        ({"rows": "abc"}, "rows is the text 'abc'"),
        ({"rows": ["x" * 300]}, "exceeds"),
        ({"heads": ()}, "unknown heads"),
        ({"heads": ("mood",)}, "unknown heads"),
        ({"heads": "rank"}, "heads is the text 'rank'"),
        ({"deadline": 0}, "deadline is 0"),
    ],
)
def test_bad_decisions_are_refused_by_field(options, message):
    async def main():
        async with open_scheduler(config()) as scheduler:
            with pytest.raises(InvalidRequest, match=message):
                await scheduler.decide("Food?", **{"rows": ["a"], **options})
            assert (await scheduler.decide("Food?", ["a"])).outcome == "completed"

    run(main)


def test_kinds_of_heads_give_what_they_promise():
    async def main():
        async with open_scheduler(config()) as scheduler:
            answer = await scheduler.decide("Food?", ["pizza", "car", "bread"], heads=("choice", "probability", "rank"))
            assert sum(answer.scores["choice"]) == pytest.approx(1)
            assert all(0 < value < 1 for value in answer.scores["probability"])
            order = [sorted(range(3), key=answer.scores[head].__getitem__) for head in answer.scores]
            assert order == [order[0]] * 3
            assert not answer.abstained

    run(main)


def test_logprobs_come_with_the_pieces_when_asked_for():
    async def main():
        async with open_scheduler(config()) as scheduler:
            async with scheduler.generate("Hello", max_tokens=4, sampling=SamplingParams(logprobs=3)) as stream:
                pieces = [piece async for piece in stream]
            assert all(len(piece.top) == 3 and piece.top[0] == (piece.token, piece.logprob) for piece in pieces[:4])
            async with scheduler.generate("Hello", max_tokens=4) as stream:
                assert {(piece.logprob, piece.top) async for piece in stream} == {(None, ())}

    run(main)


@pytest.mark.parametrize("when", ["before", "after"])
def test_R5_cancelling_at_every_checkpoint_from_opening_to_closing(when):
    async def everything():
        async with open_scheduler(config()) as scheduler, scheduler.generate("Hello", max_tokens=4) as stream:
            async for _ in stream:
                await scheduler.decide("Food?", ["a"])

    async def main():
        for n in count(1):
            acted = await cancelled_at(n, when, everything)
            assert device_threads() == []
            if not acted:
                return n
        raise AssertionError

    assert run(main, 60) > 6


def test_two_schedulers_beside_each_other_do_not_meet():
    async def main():
        async with open_scheduler(config()) as one, open_scheduler(config()) as other:
            results = []

            async def client(scheduler):
                results.append((await scheduler.generate(LONG, max_tokens=8)).tokens)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(client, one)
                nursery.start_soon(client, other)
            assert results[0] == results[1]
            assert one.statistics().generation.completed == other.statistics().generation.completed == 1

    run(main)
