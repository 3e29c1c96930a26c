"""Recording a step's dispatches over one region, cut into recordings that cost about one segment each."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence

import attrs

from .device import Device
from .dispatches import TOKENS, Dispatch, matmul
from .functions import Handle
from .products import Product
from .recording import Commands, Recording
from .regions import HOST, Region, Window
from .shapes import Layouts
from .weights import Weights

WHOLE = 1 << 62
"""A budget that nothing exceeds: one recording."""


@attrs.frozen(eq=False)
class Running:
    """What steps compute with."""

    device: Device
    layouts: Layouts
    weights: Weights

    @property
    def on_cpu(self) -> bool:
        """Whether the device is a CPU."""
        return self.device.info.kind == "cpu"

    @property
    def texel(self) -> bool:
        """Whether kernels read through texel buffers."""
        return self.on_cpu and self.device.limits.texels


@attrs.define(eq=False)
class Writer:
    """Adds dispatches over ``region``; a recording ends where ``budget`` multiply-adds would be exceeded."""

    running: Running
    region: Region
    budget: int
    _recording: Recording | None = attrs.field(default=None, init=False)
    _spent: int = attrs.field(default=0, init=False)
    _done: list[Commands] = attrs.field(factory=list, init=False)

    def dispatch(
        self,
        dispatch: Dispatch,
        windows: Sequence[Window],
        *,
        model: Handle | None = None,
        kv: Handle | None = None,
        cost: int = 0,
    ) -> None:
        """Add a dispatch over windows of the region."""
        if self._spent and self._spent + cost > self.budget:
            self.end()
        self._open().dispatch(dispatch, (model, self.region.set_of(dispatch.kernel, tuple(windows)), kv))
        self._spent += cost

    def barrier(self) -> None:
        """What follows sees what was written before."""
        if self._recording is not None:
            self._recording.barrier()

    def product(
        self, product: Product, source: str, target: str, tokens: int, *, column: int = 0, add: bool = False
    ) -> None:
        """Rows of ``target``, from ``column`` on, become those of ``source`` times a matrix, or get that added."""
        running, strides, most = self.running, self.running.layouts.strides, TOKENS[-1]
        x_stride, y_stride = strides[source], strides[target]
        windows = Window(source), Window(target)
        for cut in product.cuts:
            first, each = 0, cut.matrix.rows * product.inputs
            while first < tokens:
                count = min(tokens - first, most * self._fitting(most * each))
                count -= count % most if count > most else 0
                y_at = first * y_stride + column + cut.first
                dispatch = matmul(running.texel, cut.matrix, count, first * x_stride, x_stride, y_at, y_stride, add)
                model = running.weights.of_matrix(dispatch.kernel, cut)
                self.dispatch(dispatch, windows, model=model, cost=each * count)
                first += count

    def _fitting(self, cost: int) -> int:
        """How many operations of this cost one recording takes: this one, or the next where this one has no room."""
        return max(1, (self.budget - self._spent) // cost or self.budget // cost)

    def bring_back(self, source: str, first: int, size: int, to: int) -> None:
        """Copy bytes of an array to where the host reads, ``to`` bytes from the beginning of that."""
        here, there = self.region.at(Window(source, first, size)), self.region.at(Window(HOST))
        self._open().copy(here.buffer, there.buffer, [(here.offset, self.region.back_at + to, size)])

    def take(self) -> list[Commands]:
        """The recordings that have ended since the last time."""
        done, self._done = self._done, []
        return done

    def end(self) -> None:
        """End the last recording."""
        if self._recording is not None:
            self._done.append(self._recording.finish())
            self._recording, self._spent = None, 0

    def give_up(self) -> None:
        """Free what nobody has taken."""
        if self._recording is not None:
            self._recording.give_up()
        for commands in self.take():
            commands.free()

    def _open(self) -> Recording:
        if self._recording is None:
            self._recording = self.running.device.record()
        return self._recording


def record(
    running: Running, region: Region, budget: int, write: Callable[[Writer], Iterator[None]]
) -> Generator[Commands, None, None]:
    """The recordings of what ``write`` writes bit by bit, cut at ``budget``; nothing is left of those not taken."""
    writer = Writer(running, region, budget)
    try:
        for _ in write(writer):
            yield from writer.take()
        writer.end()
        yield from writer.take()
    finally:
        writer.give_up()
