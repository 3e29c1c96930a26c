"""Tokens from what a step brought back: a greedy sampler needs no logits on the host, unless they are damaged."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from ...models.sampling import GreedySampler
from ..contract import Sampled, Sampler
from .reading import ALL, Want, write_row
from .regions import Region
from .shapes import LIKELIEST
from .writing import WHOLE, Running, record

RECORDS = np.dtype([("value", "<f4"), ("token", "<u4"), ("broken", "<u4"), ("unused", "<u4")])


def want_of(sampler: Sampler, vocabulary: int) -> Want:
    """What a sampler needs of its row of logits."""
    if not isinstance(sampler, GreedySampler):
        return ALL
    alternatives = sampler.params.logprobs
    if alternatives is None:
        return Want(1)
    return Want(min(max(1, alternatives), vocabulary), total=True)


def sampled(running: Running, region: Region, row: int, want: Want, sampler: Sampler) -> Sampled:
    """The token of a row. Raises ``BackendFault`` when a logit is not finite."""
    layouts = running.layouts
    if want == ALL or not isinstance(sampler, GreedySampler):
        return sampler.sample(_logits(running, region, row))
    at = layouts.result_back_at(region.form, row)
    found = region.back(at, layouts.result_bytes // 4).view(RECORDS)
    if found["broken"][0]:
        write = partial(write_row, row=row)
        running.device.run(tuple(region.program(("row", row), partial(record, running, region, WHOLE, write))))
        return sampler.sample(_logits(running, region, row))
    token = int(found["token"][0])
    if not want.total:
        return Sampled(token)
    peak = float(found["value"][0])
    normalizer = peak + math.log(float(found["value"][LIKELIEST]))
    top = found[: sampler.params.logprobs or 0]
    pairs = tuple((int(one["token"]), float(one["value"]) - normalizer) for one in top[: want.likeliest])
    return Sampled(token, peak - normalizer, pairs)


def _logits(running: Running, region: Region, row: int) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    layouts = running.layouts
    return np.array(region.back(layouts.logits_back_at(row), layouts.config.vocabulary))
