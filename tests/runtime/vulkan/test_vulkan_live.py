"""The live host on Vulkan: a decision goes before a suspended chunk, a cancel costs a segment; numbers don't change."""

from __future__ import annotations

import pytest
from coresident.actors.errors import ArtifactInvalid

from support.backends import needs
from support.interrupted import LOGPROBS, a_cancelled_chunk_is_forgotten, a_decision_goes_first
from support.live import LONG, desk, numbers_of, run

VULKAN = {"backend": "vulkan"}


@pytest.fixture(autouse=True)
def _short_segments(monkeypatch) -> None:
    """The synthetic model's chunks are a segment each by default; here each has about ten."""
    needs("vulkan")
    monkeypatch.setattr("coresident.runtime.backends.vulkan.steps.segment_of", lambda running: 200_000)


@pytest.mark.parametrize(("operation", "segment", "skip"), [("prefill", 2, 3), ("decode", 1, 2)])
def test_R10_a_whole_decision_goes_first_and_nobody_can_tell(operation, segment, skip):
    a_decision_goes_first(VULKAN, operation, segment, skip)


def test_R19_an_exact_continuation_prefills_only_its_suffix_and_gives_the_numbers_of_a_cold_run():
    async def main():
        async with desk(device=VULKAN) as it:
            first = await it.scheduler.generate(LONG, max_tokens=5)
            turn = [*LONG.encode(), *first.tokens, *b" And then?"]
            stream = it.scheduler.generate(turn, max_tokens=4, sampling=LOGPROBS)
            warm, result = await numbers_of(stream), await stream.result()
            held = len(LONG) + 4
            assert (stream.reuse.kind, result.reused, result.prefilled) == (
                "exact_continuation",
                held,
                len(turn) - held,
            )
        async with desk(device=VULKAN) as it:
            assert await numbers_of(it.scheduler.generate(turn, max_tokens=4, sampling=LOGPROBS)) == warm

    run(main)


def test_R5_a_cancelled_chunk_leaves_the_next_request_its_numbers():
    a_cancelled_chunk_is_forgotten(VULKAN)


def test_R67_a_damaged_file_is_refused_by_its_step_and_the_whole_one_gives_the_numbers(tmp_path):
    path = tmp_path / "prefix"

    async def main():
        async with desk(device=VULKAN) as it:
            await it.scheduler.generate(LONG, max_tokens=1)
            saved = await it.scheduler.save_prefix(LONG, path)
            expected = await numbers_of(it.scheduler.generate(LONG + "?", max_tokens=4, sampling=LOGPROBS))
        whole = path.read_bytes()
        async with desk(device=VULKAN) as it:
            path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
            with pytest.raises(ArtifactInvalid, match="checksum is"):
                await it.scheduler.restore_prefix(path)
            assert it.scheduler.statistics().device.ledger.accounts["retained/generation"].used == 0
            path.write_bytes(whole)
            assert await it.scheduler.restore_prefix(path) == saved
            assert await numbers_of(it.scheduler.generate(LONG + "?", max_tokens=4, sampling=LOGPROBS)) == expected
            await it.settled()

    run(main)
