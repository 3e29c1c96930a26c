"""Tables and lines about a run that commands share: classes of work, preparation, the device."""

from __future__ import annotations

from rich.table import Table

from ..traces.device_tally import DeviceFigures
from ..traces.preparations import PreparationStatistics
from ..traces.quantiles import Spread
from ..traces.statistics import PREPARATION, ClassStatistics, TraceStatistics
from .wording import duration, size, table_of

_TIMES = {"queue wait": "queue_wait", "service time": "service"}
_STREAMED = {"time to first token": "first_token", "gap between tokens": "gaps"}
_FIGURES = ("p50", "p95", "max")


def class_table(name: str, now: ClassStatistics, before: ClassStatistics | None, compared: bool) -> Table:
    """Times of one class of work; ``compared`` puts those of another run beside them."""
    earlier = [f">was {figure}" for figure in _FIGURES] if compared else []
    table = table_of(f"{name}: {now.requests} requests", "", *(f">{figure}" for figure in _FIGURES), *earlier)
    streamed = {} if name in ("decision", PREPARATION) else _STREAMED
    for label, field in (_TIMES | streamed).items():
        then = Spread() if before is None else getattr(before, field)
        table.add_row(label, *_spread(getattr(now, field)), *(_spread(then) if compared else ()))
    return table


def class_line(name: str, run: TraceStatistics) -> str:
    """How the requests of one class ended, and what they came to."""
    if name == PREPARATION and run.preparation is not None:
        return _preparation(run.preparation, run.device)
    now = run.classes[name]
    parts = [f"{now.completed} completed", f"{now.cancelled} cancelled"]
    for word, counts in (("abstained", now.abstained), ("failed", now.failed), ("refused", now.refused)):
        reasons = ", ".join(f"{reason} {count}" for reason, count in counts.items())
        parts.append(f"{sum(counts.values())} {word}" + (f" ({reasons})" if reasons else ""))
    if now.tokens:
        parts.append(f"{now.tokens:,} tokens")
    if now.decode_rate is not None:
        parts.append(f"{now.decode_rate:.1f} tokens/s while streaming")
    if now.reuse_share is not None:
        parts.append(f"{now.reused:,} of {now.prompt_tokens:,} prompt tokens reused ({now.reuse_share:.0%})")
    if now.prepared:
        parts.append(f"{now.prepared:,} of these prepared")
    if now.foreign_segments.max is not None:
        parts.append(f"each waited for at most {now.foreign_segments.max} of other work's segments")
    return ", ".join(parts)


def checkpoint_lines(run: TraceStatistics) -> list[str]:
    """What was written to files and read back; one line for each of the two."""
    lines = []
    for action, now in run.checkpoints.items():
        ends = ", ".join(f"{count} {outcome}" for outcome, count in now.outcomes.items())
        lines.append(
            f"Prefixes to {action}: {now.requests} ({ends or 'none ended'}); {now.tokens:,} tokens, {size(now.bytes)}."
        )
    return lines


def device_lines(device: DeviceFigures) -> list[str]:
    """What the device did, and its memory."""
    busy = "" if device.utilisation is None else f", {device.utilisation:.0%} of the time since it was ready"
    return [
        f"Device: busy {duration(device.busy_ns)}{busy}; {device.yields} yields, {device.suspensions} suspensions, "
        f"longest segment {duration(device.longest_segment_ns)}.",
        f"Ledger: at most {size(device.reserved)} of {size(device.partition)} reserved; workspace at most "
        f"{size(device.workspace_measured)} measured of {size(device.workspace_charged)} charged.",
        f"Retained prefixes: at most {size(device.retained)}; {device.shared_tokens:,} tokens of heads were not stored "
        "again.",
    ]


def _preparation(all_of: PreparationStatistics, device: DeviceFigures) -> str:
    parts = [f"{count} {outcome}" for outcome, count in all_of.outcomes.items()]
    parts.append(f"{all_of.computed:,} tokens computed, {all_of.reused:,} found retained, {all_of.wasted:,} wasted")
    parts.append(f"interrupted {all_of.preemptions} times for other work")
    share = device.share(PREPARATION)
    if share is not None:
        parts.append(f"{share:.0%} of the device's busy time")
    return ", ".join(parts)


def _spread(spread: Spread) -> tuple[str, str, str]:
    return duration(spread.p50), duration(spread.p95), duration(spread.max)
