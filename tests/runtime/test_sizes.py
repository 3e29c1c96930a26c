"""Sizes: integers, and numbers with a unit."""

from __future__ import annotations

import pytest
from coresident.runtime.sizes import parse_bytes


@pytest.mark.parametrize(
    ("value", "size"),
    [
        (7, 7),
        ("7", 7),
        ("7 B", 7),
        ("7b", 7),
        ("2KB", 2000),
        ("2 kib", 2048),
        (" 1.5 MiB ", 3 * 2**19),
        ("1 MB", 10**6),
        ("3 GB", 3 * 10**9),
        ("3 GiB", 3 * 2**30),
        ("2 TB", 2 * 10**12),
        ("0.5 TiB", 2**39),
    ],
)
def test_sizes(value, size):
    assert parse_bytes(value) == size


@pytest.mark.parametrize(
    "value", ["", "MiB", "1 XB", "-1", "1e9", "nan", "1 2", "1,5 GB", 1.5, True, None, [1], "0x10"]
)
def test_what_is_no_size(value):
    with pytest.raises(ValueError, match="is not a size: give bytes, or a number with a unit"):
        parse_bytes(value)
