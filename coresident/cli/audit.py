"""``coresident audit``: whether every decision of a recorded run comes out again, with no model and no device."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from ..actors.errors import InvalidRequest
from ..traces.audit.run import AuditedMessage, AuditReport, Divergence
from ..traces.audit.run import audit as run_audit
from . import options
from .failures import FAULT
from .wording import duration, print_json, screen, shown

MOST_EFFECTS = 12

OwnPolicies = Annotated[
    list[str] | None,
    typer.Option(
        "--policy",
        metavar="KIND=MODULE:ATTRIBUTE",
        help="A policy of your own that the recording ran, such as ordering=mine:policy; else none is imported.",
    ),
]


def audit(
    trace: Annotated[Path, typer.Argument(metavar="TRACE", help="A trace that this program recorded.")],
    policy: OwnPolicies = None,
    as_json: options.AsJson = False,
) -> None:
    """Feed the recorded messages to the scheduler again and compare everything that it wants done.

    Ends with exit code 1 at the first difference.
    """
    report = run_audit(trace, _by_kind(policy or []))
    if as_json:
        print_json(report.as_dict())
    else:
        _show(report, screen())
    if not report.same:
        raise typer.Exit(FAULT)


def _by_kind(policies: list[str]) -> dict[str, str]:
    named = {}
    for text in policies:
        kind, equals, name = text.partition("=")
        if not equals or ":" not in name:
            raise InvalidRequest(f"--policy {text}: give KIND=MODULE:ATTRIBUTE, as in ordering=mine:policy", value=text)
        if kind in named:
            raise InvalidRequest(f"--policy names the {kind} policy twice: give one", value=text)
        named[kind] = name
    return named


def _show(report: AuditReport, console: Console) -> None:
    divergence = report.divergence
    if divergence is None:
        verdict = (
            f"all {report.messages:,} messages came out as recorded, over {duration(report.span_ns)} of recording."
        )
        console.print(f"{shown(report.trace)}: {verdict}", style="bold green", soft_wrap=True)
        return
    _show_divergence(report, divergence, console)


def _show_divergence(report: AuditReport, found: Divergence, console: Console) -> None:
    def tell(text: str, style: str = "") -> None:
        console.print(shown(text), style=style, soft_wrap=True)

    tell(f"{report.trace}: {report.messages:,} messages came out as recorded, then one did not.", "bold red")
    tell(f"Message {found.number:,}, line {found.line}, at {duration(found.at)}: {found.actor} takes {found.message}.")
    tell(f"  {found.what}", "red")
    if report.recorded_by != report.audited_by:
        tell(f"  It was recorded by version {report.recorded_by}; this is {report.audited_by}.")
    for title, lines in (
        ("Its lines in the trace:", found.recorded),
        ("The same lines now:", found.now),
        ("All that the actor wants done now:", found.effects),
    ):
        _list(title, lines, tell)
    if found.before:
        tell("The messages before it:")
        for message in found.before:
            tell(_line(message), "dim")


def _list(title: str, lines: tuple[str, ...], tell: Callable[[str], None]) -> None:
    tell(title)
    for line in lines[:MOST_EFFECTS] or ("nothing",):
        tell(f"  {line}")
    if len(lines) > MOST_EFFECTS:
        tell(f"  and {len(lines) - MOST_EFFECTS} more: --json has them all")


def _line(message: AuditedMessage) -> str:
    """By the lines of the trace, which are shorter than what the actor wanted done."""
    kind = message.message.partition("(")[0]
    told = "; ".join(message.lines) or "nothing that the trace has a line for"
    return f"  {message.number:,}, line {message.line}, at {duration(message.at)}: {message.actor} takes {kind}: {told}"
