"""Attention of one layer: scores, softmax and values of a step's units, as many at a time as there are lanes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from .attending import scores, softmax, values
from .parameters import StepLayout
from .regions import HOST, Window
from .shapes import Layouts, RegionClass
from .slots import Slot
from .writing import Writer


@attrs.frozen(eq=False)
class Span:
    """Tokens ``first ...`` of a step, ``count`` of them, at consecutive positions of one slot."""

    first: int
    count: int
    slot: Slot


@attrs.frozen(eq=False)
class Unit:
    """What attention takes at once: a tile of a span's tokens, the ``number``th of the step, in its lane."""

    first: int
    count: int
    slot: Slot
    number: int
    lane: int


@attrs.frozen(eq=False)
class AttentionWriter:
    """Writes attention of one layer."""

    writer: Writer
    layer: int

    def write(self, spans: Sequence[Span]) -> Iterator[None]:
        """From the rotated queries to the joined heads of every token; yields between some units and the next."""
        lanes = self.layouts.lanes(self.form)
        units = self._units(spans, lanes)
        for start in range(0, len(units), lanes):
            for stage in (self._scores, self._softmax, self._values):
                for unit in units[start : start + lanes]:
                    stage(unit)
                self.writer.barrier()
            yield

    @property
    def layouts(self) -> Layouts:
        return self.writer.running.layouts

    @property
    def form(self) -> RegionClass:
        return self.writer.region.form

    @property
    def step(self) -> StepLayout:
        return self.layouts.parameters(self.form)

    def _units(self, spans: Sequence[Span], lanes: int) -> list[Unit]:
        tile = self.form.tile
        units: list[Unit] = []
        for span in spans:
            end = span.first + span.count
            for first in range(span.first, end, tile):
                number = len(units)
                units.append(Unit(first, min(tile, end - first), span.slot, number, number % lanes))
        return units

    def _scores(self, unit: Unit) -> None:
        layouts, form = self.layouts, self.form
        q_at = unit.number * layouts.attention.query_floats(form.tile, form.tile)
        dispatch = scores(
            self.writer.running.texel,
            layouts.attention,
            self.step,
            unit.first,
            unit.count,
            form.tile,
            q_at,
            unit.slot.capacity,
            form.context,
        )
        windows = self._parameters(), Window("query"), self._lane("scores", unit)
        kv = unit.slot.of_layer(dispatch.kernel, self.layer)
        self.writer.dispatch(dispatch, windows, kv=kv, cost=self._cost(unit))

    def _softmax(self, unit: Unit) -> None:
        form = self.form
        dispatch = softmax(
            self.writer.running.texel,
            self.layouts.attention,
            self.step,
            unit.first,
            unit.count,
            form.tile,
            form.context,
        )
        lane = self._lane("scores", unit)
        self.writer.dispatch(dispatch, (self._parameters(), lane, lane, self._lane("sums", unit)))

    def _values(self, unit: Unit) -> None:
        layouts, form = self.layouts, self.form
        stride = layouts.strides["joined"]
        dispatch = values(
            self.writer.running.texel,
            layouts.attention,
            self.step,
            unit.first,
            unit.count,
            form.tile,
            unit.first * stride,
            stride,
            unit.slot.capacity,
            form.context,
        )
        windows = self._parameters(), self._lane("scores", unit), self._lane("sums", unit), Window("joined")
        kv = unit.slot.of_layer(dispatch.kernel, self.layer)
        self.writer.dispatch(dispatch, windows, kv=kv, cost=self._cost(unit))

    def _parameters(self) -> Window:
        return Window(HOST, 0, self.step.bytes)

    def _lane(self, name: str, unit: Unit) -> Window:
        size = self.layouts.lane_bytes(self.form) if name == "scores" else self.layouts.sum_bytes(self.form)
        return Window(name, unit.lane * size, size)

    def _cost(self, unit: Unit) -> int:
        return unit.count * self.layouts.config.q_width * self.form.context
