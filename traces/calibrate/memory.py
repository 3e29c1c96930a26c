"""The memory of a calibrated device: from what a trace's header and ledger say, and from what steps were charged."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...runtime.backends.device_model import Memory
from ...runtime.host.assembly import GENERATION
from ..header import Header
from .observe import Charge, Observations


def memory_of(header: Header, seen: Observations) -> tuple[Memory, tuple[str, ...]]:
    """Weights, KV state and workspace in bytes, and in words what the trace could not tell.

    The bytes that the account of the generation model has in all are what was recorded; how they divide is exact where
    the header has the models' accounts, else it comes from the prefixes that were kept.
    """
    guesses: list[str] = []
    weights, per_token, kv_fixed, decision_kv_fixed = _accounts(header, seen, guesses)
    fixed, per_new, pair = _workspace(seen.charges)
    if not seen.charges:
        guesses.append("workspace: no step was charged, so none is charged for")
    memory = Memory(
        weights=weights,
        kv_per_token=per_token,
        workspace_per_token=per_new,
        kv_fixed=kv_fixed,
        decision_kv_fixed=decision_kv_fixed,
        workspace_fixed=fixed,
        workspace_per_pair=pair,
    )
    return memory, tuple(guesses)


def _accounts(header: Header, seen: Observations, guesses: list[str]) -> tuple[int, int, int, int]:
    """Weights, KV bytes of a token, and fixed bytes of a generation and of a decision slot."""
    slots, context = header.generation.sequences, header.device.admitted_context
    rows, row_context = (header.decision.rows_per_slice, header.decision.context) if header.decision else (0, 0)
    if header.facts is not None:
        facts = header.facts.model(GENERATION)
        accounts, per_token = facts.accounts, facts.kv_bytes_per_token
        kv_fixed = accounts.get(f"kv/{GENERATION}", 0) // slots - context * per_token
        decision = accounts.get(f"decision_kv/{GENERATION}", 0)
        decision_fixed = decision // rows - row_context * per_token if decision else 0
        return accounts.get(f"weights/{GENERATION}", 0), per_token, max(0, kv_fixed), max(0, decision_fixed)
    per_token = max(seen.kv_bytes, default=0)
    if not per_token:
        guesses.append("KV state: no prefix was kept, so it counts as weights")
    held = header.device.workspace + header.generation.retained + (slots * context + rows * row_context) * per_token
    return max(0, seen.reserved - held), per_token, 0, 0


def _workspace(charges: Sequence[Charge]) -> tuple[int, int, int]:
    """Fixed bytes, bytes of a new token, and of a pair of tokens: no charge that was recorded is above them."""
    if not charges:
        return 0, 0, 0
    table = np.array([(each.tokens, each.tokens * each.context, each.bytes) for each in charges], dtype=np.float64)
    features = np.column_stack([np.ones(len(table)), table[:, :2]])
    found = np.linalg.lstsq(features, table[:, 2], rcond=None)[0]
    per_token, pair = (max(0, round(float(value))) for value in found[1:])
    missing = max(each.bytes - each.tokens * (per_token + each.context * pair) for each in charges)
    return max(0, missing), per_token, pair
