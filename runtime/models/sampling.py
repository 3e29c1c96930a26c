"""Choosing a token from logits: greedy, or temperature, top-k and top-p from a seed.

Order of the cuts, as in transformers: temperature, then top-k, then top-p over what top-k kept, renormalized.
One uniform draw a token, inverted through the cumulative weights in one fixed order (highest logit first,
equal logits by lower id), so a seed gives the same tokens whatever ran beside the request. Weights are
float64 and taken relative to the largest logit, so no temperature overflows. Samplers keep state and are used
on one thread at a time: the one that owns the device.
"""

from __future__ import annotations

import math

import attrs
import numpy as np
from numpy.typing import NDArray

from ...actors.errors import BackendFault, InvalidRequest
from ..backends.contract import Sampled, Sampler

MAX_LOGPROBS = 20
MAX_SEED = 2**64 - 1
# Sampled tokens are nearly always among the likeliest few hundred; sorting a whole vocabulary would cost milliseconds.
FIRST_RANKED = 512
RANKED_GROWTH = 8


def _check_number(field: str, value: object, low: float, high: float, *, above: bool = False) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if number and math.isfinite(value) and (low < value if above else low <= value) and value <= high:  # type: ignore[arg-type, operator]
        return
    bound = f"{'above' if above else 'at least'} {low:g}"
    limit = "finite" if math.isinf(high) else f"at most {high:g}"
    raise InvalidRequest(f"{field} is {value!r}; it must be a number {bound} and {limit}", field=field, value=value)


def _check_count(field: str, value: object, high: int | None) -> None:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0 and (high is None or value <= high):
        return
    limit = "" if high is None else f" and at most {high}"
    raise InvalidRequest(
        f"{field} is {value!r}; it must be a whole number of at least 0{limit}", field=field, value=value
    )


@attrs.frozen
class SamplingParams:
    """How tokens are chosen.

    ``temperature`` 0 is greedy (the other cuts then have no effect); ``top_k`` 0 keeps every token; ``top_p``
    in (0, 1] keeps the smallest set of likeliest tokens whose probabilities sum to at least it; ``seed``
    starts the request's own random stream. ``logprobs`` asks for the log-probability of each chosen token and
    of that many likeliest alternatives (0: only the chosen one; ``None``: neither); they are those of the
    model itself, at temperature 1 and before any cut.

    Raises:
        InvalidRequest: naming the field and its value.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    logprobs: int | None = None

    def __attrs_post_init__(self) -> None:
        _check_number("temperature", self.temperature, 0.0, math.inf)
        _check_number("top_p", self.top_p, 0.0, 1.0, above=True)
        _check_count("top_k", self.top_k, None)
        _check_count("seed", self.seed, MAX_SEED)
        if self.logprobs is not None:
            _check_count("logprobs", self.logprobs, MAX_LOGPROBS)


def make_sampler(params: SamplingParams) -> Sampler:
    """A fresh sampler for one request."""
    return GreedySampler(params) if params.temperature == 0 else SeededSampler(params)


def ranked(logits: NDArray[np.float32], count: int) -> NDArray[np.intp]:
    """Ids of the ``count`` highest logits, highest first, equal ones by lower id; shape ``(count,)``."""
    if count >= logits.size:
        return np.argsort(-logits, kind="stable")
    least = np.partition(logits, logits.size - count)[logits.size - count]
    above = np.flatnonzero(logits > least)
    level = np.flatnonzero(logits == least)[: count - above.size]
    return np.concatenate([above[np.argsort(-logits[above], kind="stable")], level])


def _check_logits(logits: NDArray[np.float32]) -> None:
    if logits.ndim != 1 or not logits.size:
        raise BackendFault(f"logits have shape {logits.shape}; one row of the vocabulary is needed", shape=logits.shape)
    finite = np.isfinite(logits)
    if not finite.all():
        first = int(np.argmin(finite))
        raise BackendFault(
            f"{int(logits.size - finite.sum())} of {logits.size} logits are not finite, the first is "
            f"{logits[first]} for token {first}: the model's weights or the backend are damaged",
            token=first,
            vocabulary=logits.size,
        )


def _sampled(logits: NDArray[np.float32], token: int, alternatives: int | None) -> Sampled:
    """Attach log-probabilities under softmax of the raw logits."""
    if alternatives is None:
        return Sampled(token)
    peak = float(logits.max())
    normalizer = peak + math.log(float(np.exp(logits.astype(np.float64) - peak).sum()))
    likeliest = ranked(logits, min(alternatives, logits.size)) if alternatives else ()
    top = tuple((int(i), float(logits[i]) - normalizer) for i in likeliest)
    return Sampled(token, float(logits[token]) - normalizer, top)


@attrs.frozen
class GreedySampler:
    """The likeliest token; of equal ones the first."""

    params: SamplingParams

    def sample(self, logits: NDArray[np.float32]) -> Sampled:
        """Raises ``BackendFault`` when a logit is not finite."""
        _check_logits(logits)
        return _sampled(logits, int(np.argmax(logits)), self.params.logprobs)


@attrs.define(eq=False)
class SeededSampler:
    """Temperature, top-k and top-p with a counter-based generator (Philox) seeded by the request."""

    params: SamplingParams
    _generator: np.random.Generator = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._generator = np.random.Generator(np.random.Philox(self.params.seed))

    def sample(self, logits: NDArray[np.float32]) -> Sampled:
        """Raises ``BackendFault`` when a logit is not finite; uses exactly one draw otherwise."""
        _check_logits(logits)
        return _sampled(logits, self._choose(logits, self._generator.random()), self.params.logprobs)

    def _weights(self, logits: NDArray[np.float32], peak: float) -> NDArray[np.float64]:
        # A tiny temperature sends every other exponent to minus infinity, whose weight is rightly 0.
        with np.errstate(over="ignore"):
            scaled: NDArray[np.float64] = np.exp((logits.astype(np.float64) - peak) / self.params.temperature)
        return scaled

    def _choose(self, logits: NDArray[np.float32], draw: float) -> int:
        """Invert the cumulative weights at ``draw``, ranking no more of the vocabulary than that takes."""
        top_p, peak = self.params.top_p, float(logits.max())
        width = min(self.params.top_k or logits.size, logits.size)
        kept = logits if width == logits.size else logits[ranked(logits, width)]
        total = float(self._weights(kept, peak).sum())
        count = min(FIRST_RANKED, width)
        while True:
            ids = ranked(logits, count)
            cumulative = np.cumsum(self._weights(logits[ids], peak))
            goal = total * (draw if top_p == 1 else top_p)
            if cumulative[-1] > goal or count == width:
                break
            count = min(count * RANKED_GROWTH, width)
        if top_p < 1:
            cumulative = cumulative[: int(np.searchsorted(cumulative, goal)) + 1]
            goal = draw * float(cumulative[-1])
        # Rounding may put the goal at the very end: then the last token that has any weight is meant.
        last = int(np.searchsorted(cumulative, cumulative[-1]))
        return int(ids[min(int(np.searchsorted(cumulative, goal, side="right")), last)])
