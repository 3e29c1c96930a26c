"""The engine seam: registry, capabilities, and completion."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import trio
from coresident.runtime.models.locate import ModelSource

from coresident import (
    Call,
    Completion,
    Config,
    EngineRegistry,
    InvalidRequest,
    SchedulerEngine,
    open_engine,
    open_scheduler,
)
from support.live import config
from support.reference import opened, prefill

PAYLOAD = b"The lamp of the lighthouse \xff\xfe turns"


class Other:
    """An engine that is not ours, with a lifecycle and words of its own."""

    def __init__(self, name: str) -> None:
        self.id = name
        self.capabilities = frozenset({"complete", "hibernate"})

    def negotiate(self, wanted) -> frozenset[str]:
        return self.capabilities.intersection(wanted)

    async def preload(self, model: str | None) -> str | None:
        return model

    async def complete(self, call: Call) -> Completion:
        return Completion(self.id, "other", (), "", len(call.payload), 0)


def named(model: str) -> Config:
    return config(generation={"model": model}, decision=None)


def test_E1_the_last_registration_of_an_id_wins_and_snapshots_do_not_change() -> None:
    registry = EngineRegistry()
    first, second, other = Other("b"), Other("b"), Other("a")
    registry.register("b", first)
    before = registry.snapshot()
    registry.register("b", second)
    registry.register("a", other)
    assert dict(before) == {"b": first}
    assert dict(registry.snapshot()) == {"a": other, "b": second}
    with pytest.raises(TypeError):
        before["c"] = other  # type: ignore[index]


def test_E1_an_empty_id_is_the_first_in_sorted_order() -> None:
    registry = EngineRegistry()
    with pytest.raises(InvalidRequest, match="register one first"):
        registry.get()
    for name in ("m", "z", "B", "c"):
        registry.register(name, Other(name))
    assert registry.get("") is registry.get("B")
    with pytest.raises(InvalidRequest, match=r"'x'.*known are B, c, m, z"):
        registry.get("x")
    with pytest.raises(InvalidRequest, match="not empty"):
        registry.register("", Other(""))


def test_E2_what_the_other_side_does_not_know_is_never_negotiated() -> None:
    async def main() -> None:
        async with open_engine(named("synthetic")) as engine:
            assert engine.negotiate({"complete", "cancel", "telepathy"}) == {"complete", "cancel"}
            assert engine.negotiate(()) == frozenset()
            assert Other("x").negotiate(engine.capabilities) == {"complete"}

    trio.run(main)


def test_E2_lifecycle_is_a_capability_of_each_engine() -> None:
    async def main() -> None:
        async with open_engine(named("synthetic")) as lazy, open_scheduler(named("synthetic")) as scheduler:
            ready = SchedulerEngine("ready", scheduler)
            assert "preload" in lazy.capabilities
            assert "preload" not in ready.capabilities
            with pytest.raises(InvalidRequest, match="preload"):
                await ready.preload("synthetic")
            assert (await ready.complete(Call(b"x", 2))).engine == "ready"

    trio.run(main)


def test_E3_a_completion_is_the_greedy_continuation_of_the_payloads_bytes() -> None:
    async def main() -> Completion:
        async with open_engine(named("synthetic"), name="main") as engine:
            return await engine.complete(Call(PAYLOAD, 6))

    done = trio.run(main)
    backend, tokens = opened(ModelSource()), list(PAYLOAD)
    for _ in range(6):
        tokens.append(int(np.argmax(prefill(backend, 0, tokens))))
    assert done.tokens == tuple(tokens[len(PAYLOAD) :])
    assert (done.engine, done.input_tokens, done.output_tokens) == ("main", len(PAYLOAD), 6)
    assert "synthetic" in done.model
    assert done.text == bytes(done.tokens).decode("utf-8", errors="replace")


def test_E3_runs_as_an_ordinary_request_that_can_be_cancelled() -> None:
    async def main() -> None:
        async with open_scheduler(named("synthetic")) as scheduler:
            engine = SchedulerEngine("x", scheduler)
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(engine.complete, Call(b"long", 500))
                    while scheduler.statistics().generation.open == 0:
                        await trio.lowlevel.checkpoint()
                    scope.cancel()
            assert scheduler.statistics().generation.cancelled == 1
            assert (await engine.complete(Call(b"again", 3))).output_tokens == 3
            assert scheduler.statistics().generation.completed == 1

    trio.run(main)


def test_E3_an_empty_payload_is_refused() -> None:
    async def main() -> None:
        async with open_engine(named("synthetic")) as engine:
            with pytest.raises(InvalidRequest, match="empty"):
                await engine.complete(Call(b""))

    trio.run(main)


def test_E3_a_text_model_completes_text_and_refuses_other_bytes(smollm2_path: Path) -> None:
    async def main() -> Completion:
        chosen = config(
            device={"partition": "1 GiB", "workspace": "128 MiB"},
            generation={"model": str(smollm2_path), "context": 256, "sequences": 1},
            decision=None,
        )
        async with open_engine(chosen) as engine:
            done = await engine.complete(Call(b"The capital of France is", 3))
            with pytest.raises(InvalidRequest, match=r"0xff at 3"):
                await engine.complete(Call(b"abc\xff", 3))
            return done

    done = trio.run(main)
    assert done.text.startswith(" Paris")
    assert done.output_tokens == len(done.tokens) == 3
