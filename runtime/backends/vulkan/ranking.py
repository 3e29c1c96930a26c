"""Dispatches over a row of logits: the largest ones in order, and the sum that makes log-probabilities of them.

Each works in two stages with a barrier between them, through one record of 16 bytes for every stretch of the row. All
bind set 1: logits, partial records, results. A result of ``top`` is (value float32, index uint32, 1 where a logit was
not finite, 0); one of ``sumexp`` has the sum as its first float32.
"""

from __future__ import annotations

from .dispatches import Dispatch, groups, words

RECORD = 16
"""Bytes of a partial record and of a result; their places count in these."""

STRETCH = 4096
"""Logits of one workgroup."""

NOTHING = 0xFFFFFFFF
"""The index of a result where no logit was left."""


def partial_bytes(count: int) -> int:
    """Bytes of the partial records of ``count`` logits."""
    return RECORD * groups(count, STRETCH)


def top(count: int, logits_at: int, result: int, below: int | None = None) -> tuple[Dispatch, Dispatch]:
    """The first of the largest of ``count`` logits, as record ``result``.

    With ``below``, only logits count that come after that earlier result: smaller ones, or equal ones behind it. So a
    pass for each of k results, each below the one before, gives the k largest, equal ones by index.
    """
    many = groups(count, STRETCH)
    after = NOTHING if below is None else below
    first = Dispatch("top_groups", words(logits_at, count, 0, after), (many, 1, 1))
    return first, Dispatch("top_best", words(0, many, result), (1, 1, 1))


def sumexp(count: int, logits_at: int, highest: int, result: int) -> tuple[Dispatch, Dispatch]:
    """The sum of ``exp(logit - value)``, with the value of the earlier result ``highest``, as record ``result``."""
    many = groups(count, STRETCH)
    first = Dispatch("sumexp_groups", words(logits_at, count, 0, highest), (many, 1, 1))
    return first, Dispatch("sumexp_total", words(0, many, result), (1, 1, 1))
