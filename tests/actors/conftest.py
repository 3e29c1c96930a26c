"""Hypothesis profiles: the same examples every time on a continuous integration machine, new ones elsewhere."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

_ANY = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.filter_too_much]}
settings.register_profile("actors", derandomize=bool(os.environ.get("CI")), **_ANY)
settings.load_profile("actors")
