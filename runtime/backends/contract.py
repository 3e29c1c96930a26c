"""What a backend promises: describe, plan, load, and run steps one segment at a time.

All methods but ``describe`` and ``plan`` are called on the one thread that owns the device. Operations that take
device time are generators: each ``yield`` is a synchronized point, where the executor looks at the yield flag;
between two yields lies a segment. A generator that is not resumed keeps its activations (a suspended chunk); closing
it frees them. Nothing may be left running outside a grant.

A product's shape depends only on the row's own positions and the chunk, never on its neighbours or on
timing, so results do not depend on what shared the device. The one exception is named by a feature: decision rows of
one request that are evaluated side by side (:mod:`~coresident.runtime.backends.batched`).
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, Protocol, TypeAlias

import attrs
import numpy as np
from numpy.typing import NDArray

from ...actors.memory.plan import AllocationPlan
from ...actors.work import PrefixFile, StepShape

MARGIN_PERCENT = 10
"""What goes on top of workspace charges that are estimates, unless it is configured."""


@attrs.frozen
class Segment:
    """A synchronized point. ``device_ns`` is filled in by modelled devices; real ones are timed by the executor.

    ``last`` says that nothing is left to compute, so there is nothing to suspend; a backend need not yield there at
    all.
    """

    device_ns: int = 0
    last: bool = False


@attrs.frozen
class Sampled:
    """A sampled token with its log-probability and the ``(token, logprob)`` pairs of the likeliest alternatives."""

    token: int
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()


class Sampler(Protocol):
    """Chooses a token from float32 logits of shape ``(vocabulary,)``.

    One object per request; it keeps its own seeded state.
    """

    def sample(self, logits: NDArray[np.float32]) -> Sampled: ...


@attrs.frozen
class Capabilities:
    """What a backend can do: ``suspend`` chunks, ``grid_bound`` bit-identity only on one chunk grid, open feature
    strings.

    ``gap_ns`` is host time in front of every grant's first segment, which a virtual host has to let pass; a real
    host's own passes by itself. Retained storage shares heads in blocks of ``retained_block`` tokens; 0 keeps every
    prefix whole.
    """

    suspend: bool
    grid_bound: bool
    features: frozenset[str] = frozenset()
    gap_ns: int = 0
    retained_block: int = 0


@attrs.frozen
class ModelDescription:
    """A model's facts, read from metadata without loading weights.

    ``digest`` identifies weights and geometry; ``context_limit`` is the trained context in tokens; ``vocabulary`` its
    size; ``parameters`` the number of weights; ``label`` what to show a person.
    ``windows`` has one entry a layer when some layers see only their last positions, and is empty when none does.
    """

    label: str
    architecture: str
    digest: str
    context_limit: int
    vocabulary: int
    parameters: int
    layers: int
    kv_bytes_per_token: int
    stop_tokens: tuple[int, ...]
    heads: tuple[str, ...] = ()
    path: str | None = None
    windows: tuple[int | None, ...] = ()


@attrs.frozen
class PlanRequest:
    """What one resident model is asked to hold.

    ``slots`` KV slots of ``context`` tokens for generation; ``decision_slots`` slots of ``decision_context`` tokens
    for decision rows; prefill chunks of ``chunk`` tokens; ``rows_per_slice`` decision rows at a time;
    ``heads`` by name.
    """

    context: int
    slots: int
    chunk: int
    decision_slots: int = 0
    decision_context: int = 0
    rows_per_slice: int = 0
    heads: tuple[str, ...] = ()


@attrs.frozen
class DecodeInput:
    """One row of a decode step: feed ``token`` at ``position`` of generation slot ``slot``."""

    slot: int
    position: int
    token: int


Segments: TypeAlias = Generator[Segment, None, Any]


class Workspace(Protocol):
    """The transient memory of one step, from its start to its end, suspensions included."""

    charge: int

    def peak(self) -> int:
        """Most bytes in use at once so far."""
        ...

    def close(self) -> None: ...


class Backend(Protocol):
    """One device.

    ``model`` is the key a model was opened with; ``role`` is ``generation`` or ``decision`` and has its own slots.
    """

    name: str
    capabilities: Capabilities

    def describe(self, model: str) -> ModelDescription: ...

    def plan(self, model: str, request: PlanRequest) -> AllocationPlan: ...

    def charge(self, model: str, shape: StepShape) -> int:
        """Bytes of transient workspace that a step of this shape may use. Pure: actors call it."""
        ...

    def open_workspace(self, charge: int) -> Workspace:
        """Transient memory for one step; using more than ``charge`` raises ``BudgetExceeded``."""
        ...

    def load(self, model: str, request: PlanRequest, weights: bool) -> Generator[Segment, None, None]:
        """Load weights (kept ones are used again when ``weights`` is false) and allocate KV slots.

        What the slots held is forgotten, and so is all that was retained.
        """
        ...

    def warm(self, model: str, workspace: Workspace) -> Generator[Segment, None, None]: ...

    def unload(self, model: str) -> None: ...

    def prefill(
        self,
        workspace: Workspace,
        model: str,
        role: str,
        slot: int,
        start: int,
        tokens: Sequence[int],
        sampler: Sampler | None,
    ) -> Generator[Segment, None, Sampled | None]:
        """Write KV of ``tokens`` at positions ``start ...``; with a sampler, sample from the last position's logits."""
        ...

    def decode(
        self, workspace: Workspace, model: str, rows: Sequence[DecodeInput], samplers: Sequence[Sampler]
    ) -> Generator[Segment, None, tuple[Sampled, ...]]:
        """One token for each row of generation slots."""
        ...

    def score(
        self,
        workspace: Workspace,
        model: str,
        slot: int,
        start: int,
        tokens: Sequence[int],
        heads: Sequence[str],
    ) -> Generator[Segment, None, tuple[float, ...]]:
        """Score one decision row in decision slot ``slot`` whose first ``start`` positions hold the instruction."""
        ...

    def copy(
        self, model: str, role: str, source: int, targets: Sequence[int], tokens: int
    ) -> Generator[Segment, None, None]:
        """Copy the first ``tokens`` positions of a slot into others."""
        ...

    def save(
        self, model: str, slot: int, tokens: int, handle: int, base: int | None = None, shared: int = 0
    ) -> Generator[Segment, None, None]:
        """Copy the first ``tokens`` positions of a generation slot into retained storage under a new handle.

        The first ``shared`` of them, whole blocks of ``retained_block`` tokens, are not copied: they are those of
        storage ``base``, which both hold from then on. Given up before its end, it keeps nothing.
        """
        ...

    def restore(self, model: str, slot: int, tokens: int, handle: int) -> Generator[Segment, None, None]: ...

    def store(self, model: str, handle: int, file: PrefixFile) -> Generator[Segment, None, None]:
        """Write the first ``len(file.tokens)`` positions of retained storage to a file, published when it is whole.

        ``prefix_file`` has the format. Given up before its end, it leaves no trace.
        """
        ...

    def fetch(self, model: str, handle: int, file: PrefixFile) -> Generator[Segment, None, None]:
        """Read a file into retained storage under a new handle.

        Raises ``ArtifactInvalid``, and keeps nothing, when the file is not all that ``file`` and the model ask for.
        """
        ...

    def drop(self, model: str, handle: int) -> None:
        """Forget retained storage; what is not there is no error, since a failed restore leaves that open.

        Blocks that nobody else holds are free then, and no others.
        """
        ...
