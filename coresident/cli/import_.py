"""``coresident import``: a public trace in another format becomes a workload that can be replayed and simulated."""

from __future__ import annotations

from enum import Enum
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

from ..traces.importers import FORMATS, ImportSummary, Settings, import_trace
from . import options
from .wording import print_json, screen

FormatName = Enum("FormatName", {name: name for name in FORMATS}, type=str)  # type: ignore[misc]

MOST_MODELS = 5


def import_(
    form: Annotated[FormatName, typer.Argument(metavar="FORMAT", help="What INPUT is: " + ", ".join(FORMATS) + ".")],
    source: Annotated[Path, typer.Argument(metavar="INPUT", help="A file, gzip'd or not; for weka also a folder.")],
    output: Annotated[Path, typer.Argument(metavar="OUTPUT", help="The trace to write.")],
    limit: Annotated[int | None, typer.Option(min=1, metavar="N", help="Take the first N requests.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="For everything that is drawn or made up.")] = 0,
    decisions: Annotated[
        float, typer.Option(metavar="SHARE", help="This share of the requests become decisions, 0 to 1.")
    ] = 0.0,
    decide_before_turns: Annotated[
        bool, typer.Option("--decide-before-turns", help="Put a decision in front of every turn.")
    ] = False,
    prepare: Annotated[
        bool, typer.Option("--prepare", help="When a turn ends, prepare what the next one begins with.")
    ] = False,
    open_loop: Annotated[
        bool, typer.Option("--open-loop", help="Keep recorded times where turns would follow ends.")
    ] = False,
    block_size: Annotated[
        int | None, typer.Option(metavar="TOKENS", help="Tokens of a block, if not as usual for the format.")
    ] = None,
    shared_head: Annotated[
        int, typer.Option(metavar="TOKENS", help="All prompts begin with the same TOKENS, where content is not told.")
    ] = 0,
    spacing: Annotated[
        float, typer.Option(metavar="SECONDS", help="Between the starts of the sessions of a folder.")
    ] = 0.0,
    as_json: options.AsJson = False,
) -> None:
    """Write a trace in another format as a workload of this program's.

    The trace has the requests' times, lengths and shared content, no text. Replay it with --backend modelled, or
    simulate it with policies and devices of your choice.
    """
    settings = Settings(
        limit=limit,
        seed=seed,
        decisions=decisions,
        decide_before_turns=decide_before_turns,
        prepare=prepare,
        open_loop=open_loop,
        block_size=block_size,
        shared_head=shared_head,
        spacing_s=spacing,
    )
    summary = _with_progress(form.value, source, output, settings)
    if as_json:
        print_json({"import": summary})
    else:
        console = screen()
        for line in lines(summary):
            console.print(line, soft_wrap=True)


def _with_progress(name: str, source: Path, output: Path, settings: Settings) -> ImportSummary:
    """The bar is on stderr, and only on a terminal: stdout holds the result."""
    bar = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeElapsedColumn())
    with Progress(*columns, console=bar, transient=True, disable=not bar.is_terminal) as progress:
        task = progress.add_task("importing", total=None)

        def on_read(rows: int, read: int, total: int) -> None:
            progress.update(task, completed=read, total=total, description=f"importing {rows:,} requests")

        return import_trace(name, source, output, settings, on_read)


def lines(summary: ImportSummary) -> list[str]:
    """What an import came to, in words."""
    kinds = ", ".join(f"{count:,} {name}" for name, count in summary.requests.items())
    told = f"{summary.ends:,} ends with their times" if summary.ends else "no ends"
    content = "nothing of what prompts share"
    if summary.hit_share is not None:
        content = f"that {summary.hit_share:.1%} of the prompts' blocks were seen before"
    found = [
        f"{summary.output}: {summary.rows:,} requests of {summary.source} ({summary.format}).",
        f"Arrivals: {kinds}, over {summary.span_ns / 1e9:,.1f} s; {summary.failures:,} failed at the source.",
        f"Tokens: {summary.prompt_tokens:,} in prompts, {summary.output_tokens:,} generated, in blocks of "
        f"{summary.block_size}; the longest request needs a context of {summary.longest:,}.",
        f"The source tells {told}, and {content}.",
    ]
    if summary.decision_tokens:
        prompts, outputs = summary.generation_tokens
        found.insert(
            3,
            f"Written of that: generations with {prompts:,} tokens in prompts and {outputs:,} to generate; decisions "
            f"with {summary.decision_tokens:,} tokens in instructions and rows, which are made up.",
        )
    if len(summary.identities) > 1:
        models = ", ".join(f"{name} {count:,}" for name, count in islice(summary.identities.items(), MOST_MODELS))
        more = " and others" if len(summary.identities) > MOST_MODELS else ""
        found.append(
            f"Note: the source has {len(summary.identities)} models ({models}{more}): here one model serves all, and "
            "prompts of two models share nothing."
        )
    if summary.unfollowed:
        found.append(f"Note: {summary.unfollowed:,} requests follow one that is not in the source; they stand alone.")
    return found
