"""The distribution is the best there is by its own measure, for any count."""

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roost.placement.distribution import Distribution, WeightedZone, create, delete

often = settings(max_examples=1500, deadline=None, derandomize=True)


def named(plan: Distribution, *names: str) -> list[int]:
    return [plan.changes.get(name, 0) for name in names]


zone = st.builds(
    WeightedZone,
    st.just(""),
    st.integers(0, 4),
    st.integers(0, 4),
    st.sampled_from((True, True, True, False)),
    st.none() | st.integers(0, 6),
    st.integers(0, 3),
)
zones = st.lists(zone, min_size=1, max_size=4).map(
    lambda zones: [
        WeightedZone(name, zone.weight, zone.servers, zone.available, zone.cap, zone.minimum)
        for name, zone in zip("dbca", zones, strict=False)
    ]
)


def best(zones: list[WeightedZone], ways: list[dict[str, int]]) -> dict[str, int]:
    """The way nearest to the ideal; of equals, the one that gives most to the first by name."""
    weights = {zone.name: zone.weight if zone.available else 0 for zone in zones}
    if not any(weights.values()):
        weights = dict.fromkeys(weights, 1)

    whole = sum(weights.values())

    def distance(way: dict[str, int]) -> tuple[int, list[int]]:
        total = sum(way.values())
        return sum((way[n] * whole - total * weights[n]) ** 2 for n in way), [-way[n] for n in sorted(way)]

    return min(ways, key=distance)


def ways(zones: list[WeightedZone], count: int, ranges: list[range]) -> list[dict[str, int]]:
    """Every way to change by as near to the count as can be."""
    standing = sum(zone.servers for zone in zones)
    every = [way for way in product(*ranges) if abs(sum(way) - standing) <= count]
    changed = max(abs(sum(way) - standing) for way in every)
    names = [zone.name for zone in zones]
    return [dict(zip(names, way, strict=True)) for way in every if abs(sum(way) - standing) == changed]


def unmet(zones: list[WeightedZone], way: dict[str, int]) -> int:
    return sum(max(0, min(zone.minimum, _top(zone)) - way[zone.name]) for zone in zones)


def _top(zone: WeightedZone) -> int:
    cap = zone.servers + 9 if zone.cap is None else zone.cap
    return max(zone.servers, cap) if zone.available else zone.servers


def over(zones: list[WeightedZone], way: dict[str, int]) -> int:
    caps = {zone.name: (zone.cap if zone.available else 0) for zone in zones}
    low = {zone.name: min(zone.servers, zone.minimum) for zone in zones}
    return sum(max(0, number - max(cap, low[name])) for name, number in way.items() if (cap := caps[name]) is not None)


@often
@given(zones, st.integers(0, 7))
def test_creating_comes_nearest_to_the_weights(zones: list[WeightedZone], count: int) -> None:
    ranges = [range(zone.servers, min(_top(zone), zone.servers + count) + 1) for zone in zones]
    every = ways(zones, count, ranges)
    least = min(unmet(zones, way) for way in every)
    expected = best(zones, [way for way in every if unmet(zones, way) == least])
    plan = create(zones, count)
    assert {zone.name: zone.servers + plan.changes.get(zone.name, 0) for zone in zones} == expected
    assert plan.short == count - sum(plan.changes.values())


@often
@given(zones, st.integers(0, 9))
def test_deleting_comes_nearest_to_the_weights(zones: list[WeightedZone], count: int) -> None:
    every = ways(zones, count, [range(zone.servers + 1) for zone in zones])

    def given_up(way: dict[str, int]) -> int:
        return sum(max(0, min(zone.servers, zone.minimum) - way[zone.name]) for zone in zones)

    kept = min(map(given_up, every))
    every = [way for way in every if given_up(way) == kept]
    least = min(over(zones, way) for way in every)
    expected = best(zones, [way for way in every if over(zones, way) == least])
    plan = delete(zones, count)
    assert {zone.name: zone.servers + plan.changes.get(zone.name, 0) for zone in zones} == expected
    assert plan.short == count + sum(plan.changes.values())


def test_sixteen_over_five_equal_zones() -> None:
    plan = create([WeightedZone(name) for name in "abcde"], 16)
    assert named(plan, *"abcde") == [4, 3, 3, 3, 3]


def test_a_million_servers_cost_no_more_than_one() -> None:
    plan = create([WeightedZone(str(n), weight=n) for n in range(1, 51)], 10**9)
    assert sum(plan.changes.values()) == 10**9


@pytest.mark.parametrize("numbers", [(-1, 0, 0, 0), (0, -1, 0, 0), (0, 0, -1, 0), (0, 0, 0, -1)])
def test_numbers_below_nought_are_refused(numbers: tuple[int, int, int, int]) -> None:
    weight, standing, cap, minimum = numbers
    with pytest.raises(ValueError, match="below 0"):
        WeightedZone("a", weight, standing, cap=cap, minimum=minimum)


def test_nothing_to_do_and_nowhere_to_do_it() -> None:
    assert create([], 3) == Distribution({}, 3)
    assert delete([], 0) == Distribution({}, 0)
