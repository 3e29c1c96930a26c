"""Named heads of a decision model: what turns the last position of a row into one raw value.

A linear head is a weight vector on the last hidden state. A head file is a safetensors file with tensors
``<name>.weight`` ``[1, hidden]`` and optionally ``<name>.bias`` ``[1]``; its header says ``format``
(``coresident-heads``), ``version`` (``1``), ``backbone`` (the digest of the model it was trained on) and
``kind.<name>`` for each head.

A verbalizer head compares the output logits of two sets of tokens (yes against no), so a plain instruct model decides
without training: ``logsumexp(positive) - logsumexp(negative)``, the log-odds between the sets; an empty ``negative``
stands for all other tokens. What the values mean afterwards (a sigmoid, a softmax over rows) is for the decision
actor to apply.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import attrs
import numpy as np
from numpy.typing import NDArray

from ...actors.errors import ArtifactInvalid, InvalidRequest
from .architecture import invalid

FORMAT = "coresident-heads"
VERSION = "1"
KINDS = ("rank", "probability", "choice")
DTYPES = ("F32", "F16")


@attrs.frozen
class VerbalizerHead:
    """Log-odds between two sets of token ids; an empty ``negative`` means every token that is not in ``positive``."""

    name: str
    kind: str
    positive: tuple[int, ...]
    negative: tuple[int, ...] = ()


@attrs.frozen
class HeadFile:
    """A file of linear heads."""

    path: str


@attrs.frozen(eq=False)
class LinearHead:
    """``weight`` float32 ``(hidden,)`` on the normalized last hidden state, plus ``bias``."""

    name: str
    kind: str
    weight: NDArray[np.float32]
    bias: float


HeadSpec: TypeAlias = VerbalizerHead | HeadFile
Head: TypeAlias = VerbalizerHead | LinearHead


def choose_heads(heads: Mapping[str, Head], names: Sequence[str]) -> tuple[Head, ...]:
    """The named heads in order. Raises InvalidRequest for a name that the model doesn't have."""
    for name in names:
        if name not in heads:
            known = ", ".join(heads) or "none"
            raise InvalidRequest(f"there is no head {name!r}: the model has {known}", head=name, known=known)
    return tuple(heads[name] for name in names)


def resolve_heads(specs: Iterable[HeadSpec], digest: str, hidden: int, vocabulary: int) -> dict[str, Head]:
    """Heads by name, in the order given.

    Raises:
        ArtifactInvalid: a head file is damaged or belongs to another backbone.
        InvalidRequest: a verbalizer head has no meaning, or a name occurs twice.
    """
    heads: dict[str, Head] = {}
    for spec in specs:
        found: tuple[Head, ...]
        if isinstance(spec, HeadFile):
            found = read_linear_heads(Path(spec.path), digest, hidden)
        else:
            found = (check_verbalizer(spec, vocabulary),)
        for head in found:
            if head.name in heads:
                raise InvalidRequest(
                    f"head {head.name!r} is defined twice: give each head its own name", head=head.name
                )
            heads[head.name] = head
    return heads


def check_verbalizer(head: VerbalizerHead, vocabulary: int) -> VerbalizerHead:
    """Return the head if its kind is known and its token sets are valid and disjoint."""
    if head.kind not in KINDS:
        kinds = ", ".join(KINDS)
        raise InvalidRequest(
            f"head {head.name!r} has kind {head.kind!r}: kinds are {kinds}", head=head.name, kind=head.kind
        )
    tokens = (*head.positive, *head.negative)
    if not head.positive:
        raise InvalidRequest(f"head {head.name!r} has no positive tokens: name at least one", head=head.name)
    if len(set(tokens)) != len(tokens):
        raise InvalidRequest(f"head {head.name!r} names a token twice: its sets must be disjoint", head=head.name)
    for token in tokens:
        if not 0 <= token < vocabulary:
            why = f"the vocabulary has {vocabulary} tokens, 0 to {vocabulary - 1}"
            raise InvalidRequest(f"head {head.name!r} names token {token}: {why}", head=head.name, token=token)
    if len(tokens) == vocabulary and not head.negative:
        raise InvalidRequest(f"head {head.name!r} leaves no other token to compare with", head=head.name)
    return head


