"""The columns of a result table: a row for each run and work class, or one for a run that failed.

Units are in the names. Nothing here depends on when, where or how fast a run was carried out, so two tables of one lab
are equal to the byte. A cell without a value is empty in CSV and null in Parquet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import attrs

from ...runtime.config import PolicyConfig
from .choices import KINDS
from .plan import Run

Value: TypeAlias = str | int | float | None
FIGURES = ("p50", "p95", "p99", "max")
TIMES = {
    "queue_wait": ("queue_wait", "arrival to the first grant that serves the request"),
    "service": ("service", "device time of a request"),
    "latency": ("latency", "arrival to end of a request that completed"),
    "first_token": ("first_token", "arrival to the first token"),
    "token_gap": ("gaps", "between two tokens of a request"),
}


@attrs.frozen
class Entry:
    """What a row is made from: a run, its result, and one of its classes with its statistics."""

    run: Run
    result: Mapping[str, Any]
    work_class: str = ""
    statistics: Mapping[str, Any] = attrs.field(factory=dict)

    @property
    def device(self) -> Mapping[str, Any]:
        """The device's figures; empty when the run failed."""
        found: Mapping[str, Any] = self.result["statistics"]["device"] if self.statistics else {}
        return found

    @property
    def preparation(self) -> Mapping[str, Any]:
        """What preparing came to, for the row of that class."""
        found = self.result["statistics"]["preparation"] if self.work_class == "preparation" else None
        return found or {}

    @property
    def error(self) -> Mapping[str, str]:
        """What ended the run; empty when it did not fail."""
        return self.result["error"] or {}


@attrs.frozen
class Column:
    """A column: ``kind`` is the type of its values, ``about`` what they are."""

    name: str
    kind: type[str] | type[int] | type[float]
    about: str
    value: Callable[[Entry], Value]


def _count(name: str, about: str) -> Column:
    return Column(name, int, about, lambda entry: entry.statistics.get(name))


def _sum(name: str, about: str) -> Column:
    """Requests by reason, added up."""
    return Column(name, int, about, lambda e: sum(e.statistics[name].values()) if e.statistics else None)


def _time(name: str, figure: str) -> Column:
    field, about = TIMES[name]
    words = "largest" if figure == "max" else f"{figure[1:]}th percentile"
    return Column(f"{name}_{figure}_ns", int, f"{about}, {words}", lambda e: e.statistics.get(field, {}).get(figure))


def _device(name: str, field: str, kind: type[int] | type[float], about: str) -> Column:
    return Column(name, kind, f"{about}, for the whole run", lambda entry: entry.device.get(field))


def _prepared(name: str, about: str) -> Column:
    return Column(f"preparation_{name}_tokens", int, about, lambda entry: entry.preparation.get(name))


def _policy(kind: str) -> Column:
    return Column(kind, str, f"the {kind} policy with its parameters", lambda e: policy_words(_named(e, kind)))


def _named(entry: Entry, kind: str) -> PolicyConfig:
    found: PolicyConfig = getattr(entry.run.config.policies, kind)
    return found


def policy_words(policy: PolicyConfig) -> str:
    """A policy in one line: ``aging(rate=1.0)``."""
    parameters = ", ".join(f"{key}={value!r}" for key, value in sorted(policy.parameters.items()))
    return f"{policy.name}({parameters})" if parameters else policy.name


COLUMNS: tuple[Column, ...] = (
    Column("run", str, "the run's id: a digest of all that determines its result", lambda e: e.run.id),
    Column("trace", str, "the trace, as the lab calls it", lambda e: e.run.trace),
    Column("policy", str, "the combination of policies, as the lab calls it", lambda e: e.run.policy),
    Column("device", str, "the device, as the lab calls it", lambda e: e.run.device),
    Column("seed", int, "the seed", lambda e: e.run.seed),
    *(_policy(kind) for kind in KINDS),
    Column("error", str, "the type of the error that ended the run", lambda e: e.error.get("type")),
    Column("error_message", str, "what it says", lambda e: e.error.get("message")),
    Column("digest", str, "the SHA-256 of the run's events", lambda e: e.result.get("digest")),
    Column("steps", int, "grants of the whole run", lambda e: e.result.get("steps")),
    Column("virtual_ns", int, "virtual time of the whole run", lambda e: e.result.get("virtual_ns")),
    Column("context_tokens", int, "the admitted context", lambda e: e.result.get("context")),
    Column("work_class", str, "the class that the row is about", lambda e: e.work_class or None),
    _count("requests", "requests of the class that arrived"),
    _count("completed", "requests that completed"),
    _count("cancelled", "requests that were cancelled"),
    _sum("abstained", "decisions that abstained"),
    _sum("failed", "requests that failed"),
    _sum("refused", "requests that were refused"),
    _count("open", "requests that did not end"),
    Column("reasons", str, "why they abstained, failed or were refused, with how many", lambda e: _reasons(e)),
    *(_time(name, figure) for name in TIMES for figure in FIGURES),
    _count("tokens", "tokens generated"),
    Column("decode_tokens_per_s", float, "tokens a second while streaming", lambda e: e.statistics.get("decode_rate")),
    Column("tokens_per_s", float, "tokens a second from first arrival to last end", lambda e: e.statistics.get("rate")),
    _count("prompt_tokens", "prompt tokens; of a decision, those of its instruction and of all its rows"),
    Column("reused_tokens", int, "prompt tokens found retained", lambda e: e.statistics.get("reused")),
    Column("reuse_share", float, "their share of the prompt tokens", lambda e: e.statistics.get("reuse_share")),
    Column("prepared_tokens", int, "reused tokens that were prepared", lambda e: e.statistics.get("prepared")),
    _prepared("computed", "tokens that preparations computed"),
    _prepared("used", "of these, tokens that a request used"),
    _prepared("kept", "of these, tokens that were retained to the end without a use"),
    _prepared("evicted", "of these, tokens that were given up before a use"),
    _prepared("wasted", "of these, tokens that were never retained"),
    Column(
        "device_share", float, "the class's part of the device's busy time", lambda e: _share(e.device, e.work_class)
    ),
    _device(
        "device_utilisation", "utilisation", float, "the part of the time since it was ready that the device worked"
    ),
    _device("device_busy_ns", "busy_ns", int, "time that the device worked, loads and warm-ups aside"),
    _device("longest_segment_ns", "longest_segment_ns", int, "the longest segment, loads and warm-ups aside"),
    _device("yields", "yields", int, "times that running work was told to yield"),
    _device("suspensions", "suspensions", int, "steps that were suspended"),
    _device("drops", "drops", int, "suspended steps that were dropped"),
    _device("partition_bytes", "partition", int, "the partition"),
    _device("reserved_bytes", "reserved", int, "the most that was reserved of it"),
)


def _reasons(entry: Entry) -> str | None:
    """``ContextExceeded: 106, DeviceLost: 1``: by name."""
    counts = sum((Counter(entry.statistics.get(name, {})) for name in ("abstained", "failed", "refused")), Counter())
    return ", ".join(f"{reason}: {count}" for reason, count in sorted(counts.items())) or None


def _share(device: Mapping[str, Any], work_class: str) -> float | None:
    return device["shares"].get(work_class) if device else None
