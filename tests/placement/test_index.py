"""The index against the columns: the same host, the same reasons, and the same after any change."""

import pickle
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost.placement import walk
from roost.placement.board import offset
from roost.placement.decision import Move, Request
from roost.placement.fleet import Fleet, Members, Resources
from roost.placement.rules import HOST, Kind, Rule
from roost.placement.scheduler import place, scan
from tests.placement import worlds
from tests.placement.worlds import NAMES, SCOPES, Case, Dice, cases, examples, fleet_of, make_case, make_hosts

often = examples(2000)
rarely = examples(400)


def same(fleet: Fleet, request: Request) -> bool:
    """Whether the index could tell; if it could, it says what the columns say."""
    index = fleet.host_index
    assert index is not None
    by_columns = scan(fleet, request)
    found = walk.find(fleet, index, request, offset(fleet, request))
    if found is not None:
        decision = place(fleet, request)
        assert decision.hosts == found.hosts == by_columns.hosts
        assert decision.partitions == by_columns.partitions
        assert not decision.reasons.counted
        named = found.names()
        assert named is None or named == by_columns.names
        assert decision.names == by_columns.names
        assert decision.explain() == by_columns.explain()
        assert (decision.refused, decision.candidates) == (by_columns.refused, by_columns.candidates)
    return found is not None or not by_columns


def moves(dice: Dice, case: Case) -> Request:
    """The request, now and then for a member that moves."""
    hosts = case.request.members.hosts.tolist()
    if not hosts or case.request.partition is not None or dice.random() < 0.5:
        return case.request
    return replace(case.request, moving=Move(dice.choice(hosts), Resources(1, 1, 1), dice.random() < 0.5))


def indexed(
    rules: Callable[[Dice], tuple[Rule, ...]], hosts: int, servers: int = 1
) -> st.SearchStrategy[tuple[Fleet, Request]]:
    def make(dice: Dice) -> tuple[Fleet, Request]:
        case = make_case(dice, servers, rules(dice), hosts, 6)
        case.fleet.index_hosts()
        return case.fleet, moves(dice, case) if case.request.count == 1 else case.request

    return worlds.dice.map(make)


@often
@given(st.one_of(indexed(worlds.any_rules, 5), indexed(worlds.skew_rules, 8), indexed(worlds.any_rules, 40)))
def test_the_index_chooses_what_the_columns_choose(case: tuple[Fleet, Request]) -> None:
    same(*case)


@often
@given(st.one_of(indexed(worlds.many_soft_rules, 12), indexed(worlds.gathering_rules, 30)))
def test_the_index_ranks_as_the_columns_rank(case: tuple[Fleet, Request]) -> None:
    same(*case)


@often
@given(st.one_of(indexed(worlds.partition_rules, 8), indexed(worlds.partition_rules, 30)))
def test_the_index_divides_as_the_columns_divide(case: tuple[Fleet, Request]) -> None:
    same(*case)


def spreading_rules(dice: Dice) -> tuple[Rule, ...]:
    """What the index places several servers by: soft anti-affinities, targets and limits."""
    soft = [Rule(Kind.ANTI_AFFINITY, True, dice.choice((HOST, *SCOPES))) for _ in range(dice.randint(0, 3))]
    liked = [Rule(dice.choice(tuple(Kind)), True, "rack", dice.choice((*NAMES, "none")))] if dice.rarely() else []
    return tuple(dice.sample([*soft, *liked, *worlds.limit_rules(dice)[: dice.randint(0, 2)]], len(soft)))


@often
@given(st.one_of(indexed(worlds.any_rules, 6, 4), indexed(worlds.any_rules, 40, 12), indexed(spreading_rules, 40, 30)))
def test_the_index_places_several_as_the_columns_do(case: tuple[Fleet, Request]) -> None:
    same(*case)


def change(dice: Dice, fleet: Fleet, members: Members) -> None:
    """Anything that can happen to a fleet or a group."""
    hosts = list(fleet.hosts())
    host = dice.choice(hosts)
    what = dice.randrange(9)
    if what == 0:
        fleet.enable(host, dice.random() < 0.5)
    elif what == 1:
        fleet.join(host, dice.choice(SCOPES), dice.choice(NAMES))
    elif what == 2:
        fleet.leave(host, dice.choice(SCOPES))
    elif what == 3:
        fleet.set_total(host, Resources(dice.randint(0, 8), 4, 4))
    elif what == 4 and not members.on(host) and len(hosts) > 1:
        fleet.remove_host(host)
    elif what == 5:
        fleet.add_host(f"new{dice.random()}", Resources(4, 4, 4), aggregates={SCOPES[0]: dice.choice(NAMES)})
    elif what == 6 and members.total:
        members.remove(dice.choice(members.hosts.tolist()))
    elif what == 7:
        members.add(host)
    else:
        fleet.claim(host, Resources(1, 1, 0), dice.choice((-1, 1, 2)))


@rarely
@given(worlds.dice)
def test_every_change_keeps_the_index_true(dice: Dice) -> None:
    fleet, members = fleet_of(make_hosts(dice, 14)), Members()
    fleet.index_hosts()
    for _ in range(40):
        for _ in range(dice.randint(1, 4)):
            change(dice, fleet, members)
        request = Request(Resources(1, 1, 1), 1, worlds.any_rules(dice), members, seed=dice.randrange(99))
        if dice.random() < 0.2:
            fleet.snapshot().claim(next(fleet.hosts()), Resources(1, 1, 1))
        same(fleet, request)


