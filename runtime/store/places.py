"""Where a store and the trusted keys are when nobody says so: the XDG base directories of the user."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

VARIABLE = "CORESIDENT_STORE"


def default_store(environ: Mapping[str, str] = os.environ) -> Path:
    """``CORESIDENT_STORE``, or ``coresident/store`` in the user's data folder."""
    named = environ.get(VARIABLE)
    return Path(named).expanduser() if named else _base(environ, "XDG_DATA_HOME", ".local/share") / "store"


def default_trusted(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder of trusted public keys: ``coresident/trusted`` in the user's configuration folder.

    It is not in the store, so that writing the store does not mean deciding whom to trust.
    """
    return _base(environ, "XDG_CONFIG_HOME", ".config") / "trusted"


def default_key(environ: Mapping[str, str] = os.environ) -> Path:
    """The private key that signs when none is named: ``coresident/signing.key`` in the user's configuration folder."""
    return _base(environ, "XDG_CONFIG_HOME", ".config") / "signing.key"


def _base(environ: Mapping[str, str], variable: str, usual: str) -> Path:
    """The specification has paths that are not absolute ignored."""
    named = Path(environ.get(variable, ""))
    return (named if named.is_absolute() else Path.home() / usual) / "coresident"
