"""Hours of mixed work with cancels: does anything grow? An hour of virtual time, then minutes live on a tiny model.

Work is drawn from a seed: chats whose turns are prepared, utilities, decisions, cancels. Every ``--every`` requests the
traced memory is looked at; growth is the ratio of the last quarter's median to the second's.
"""

from __future__ import annotations

import gc
import random
import statistics
import tracemalloc

import trio
from common import arguments, report
from coresident.actors.messages import Cancel, Close, Start, SubmitDecision, SubmitGeneration, SubmitPreparation
from coresident.policies.views import WorkClass
from coresident.runtime.backends.modelled import CountingSampler, ModelledBackend
from coresident.runtime.config import structure
from coresident.runtime.host.assembly import assemble
from coresident.runtime.host.steps import Stream
from coresident.runtime.host.virtual import VirtualHost

from coresident import open_scheduler

HEADS = {"rank": "rank"}
HOUR = 3600 * 10**9


class Watch:
    """Memory and open work, sampled; growth over the run."""

    def __init__(self) -> None:
        self.memory: list[int] = []

    def look(self) -> None:
        gc.collect()
        self.memory.append(tracemalloc.get_traced_memory()[0])

    def growth(self) -> float:
        quarter = max(1, len(self.memory) // 4)
        return statistics.median(self.memory[-quarter:]) / statistics.median(self.memory[quarter : 2 * quarter])


class VirtualWork:
    """Draws requests in virtual time until the hour is over."""

    def __init__(self, seed: int, every: int) -> None:
        self.random = random.Random(seed)
        self.every = every
        self.count = 0
        self.watch = Watch()
        config = structure({"device": {"backend": "modelled"}, "generation": {"context": 4096, "retained": "64 MiB"}})
        self.assembly = assemble(config, ModelledBackend(heads=tuple(HEADS)), HEADS)
        self.host = VirtualHost(self.assembly.actors, self.assembly.backend, self.assembly.plans)
        self.ended = 0
        self.host.listen_all(self._event)

    def run(self) -> None:
        self.host.send("supervisor", Start())
        self.host.call_at(0, self._arrive)
        self.host.run()
        self.host.send("supervisor", Close())
        self.host.run()

    def _event(self, event, at: int) -> None:
        if type(event).__name__.endswith("Ended"):
            self.ended += 1
            self.host.streams.close(event.request)

    def _arrive(self) -> None:
        if self.host.now > HOUR:
            return
        self.count += 1
        if self.count % self.every == 0:
            self.watch.look()
        draw, name = self.random.random(), f"r{self.count}"
        chat = self.random.randrange(20)
        prompt = tuple(range(chat * 5000, chat * 5000 + self.random.randrange(50, 2000)))
        if draw < 0.3:
            rows = tuple((chat, row) for row in range(self.random.randrange(1, 6)))
            self.host.send("decision", SubmitDecision(name, (1, 2, 3), rows, ("rank",), "m"))
        elif draw < 0.55:
            self.host.send("generation", SubmitPreparation(name, prompt, 20, "m", str(chat)))
        else:
            self.host.streams.open(name, Stream(CountingSampler(self.count), lambda request, sampled: None))
            work_class = WorkClass.UTILITY if draw < 0.65 else WorkClass.FOREGROUND
            request = SubmitGeneration(
                name, prompt, self.random.randrange(1, 60), "m", work_class, conversation=str(chat)
            )
            self.host.send("generation", request)
        if self.random.random() < 0.2:
            role = "decision" if draw < 0.3 else "generation"
            wait = self.random.randrange(2 * 10**9)
            self.host.call_at(self.host.now + wait, lambda: self.host.send(role, Cancel(name)))
        self.host.call_at(self.host.now + self.random.randrange(10**9, 4 * 10**9), self._arrive)


async def live(seconds: float, every: int, seed: int) -> dict[str, object]:
    """The same kinds of work on the synthetic model, closed loop, for some seconds."""
    draw, watch, count = random.Random(seed), Watch(), 0
    async with open_scheduler(structure({"generation": {"context": 1024, "retained": "4 MiB"}})) as scheduler:
        end = trio.current_time() + seconds
        while trio.current_time() < end:
            count += 1
            if count % every == 0:
                watch.look()
            chat = f"chat {draw.randrange(20)}: " + "word " * draw.randrange(10, 120)
            scheduler.prepare(chat, conversation=chat[:7])
            with trio.move_on_after(draw.choice((0.005, 10))):
                await scheduler.generate(chat + "more", max_tokens=draw.randrange(1, 12))
            await scheduler.decide("Yes or no?", ["a", "b"][: draw.randrange(1, 3)])
        await trio.sleep(0.5)
        statistics_now = scheduler.statistics()
    return {
        "requests": count,
        "memory_growth": watch.growth(),
        "workspace_charged_at_the_end": statistics_now.device.ledger.accounts["workspace"].used,
        "streams_at_the_end": statistics_now.streams,
    }


def main() -> None:
    options = arguments(__doc__, seconds=600.0, every=100, seed=1)
    tracemalloc.start()
    work = VirtualWork(options.seed, options.every)
    work.run()
    ledger = work.assembly.device.statistics().ledger
    virtual = {
        "requests": work.count,
        "ended": work.ended,
        "memory_growth": work.watch.growth(),
        "reserved_after": ledger.reserved,
        "streams_after": len(work.host.streams),
    }
    report(
        "longevity",
        {"virtual_hour": virtual, "live": trio.run(live, options.seconds, options.every, options.seed)},
        options.save,
    )


if __name__ == "__main__":
    main()
