"""The fleet changes by single events, and snapshots do not see what comes after them."""

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roost.placement import fleet as fleets
from roost.placement.fleet import NOWHERE, TIE_BITS, Fleet, Members, Resources
from roost.placement.rules import AVAILABILITY_ZONE, HOST

SMALL = Resources(1, 2, 3)
LARGE = Resources(10, 20, 30)


def seen(fleet: Fleet) -> dict[str, tuple[object, ...]]:
    """All that can be seen of a fleet."""
    return {
        fleet.name(host): (
            fleet.free(host),
            fleet.total(host),
            fleet.is_enabled(host),
            fleet.aggregate(host, "rack"),
            int(fleet.order_column[host]),
        )
        for host in fleet.hosts()
    }


def some_fleet() -> Fleet:
    fleet = Fleet()
    for number in range(3):
        fleet.add_host(f"h{number}", LARGE, aggregates={"rack": f"r{number % 2}"})
    return fleet


ROOM = st.integers(0, 40)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(st.tuples(*[st.tuples(ROOM, ROOM, ROOM)] * 2), min_size=1, max_size=3))
def test_the_room_of_many_hosts_set_at_once_is_that_set_one_by_one(rooms: list[tuple[tuple[int, ...], ...]]) -> None:
    at_once, one_by_one = some_fleet(), some_fleet()
    for host, (total, used) in enumerate(rooms):
        one_by_one.set_total(host, Resources(*total))
        one_by_one.claim(host, Resources(*used))
    totals, used_up = np.array(rooms).transpose(1, 2, 0)
    at_once.set_room(np.arange(len(rooms)), totals, totals - used_up)
    assert seen(at_once) == seen(one_by_one)


EVENTS: list[Callable[[Fleet], object]] = [
    lambda fleet: fleet.claim(0, SMALL),
    lambda fleet: fleet.release(1, SMALL, 2),
    lambda fleet: fleet.enable(2, False),
    lambda fleet: fleet.set_total(0, SMALL),
    lambda fleet: fleet.join(0, "rack", "new"),
    lambda fleet: fleet.leave(1, "rack"),
    lambda fleet: fleet.leave(1, "unheard of"),
    lambda fleet: fleet.join(1, AVAILABILITY_ZONE, "north"),
    lambda fleet: fleet.remove_host(1),
    lambda fleet: fleet.add_host("another", LARGE),
]


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.lists(st.sampled_from(range(len(EVENTS) - 2)), max_size=6), st.sampled_from(range(len(EVENTS))))
def test_a_snapshot_and_its_fleet_do_not_see_each_other(before: list[int], event: int) -> None:
    fleet = some_fleet()
    for number in before:
        EVENTS[number](fleet)
    was, snapshot = seen(fleet), fleet.snapshot()
    EVENTS[event](fleet)
    assert seen(snapshot) == was
    now = seen(fleet)
    EVENTS[event](snapshot)
    assert seen(fleet) == now == seen(snapshot)


def test_claims_and_releases_cancel_out() -> None:
    fleet = some_fleet()
    before = seen(fleet)
    fleet.claim(0, SMALL, 3)
    assert fleet.free(0) == (7, 14, 21)
    fleet.release(0, SMALL, 3)
    assert seen(fleet) == before


def test_a_change_of_capacity_leaves_what_is_taken_taken() -> None:
    fleet = some_fleet()
    fleet.claim(0, Resources(8, 8, 8))
    fleet.set_total(0, Resources(5, 40, 30))
    assert fleet.free(0) == (-3, 32, 22)
    assert fleet.total(0) == (5, 40, 30)


def test_hosts_outside_a_scope_are_counted() -> None:
    fleet = Fleet()
    fleet.add_host("a", LARGE)
    assert fleet.division("rack").outside == 1
    fleet.join(0, "rack", "r")
    assert fleet.division("rack").outside == 0
    fleet.add_host("b", LARGE)
    assert fleet.division("rack").outside == 1
    fleet.leave(0, "rack")
    assert fleet.division("rack").outside == 2
    fleet.remove_host(0)
    assert fleet.division("rack").outside == 1
    assert fleet.aggregate(1, "rack") == NOWHERE


