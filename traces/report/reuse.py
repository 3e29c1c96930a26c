"""What prompts found already computed, and what prepared tokens were worth."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from ..fields import CLASSES
from .gather import Run
from .tables import Table, WordsRow, table_of
from .words import duration, listed, share


@attrs.frozen
class Bar:
    """Parts of a whole, ``(css, percent)``, and what they are in words."""

    label: str
    work_class: str
    parts: tuple[tuple[str, float], ...]
    words: str


def reuse_bars(runs: Sequence[Run]) -> list[Bar]:
    """Of the prompt tokens of each class: prepared and reused, otherwise reused, computed."""
    found = []
    for name in CLASSES:
        for run in runs:
            entry = run.statistics.classes.get(name)
            if entry is not None and entry.prompt_tokens:
                whole, reused, prepared = entry.prompt_tokens, entry.reused, entry.prepared
                parts = (("prepared", prepared), ("reused", reused - prepared), ("computed", whole - reused))
                words = f"{reused:,} of {whole:,} tokens reused ({share(reused / whole)})"
                if prepared:
                    words += f", {prepared:,} of these prepared"
                shares = tuple((css, round(tokens * 100 / whole, 2)) for css, tokens in parts if tokens)
                found.append(Bar(run.label, name, shares, words))
    return found


def preparation_table(runs: Sequence[Run]) -> Table | None:
    """What prepared tokens were worth; ``None`` without a preparation."""
    having = {run.label: run.statistics.preparation for run in runs if run.statistics.preparation is not None}
    if not having:
        return None

    def of(words: Callable[[Run], str]) -> Callable[[Run], str]:
        return lambda run: words(run) if run.label in having else "none"

    def tokens(name: str) -> Callable[[Run], str]:
        return of(lambda run: f"{getattr(having[run.label], name):,}")

    rows: list[WordsRow] = [
        ("preparations", of(lambda run: listed([f"{n} {how}" for how, n in having[run.label].outcomes.items()]))),
        ("tokens computed", tokens("computed")),
        ("of these used by a request", tokens("used")),
        ("time to first tokens that this saved, about", of(lambda run: duration(having[run.label].saved_ns))),
        ("kept to the end, unused", tokens("kept")),
        ("evicted unused", tokens("evicted")),
        ("wasted", tokens("wasted")),
        ("share of the device's busy time", of(lambda run: share(run.device.share("preparation")))),
    ]
    return table_of("what prepared tokens were worth", runs, rows)
