"""What would help does help, and no smaller change of its kind would."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost.placement.decision import Move, Request
from roost.placement.fleet import Fleet, Members, Resources
from roost.placement.remedy import Remedy, RemedyKind, advice, remedies
from roost.placement.rules import AVAILABILITY_ZONE, Rule
from roost.placement.scheduler import place
from tests.placement import oracle
from tests.placement.worlds import SCOPES, Case, cases, examples, partition_rules, plain_rule, skew_rules

ONE = Resources(1, 1, 1)


def possible(world: oracle.World, plain: oracle.PlainRequest) -> bool:
    """Whether the oracle finds a placement."""
    return next(oracle.placements(world, plain), None) is not None


def with_rule(case: Case, rule: Rule, changed: Rule) -> oracle.PlainRequest:
    rules = (changed if each == rule else each for each in case.request.rules)
    return replace(case.plain, rules=tuple(map(plain_rule, rules)))


def grown(case: Case, limited: Rule, number: int) -> oracle.World:
    """The world with so many aggregates more, of hosts for all servers that the rule lets into one, in the aggregates
    that are asked for. More hosts would matter: to a skew, an empty rack is the least filled one."""
    plain, scope = case.plain, limited.scope
    hard = [rule for rule in plain.rules if not rule.soft]
    wanted = {rule.scope: rule.identifier for rule in hard if rule.together and rule.identifier is not None}
    for rule in hard:
        if rule.together and rule.identifier is None and rule.scope != "host":
            (place,) = {oracle.aggregate(case.world, host, rule.scope) for host in plain.members}
            wanted[rule.scope] = place or ""
    if plain.zone is not None:
        wanted["availability_zone"] = plain.zone
    size = (plain.need[0] * plain.count, plain.need[1] * plain.count, plain.need[2] * plain.count)
    others = [rule for rule in case.request.rules if not rule.soft and rule.scope != scope]
    apart = any(rule.limit or rule.max_skew or rule.partitions for rule in others)
    hosts = min(plain.count, limited.limit or plain.count) if apart and scope != "host" else 1
    new = []
    for aggregate in range(number):
        for host in range(hosts):
            places = dict.fromkeys(SCOPES, f"new {aggregate}.{host}")
            if scope != "host":
                places[scope] = f"new {aggregate}"
            new.append(oracle.PlainHost(size, size, True, {**places, **wanted}))
    return [*case.world, *new]


def freed(case: Case, host: int) -> tuple[float, oracle.World] | None:
    """How much a host lacks, and the world once that is free; None if it lacks nothing, or is too small."""
    plain, world = case.world[host], list(case.world)
    needs = list(zip(case.plain.need, plain.free, plain.total, strict=True))
    lacking = [max(0, need - free) if need else 0 for need, free, _ in needs]
    if not any(lacking) or any(need > total for need, _, total in needs):
        return None
    vcpus, memory, disk = (free + lack for free, lack in zip(plain.free, lacking, strict=True))
    world[host] = replace(plain, free=(vcpus, memory, disk))
    return max(lack / total for lack, (_, _, total) in zip(lacking, needs, strict=True) if lack), world


def enabled(case: Case, hosts: set[int]) -> oracle.World:
    return [replace(host, up=host.up or at in hosts) for at, host in enumerate(case.world)]


def smallest(numbers: range, would_do: Callable[[int], bool]) -> int | None:
    return next((number for number in numbers if would_do(number)), None)


def offered(case: Case) -> dict[tuple[RemedyKind, Rule | None], Remedy]:
    decision = place(case.fleet, case.request)
    found = remedies(decision)
    assert not (decision and found)
    return {(remedy.change, remedy.rule): remedy for remedy in found}


refusals = st.one_of(cases(3), cases(3, partition_rules), cases(3, skew_rules))
thorough = examples(700)


@thorough
@given(refusals)
def test_the_limits_and_skews_offered_are_the_smallest_that_do(case: Case) -> None:
    if place(case.fleet, case.request):
        return
    found, most = offered(case), case.request.members.total + case.request.count
    for rule in case.request.rules:
        if rule.limit is not None:

            def limit_does(number: int, rule: Rule = rule) -> bool:
                changed = replace(rule, max_server_per_host=None, max_server_per_aggregate=number)
                return possible(case.world, with_rule(case, rule, changed))

            remedy = found.get((RemedyKind.RAISE_LIMIT, rule))
            assert (remedy and remedy.amount) == smallest(range(rule.limit + 1, most + 1), limit_does)
        if rule.max_skew is not None:

            def skew_does(number: int, rule: Rule = rule) -> bool:
                return possible(case.world, with_rule(case, rule, replace(rule, max_skew=number)))

            remedy = found.get((RemedyKind.RAISE_SKEW, rule))
            assert (remedy and remedy.amount) == smallest(range(rule.max_skew + 1, most + 1), skew_does)


@thorough
@given(refusals)
def test_the_aggregates_asked_for_are_the_fewest_that_do(case: Case) -> None:
    rules = case.request.rules
    near = [rule for rule in rules if rule.together]
    # Where an affinity does not fix the aggregates of new hosts, there are many ways to add them.
    settled = all(
        len({oracle.aggregate(case.world, host, rule.scope) for host in case.plain.members}) == 1 for rule in near
    )
    if place(case.fleet, case.request) or not settled or case.plain.between:
        return
    found = offered(case)
    for rule in rules:
        if rule.limit or rule.max_skew or rule.partitions:

            def does(number: int, rule: Rule = rule) -> bool:
                return possible(grown(case, rule, number), case.plain)

            remedy = found.get((RemedyKind.ADD_AGGREGATES, rule))
            assert (remedy and remedy.amount) == smallest(range(1, case.request.count + 1), does)


@thorough
@given(st.one_of(cases(1), cases(1, partition_rules), cases(1, skew_rules)))
def test_the_capacity_to_free_is_the_least_that_does(case: Case) -> None:
    if place(case.fleet, case.request):
        return
    lacks = [lack for host in range(len(case.world)) if (lack := freed(case, host)) is not None]
    best = min((share for share, world in lacks if possible(world, case.plain)), default=None)
    remedy = offered(case).get((RemedyKind.FREE_CAPACITY, None))
    if remedy is None:
        assert best is None
        return
    assert remedy.lacking is not None
    assert all(need for need, lack in zip(case.plain.need, remedy.lacking, strict=True) if lack)
    lack = freed(case, remedy.hosts[0])
    assert lack is not None
    assert lack[0] == best
    assert possible(lack[1], case.plain)


@thorough
@given(refusals)
def test_the_hosts_to_enable_do_and_none_can_be_left_out(case: Case) -> None:
    if place(case.fleet, case.request):
        return
    remedy = offered(case).get((RemedyKind.ENABLE_HOSTS, None))
    down = {at for at, host in enumerate(case.world) if not host.up}
    if remedy is None:
        assert not possible(enabled(case, down), case.plain)
        assert not any(possible(enabled(case, {host}), case.plain) for host in down)
        return
    hosts = set(remedy.hosts)
    assert possible(enabled(case, hosts), case.plain)
    assert not any(possible(enabled(case, hosts - {host}), case.plain) for host in hosts)


@thorough
@given(refusals)
def test_the_number_to_ask_for_is_the_largest_and_another_partition_does(case: Case) -> None:
    if place(case.fleet, case.request):
        return
    found = offered(case)
    remedy = found.get((RemedyKind.ASK_FOR_FEWER, None))
    fewer = range(case.request.count - 1, 0, -1)
    assert (remedy and remedy.amount) == smallest(
        fewer, lambda number: possible(case.world, replace(case.plain, count=number))
    )
    elsewhere = case.plain.partition is not None and possible(case.world, replace(case.plain, partition=None))
    assert ((RemedyKind.LEAVE_PARTITION_OPEN, None) in found) == elsewhere


def test_what_is_not_needed_is_not_to_be_freed() -> None:
    fleet = Fleet()
    fleet.add_host("shrunk", Resources(4, 0, 4), free=Resources(0, -1, 4))
    (remedy,) = remedies(place(fleet, Request(Resources(1, 0, 1))))
    assert remedy.lacking == (1, 0, 0)


def test_many_servers_are_not_tried_with_a_million_hosts() -> None:
    fleet = racks(2)
    rules = (Rule.parse("anti-affinity:rack"), Rule.parse("anti-affinity"))
    found = remedies(place(fleet, Request(ONE, 1000, rules)))
    assert {remedy.change: remedy.amount for remedy in found}[RemedyKind.ASK_FOR_FEWER] == 2


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
    fleet.join(0, AVAILABILITY_ZONE, "north")
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
