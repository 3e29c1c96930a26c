"""What a step runs over its tokens, recorded once: the embedding and all layers.

Tokens go through products in tiles, and through attention in units, which are tokens of one slot at consecutive
positions. Submitted in order, the recordings compute the same wherever they were cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from .attending import rope
from .attention_passes import AttentionWriter, Span
from .dispatches import embed, rms_norm, swiglu
from .functions import Handle
from .parameters import StepLayout
from .products import vector_offsets, vectors_of
from .regions import HOST, Window
from .shapes import Layouts
from .writing import Writer


def write_layers(writer: Writer, tokens: int, spans: Sequence[Span]) -> Iterator[None]:
    """The embedding and all layers over ``tokens``, which the spans cover; yields between stages."""
    running, step = writer.running, _step(writer)
    stride = running.layouts.strides["hidden"]
    for cut in running.weights.products["embedding"].cuts:
        dispatch = embed(cut.matrix, step, tokens, 0, stride, cut.first)
        model = running.weights.of_matrix(dispatch.kernel, cut)
        writer.dispatch(dispatch, (Window(HOST, 0, step.bytes), Window("hidden")), model=model)
    for layer in range(running.layouts.config.layers):
        yield from _Layer(writer, layer, tokens).write(spans)


def _step(writer: Writer) -> StepLayout:
    return writer.region.layouts.parameters(writer.region.form)


@attrs.frozen(eq=False)
class _Layer:
    writer: Writer
    layer: int
    tokens: int

    @property
    def layouts(self) -> Layouts:
        return self.writer.running.layouts

    def write(self, spans: Sequence[Span]) -> Iterator[None]:
        config, writer = self.layouts.config, self.writer
        self._norm("attention_norm")
        column = 0
        for name, width in (("q", config.q_width), ("k", config.kv_width), ("v", config.kv_width)):
            self._product(name, "normed", "qkv", column=column)
            column += width
            yield
        writer.barrier()
        self._rotate(spans)
        writer.barrier()
        yield from AttentionWriter(writer, self.layer).write(spans)
        self._product("o", "joined", "hidden", add=True)
        yield
        self._norm("mlp_norm")
        for name in ("gate", "up"):
            self._product(name, "normed", name)
            yield
        writer.barrier()
        self._gate()
        writer.barrier()
        self._product("down", "gate", "hidden", add=True)
        yield

    def _product(self, name: str, source: str, target: str, column: int = 0, add: bool = False) -> None:
        product = self.writer.running.weights.products[f"layers.{self.layer}.{name}"]
        self.writer.product(product, source, target, self.tokens, column=column, add=add)

    def _norm(self, name: str) -> None:
        """Normalize what all that came before has written."""
        config, stride = self.layouts.config, self.layouts.strides["hidden"]
        at = vector_offsets(config)[name]
        self.writer.barrier()
        dispatch = rms_norm(config.hidden, self.tokens, 0, stride, 0, stride, at, config.eps)
        self.writer.dispatch(dispatch, (Window("hidden"), Window("normed")), model=self._vectors(dispatch.kernel))
        self.writer.barrier()

    def _vectors(self, kernel: str) -> Handle:
        return self.writer.running.weights.of_vectors(kernel, vectors_of(self.layer))

    def _rotate(self, spans: Sequence[Span]) -> None:
        """Bias, head norms and rotation: queries to their scratch, keys and values to the slots."""
        step, tile, stride = _step(self.writer), self.writer.region.form.tile, self.layouts.strides["qkv"]
        attention, windows = self.layouts.attention, (Window(HOST, 0, step.bytes), Window("qkv"), Window("query"))
        q_at = 0
        for span in spans:
            at, capacity = span.first * stride, span.slot.capacity
            dispatch = rope(attention, step, span.first, span.count, tile, at, stride, q_at, capacity)
            kv = span.slot.of_layer(dispatch.kernel, self.layer)
            self.writer.dispatch(dispatch, windows, model=self._vectors(dispatch.kernel), kv=kv)
            q_at += attention.query_floats(span.count, tile)

    def _gate(self) -> None:
        """Padding is zero and stays so."""
        stride = self.layouts.strides["gate"]
        dispatch = swiglu(stride, self.tokens, 0, stride, 0, stride, 0, stride)
        self.writer.dispatch(dispatch, (Window("gate"), Window("up"), Window("gate")))
