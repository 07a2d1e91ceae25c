"""What would help does help, and no smaller change of its kind would."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roost.placement.decision import Move, Request
from roost.placement.fleet import Fleet, Members, Resources
from roost.placement.remedy import RemedyKind, advice, remedies
from roost.placement.rules import Rule
from roost.placement.scheduler import place
from tests.placement import oracle
from tests.placement.worlds import Case, cases, partition_rules, plain_rule

ONE = Resources(1, 1, 1)


def found(case: Case, count: int | None = None, rules: tuple[oracle.PlainRule, ...] | None = None) -> bool:
    """Whether the oracle finds a placement once the request is changed."""
    plain = replace(
        case.plain,
        count=case.plain.count if count is None else count,
        rules=case.plain.rules if rules is None else rules,
    )
    return next(oracle.placements(case.world, plain), None) is not None


@settings(max_examples=1000, deadline=None, derandomize=True)
@given(st.one_of(cases(3), cases(3, partition_rules)))
def test_a_remedy_is_enough_and_no_more(case: Case) -> None:
    decision = place(case.fleet, case.request)
    for remedy in remedies(decision):
        assert not decision
        if remedy.change is RemedyKind.ASK_FOR_FEWER:
            assert found(case, count=remedy.amount)
            assert not found(case, count=remedy.amount + 1)
        elif remedy.change is RemedyKind.RAISE_LIMIT:
            for amount, enough in ((remedy.amount, True), (remedy.amount - 1, False)):
                assert remedy.rule is not None
                changed = replace(remedy.rule, max_server_per_aggregate=amount)
                rules = (changed if rule == remedy.rule else rule for rule in case.request.rules)
                assert found(case, rules=tuple(map(plain_rule, rules))) == enough
        elif remedy.change is RemedyKind.ENABLE_HOSTS:
            world = [replace(host, up=host.up or at in remedy.hosts) for at, host in enumerate(case.world)]
            assert next(oracle.placements(world, case.plain), None) is not None
        elif remedy.change is RemedyKind.LEAVE_PARTITION_OPEN:
            plain = replace(case.plain, partition=None)
            assert next(oracle.placements(case.world, plain), None) is not None
        elif remedy.change is RemedyKind.FREE_CAPACITY:
            (at,) = remedy.hosts
            assert remedy.lacking is not None
            world = list(case.world)
            vcpus, memory, disk = (f + more for f, more in zip(world[at].free, remedy.lacking, strict=True))
            world[at] = replace(world[at], free=(vcpus, memory, disk))
            assert next(oracle.placements(world, case.plain), None) is not None


def racks(number: int, hosts: int = 1) -> Fleet:
    fleet = Fleet()
    for rack in range(number):
        for host in range(hosts):
            fleet.add_host(f"r{rack}h{host}", Resources(4, 4, 4), aggregates={"rack": str(rack)})
    return fleet


def test_full_racks() -> None:
    request = Request(ONE, 3, (Rule.parse("anti-affinity:rack"),))
    decision = place(racks(2), request)
    assert advice(decision) == (
        "no place for 3 servers: 2 hosts pass every check, too few for all servers together; "
        "a limit of 2 per rack, or 1 more rack, or asking for 2 servers, would do"
    )


def test_a_partition_without_a_rack() -> None:
    members = Members()
    for host, partition in ((0, 1), (1, 2)):
        members.add(host, partition=partition)
    request = Request(ONE, 1, (Rule.parse("anti-affinity:rack", {"partitions": 3}),), members, partition=3)
    assert advice(place(racks(2), request)) == (
        "no place for 1 server in partition 3: 2 hosts are in a rack of another partition, by 'anti-affinity:rack'; "
        "1 more rack, or leaving the partition open, would do"
    )
    moving = replace(request, partition=2, moving=Move(1, ONE))
    assert [remedy.sentence for remedy in remedies(place(racks(2), moving))] == ["1 more rack"]


def test_a_skew() -> None:
    fleet = racks(2)
    fleet.claim(1, Resources(3, 0, 0))
    rule = Rule.parse("anti-affinity:rack", {"max_skew": 1})
    by_change = {remedy.change: remedy for remedy in remedies(place(fleet, Request(ONE, 4, (rule,))))}
    assert by_change[RemedyKind.RAISE_SKEW].amount == 2
    assert by_change[RemedyKind.RAISE_SKEW].sentence == "a skew of 2 between racks"
    assert by_change[RemedyKind.ASK_FOR_FEWER].sentence == "asking for 3 servers"


def test_one_server_that_needs_a_little_more() -> None:
    fleet = racks(2)
    fleet.claim(0, Resources(4, 3, 0))
    fleet.claim(1, Resources(2, 4, 4))
    decision = place(fleet, Request(Resources(1, 2, 1), members=Members([0])))
    assert advice(decision).endswith("; freeing 1 vCPUs and 1 MB of memory on r0h0, would do")


def test_a_server_that_may_stay_brings_what_it_holds() -> None:
    fleet = racks(1)
    fleet.claim(0, Resources(4, 0, 0))
    moving = Move(0, Resources(1, 0, 0), may_stay=True)
    (remedy,) = remedies(place(fleet, Request(Resources(3, 1, 1), moving=moving)))
    assert remedy.lacking == (2, 0, 0)


def test_a_host_that_is_down() -> None:
    fleet = racks(2)
    fleet.enable(0, False)
    fleet.enable(1, False)
    (remedy,) = remedies(place(fleet, Request(ONE)))
    assert remedy.change is RemedyKind.ENABLE_HOSTS
    assert len(remedy.hosts) == 1


def test_two_more_hosts_in_the_zone_and_the_rack_asked_for() -> None:
    fleet = racks(1)
    fleet.set_zone(0, "north")
    rules = (Rule.parse("anti-affinity", {"max_server_per_host": 1}), Rule.parse("affinity:rack:0"))
    by_change = {remedy.change: remedy for remedy in remedies(place(fleet, Request(ONE, 3, rules, zone="north")))}
    assert by_change[RemedyKind.ADD_AGGREGATES].sentence == "2 more hosts"
    assert by_change[RemedyKind.RAISE_LIMIT].amount == 3
    assert by_change[RemedyKind.ASK_FOR_FEWER].sentence == "asking for 1 server"


@pytest.mark.parametrize("request_", [Request(ONE), Request(Resources(9, 1, 1))])
def test_nothing_helps_a_placement_or_the_impossible(request_: Request) -> None:
    decision = place(racks(1), request_)
    assert remedies(decision) == ()
    assert "would do" not in advice(decision)
