"""Figures for people, and text that a trace brings."""

from __future__ import annotations

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def size(count: int) -> str:
    """Bytes with a binary unit: ``1.5 GiB``."""
    value, unit = float(count), 0
    while abs(value) >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{count} B" if unit == 0 else f"{value:,.1f} {_UNITS[unit]}"


def duration(ns: int | None) -> str:
    """Nanoseconds in the unit that fits: ``1.25 s``, ``41 ms``, ``350 µs``."""
    if ns is None:
        return "-"
    if ns >= 10**9:
        return f"{ns / 1e9:.2f} s"
    return f"{ns / 1e6:.0f} ms" if ns >= 10**7 else f"{ns / 1e6:.1f} ms" if ns >= 10**6 else f"{ns / 1e3:.0f} µs"


def shown(text: str) -> str:
    """Text with everything that a screen would obey instead of showing, escaped."""
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)


def share(part: float | None) -> str:
    """A part of one in percent; small ones keep a digit, and what is not all is never said to be."""
    if part is None:
        return "-"
    if 0 < part < 0.0005:
        return "< 0.1 %"
    if part < 0.1:
        return f"{part * 100:.1f} %" if part else "0 %"
    return f"{min(part * 100, 99.9):.1f} %" if 0.995 <= part < 1 else f"{part * 100:.0f} %"


def count(number: int, noun: str) -> str:
    """A number and its noun: ``1 run``, ``2,000 runs``, ``2 classes``."""
    plural = f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"


def listed(parts: list[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)
