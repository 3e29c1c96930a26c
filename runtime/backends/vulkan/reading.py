"""What is read of a step's last hidden states: the final norm, logits, and the likeliest tokens."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import attrs

from .dispatches import Dispatch, rms_norm
from .products import FINAL
from .ranking import sumexp, top
from .regions import Window
from .shapes import LIKELIEST
from .writing import Writer


@attrs.frozen
class Want:
    """What is wanted of a row of logits: the ``likeliest`` so many in order, and their sum of exponentials, or all."""

    likeliest: int | None = None
    total: bool = False


ALL = Want()
Staged = tuple[int, tuple[Dispatch, Dispatch]]
"""A row, and two dispatches with a barrier between them."""


def write_norm(writer: Writer, first: int, rows: int) -> None:
    """The final norm of rows of the hidden states, into the first rows of ``normed``."""
    layouts = writer.running.layouts
    config, stride = layouts.config, layouts.strides["hidden"]
    dispatch = rms_norm(config.hidden, rows, first * stride, stride, 0, stride, 0, config.eps)
    model = writer.running.weights.of_vectors(dispatch.kernel, FINAL)
    writer.dispatch(dispatch, (Window("hidden"), Window("normed")), model=model)
    writer.barrier()


def write_logits(writer: Writer, rows: int) -> None:
    """Logits of the first rows of ``normed``."""
    running = writer.running
    output = running.weights.products["embedding" if running.layouts.config.tied else "output"]
    writer.product(output, "normed", "logits", rows)
    writer.barrier()


def write_row(writer: Writer, row: int) -> Iterator[None]:
    """Bring back the logits of a row, for themselves alone."""
    bring_back_row(writer, row)
    yield


def bring_back_row(writer: Writer, row: int) -> None:
    """Bring back the logits of a row."""
    layouts = writer.running.layouts
    size = 4 * layouts.strides["logits"]
    writer.bring_back("logits", row * size, 4 * layouts.config.vocabulary, layouts.logits_back_at(row))


def write_wanted(writer: Writer, first: int, wants: Sequence[Want]) -> Iterator[None]:
    """Bring back what is wanted of rows ``first ...`` of the hidden states."""
    write_norm(writer, first, len(wants))
    write_logits(writer, len(wants))
    layouts, region = writer.running.layouts, writer.region
    count, stride = layouts.config.vocabulary, layouts.strides["logits"]
    ranked = [(row, want) for row, want in enumerate(wants) if want.likeliest is not None]
    for turn in range(max((want.likeliest or 0 for _, want in ranked), default=0)):
        rows = [row for row, want in ranked if turn < (want.likeliest or 0)]
        _write_staged(writer, [(row, top(count, row * stride, turn, turn - 1 if turn else None)) for row in rows])
    _write_staged(writer, [(row, sumexp(count, row * stride, 0, LIKELIEST)) for row, want in ranked if want.total])
    for row, want in enumerate(wants):
        if want == ALL:
            bring_back_row(writer, row)
    if ranked:
        size = layouts.result_bytes * len(wants)
        writer.bring_back("result", 0, size, layouts.result_back_at(region.form, 0))
    yield


def _write_staged(writer: Writer, staged: Iterable[Staged]) -> None:
    """First every row's first dispatch, then every row's second."""
    layouts, rows = writer.running.layouts, list(staged)
    for stage in range(2):
        for row, dispatches in rows:
            partial, result = layouts.partial_bytes, layouts.result_bytes
            windows = (
                Window("logits"),
                Window("partial", row * partial, partial),
                Window("result", row * result, result),
            )
            writer.dispatch(dispatches[stage], windows)
        writer.barrier()
