"""One budget for each physical device: aliases share it, devices do not."""

from __future__ import annotations

import pytest
import trio
import trio.testing
from coresident.actors.memory.ledger import WORKSPACE

from coresident import Call, EngineRegistry, Overloaded, SchedulerEngine
from support.live import Bench, config, desk, run

CALL = Call(b"The sea is wide and the wind is", 6)
LIMITS = {"requests": 1}


def test_R3_aliases_of_one_device_share_its_ledger_and_its_load() -> None:
    async def main() -> None:
        async with desk(limits=LIMITS) as it:
            registry = EngineRegistry()
            engine = SchedulerEngine("a", it.scheduler)
            registry.register("a", engine)
            registry.register("b", engine.view("b"))
            held = it.backend.hold("decode")
            done = []

            async def call(name: str) -> None:
                done.append(await registry.get(name).complete(CALL))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(call, "a")
                await held.reached()
                before = it.scheduler.statistics().device
                assert before.ledger.accounts[WORKSPACE].used > 0
                with pytest.raises(Overloaded, match="the limit is 1"):
                    await registry.get("b").complete(CALL)
                assert it.scheduler.statistics().device == before
                held.release()
            while it.scheduler.statistics().generation.open:
                await trio.lowlevel.checkpoint()
            await call("b")
            first, second = done
            assert (first.engine, second.engine) == ("a", "b")
            assert first.tokens == second.tokens
            assert it.scheduler.statistics().generation.prefixes.hits == 1, "one alias finds what the other retained"
            assert it.backend.loads == {"generation": 1}
            await it.settled()

    run(main)


def test_R3_a_request_of_one_alias_waits_for_what_another_holds() -> None:
    async def main() -> None:
        async with desk(generation={"sequences": 1, "retained": 0}) as it:
            aliases = [SchedulerEngine("a", it.scheduler)]
            aliases.append(aliases[0].view("b"))
            order = []

            async def call(engine: SchedulerEngine) -> None:
                await engine.complete(CALL)
                order.append(engine.id)

            held = it.backend.hold("decode")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(call, aliases[0])
                await held.reached()
                before = it.scheduler.statistics().device
                nursery.start_soon(call, aliases[1])
                await trio.testing.wait_all_tasks_blocked()
                now = it.scheduler.statistics()
                assert (now.generation.queued, now.device) == (1, before)
                held.release()
            assert order == ["a", "b"]
            await it.settled()

    run(main)


def test_R3_two_devices_have_ledgers_and_loads_of_their_own() -> None:
    async def main() -> None:
        benches = [Bench(config(limits=LIMITS)) for _ in range(2)]
        async with benches[0].open() as one, benches[1].open() as other:
            engines = [SchedulerEngine("one", one.scheduler), SchedulerEngine("other", other.scheduler)]
            held = one.backend.hold("decode")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(engines[0].complete, CALL)
                await held.reached()
                busy = one.scheduler.statistics().device
                assert busy.ledger.accounts[WORKSPACE].used > 0
                assert other.scheduler.statistics().device.ledger.accounts[WORKSPACE].used == 0
                assert (await engines[1].complete(CALL)).output_tokens == 6
                assert one.scheduler.statistics().device == busy
                with pytest.raises(Overloaded):
                    await engines[0].complete(CALL)
                held.release()
            await one.settled()
            await other.settled()
            assert (one.backend.loads, other.backend.loads) == ({"generation": 1}, {"generation": 1})
        for bench in benches:
            bench.check_closed()

    run(main)
