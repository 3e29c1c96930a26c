"""Errors out of nurseries: Trio wraps them in groups, our callers are shown the error itself."""

from __future__ import annotations

from typing import NoReturn


def raise_only(group: BaseExceptionGroup[BaseException]) -> NoReturn:
    """Raise the one error that a nursery's group wraps, its own cause and context untouched; several stay a group."""
    if len(group.exceptions) != 1:
        raise group
    error = group.exceptions[0]
    context = error.__context__
    try:
        raise error
    finally:
        # Raising it while the group is handled has put the group there.
        error.__context__ = context
        del error, context, group