def read_linear_heads(path: Path, digest: str, hidden: int) -> tuple[LinearHead, ...]:
    """Read a head file for the backbone with this ``digest`` and ``hidden`` size.

    Raises:
        ArtifactInvalid: naming the file, the field and the value that is wrong.
    """
    # Imported where a head file is used: importing the library loads no format's package.
    from safetensors import SafetensorError, safe_open

    file = str(path)
    try:
        with safe_open(file, framework="numpy") as handle:
            metadata: dict[str, str] = handle.metadata() or {}
            _check_header(file, metadata, digest)
            names = list(handle.keys())
            kinds = _kinds(file, metadata)
            _check_tensors(file, names, kinds)
            shapes = {name: tuple(handle.get_slice(name).get_shape()) for name in names}
            for name in names:
                expected = (1, hidden) if name.endswith(".weight") else (1,)
                if shapes[name] != expected:
                    raise invalid(file, f"shape of {name}", shapes[name], f"the backbone asks for {expected}")
                stored = handle.get_slice(name).get_dtype()
                if stored not in DTYPES:
                    raise invalid(file, f"dtype of {name}", stored, f"supported are {', '.join(DTYPES)}")
            values = {name: handle.get_tensor(name).astype(np.float32) for name in names}
    except (SafetensorError, OSError) as error:
        raise ArtifactInvalid(f"{file}: cannot be read as safetensors: {error}", file=file, field="header") from error
    return tuple(_linear(name, kind, values) for name, kind in kinds.items())


def _linear(name: str, kind: str, values: dict[str, NDArray[np.float32]]) -> LinearHead:
    bias = values.get(f"{name}.bias")
    return LinearHead(name, kind, values[f"{name}.weight"][0], 0.0 if bias is None else float(bias[0]))


def _check_header(file: str, metadata: dict[str, str], digest: str) -> None:
    expected = (("format", FORMAT), ("version", VERSION), ("backbone", digest))
    for field, value in expected:
        if metadata.get(field) != value:
            raise invalid(file, field, metadata.get(field, "missing"), f"this model needs {value}")


def _kinds(file: str, metadata: dict[str, str]) -> dict[str, str]:
    kinds = {key.removeprefix("kind."): kind for key, kind in metadata.items() if key.startswith("kind.")}
    for name, kind in kinds.items():
        if kind not in KINDS:
            raise invalid(file, f"kind.{name}", kind, f"kinds are {', '.join(KINDS)}")
    if not kinds:
        raise invalid(file, "kind.<name>", "missing", "the header must give the kind of at least one head")
    return dict(sorted(kinds.items()))


def _check_tensors(file: str, names: list[str], kinds: dict[str, str]) -> None:
    known = {f"{name}.{part}" for name in kinds for part in ("weight", "bias")}
    for name in names:
        if name not in known:
            raise invalid(file, "tensor", name, f"the header names the heads {', '.join(kinds)}")
    for name in kinds:
        if f"{name}.weight" not in names:
            raise invalid(file, f"tensor {name}.weight", "missing", "the header promises this head")


def write_linear_heads(path: Path, heads: Iterable[LinearHead], digest: str) -> None:
    """Write a head file for the backbone with this ``digest``."""
    from safetensors.numpy import save_file

    tensors: dict[str, NDArray[np.float32]] = {}
    metadata = {"format": FORMAT, "version": VERSION, "backbone": digest}
    for head in heads:
        tensors[f"{head.name}.weight"] = np.ascontiguousarray(head.weight, np.float32).reshape(1, -1)
        tensors[f"{head.name}.bias"] = np.array([head.bias], np.float32)
        metadata[f"kind.{head.name}"] = head.kind
    save_file(tensors, str(path), metadata=metadata)


def logsumexp(logits: NDArray[np.float32]) -> float:
    """``log(sum(exp(logits)))`` without overflow; the logits are overwritten."""
    most = np.max(logits)
    np.subtract(logits, most, out=logits)
    np.exp(logits, out=logits)
    return float(most) + float(np.log(np.sum(logits)))
