"""The engine seam: what an application that knows several engines sees of this one.

An engine takes payload bytes and gives token ids with their accounting. Engines are registered under ids; what both
sides can do is agreed on by open strings, so that neither has to know every word of the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Generic, Protocol, TypeVar

import attrs

from .actors.errors import InvalidRequest

COMPLETE = "complete"
CANCEL = "cancel"
PRELOAD = "preload"


@attrs.frozen
class Call:
    """One completion: payload bytes, and the most tokens to generate.

    A byte-level model takes the bytes as its tokens; other models take them as UTF-8 text.
    """

    payload: bytes
    max_tokens: int = 64


@attrs.frozen
class Completion:
    """What came of a call: token ids (a stop token that ended them included), their text, and the accounting.

    ``engine`` is the id of the engine that ran it, ``model`` the label of the model that ran.
    """

    engine: str
    model: str
    tokens: tuple[int, ...]
    text: str
    input_tokens: int
    output_tokens: int


class _Negotiating(Protocol):
    """What every engine says of itself. ``capabilities`` are open strings, the engine's lifecycle among them."""

    @property
    def id(self) -> str: ...

    @property
    def capabilities(self) -> frozenset[str]: ...

    def negotiate(self, wanted: Iterable[str]) -> frozenset[str]:
        """The capabilities that both sides know; what either does not know is never among them."""
        ...


class Engine(_Negotiating, Protocol):
    """Something that completes calls, under Trio or asyncio."""

    async def preload(self, model: str | None) -> str | None:
        """Build now instead of at the first call; see :meth:`SchedulerEngine.preload`."""
        ...

    async def complete(self, call: Call) -> Completion:
        """Run one call to its end."""
        ...


class BlockingEngine(_Negotiating, Protocol):
    """Something that completes calls, without an event loop."""

    def preload(self, model: str | None) -> str | None:
        """Build now instead of at the first call; see :meth:`SchedulerEngine.preload`."""
        ...

    def complete(self, call: Call) -> Completion:
        """Run one call to its end."""
        ...


E = TypeVar("E", bound=Engine | BlockingEngine)


class _Registry(Generic[E]):
    """Engines by id; the last registration of an id wins. Readers get snapshots that never change."""

    def __init__(self) -> None:
        self._engines: Mapping[str, E] = MappingProxyType({})

    def register(self, name: str, engine: E) -> None:
        """Put an engine under an id. Raises ``InvalidRequest`` for an empty id, which stands for the first engine."""
        if not name:
            raise InvalidRequest("an engine needs an id that is not empty", field="id", value=name)
        self._engines = MappingProxyType({**self._engines, name: engine})

    def snapshot(self) -> Mapping[str, E]:
        """The engines of this moment, immutable: later registrations don't show in it."""
        return self._engines

    def get(self, name: str = "") -> E:
        """The engine of an id; the empty id is the first in sorted order.

        Raises:
            InvalidRequest: there is no such engine; names those there are.
        """
        engines = self._engines
        known = sorted(engines)
        chosen = name or next(iter(known), "")
        if chosen not in engines:
            listed = ", ".join(known) or "none; register one first"
            raise InvalidRequest(f"there is no engine {name!r}: known are {listed}", field="id", value=name)
        return engines[chosen]


class EngineRegistry(_Registry[Engine]):
    """Engines whose calls are awaited, by id; the last registration of an id wins. Snapshots never change."""


class BlockingEngineRegistry(_Registry[BlockingEngine]):
    """The same for engines whose calls wait."""