def test_a_removed_host_leaves_its_number_to_another() -> None:
    fleet = some_fleet()
    fleet.remove_host(1)
    assert (len(fleet), fleet.index("h1"), fleet.size) == (2, None, 3)
    with pytest.raises(KeyError):
        fleet.name(1)
    assert fleet.identifiers(HOST) == ["h0", "", "h2"]
    assert fleet.add_host("next", SMALL, enabled=False) == 1
    assert fleet.index("next") == 1
    assert not fleet.is_enabled(1)
    assert fleet.aggregate(1, "rack") == NOWHERE


def test_names_are_unique_and_hosts_are_no_aggregate_to_join() -> None:
    fleet = some_fleet()
    with pytest.raises(ValueError, match="already"):
        fleet.add_host("h0", LARGE)
    with pytest.raises(ValueError, match="nothing can join"):
        fleet.join(0, HOST, "x")


def test_scopes_are_known_by_identifier() -> None:
    fleet = some_fleet()
    assert fleet.identifiers("rack") == ["r0", "r1"]
    assert fleet.identifiers("switch") == []
    assert fleet.aggregate_index("rack", "r1") == 1
    assert fleet.aggregate_index("rack", "r9") == NOWHERE
    assert fleet.aggregate_index("switch", "s") == NOWHERE
    fleet.join(0, AVAILABILITY_ZONE, "north")
    assert fleet.aggregate_index(AVAILABILITY_ZONE, "north") == fleet.aggregate(0, AVAILABILITY_ZONE) == 0


def test_a_fleet_grows_and_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet()
    for number in range(40):
        fleet.add_host(f"h{number}", LARGE, aggregates={"rack": str(number // 8)})
    assert fleet.division("rack").column.tolist() == [number // 8 for number in range(40)]
    assert np.unique(fleet.order_column).size == 40
    monkeypatch.setattr(fleets, "TIES", 39)
    with pytest.raises(ValueError, match="40 hosts at most"):
        fleet.add_host("one more", LARGE)


@pytest.mark.parametrize(
    ("free", "total", "share"),
    [
        ((5, 9, 9), (10, 10, 10), 50),
        ((0, 0, 0), (0, 0, 0), 0),
        ((-1, 5, 5), (10, 10, 10), 0),
        ((3, 0, 0), (4, 0, 0), 75),
    ],
)
def test_the_scarcest_resource_counts(free: tuple[int, ...], total: tuple[int, ...], share: int) -> None:
    fleet = Fleet()
    host = fleet.add_host("h", Resources(*total), free=Resources(*free))
    assert fleet.headroom_with(host, Resources()) == share
    fleet.claim(host, Resources(), 5)
    assert fleet.order_column.item(host) >> TIE_BITS & 127 == share


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=40))
def test_members_are_counted_as_they_come_and_go(changes: list[tuple[int, bool]]) -> None:
    members, plain = Members(), Counter[int]()
    for host, comes in changes:
        if comes:
            members.add(host)
            plain[host] += 1
        elif plain[host]:
            members.remove(host)
            plain[host] -= 1
    plain = +plain
    assert dict(zip(members.hosts.tolist(), members.counts.tolist(), strict=True)) == dict(plain)
    assert members.total == plain.total()
    assert [members.on(host) for host in range(10)] == [plain[host] for host in range(10)]
    copy = members.copy()
    copy.add(3)
    assert members.on(3) == copy.on(3) - 1


def test_a_snapshot_names_aggregates_by_itself() -> None:
    fleet = Fleet()
    host = fleet.add_host("h", Resources(1, 1, 1), aggregates={"rack": "a"})
    other = fleet.snapshot()
    other.join(host, "rack", "only here")
    assert fleet.identifiers("rack") == ["a"]
    fleet.join(host, "rack", "b")
    assert other.identifiers("rack") == ["a", "only here"]
