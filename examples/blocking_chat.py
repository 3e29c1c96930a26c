"""The same chat without an event loop: a decision before each turn, preparation while the person types.

python examples/blocking_chat.py           # the model that CORESIDENT_MODEL names: smollm2, a GGUF file, a folder
"""

from __future__ import annotations

from coresident import blocking

STANDING = [{"role": "system", "content": "You answer in one short sentence."}]
URGENT = "Does this need an answer at once? Answer yes or no."


def turn(scheduler: blocking.Scheduler, history: list[dict[str, str]], said: str) -> None:
    """One question: decide, answer piece by piece, and remember."""
    urgent = scheduler.decide(URGENT, [said], deadline=5)
    if urgent.outcome == "completed":
        print(f"[urgent: {urgent.scores['probability'][0]:.0%}]")
    history.append({"role": "user", "content": said})
    with scheduler.generate([*STANDING, *history], max_tokens=48, conversation="chat") as answer:
        for piece in answer:
            print(piece.text, end="", flush=True)
        result = answer.result()
    print(f"\n[{result.reused} tokens reused, {result.prefilled} computed]")
    history.append({"role": "assistant", "content": result.text})


def main() -> None:
    history: list[dict[str, str]] = []
    with blocking.open_scheduler() as scheduler:
        print(f"{scheduler.label}. An empty line ends the chat.")
        while True:
            scheduler.prepare(STANDING, history, conversation="chat")
            try:
                said = input("> ")
            except EOFError:
                return
            if not said:
                return
            turn(scheduler, history, said)


if __name__ == "__main__":
    main()
