"""Raw head values from the last hidden state of a decision row (the formulas are in ``models.heads``).

Linear heads, and the tokens of verbalizers that name both sides, are rows of one more matrix; only a verbalizer
against all other tokens takes the logits of the whole vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from ....actors.errors import BackendFault
from ...models.heads import Head, LinearHead, logsumexp
from .products import HEADS, head_places, needs_all
from .reading import bring_back_row, write_logits, write_norm
from .regions import Region
from .writing import WHOLE, Running, Writer, record

Values = NDArray[np.float32]


def write_heads(writer: Writer, row: int, everything: bool) -> Iterator[None]:
    """Bring back the heads' rows for one row of the hidden states, and all logits where ``everything`` is needed."""
    running, layouts = writer.running, writer.running.layouts
    write_norm(writer, row, 1)
    if layouts.head_rows:
        writer.product(running.weights.products[HEADS], "normed", HEADS, 1)
        writer.barrier()
        writer.bring_back(HEADS, 0, 4 * layouts.head_rows, layouts.heads_back_at(writer.region.form))
    if everything:
        write_logits(writer, 1)
        bring_back_row(writer, 0)
    yield


def head_values(running: Running, region: Region, row: int, heads: Sequence[Head]) -> tuple[float, ...]:
    """Values of heads for the decision row whose last hidden state is in this row, computed from that row alone.

    Raises:
        BackendFault: a value is not finite; a score must never be a guess.
    """
    if not heads:
        return ()
    layouts = running.layouts
    everything = any(needs_all(head) for head in heads)
    write = partial(write_heads, row=row, everything=everything)
    program = region.program(("heads", row, everything), partial(record, running, region, WHOLE, write))
    running.device.run(tuple(program))
    own = region.back(layouts.heads_back_at(region.form), layouts.head_rows)
    logits = region.back(layouts.logits_back_at(0), layouts.config.vocabulary)
    places = head_places(layouts.facts.heads.values())
    values = tuple(_value(head, own[places[head.name]], logits) for head in heads)
    for head, value in zip(heads, values, strict=True):
        if not math.isfinite(value):
            raise BackendFault(
                f"head {head.name!r} gives {value}: the model's weights or the backend are damaged", head=head.name
            )
    return values


def _value(head: Head, own: Values, logits: Values) -> float:
    if isinstance(head, LinearHead):
        return float(own[0]) + head.bias
    if head.negative:
        sides = own[: len(head.positive)], own[len(head.positive) :]
    else:
        chosen = list(head.positive)
        sides = logits[chosen], np.delete(logits, chosen)
    if not all(np.isfinite(side).all() for side in sides):
        return math.nan
    return logsumexp(sides[0].copy()) - logsumexp(sides[1].copy())
