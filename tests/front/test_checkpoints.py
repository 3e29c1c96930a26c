"""Prefixes saved to disk and restored, from the front door to the device and back."""

from __future__ import annotations

import subprocess
import sys

import pytest
import trio
from coresident.actors.errors import ArtifactInvalid, BackendFault, BudgetExceeded, DeviceLost, InvalidRequest
from coresident.actors.messages import WithdrawStep

from coresident import SamplingParams, open_scheduler
from coresident.checkpoints import launch_id
from support.backends import NAMES, needs, needs_rounding_by_shape
from support.live import Bench, Heard, config, desk, run

LONG = [(7 * index + 3) % 251 for index in range(2000)]
PROMPT = LONG[:100]


def sized(backend: str, reuse: str):
    needs(backend)
    fields = {"context": 2304, "chunk": 128, "retained": "32 MiB", "reuse": reuse}
    return config(device={"backend": backend, "partition": "256 MiB"}, generation=fields, decision=False)


async def numbers(scheduler, prompt):
    """Every token with its log-probabilities, and how much was reused."""
    async with scheduler.generate(prompt, max_tokens=6, sampling=SamplingParams(logprobs=3)) as stream:
        return [(piece.token, piece.logprob, piece.top) async for piece in stream], (await stream.result()).reused


def through_disk(backend, reuse, path, first, second):
    """``second`` cold; in one launch after ``first``; and in a later scheduler behind what was saved of ``first``."""

    async def main():
        async with open_scheduler(sized(backend, reuse)) as scheduler:
            cold = await numbers(scheduler, second)
        async with open_scheduler(sized(backend, reuse)) as scheduler:
            await scheduler.generate(first, max_tokens=1)
            saved = await scheduler.save_prefix(first, path)
            warm = await numbers(scheduler, second)
        async with open_scheduler(sized(backend, reuse)) as scheduler:
            assert await scheduler.restore_prefix(path) == saved
            return saved, cold, warm, await numbers(scheduler, second)

    return trio.run(main)


@pytest.mark.parametrize("backend", NAMES)
def test_R66_cold_reused_and_restored_from_disk_are_bit_identical_on_the_grid(backend, tmp_path):
    saved, cold, warm, disk = through_disk(backend, "grid", tmp_path / "prefix", LONG, LONG)
    assert (saved.tokens, saved.path) == (1920, tmp_path / "prefix")
    assert (cold[1], warm[1], disk[1]) == (0, 1920, 1920)
    assert cold[0] == warm[0] == disk[0]


@pytest.mark.parametrize("backend", NAMES)
def test_R66_off_the_grid_restored_is_what_was_reused(backend, tmp_path):
    """That it differs from a cold run shows that the comparison can see it, but where every chunking rounds alike."""
    needs_rounding_by_shape(backend)
    saved, cold, warm, disk = through_disk(backend, "exact", tmp_path / "prefix", LONG[:1000], LONG)
    assert (saved.tokens, warm[1], disk[1]) == (1000, 1000, 1000)
    assert warm[0] == disk[0]
    assert (disk[0] == cold[0]) == (backend == "vulkan")


