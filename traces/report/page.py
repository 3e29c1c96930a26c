"""The page: one HTML file with everything in it, made from a template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from .facts import differences, facts, headline, opening, setting
from .fairness import wait_charts, waits_table
from .gather import Run
from .latency import latency_charts
from .memory import ledgers, memory_table
from .occupancy import LANES
from .preemption import interruption_table, preemption_table
from .reuse import preparation_table, reuse_bars
from .tables import ALIKE, comparison
from .timeline import timelines
from .words import shown


def render(runs: Sequence[Run], title: str | None = None) -> str:
    """The page of at least one run; the same runs and title give the same text."""
    import jinja2

    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    template = environment.from_string(_part("page.html"))
    return template.render(**_content(runs, title), css=_part("page.css"), script=_part("page.js")) + "\n"


def _content(runs: Sequence[Run], title: str | None) -> Mapping[str, Any]:
    drawn, ran = timelines(runs), [run for run in runs if run.ran]
    return {
        "title": shown(title) if title else headline(runs),
        "subtitle": headline(runs) if title else "",
        "opening": opening(runs),
        "setting": setting(runs),
        "facts": facts(runs),
        "differences": differences(runs),
        "runs": runs,
        "ran": ran,
        "lanes": LANES,
        "comparison": comparison(runs),
        "alike": ALIKE,
        "latency": latency_charts(runs),
        "timelines": drawn,
        "slices": [{"label": each.label, "span": each.span_ns, "slices": each.slices} for each in drawn],
        "ledgers": ledgers(ran),
        "memory": memory_table(ran),
        "preemption": preemption_table(ran),
        "interruptions": interruption_table(ran),
        "waits": waits_table(ran),
        "wait_charts": wait_charts(runs),
        "reuse": reuse_bars(runs),
        "preparation": preparation_table(ran),
    }


def _part(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")
