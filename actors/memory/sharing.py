"""Retained storage whose heads are shared: who holds which tokens, and what is freed when one goes.

The state of a prefix lies in blocks of so many tokens, from position 0 on, the last one as short as need be. A prefix
that is saved behind the head of another takes whole blocks over and stores only what follows; a block is freed when
nobody holds it any more. What one save stored is a run. Whoever holds a part of a run holds a head of it, so a run is
as long as its longest holder says, and no block has to be counted.
"""

from __future__ import annotations

from collections.abc import Collection

import attrs


@attrs.frozen
class Run:
    """Tokens ``start`` to ``stop`` of a prefix, stored by the save of the prefix ``origin``."""

    origin: int
    start: int
    stop: int


class SharedStorage:
    """The bytes of every retained prefix, those of a shared head counted once.

    What is asked for most is kept up to date: the tokens in storage, and what each prefix alone would free. A change
    looks only at the holders of the runs that it touches.
    """

    def __init__(self, token_bytes: int) -> None:
        self._token_bytes = token_bytes
        self._runs: dict[int, tuple[Run, ...]] = {}
        self._holders: dict[int, dict[int, Run]] = {}
        self._tokens = 0
        self._whole = 0
        self._alone: dict[int, int] = {}

    @property
    def used(self) -> int:
        """Bytes in storage."""
        return self._tokens * self._token_bytes

    @property
    def shared(self) -> int:
        """Bytes that storage would take besides, if every prefix were kept whole."""
        return (self._whole - self._tokens) * self._token_bytes

    def used_without(self, gone: Collection[int]) -> int:
        """Bytes in storage once the prefixes ``gone`` are not."""
        less = sum(self._longest(origin, ()) - self._longest(origin, gone) for origin in self._touched(gone))
        return (self._tokens - less) * self._token_bytes

    def frees(self, gone: Collection[int]) -> dict[int, int]:
        """Bytes that each prefix alone would free once ``gone`` are not there; those that would free none are left out.

        Of every run that is what its longest holder has more than the next one.
        """
        alone = dict(self._alone)
        for origin in self._touched(gone):
            _add(alone, self._surplus(origin, ()), -1)
            _add(alone, self._surplus(origin, gone), 1)
        return {handle: tokens * self._token_bytes for handle, tokens in alone.items() if tokens}

    def add(self, handle: int, tokens: int, base: int | None = None, shared: int = 0) -> int:
        """Store a prefix behind the first ``shared`` tokens of ``base``; the bytes that it takes."""
        behind = () if base is None else self._runs[base]
        head = (attrs.evolve(run, stop=min(run.stop, shared)) for run in behind if run.start < shared)
        self._hold(handle, (*head, Run(handle, shared, tokens)))
        return (tokens - shared) * self._token_bytes

    def detach(self, handle: int) -> None:
        """Let go of the head that a prefix shares; it holds only what its own save stored."""
        self._hold(handle, self._runs[handle][-1:])

    def remove(self, handle: int) -> dict[int, int]:
        """Forget a prefix; the bytes that nobody holds any more, by the prefix whose save had stored them."""
        before = {run.origin: self._longest(run.origin, ()) for run in self._runs[handle]}
        self._hold(handle, ())
        lost = {origin: longest - self._longest(origin, ()) for origin, longest in before.items()}
        return {origin: tokens * self._token_bytes for origin, tokens in lost.items() if tokens}

    def _hold(self, handle: int, runs: tuple[Run, ...]) -> None:
        """Let a prefix hold these runs, in place of what it held; with none it is forgotten."""
        held = self._runs.pop(handle, ())
        for run in held:
            self._change(run.origin, handle, None)
        for run in runs:
            self._change(run.origin, handle, run)
        if runs:
            self._runs[handle] = runs
        self._whole += (runs[-1].stop if runs else 0) - (held[-1].stop if held else 0)

    def _change(self, origin: int, handle: int, run: Run | None) -> None:
        """Let a prefix hold this part of a run, or none of it."""
        holders = self._holders.setdefault(origin, {})
        self._tokens -= self._longest(origin, ())
        _add(self._alone, self._surplus(origin, ()), -1)
        if run is None:
            del holders[handle]
        else:
            holders[handle] = run
        self._tokens += self._longest(origin, ())
        _add(self._alone, self._surplus(origin, ()), 1)
        if not holders:
            del self._holders[origin]

    def _touched(self, gone: Collection[int]) -> set[int]:
        """Runs that a prefix which goes holds a part of."""
        return {run.origin for handle in gone if handle in self._runs for run in self._runs[handle]}

    def _longest(self, origin: int, gone: Collection[int]) -> int:
        """Tokens of a run that are held."""
        held = self._holders.get(origin, {})
        return max((run.stop - run.start for handle, run in held.items() if handle not in gone), default=0)

    def _surplus(self, origin: int, gone: Collection[int]) -> tuple[int, int] | None:
        """The longest holder of a run, and how many tokens of it nobody else holds; ``None`` when there are none."""
        held = self._holders.get(origin, {})
        sizes = sorted((run.stop - run.start, handle) for handle, run in held.items() if handle not in gone)
        if not sizes:
            return None
        tokens, holder = sizes[-1]
        return holder, tokens - (sizes[-2][0] if len(sizes) > 1 else 0)


def _add(alone: dict[int, int], surplus: tuple[int, int] | None, sign: int) -> None:
    """Count a run's surplus for its holder, or no longer; who frees nothing is left out."""
    if surplus is None:
        return
    holder, tokens = surplus
    left = alone.get(holder, 0) + sign * tokens
    if left:
        alone[holder] = left
    else:
        alone.pop(holder, None)