def test_R68_a_file_of_another_launch_of_the_process_is_refused(tmp_path):
    path = tmp_path / "prefix"
    program = f"""
import trio
from coresident.runtime.config import structure
from coresident import open_scheduler
async def main():
    async with open_scheduler(structure({{"generation": {{"context": 512, "chunk": 16}}}})) as scheduler:
        await scheduler.generate(list(range(60)), max_tokens=1)
        print((await scheduler.save_prefix(list(range(60)), {str(path)!r})).tokens)
trio.run(main)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "60"

    async def main():
        async with desk() as opened:
            with pytest.raises(ArtifactInvalid, match=rf"launch is .*expected '{launch_id()}'.*deferred") as caught:
                await opened.scheduler.restore_prefix(path)
            assert caught.value.details["field"] == "launch"
            assert opened.backend.calls["fetch"] == 0
            await opened.settled()

    run(main)


async def checkpoint(opened, operation, folder):
    if operation == "store":
        return await opened.scheduler.save_prefix(PROMPT, folder / "other")
    return await opened.scheduler.restore_prefix(folder / "prefix")


async def saved(opened, path, prompt=PROMPT):
    await opened.scheduler.generate(prompt, max_tokens=1)
    return await opened.scheduler.save_prefix(prompt, path)


def test_R67_a_damaged_file_is_refused_by_its_step_and_leaves_nothing_behind(tmp_path):
    async def main():
        async with desk() as opened:
            await saved(opened, tmp_path / "prefix")
        damaged = bytearray((tmp_path / "prefix").read_bytes())
        damaged[-1] ^= 1
        (tmp_path / "prefix").write_bytes(damaged)
        async with desk() as opened:
            with pytest.raises(ArtifactInvalid, match="checksum is"):
                await opened.scheduler.restore_prefix(tmp_path / "prefix")
            now = opened.scheduler.statistics()
            assert (now.generation.prefixes.entries, now.device.ledger.accounts["retained/generation"].used) == (0, 0)
            assert (await opened.scheduler.generate(PROMPT, max_tokens=1)).reused == 0
            await opened.settled()

    run(main)


def test_nothing_retained_is_nothing_to_save(tmp_path):
    async def main():
        async with desk() as opened:
            await saved(opened, tmp_path / "one")
            with pytest.raises(InvalidRequest, match="of this prompt of 3 tokens nothing is retained"):
                await opened.scheduler.save_prefix([250, 249, 248], tmp_path / "other")
            with pytest.raises(InvalidRequest, match="path is ''"):
                await opened.scheduler.save_prefix(PROMPT, "")
            assert [entry.name for entry in tmp_path.iterdir()] == ["one"]
            await opened.settled()

    run(main)


def test_a_restore_makes_room_by_policy_or_is_refused(tmp_path):
    async def main():
        async with desk() as opened:
            kept = await saved(opened, tmp_path / "prefix")
        room = {"generation": {"retained": kept.bytes + 10}}
        async with desk(**room) as opened:
            await opened.scheduler.generate(LONG[500:590], max_tokens=1)
            await opened.settled()
            assert await opened.scheduler.restore_prefix(tmp_path / "prefix") == kept
            assert opened.scheduler.statistics().generation.prefixes.evictions == 1
            assert (await opened.scheduler.generate(PROMPT, max_tokens=1)).reused == len(PROMPT) - 1
            await opened.settled()
        async with desk(generation={"retained": kept.bytes - 1}) as opened:
            with pytest.raises(BudgetExceeded, match=f"asks for {kept.bytes} bytes, {kept.bytes - 1} are available"):
                await opened.scheduler.restore_prefix(tmp_path / "prefix")
            await opened.settled()

    run(main)


def test_another_chunk_size_makes_no_whole_chunks(tmp_path):
    async def main():
        async with desk(generation={"reuse": "grid", "chunk": 16}) as opened:
            assert (await saved(opened, tmp_path / "prefix")).tokens == 96
        async with desk(generation={"reuse": "grid", "chunk": 32}) as opened:
            with pytest.raises(InvalidRequest, match=r"96 of them in whole chunks of 16.*whole chunks of 32 only"):
                await opened.scheduler.restore_prefix(tmp_path / "prefix")
            await opened.settled()

    run(main)


def test_what_is_being_stored_gives_way_is_not_evicted_and_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr("coresident.runtime.backends.prefix_file.SEGMENT_BYTES", 1024)
    done = []

    async def store(scheduler):
        done.append(await scheduler.save_prefix(PROMPT, tmp_path / "prefix"))

    async def main():
        async with desk(generation={"retained": 110 * 768, "sequences": 2}) as opened, trio.open_nursery() as nursery:
            await opened.scheduler.generate(PROMPT, max_tokens=1)
            hold = opened.backend.hold("store", segment=2)
            nursery.start_soon(store, opened.scheduler)
            await hold.reached()
            async with opened.scheduler.generate(LONG[500:590], max_tokens=2) as other:
                while opened.scheduler.statistics().device.yields == 0:
                    await trio.lowlevel.checkpoint()
                hold.release()
                await other.result()
            await opened.settled()
            assert opened.scheduler.statistics().device.suspensions >= 1
            assert opened.scheduler.statistics().generation.prefixes.evictions == 0
        async with desk() as opened:
            assert [await opened.scheduler.restore_prefix(tmp_path / "prefix")] == done
            await opened.settled()

    run(main)


@pytest.mark.parametrize("operation", ["store", "fetch"])
def test_a_cancelled_wait_gives_the_step_up_and_keeps_nothing(tmp_path, operation, monkeypatch):
    monkeypatch.setattr("coresident.runtime.backends.prefix_file.SEGMENT_BYTES", 1024)

    async def main():
        async with desk() as opened:
            await saved(opened, tmp_path / "prefix")
        heard = Heard(WithdrawStep)
        async with desk([heard]) as opened, trio.open_nursery() as nursery:
            hold = opened.backend.hold(operation, segment=2)
            if operation == "store":
                await opened.scheduler.generate(PROMPT, max_tokens=1)
                nursery.start_soon(opened.scheduler.save_prefix, PROMPT, tmp_path / "other")
            else:
                nursery.start_soon(opened.scheduler.restore_prefix, tmp_path / "prefix")
            await hold.reached()
            nursery.cancel_scope.cancel()
            with trio.CancelScope(shield=True):
                await heard.event.wait()
                hold.release()
                await opened.settled()
                assert opened.scheduler.statistics().generation.prefixes.entries == (operation == "store")
        assert [entry.name for entry in tmp_path.iterdir()] == ["prefix"]

    run(main)


@pytest.mark.parametrize("operation", ["store", "fetch"])
@pytest.mark.parametrize("error", [BackendFault("no"), DeviceLost("gone")])
def test_E10_a_fault_ends_the_request_and_returns_every_byte(tmp_path, operation, error):
    async def main():
        async with desk() as opened:
            await saved(opened, tmp_path / "prefix")
        bench = Bench(config())
        async with bench.open() as opened:
            if operation == "store":
                await opened.scheduler.generate(PROMPT, max_tokens=1)
            opened.backend.fail(operation, error)
            with pytest.raises(type(error)):
                await checkpoint(opened, operation, tmp_path)
            if isinstance(error, DeviceLost):
                await opened.scheduler.retry()
                assert opened.scheduler.statistics().device.ledger.accounts["retained/generation"].used == 0
            await opened.scheduler.restore_prefix(tmp_path / "prefix")
            assert (await opened.scheduler.generate(PROMPT, max_tokens=1)).reused == len(PROMPT) - 1
            await opened.settled()
        bench.check_closed()
        assert [entry.name for entry in tmp_path.iterdir()] == ["prefix"]

    run(main)


@pytest.mark.parametrize("operation", ["store", "fetch"])
def test_closing_in_the_middle_ends_the_request_and_leaves_nothing(tmp_path, operation, monkeypatch):
    monkeypatch.setattr("coresident.runtime.backends.prefix_file.SEGMENT_BYTES", 1024)
    ended = []

    async def wait(call, *args):
        try:
            await call(*args)
        except Exception as error:
            ended.append(type(error).__name__)

    async def main():
        async with desk() as opened:
            await saved(opened, tmp_path / "prefix")
        async with trio.open_nursery() as nursery, desk() as opened:
            hold = opened.backend.hold(operation, segment=2)
            if operation == "store":
                await opened.scheduler.generate(PROMPT, max_tokens=1)
                nursery.start_soon(wait, opened.scheduler.save_prefix, PROMPT, tmp_path / "other")
            else:
                nursery.start_soon(wait, opened.scheduler.restore_prefix, tmp_path / "prefix")
            await hold.reached()
            opened.runtime.host.close()
            hold.release()
        assert ended == ["Closed"]
        assert [entry.name for entry in tmp_path.iterdir()] == ["prefix"]

    run(main)
