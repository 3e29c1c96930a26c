"""The engine seam: built on first use, once, by whoever comes first; failures are errors."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import trio
from coresident.actors.events import Granted
from coresident.actors.work import StepKind
from gguf import GGMLQuantizationType

from coresident import (
    ArtifactInvalid,
    Call,
    Closed,
    Completion,
    Config,
    EngineRegistry,
    SchedulerEngine,
    open_engine,
    open_scheduler,
)
from support.live import config
from support.tiny_models import write_gguf


class Loads:
    """Counts the load steps that a run granted."""

    def __init__(self) -> None:
        self.count = 0

    def delivered(self, delivery) -> None:
        for event in delivery.events():
            self.count += isinstance(event, Granted) and event.kind is StepKind.LOAD

    def token(self, request: str, index: int, at: int) -> None:
        return

    def dropped(self, error: Exception) -> None:
        raise error


def named(model: str) -> Config:
    return config(generation={"model": model, "context": 256}, decision=None)


def test_E4_nothing_is_built_at_import_or_construction(tmp_path: Path) -> None:
    """A model that cannot be opened shows when something opens it."""

    async def main() -> None:
        async with open_engine(named(str(tmp_path / "missing.gguf"))) as engine:
            assert engine.view("other").capabilities == engine.capabilities

    trio.run(main)
    probe = "import sys, threading, coresident; print(threading.active_count(), 'trio' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout.split()[0] == "1"


def test_E4_racing_callers_of_every_view_build_once() -> None:
    loads = Loads()
    done: list[Completion] = []

    async def call(engine: SchedulerEngine) -> None:
        done.append(await engine.complete(Call(b"race", 2)))

    async def main() -> None:
        async with open_engine(named("synthetic"), observers=[loads]) as engine, trio.open_nursery() as nursery:
            for view in (engine, engine.view("b"), engine.view("c")):
                nursery.start_soon(call, view)
                nursery.start_soon(call, view)

    trio.run(main)
    assert loads.count == 1
    assert sorted(each.engine for each in done) == ["b", "b", "c", "c", "coresident", "coresident"]
    assert len({each.tokens for each in done}) == 1


def test_E4_the_first_preload_wins_and_none_is_ignored(tmp_path: Path) -> None:
    quantized = write_gguf(tmp_path / "tiny.gguf", "llama", GGMLQuantizationType.Q8_0, tokenizer=True)
    labels: list[str | None] = []

    async def main() -> None:
        async with open_engine(named("synthetic")) as engine:
            labels.append(await engine.preload(None))
            labels.append(await engine.preload("synthetic"))
            labels.append(await engine.preload(str(quantized)))
            labels.append((await engine.complete(Call(b"x", 1))).model)

    trio.run(main)
    assert labels[0] is None
    assert labels[1] == labels[2] == labels[3]
    assert "synthetic" in str(labels[1])


def test_E4_a_quantized_preload_claims_the_same_guard(tmp_path: Path) -> None:
    loads = Loads()
    quantized = write_gguf(tmp_path / "tiny.gguf", "llama", GGMLQuantizationType.Q8_0, tokenizer=True)
    labels: set[str | None] = set()

    async def preload(engine: SchedulerEngine, model: str) -> None:
        labels.add(await engine.preload(model))

    async def main() -> None:
        async with open_engine(named("synthetic"), observers=[loads]) as engine:
            labels.add(await engine.preload(str(quantized)))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(preload, engine, "synthetic")
                nursery.start_soon(preload, engine.view("b"), str(quantized))

    trio.run(main)
    assert loads.count == 1
    assert len(labels) == 1
    assert "tiny.gguf" in str(labels.pop())


def test_E6_a_failed_load_reaches_every_caller_and_nothing_stands_in(tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF\x03\x00\x00\x00")
    raised: list[BaseException] = []

    async def call(engine: SchedulerEngine) -> None:
        with pytest.raises(ArtifactInvalid, match=r"broken\.gguf") as caught:
            await engine.complete(Call(b"x", 1))
        raised.append(caught.value)

    async def main() -> None:
        async with open_engine(named(str(broken))) as engine:
            async with trio.open_nursery() as nursery:
                for _ in range(3):
                    nursery.start_soon(call, engine)
            await call(engine)
            assert "synthetic" in str(await engine.preload("synthetic"))
            assert (await engine.complete(Call(b"x", 1))).output_tokens == 1

    trio.run(main)
    assert len(raised) == 4
    assert len({str(error) for error in raised}) == 1


def test_E6_the_environment_names_the_model_and_its_failure_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def label() -> str:
        async with open_engine(named("")) as engine:
            return (await engine.complete(Call(b"x", 1))).model

    monkeypatch.setenv("CORESIDENT_MODEL", str(tmp_path / "missing.gguf"))
    with pytest.raises(ArtifactInvalid, match=r"missing\.gguf"):
        trio.run(label)
    monkeypatch.setenv("CORESIDENT_MODEL", str(write_gguf(tmp_path / "tiny.gguf", "llama", tokenizer=True)))
    assert "tiny.gguf" in trio.run(label)
    monkeypatch.delenv("CORESIDENT_MODEL")
    assert "synthetic" in trio.run(label)


def test_R1_all_views_and_roles_share_one_bounded_runtime() -> None:
    loads = Loads()

    async def main() -> None:
        registry = EngineRegistry()
        async with open_scheduler(config(), observers=[loads]) as scheduler:
            for name in ("chat", "tools"):
                registry.register(name, SchedulerEngine(name, scheduler))
            for name in registry.snapshot():
                await registry.get(name).complete(Call(b"one runtime", 2))
            await scheduler.decide("Is it?", ["yes"])
            weights = {key for key in scheduler.statistics().device.ledger.accounts if key.startswith("weights/")}
            assert weights == {"weights/generation"}
            assert scheduler.statistics().generation.completed == 2

    trio.run(main)
    assert loads.count == 1


def test_a_closed_engine_refuses() -> None:
    async def main() -> None:
        async with open_engine(named("synthetic")) as engine:
            await engine.preload("synthetic")
        with pytest.raises(Closed):
            await engine.complete(Call(b"x", 1))

    trio.run(main)
