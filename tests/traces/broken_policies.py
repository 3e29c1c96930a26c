"""Policies that misbehave, as ``broken_policies:NAME``: each in a way of its own."""

from __future__ import annotations

from coresident.policies.views import Choice


def raises():
    def decide(view, memory):
        return 1 // 0, memory

    return decide


def nonsense():
    return lambda view, memory: ("a word", memory)


def absent():
    return lambda view, memory: (Choice("nobody"), memory)


def nothing():
    return lambda view, memory: (0, memory)


def later():
    """Puts preparation off to a nanosecond later, for ever."""
    return lambda view, memory: (view.at + 1, memory)
