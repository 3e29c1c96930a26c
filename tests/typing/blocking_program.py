"""A small program without an event loop, checked strictly and never run."""

from __future__ import annotations

from coresident import BlockingEngineRegistry, Call, DecisionResult, EngineRegistry, GenerationResult, blocking


def main() -> None:
    with blocking.open_scheduler(record="run.jsonl") as scheduler:
        result: GenerationResult = scheduler.generate("The sea", max_tokens=4).whole()
        decision: DecisionResult = scheduler.decide("Wet?", [result.text], deadline=1.5)
        with scheduler.generate([1, 2, 3], stop=["."]) as stream:
            texts: list[str] = [piece.text for piece in stream]
        print(texts, decision.scores["probability"], scheduler.statistics().device.ledger.free)
        # What the types must refuse; an unneeded "ignore" is an error of its own.
        scheduler.decide("Wet?", "sea", deadline="soon")  # type: ignore[arg-type]
        scheduler.generate("The sea", maxtokens=4)  # type: ignore[call-arg]
    with blocking.open_engine(name="plain") as engine:
        registry = BlockingEngineRegistry()
        registry.register("plain", engine)
        tokens: tuple[int, ...] = registry.get().complete(Call(b"The sea")).tokens
        label: str | None = engine.view("other").preload("synthetic")
        print(tokens, label)
        # One that is awaited has nobody to await it here.
        EngineRegistry().register("plain", engine)  # type: ignore[arg-type]


main()
