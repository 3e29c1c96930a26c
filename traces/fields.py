"""Fields of fixed words that events are made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from ..actors.work import StepKind
from ..policies.views import WorkClass

CLASSES = tuple(work_class.label for work_class in WorkClass)
KINDS = tuple(kind.value for kind in StepKind)
OUTCOMES = ("completed", "cancelled", "abstained", "failed")
STEP_OUTCOMES = ("finished", "suspended", "withdrawn", "dropped", "failed")
STATES = ("starting", "ready", "faulted", "recovering", "closing", "closed")
REUSE_KINDS = ("exact_continuation", "static_prefix", "none")
DROPS = ("evicted", "superseded", "invalidated", "released", "closed")
FILES = ("store", "fetch")
FILED = ("completed", "cancelled", "failed", "refused")
PREPARED = ("prepared", "promoted", "superseded", "declined", "cancelled", "failed")
POLICIES = ("ordering", "quantum", "retention", "abstention", "preparation")


def one_of(values: tuple[str, ...]) -> Callable[[Any, attrs.Attribute[Any], str], None]:
    """A validator that takes one of ``values``; its ``ValueError`` names what was given and what is known."""

    def check(_: Any, attribute: attrs.Attribute[Any], value: str) -> None:
        if value not in values:
            raise ValueError(f"{attribute.name} is {value!r}: known are {', '.join(values)}")

    return check
