"""``coresident doctor``: the promises that a report stands on, checked on this machine."""

from __future__ import annotations

from typing import Annotated, Any

import attrs
import typer
from rich.console import Console

from ..runtime.backends.catalog import open_backend
from ..runtime.backends.checks import FAILED, OK, Finding, Measured
from ..runtime.backends.checks_memory import NAME as MEMORY
from ..runtime.backends.checks_workspace import tightest
from ..runtime.backends.diagnosis import Diagnosis, diagnose
from ..runtime.config import Config
from . import options
from .failures import FAULT
from .here import computing_here
from .options import configured
from .progress import Progress, loading
from .wording import print_json, screen, size, table_of

MODEL = "generation"
STYLES = {OK: "green", FAILED: "bold red"}
SIZES = ("memory", "largest buffer", "recommended working set", "device memory")


def doctor(
    config: options.ConfigFile = None,
    model: options.Model = None,
    backend: options.Backend = None,
    quick: Annotated[bool, typer.Option("--quick", help="Shorter chunks and rows: for a slow device.")] = False,
    as_json: options.AsJson = False,
) -> None:
    """Check on this machine what the scheduler promises: the same bits however a run was interrupted, no step beyond
    its charge of memory, finite scores that don't depend on the neighbour, memory as planned.

    Attach what it prints to a report. Ends with exit code 1 when a check failed. Loads the model once, with a context
    of its own choice; the synthetic checkpoint takes seconds, a real model on a CPU minutes.
    """
    with computing_here(configured(config, model=model, backend=backend)) as chosen:
        found = examine(chosen, quick, Progress())
    if as_json:
        print_json(as_object(found))
    else:
        show(found, screen())
    if not found.good:
        raise typer.Exit(FAULT)


def examine(config: Config, quick: bool, progress: Progress) -> Diagnosis:
    """Run the checks on the generation model of a configuration.

    Raises:
        InvalidRequest, ArtifactInvalid: the configuration or a model's file is not what it should be.
    """
    opened = open_backend(config)
    shared = config.decision is not None and config.decision.shares_weights

    def told(what: str | Finding) -> None:
        if isinstance(what, Finding):
            progress.goes_on(f"  {what.outcome}: {what.what}")
        elif what == MEMORY:
            # Its check is the one that loads the model.
            progress.begins(f"{loading(config)} and warming it up, to check its memory ...")
        else:
            progress.goes_on(f"checking {what} ...")

    return diagnose(opened.backend, MODEL, tuple(opened.heads) if shared else (), quick, told)


def as_object(found: Diagnosis) -> dict[str, Any]:
    """The same for machines: bytes, shares and counts as numbers."""
    return {
        "good": found.good,
        "backend": found.backend,
        "model": found.model,
        "digest": found.digest,
        "environment": found.environment,
        "findings": [attrs.asdict(finding) for finding in found.findings],
        "tightest_steps": [_step(step) for step in tightest(found.steps).values()],
    }


def _step(step: Measured) -> dict[str, Any]:
    return {**attrs.asdict(step.shape), "charge": step.charge, "peak": step.peak}


def show(found: Diagnosis, console: Console) -> None:
    """What ran where, the findings, and the verdict."""
    console.print(f"{found.backend}: {found.model}", style="bold", soft_wrap=True)
    console.print(f"digest {found.digest}", style="dim", soft_wrap=True)
    where = table_of("environment", "", "")
    for name, value in found.environment.items():
        where.add_row(name, size(value) if name in SIZES and isinstance(value, int) else str(value))
    checks = table_of("checks", "check", "what", "", "found")
    for finding in found.findings:
        checks.add_row(finding.check, finding.what, finding.outcome, finding.detail, style=STYLES.get(finding.outcome))
    for table in (where, checks):
        console.print()
        console.print(table)
    console.print()
    console.print(verdict(found.findings), style=STYLES[OK if found.good else FAILED], soft_wrap=True)


def verdict(findings: tuple[Finding, ...]) -> str:
    """One sentence."""
    counts = {outcome: sum(finding.outcome == outcome for finding in findings) for outcome in (OK, FAILED, "skipped")}
    skipped = f", {counts['skipped']} skipped" if counts["skipped"] else ""
    if counts[FAILED]:
        return f"{counts[FAILED]} of {len(findings)} checks FAILED{skipped}: please report this with all of the above."
    return f"All {counts[OK]} checks passed{skipped}."
