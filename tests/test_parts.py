"""A missing part skips its tests, and fails them where it is required."""

from __future__ import annotations

import pytest

from support.parts import PARTS, VARIABLE, require_or_skip, required_parts


def test_nothing_is_required_by_default() -> None:
    assert required_parts({}) == required_parts({VARIABLE: " , "}) == frozenset()


def test_parts_are_comma_separated() -> None:
    assert required_parts({VARIABLE: "smollm2, mlx"}) == {"smollm2", "mlx"}


def test_an_unknown_part_is_a_usage_error_that_lists_the_known_ones() -> None:
    with pytest.raises(pytest.UsageError, match=r"smolm.*smollm2"):
        required_parts({VARIABLE: "smolm"})


@pytest.mark.parametrize("part", PARTS)
def test_a_missing_part_skips_and_says_why(part: str) -> None:
    with pytest.raises(pytest.skip.Exception, match=f"{part}: not here"):
        require_or_skip(part, "not here", {})


@pytest.mark.parametrize("part", PARTS)
def test_a_missing_part_fails_where_it_is_required(part: str) -> None:
    with pytest.raises(pytest.fail.Exception, match=f"{part} is required .* not here"):
        require_or_skip(part, "not here", {VARIABLE: part})


def test_a_test_cannot_ask_for_a_part_that_does_not_exist() -> None:
    with pytest.raises(ValueError, match="unknown part"):
        require_or_skip("cuda", "not here", {})
