"""A device and a model in numbers: how long steps take, what they hold, and where the numbers come from.

A :class:`DeviceModel` comes from a file (``device_file``), from recordings (``coresident calibrate``), or from the
few figures of a :class:`CostModel`.

**The gap.** Between the end of a step and the start of the next, a host does work of its own: it takes the result,
decides, and hands the next step over. ``gap_ns`` is that time. A virtual host lets it pass at the start of every
grant, in front of the first segment: the device is held but does not work. So it is part of the step as everyone who
waits sees it (queue waits, time to first token and gaps between tokens include it), and no part of ``device_ns``. A
step that yields and comes back pays it again. What a host spends between the tokens of one decode run belongs to the
time of ``decode``, since it is measured there. On a real clock the host's own time takes its place.
"""

from __future__ import annotations

import attrs

from .costs import FEMTO, Cost, Linear

LONGEST_NS = 10**15


@attrs.frozen
class StepTimes:
    """Device time by kind of step. What ``size`` and ``context`` of :meth:`Cost.ns` are:

    ``load``: bytes of weights that are read (0 when they are kept), 0. ``warmup``: 1, 0. ``prefill`` and ``decision``:
    new tokens of a chunk (of one row), the positions that its last token sees. ``decode``, for one token of each row:
    rows, their mean position. ``copy``: tokens times targets, tokens. ``save``, ``restore``, ``store`` and ``fetch``:
    tokens, tokens.
    """

    load: Cost
    warmup: Cost
    prefill: Cost
    decode: Cost
    decision: Cost
    copy: Cost
    save: Cost
    restore: Cost
    store: Cost
    fetch: Cost


@attrs.frozen
class Memory:
    """Bytes. A KV slot takes ``kv_fixed`` and ``kv_per_token`` for each token of its context, a slot of a decision row
    ``decision_kv_fixed`` and ``decision_kv_per_token``. A step charges ``workspace_fixed``, ``workspace_per_token`` for
    each new token (for each row of a decode step), and ``workspace_per_pair`` for each new token and token of context.
    """

    weights: int
    kv_per_token: int
    workspace_per_token: int
    kv_fixed: int = 0
    decision_kv_per_token: int | None = None
    decision_kv_fixed: int = 0
    workspace_fixed: int = 0
    workspace_per_pair: int = 0

    @property
    def per_decision_token(self) -> int:
        """Bytes of one token of a decision row's slot; those of a generation slot unless it was said."""
        return self.kv_per_token if self.decision_kv_per_token is None else self.decision_kv_per_token

    def charge(self, tokens: int, context: int) -> int:
        """Workspace bytes of a step with so many new tokens."""
        return self.workspace_fixed + tokens * (self.workspace_per_token + context * self.workspace_per_pair)


@attrs.frozen
class DeviceModel:
    """One device with one model.

    ``source`` says where the figures come from. ``partition`` and ``workspace`` are bytes that a configuration takes
    unless it sets its own. A prefill chunk and a decision row have ``segments`` equal segments, between which they
    ``suspend`` where they can. ``noise`` is the largest relative deviation of a segment's time from what is said here,
    drawn anew for every operation from the seed of a run.
    """

    label: str
    source: str
    partition: int
    workspace: int
    context_limit: int
    vocabulary: int
    memory: Memory
    times: StepTimes
    segments: int = 1
    gap_ns: int = 0
    suspend: bool = True
    windows: tuple[int | None, ...] = ()
    noise: float = 0.0


@attrs.frozen
class CostModel:
    """A device in a few figures: nanoseconds and bytes.

    A chunk of ``n`` tokens that ends at context ``c`` takes ``step_ns + n * prefill_ns + n * c * attention_ns //
    1000`` in ``segments`` equal segments; one decoded token of ``r`` rows takes ``step_ns + decode_ns + r * row_ns``.
    """

    label: str = "modelled"
    step_ns: int = 200_000
    prefill_ns: int = 500_000
    attention_ns: int = 20
    decode_ns: int = 20_000_000
    row_ns: int = 2_000_000
    copy_ns: int = 1_000
    load_ns: int = 1_000_000
    segments: int = 8
    weights: int = 256 * 1024**2
    kv_bytes_per_token: int = 16 * 1024
    workspace_per_token: int = 64 * 1024
    context_limit: int = 131_072
    vocabulary: int = 32_000
    suspend: bool = True
    windows: tuple[int | None, ...] = ()

    def device(self) -> DeviceModel:
        """The same as a device model; its partition is that of a configuration that says nothing."""
        chunk = Linear(self.step_ns * FEMTO, self.prefill_ns * FEMTO, self.attention_ns * FEMTO // 1000)
        move = Linear.of(0, self.copy_ns)
        return DeviceModel(
            label=self.label,
            source="figures given in code",
            partition=2 * 1024**3,
            workspace=192 * 1024**2,
            context_limit=self.context_limit,
            vocabulary=self.vocabulary,
            memory=Memory(self.weights, self.kv_bytes_per_token, self.workspace_per_token),
            times=StepTimes(
                load=Linear.of(self.load_ns),
                warmup=Linear.of(self.step_ns),
                prefill=chunk,
                decode=Linear.of(self.step_ns + self.decode_ns, self.row_ns),
                decision=chunk,
                copy=move,
                save=move,
                restore=move,
                store=move,
                fetch=move,
            ),
            segments=self.segments,
            suspend=self.suspend,
            windows=self.windows,
        )
