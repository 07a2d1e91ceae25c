"""Sizes: what adjustments come to, and every sentence that refuses one."""

from typing import Any

import pytest

from roost.clusters.sizes import Resize, Sizes, adjust, misfit, resize

NUMBERS = [
    ("EXACT_CAPACITY", 7, 10, None, 7),
    ("CHANGE_IN_CAPACITY", 3, 10, None, 13),
    ("CHANGE_IN_CAPACITY", -3, 10, None, 7),
    ("CHANGE_IN_PERCENTAGE", 5, 10, None, 11),
    ("CHANGE_IN_PERCENTAGE", 15, 10, None, 11),
    ("CHANGE_IN_PERCENTAGE", -15, 10, None, 9),
    ("CHANGE_IN_PERCENTAGE", 5, 10, 3, 13),
    ("CHANGE_IN_PERCENTAGE", -5, 10, 3, 7),
    ("CHANGE_IN_PERCENTAGE", 0, 10, 3, 10),
    ("CHANGE_IN_PERCENTAGE", 50, 0, 3, 3),
]


@pytest.mark.parametrize(("kind", "number", "current", "step", "expected"), NUMBERS)
def test_an_adjustment_leads_to_a_size(kind: str, number: float, current: int, step: int | None, expected: int) -> None:
    assert adjust(kind, number, current, step) == expected


REFUSALS: list[tuple[Sizes | None, int | None, dict[str, Any], str]] = [
    (
        Sizes(1, 5, 3),
        11,
        {},
        "The target capacity (11) is greater than the maximum number of nodes allowed per cluster (10).",
    ),
    (None, 2, {"min_size": 5}, "The target capacity (2) is less than the specified min_size (5)."),
    (Sizes(2, 5, 3), 1, {}, "The target capacity (1) is less than the cluster's min_size (2)."),
    (None, 6, {"max_size": 5}, "The target capacity (6) is greater than the specified max_size (5)."),
    (Sizes(2, 5, 3), 6, {}, "The target capacity (6) is greater than the cluster's max_size (5)."),
    (
        Sizes(2, 5, 3),
        None,
        {"min_size": 6, "max_size": 4},
        "The specified min_size (6) is greater than the specified max_size (4).",
    ),
    (
        Sizes(2, 5, 3),
        None,
        {"min_size": 6},
        "The specified min_size (6) is greater than the current max_size (5) of the cluster.",
    ),
    (
        Sizes(2, 5, 3),
        None,
        {"min_size": 4},
        "The specified min_size (4) is greater than the current desired_capacity (3) of the cluster.",
    ),
    (
        Sizes(2, 5, 3),
        None,
        {"max_size": 11},
        "The specified max_size (11) is greater than the maximum number of nodes allowed per cluster (10).",
    ),
    (
        Sizes(2, 5, 3),
        None,
        {"max_size": 1},
        "The specified max_size (1) is less than the current min_size (2) of the cluster.",
    ),
    (
        Sizes(2, 5, 3),
        None,
        {"max_size": 2},
        "The specified max_size (2) is less than the current desired_capacity (3) of the cluster.",
    ),
]


@pytest.mark.parametrize(("sizes", "desired", "bounds", "sentence"), REFUSALS, ids=[row[3] for row in REFUSALS])
def test_a_size_that_does_not_fit_is_refused_with_its_sentence(
    sizes: Sizes | None, desired: int | None, bounds: dict[str, Any], sentence: str
) -> None:
    assert misfit(sizes, desired, **bounds, strict=True, max_nodes=10) == sentence


def test_bounds_are_no_obstacle_to_a_size_within_them() -> None:
    assert misfit(Sizes(2, 5, 3), 4, strict=True, max_nodes=10) is None
    assert misfit(Sizes(2, -1, 3), 9, strict=True, max_nodes=10) is None


def test_a_resize_that_is_not_strict_stops_at_the_bounds() -> None:
    inputs = {"adjustment_type": "CHANGE_IN_CAPACITY", "number": 9, "strict": False}
    assert resize(inputs, Sizes(1, 5, 3), 3, 10) == Resize(5, 2, None, None)
    inputs["number"] = -9
    assert resize(inputs, Sizes(1, 5, 3), 3, 10) == Resize(1, -2, None, None)


def test_a_strict_resize_beyond_the_bounds_is_refused() -> None:
    inputs = {"adjustment_type": "CHANGE_IN_CAPACITY", "number": 9, "strict": True}
    assert (
        resize(inputs, Sizes(1, 5, 3), 3, 100) == "The target capacity (12) is greater than the cluster's max_size (5)."
    )


def test_bounds_that_the_size_does_not_fit_change_the_size_unless_strict() -> None:
    assert resize({"max_size": 2, "strict": False}, Sizes(0, 5, 3), 3, 10) == Resize(2, -1, None, 2)
    assert resize({"min_size": 4, "strict": False}, Sizes(0, 5, 3), 3, 10) == Resize(4, 1, 4, None)
