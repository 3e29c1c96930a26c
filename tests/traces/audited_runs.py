"""Live and virtual runs, recorded and audited."""

from __future__ import annotations

import tempfile
from contextlib import asynccontextmanager
from pathlib import Path

from coresident.actors.errors import CoresidentError
from coresident.policies.ordering.strict import strict
from coresident.policies.views import Choice
from coresident.traces.audit.run import audit
from coresident.traces.recorder import Recorder

from support.live import Bench, config, run


@asynccontextmanager
async def recorded_desk(path, content=False, **sections):
    """A small live scheduler whose run is recorded; what must hold after it closed is checked."""
    bench = Bench(config(**sections))
    recorder = Recorder.open(path, bench.assembly, content=content)
    bench.observers = (recorder,)
    try:
        async with bench.open() as opened:
            yield opened
    finally:
        recorder.close()
        assert recorder.error is None
    bench.check_closed()


def audited(story, path=None, policies=None, content=False, **sections):
    """Run ``story(desk)`` live, record it and audit it, with a user's own ``policies``; the text of the trace."""
    own = {"policies": {kind: {"name": name} for kind, name in policies.items()}} if policies else {}

    async def main(file):
        async with recorded_desk(file, content, **sections, **own) as it:
            await story(it)
            await it.settled()

    with tempfile.TemporaryDirectory() as folder:
        file = path or Path(folder) / "run.jsonl"
        run(lambda: main(file))
        report = audit(file, policies)
        report.check()
        assert report.messages > 0
        return file.read_text()


async def quietly(ask) -> None:
    """What fails is part of the story."""
    try:
        await ask()
    except CoresidentError:
        return


def moody(after: int = 6):
    """An ordering policy that is strict for a while and then raises."""
    orders = strict()

    def decide(view, memory):
        count, inner = memory or (0, None)
        if count == after:
            raise ValueError(f"no more, says {object()}")
        choice, inner = orders(view, inner)
        return choice, (count + 1, inner)

    return decide


def absurd():
    """An ordering policy that chooses what nobody offered."""
    return lambda view, memory: (Choice("nothing"), memory)
