"""What callers give to the front door, checked: every refusal names the field and the value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .actors.errors import InvalidRequest
from .policies.views import WorkClass
from .runtime.models.sampling import SamplingParams

CLASSES = {"foreground": WorkClass.FOREGROUND, "utility": WorkClass.UTILITY}


def work_class_of(value: object) -> WorkClass:
    """A class of generations, by its word or as a ``WorkClass``."""
    if isinstance(value, WorkClass) and value in CLASSES.values():
        return value
    if not isinstance(value, str) or value not in CLASSES:
        raise _refused("work_class", value, f"known are {', '.join(CLASSES)}")
    return CLASSES[value]


def sampling_of(value: object) -> SamplingParams:
    """How tokens are chosen; ``None`` is greedy."""
    if value is None:
        return SamplingParams()
    if not isinstance(value, SamplingParams):
        raise _refused("sampling", value, "give SamplingParams(...), or None for the likeliest token")
    return value


def texts_of(field: str, value: object) -> tuple[str, ...]:
    """A sequence of texts, which one text is not."""
    if isinstance(value, str):
        raise InvalidRequest(f"{field} is the text {value!r}: give a list of texts", field=field, value=value)
    if isinstance(value, Mapping) or not isinstance(value, Iterable):
        raise _refused(field, value, "give a list of texts")
    texts = tuple(value)
    for place, text in enumerate(texts):
        if not isinstance(text, str):
            raise _refused(f"{field}[{place}]", text, "give a text")
    return texts


def text_of(field: str, value: object) -> str:
    """A text."""
    if not isinstance(value, str):
        raise _refused(field, value, "give a text")
    return value


def check_after(value: object) -> str | None:
    """The id of an earlier request, if any."""
    if value is not None and not isinstance(value, str):
        raise _refused("after", value, "give the id of a request (its .request), or None")
    return value


def length_of(max_tokens: object) -> int:
    """A number of tokens to generate."""
    if type(max_tokens) is not int or max_tokens < 1:
        raise _refused("max_tokens", max_tokens, "give a whole number, at least 1")
    return max_tokens


def nanoseconds_of(deadline: float) -> int:
    """Seconds from now as nanoseconds."""
    if type(deadline) not in (int, float) or not 0 < deadline < 1e9:
        raise _refused("deadline", deadline, "give seconds from now, above 0")
    return int(deadline * 1e9)


def _refused(field: str, value: Any, advice: str) -> InvalidRequest:
    return InvalidRequest(f"{field} is {value!r}: {advice}", field=field, value=value)
