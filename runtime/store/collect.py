"""Garbage collection: what no selection needs and no lease holds is deleted; everything else stays.

It runs behind the exclusive gate of the leases, and asks what to keep only when it is there. So a lease that is taken
meanwhile either comes first, and is respected, or waits, and then finds its files gone. What refers goes before what
is referred to (views, manifests, artifacts): a collection that is cut short leaves nothing that lacks its bytes.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from .artifacts import Artifacts
from .digests import is_digest
from .folders import Folder, child_or_none
from .leases import PATIENCE_S, Leases

VIEWS, MANIFESTS, SUFFIX = "views", "manifests", ".json"


@attrs.frozen
class Keep:
    """What stays: digests of manifests, with their views, and of artifacts.

    ``used`` are those of the manifests that stay for no other reason than that somebody uses them.
    """

    manifests: frozenset[str]
    artifacts: frozenset[str]
    used: frozenset[str] = frozenset()


@attrs.frozen
class Collected:
    """What a collection removed: digests, bytes of artifacts, and stale leases; ``used``: see :class:`Keep`."""

    manifests: tuple[str, ...]
    views: tuple[str, ...]
    artifacts: tuple[str, ...]
    partials: tuple[str, ...]
    leases: int
    bytes: int
    used: tuple[str, ...] = ()


def collect(
    root: Folder,
    keep: Callable[[frozenset[str]], Keep],
    *,
    partials: bool = False,
    timeout_s: float | None = PATIENCE_S,
) -> Collected:
    """Delete what ``keep`` does not name, and with ``partials`` also what is staged in part and by nobody now.

    ``keep`` gets the digests of the leased manifests and is called behind the gate: whoever publishes a reference
    (an activation) while it holds the gate shared (:meth:`Leases.gate`) never loses what it refers to. Leased
    manifests stay even when ``keep`` leaves them out. Raises ``StoreBusy`` after ``timeout_s`` seconds behind others.
    """
    leases, artifacts = Leases(root), Artifacts(root)
    with leases.gate(shared=False, timeout_s=timeout_s):
        reaped = leases.reap_behind_gate()
        leased = leases.leased()
        stays = keep(leased)
        manifests = stays.manifests | leased
        views = _remove_views(root, manifests)
        gone = _remove_manifests(root, manifests)
        removed = [
            one for one in artifacts.list() if one.digest not in stays.artifacts and artifacts.remove(one.digest)
        ]
        parts = [one.digest for one in artifacts.partials() if artifacts.remove_partial(one.digest)] if partials else []
    return Collected(
        manifests=gone,
        views=views,
        artifacts=tuple(one.digest for one in removed),
        partials=tuple(parts),
        leases=reaped,
        bytes=sum(one.size for one in removed),
        used=tuple(sorted(stays.used)),
    )


def _remove_views(root: Folder, keep: frozenset[str]) -> tuple[str, ...]:
    with child_or_none(root, VIEWS) as views:
        if views is None:
            return ()
        gone = [name for name in views.names() if is_digest(name) and name not in keep]
        for name in gone:
            with views.child(name) as view:
                for entry in view.names():
                    view.unlink(entry)
            views.rmdir(name)
        if gone:
            views.sync()
        return tuple(gone)


def _remove_manifests(root: Folder, keep: frozenset[str]) -> tuple[str, ...]:
    with child_or_none(root, MANIFESTS) as manifests:
        if manifests is None:
            return ()
        digests = [name.removesuffix(SUFFIX) for name in manifests.names() if name.endswith(SUFFIX)]
        gone = [digest for digest in digests if is_digest(digest) and digest not in keep]
        for digest in gone:
            manifests.unlink(digest + SUFFIX)
        if gone:
            manifests.sync()
        return tuple(gone)