def hall(hosts: int, **more: Callable[[int], str]) -> Fleet:
    """Hosts in racks of 20, more and more used, and what else is said of each."""
    fleet = Fleet()
    for number in range(hosts):
        places = {"rack": str(number // 20)} | {scope: name(number) for scope, name in more.items()}
        fleet.add_host(f"h{number}", Resources(64, 64, 64), aggregates=places)
        fleet.claim(number, Resources(number % 37, 0, 0))
    fleet.index_hosts()
    return fleet


@pytest.mark.parametrize(
    "texts",
    [
        (),
        ("anti-affinity",),
        ("anti-affinity:rack", "soft-anti-affinity:power"),
        ("soft-affinity:rack", "soft-anti-affinity"),
        ("affinity:power", "anti-affinity:rack"),
        ("affinity:power:2", "soft-anti-affinity:rack:3"),
        ("soft-anti-affinity:power:1", "soft-anti-affinity:rack"),
        ("affinity",),
        ("soft-affinity",),
        ("soft-anti-affinity",),
    ],
)
def test_the_usual_rules_need_no_scan(texts: tuple[str, ...]) -> None:
    fleet = hall(3000, power=lambda number: str(number % 8))
    members = Members([16])
    for seed in range(30):
        request = Request(Resources(1, 1, 1), 1, tuple(map(Rule.parse, texts)), members, seed=seed)
        assert same(fleet, request)
        found = walk.find(fleet, fleet.host_index, request, offset(fleet, request))  # type: ignore[arg-type]
        assert found is not None
        assert found.names() is not None
        if texts != ("affinity",) and "affinity:power" not in texts:
            members.add(place(fleet, request).hosts[0])


@pytest.mark.parametrize(
    "texts", [(), ("anti-affinity",), ("anti-affinity:rack", "soft-anti-affinity:power"), ("soft-anti-affinity",)]
)
def test_a_hundred_servers_at_once_need_no_scan(texts: tuple[str, ...]) -> None:
    fleet = hall(3000, power=lambda number: str(number % 8))
    request = Request(Resources(1, 1, 1), 100, tuple(map(Rule.parse, texts)), Members([16]))
    assert same(fleet, request)
    found = walk.find(fleet, fleet.host_index, request, offset(fleet, request))  # type: ignore[arg-type]
    assert found is not None
    assert found.names() is not None


def test_a_skew_between_zones_needs_no_scan() -> None:
    fleet = hall(3000, availability_zone=lambda number: str(number % 3))
    members, rule = Members(), Rule.parse("anti-affinity:availability_zone", {"max_skew": 1})
    for seed in range(12):
        request = Request(Resources(1, 1, 1), 1, (rule,), members, zone=None, seed=seed)
        assert walk.find(fleet, fleet.host_index, request, offset(fleet, request)) is not None  # type: ignore[arg-type]
        members.add(place(fleet, request).hosts[0])
    zones = [fleet.aggregate(host, "availability_zone") for host in members.hosts.tolist()]
    assert sorted(zones) == [0] * 4 + [1] * 4 + [2] * 4


def test_partitions_need_no_scan() -> None:
    fleet = hall(3000)
    members, rule = Members(), Rule.parse("anti-affinity:rack", {"partitions": 5})
    for seed in range(30):
        request = Request(Resources(1, 1, 1), 1, (rule,), members, seed=seed)
        assert walk.find(fleet, fleet.host_index, request, offset(fleet, request)) is not None  # type: ignore[arg-type]
        decision = place(fleet, request)
        assert decision.partitions == (seed % 5 + 1,)
        members.add(decision.hosts[0], partition=decision.partitions[0])


def test_a_full_fleet_is_told_by_the_columns() -> None:
    fleet = hall(3000)
    decision = place(fleet, Request(Resources(65, 1, 1)))
    assert not decision
    assert sum(refused.hosts for refused in decision.refused) == 3000
    assert place(fleet, Request(Resources(1, 1, 1), rules=(Rule.parse("affinity:rack:149"),))).hosts


def test_reasons_are_read_before_the_fleet_changes() -> None:
    fleet = hall(100)
    decision = place(fleet, Request(Resources(1, 1, 1)))
    fleet.claim(0, Resources(1, 1, 1))
    with pytest.raises(RuntimeError, match="have changed since"):
        decision.explain()


def test_one_host_after_another_in_turn_from_the_seed() -> None:
    fleet = Fleet()
    for number in range(1000):
        fleet.add_host(f"h{number}", Resources(8, 8, 8))
    fleet.index_hosts()
    chosen = {place(fleet, Request(Resources(1, 1, 1), seed=seed)).hosts[0] for seed in range(300)}
    assert len(chosen) > 200
    assert Rule.parse("anti-affinity").scope == HOST
    for case in (Request(Resources(1, 1, 1), seed=seed) for seed in range(50)):
        assert same(fleet, case)


@rarely
@given(cases())
def test_a_snapshot_is_decided_on_by_its_columns(case: Case) -> None:
    case.fleet.index_hosts()
    assert case.fleet.snapshot().host_index is None
    assert place(case.fleet.snapshot(), case.request).hosts == place(case.fleet, case.request).hosts


def test_requests_and_decisions_on_snapshots_go_to_other_processes() -> None:
    fleet = hall(2000)
    rules = (Rule.parse("anti-affinity:rack"), Rule.parse("soft-affinity:rack"))
    request = Request(Resources(1, 1, 1), 3, rules, Members([5]))
    assert place(fleet, replace(request, count=1))
    sent, wanted = pickle.loads(pickle.dumps((fleet.snapshot(), request)))
    decision = pickle.loads(pickle.dumps(place(sent, wanted)))
    assert decision.hosts == place(fleet, request).hosts
    assert decision.candidates == place(fleet, request).candidates
    assert len(pickle.dumps(decision)) < 5 * len(pickle.dumps(decision.ranking))
