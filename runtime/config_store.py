"""The parts of a configuration about this machine: the store that models come from, and what is shared with others."""

from __future__ import annotations

import attrs
from attrs import validators

AUTO, REQUIRED, OFF = "auto", "required", "off"


@attrs.frozen
class StoreConfig:
    """Where ``store:NAME`` leads.

    ``path`` is the store's folder; empty takes ``CORESIDENT_STORE``, or the user's own. ``keys`` are files of the
    public keys whose signatures count; with none of them, those that the user trusts. ``device`` is the one that
    models were activated for; empty takes the backend's name. ``seed`` is the folder of a signed seed: it is imported
    on first use, and ``repair`` takes good files from it; opening does where ``limits.restarts`` is not 0.
    """

    path: str = ""
    keys: tuple[str, ...] = ()
    device: str = ""
    seed: str = ""


@attrs.frozen
class HostConfig:
    """How the schedulers of one user's programs share this machine.

    ``registry``: ``auto`` registers the partition, and refuses one that the physical device has no room for beside the
    others. Where nothing can be registered (a read-only system, no locks), it warns in the log and goes on: a program
    that is alone there is in nobody's way, and its own partition bounds it in any case. ``required`` refuses then.
    ``off`` registers nothing. ``folder`` is where registrations are; empty takes ``CORESIDENT_RUNTIME_DIR``, or the
    user's own.
    """

    registry: str = attrs.field(default=AUTO, validator=validators.in_((AUTO, REQUIRED, OFF)))
    folder: str = ""
