"""Checks of the numbers that a policy's factory takes, so that every refusal names the same four things."""

from __future__ import annotations

from .errors import PolicyFault


def number(policy: str, parameter: str, value: object, low: float, high: float) -> float:
    """Return ``value`` when it is a number within ``low..high``; raise ``PolicyFault`` otherwise."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise _refusal(policy, parameter, value, f"a number from {low} to {high}")
    return float(value)


def whole(policy: str, parameter: str, value: object, low: int, high: int) -> int:
    """Return ``value`` when it is a whole number within ``low..high``; raise ``PolicyFault`` otherwise."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise _refusal(policy, parameter, value, f"a whole number from {low} to {high}")
    return value


def _refusal(policy: str, parameter: str, value: object, valid: str) -> PolicyFault:
    return PolicyFault(
        f"policy {policy!r} was given {parameter}={value!r}: it takes {valid}",
        policy=policy,
        parameter=parameter,
        value=value,
        valid=valid,
    )
