"""Partitions by example: who gets which number, and what is kept for whom."""

import pytest

from roost.placement.decision import Move, Refusal, Request
from roost.placement.fleet import Fleet, Members, Resources
from roost.placement.holding import broken_rules
from roost.placement.partitions import number
from roost.placement.rules import Rule
from roost.placement.scheduler import place
from tests.placement.worlds import in_turn

ONE = Resources(1, 1, 1)
THREE = (Rule.parse("anti-affinity:rack", {"partitions": 3}),)


def racks(letters: str) -> Fleet:
    """A host for each letter, in the rack of that letter."""
    fleet = Fleet()
    for at, letter in enumerate(letters):
        fleet.add_host(f"h{at}", Resources(4, 4, 4), aggregates={"rack": letter})
    return fleet


def placed(*pairs: tuple[int, int]) -> Members:
    """Members on hosts, each in a partition."""
    members = Members()
    for host, partition in pairs:
        members.add(host, partition=partition)
    return members


def test_servers_are_spread_over_the_partitions_and_each_has_racks_of_its_own() -> None:
    fleet = racks("aabbccdd")
    decision = place(fleet, Request(ONE, 8, THREE))
    assert decision.partitions == (1, 2, 3, 1, 2, 3, 1, 2)
    held: dict[int, set[int]] = {}
    for host, partition in decision.placed():
        held.setdefault(fleet.aggregate(host, "rack"), set()).add(partition or 0)
    assert all(len(partitions) == 1 for partitions in held.values())


def test_the_emptiest_partition_comes_first_and_the_lowest_number_among_equals() -> None:
    members = placed((0, 1), (0, 1), (1, 2), (2, 3))
    assert place(racks("abcd"), Request(ONE, 1, THREE, members)).partitions == (2,)


def test_a_partition_that_no_rack_is_left_for_is_passed_over() -> None:
    members = placed((0, 1), (0, 1), (1, 2), (1, 2), (1, 2))
    decision = place(racks("ab"), Request(ONE, 1, THREE, members))
    assert (decision.hosts, decision.partitions) == ((0,), (1,))
    assert [(refused.reason, refused.hosts) for refused in decision.refused] == [(Refusal.OTHER_PARTITION, 1)]


def test_the_partition_asked_for_takes_all_servers_or_none() -> None:
    fleet = racks("abc")
    assert place(fleet, Request(ONE, 4, THREE, partition=2)).partitions == (2, 2, 2, 2)
    assert not place(fleet, Request(ONE, 1, THREE, placed((0, 1), (1, 1), (2, 3)), partition=2))


def test_a_partition_keeps_to_its_racks_while_others_have_none() -> None:
    """Of three racks the first partition takes one, however full that becomes: the other two are for the others."""
    fleet = racks("aabc")
    decision = place(fleet, Request(ONE, 5, THREE, partition=1))
    assert len({fleet.aggregate(host, "rack") for host in decision.hosts}) == (1 if decision.hosts[0] < 2 else 2)
    alone = place(fleet, Request(ONE, 1, THREE, placed((0, 1)), partition=1))
    assert {fleet.aggregate(host, "rack") for host in alone.hosts} == {0}
    assert alone.refused[-1].reason is Refusal.KEPT_FOR_PARTITIONS
    assert str(alone.refused[-1]) == (
        "2 hosts are in a rack kept for a partition that has none yet, by 'anti-affinity:rack'"
    )
    fleet.claim(0, Resources(4, 4, 4))
    fleet.claim(1, Resources(4, 4, 4))
    full = place(fleet, Request(ONE, 1, THREE, placed((0, 1)), partition=1))
    assert full.hosts[0] in (2, 3)


def test_a_rack_that_partitions_share_takes_nobody() -> None:
    decision = place(racks("ab"), Request(ONE, 1, THREE, placed((0, 1), (0, 2), (1, 3))))
    assert (decision.hosts, decision.partitions) == ((1,), (3,))
    assert decision.refused[0].reason is Refusal.SHARED_BY_PARTITIONS


def test_a_server_that_moves_keeps_its_number() -> None:
    fleet = racks("abbc")
    members = placed((1, 2), (0, 1))
    request = Request(ONE, 1, THREE, members, moving=Move(1, ONE), partition=2)
    decision = place(fleet, request)
    assert decision.partitions == (2,)
    assert decision.hosts[0] in (2, 3)
    new = Request(ONE, 1, THREE, members, partition=2)
    after = in_turn(fleet, [request, new])[1]
    assert fleet.aggregate(after.hosts[0], "rack") == fleet.aggregate(decision.hosts[0], "rack")


def test_a_claim_that_would_put_two_partitions_into_one_rack_is_broken() -> None:
    fleet = racks("aab")
    decision = place(fleet, Request(ONE, 1, THREE, placed((2, 2)), partition=1))
    assert not broken_rules(fleet, decision, placed((2, 2), (0, 1)))
    assert broken_rules(fleet, decision, placed((2, 2), (1 - decision.hosts[0], 3))) == THREE


@pytest.mark.parametrize(
    ("places", "before", "after"),
    [
        ("aabbc", "-----", "11223"),
        ("abcd", "----", "1231"),
        ("abbb", "----", "2111"),
        ("ab", "3-", "31"),
        ("aa", "2-", "22"),
        ("aaa", "21-", "211"),
        ("aab", "12-", "123"),
        ("abc", "4--", "123"),
        ("..a", "---", "123"),
        ("aa", "12", "12"),
    ],
)
def test_members_that_are_there_are_numbered_rack_by_rack(places: str, before: str, after: str) -> None:
    members = [str(at) for at in range(len(places))]
    where = {member: None if letter == "." else letter for member, letter in zip(members, places, strict=True)}
    had = {member: None if digit == "-" else int(digit) for member, digit in zip(members, before, strict=True)}
    assert "".join(str(number(3, where, had)[member]) for member in members) == after
