"""A repair is as short as can be, and each of its steps is allowed when it is taken."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings

from roost.placement import repair as repairs
from roost.placement.fleet import Fleet, Resources
from roost.placement.repair import RepairMember, repair
from roost.placement.rules import Rule
from tests.placement import oracle
from tests.placement.oracle import PlainHost, PlainServer, World
from tests.placement.worlds import (
    NAMES,
    SCOPES,
    Dice,
    any_rule,
    dice,
    fleet_of,
    limit_rules,
    partition_rules,
    plain_rule,
)

often = settings(max_examples=800, deadline=None, derandomize=True)


@dataclass(frozen=True)
class Broken:
    """Servers of some groups on a small fleet, made for the core and for the oracle."""

    world: World
    fleet: Fleet
    groups: list[tuple[Rule, ...]]
    servers: list[PlainServer]
    start: tuple[int, ...]

    @property
    def plain_groups(self) -> list[tuple[oracle.PlainRule, ...]]:
        return [tuple(map(plain_rule, rules)) for rules in self.groups]

    def repaired(self) -> repairs.RepairPlan:
        groups = {str(number): rules for number, rules in enumerate(self.groups)}
        servers = [
            RepairMember(
                str(number), host, Resources(*server.need), str(server.group), server.number, server.zone, server.held
            )
            for number, (host, server) in enumerate(zip(self.start, self.servers, strict=True))
        ]
        return repair(self.fleet, groups, servers)


def some_rules(dice: Dice) -> tuple[Rule, ...]:
    return tuple(any_rule(dice) for _ in range(dice.randint(1, 2))) if dice.random() < 0.7 else limit_rules(dice)[:2]


def make(dice: Dice, room: int, rules: Callable[[Dice], tuple[Rule, ...]] = some_rules) -> Broken:
    """Up to four hosts and five servers in one or two groups; `room` is the most that a host has to spare."""
    size = dice.randint(2, 4)
    groups = [rules(dice) for _ in range(dice.randint(1, 2))]
    world = []
    for _ in range(size):
        aggregates = {scope: dice.choice(NAMES) for scope in SCOPES if dice.random() > 0.05}
        spare = dice.randint(0, room)
        world.append(PlainHost((spare, spare, 9), (9, 9, 9), dice.random() > 0.1, aggregates))
    servers = [
        PlainServer((dice.randint(1, 2), 1, 0), dice.randrange(len(groups)), dice.randint(1, 2))
        for _ in range(dice.randint(1, 5))
    ]
    start = tuple(dice.randrange(size) for _ in servers)
    return Broken(world, fleet_of(world), groups, servers, start)


def mends(case: Broken) -> None:
    """The plan works step by step and is as short as breadth-first search finds it."""
    plan = case.repaired()
    hosts = case.start
    for move in plan.moves:
        number = int(move.server)
        assert hosts[number] == move.source
        after = (*hosts[:number], move.target, *hosts[number + 1 :])
        assert after in oracle.migrations(case.world, case.plain_groups, case.servers, case.start, hosts)
        hosts = after
    fewest = oracle.fewest_moves(case.world, case.plain_groups, case.servers, case.start)
    if fewest is None:
        assert plan.unrepaired
    else:
        assert not plan.unrepaired
        assert len(plan.moves) == fewest
        assert plan.fewest


@often
@given(dice.map(lambda dice: make(dice, 5)))
def test_a_repair_with_room_is_shortest(case: Broken) -> None:
    mends(case)


@often
@given(dice.map(lambda dice: make(dice, 2)))
def test_a_repair_with_little_room_is_shortest(case: Broken) -> None:
    mends(case)


@often
@given(dice.map(lambda dice: make(dice, 1)))
def test_a_repair_with_hardly_any_room_is_shortest(case: Broken) -> None:
    mends(case)


def in_zones(dice: Dice) -> Broken:
    """Some of the servers were asked for in a zone; one that is elsewhere now may go there, and nowhere else."""
    case = make(dice, dice.randint(1, 5))
    zones = (None, *NAMES)
    return replace(case, servers=[replace(server, zone=dice.choice(zones)) for server in case.servers])


@often
@given(dice.map(in_zones))
def test_a_repair_keeps_servers_in_the_zones_that_they_asked_for(case: Broken) -> None:
    mends(case)


def with_held(dice: Dice) -> Broken:
    """Some of the servers cannot leave their hosts."""
    case = make(dice, dice.randint(1, 5))
    return replace(case, servers=[replace(server, held=dice.random() < 0.3) for server in case.servers])


@often
@given(dice.map(with_held))
def test_a_repair_moves_no_server_that_is_held(case: Broken) -> None:
    mends(case)


@settings(max_examples=400, deadline=None, derandomize=True)
@given(dice.map(lambda dice: make(dice, dice.randint(1, 5), partition_rules)))
def test_a_repair_of_partitions_is_shortest(case: Broken) -> None:
    mends(case)


def test_the_partition_that_has_no_other_rack_keeps_the_one_it_shares() -> None:
    """In a fleet too large for the second search, the first must know that partition 2 could go nowhere."""
    fleet = Fleet()
    for number in range(4):
        fleet.add_host(f"h{number}", Resources(9, 9, 9), aggregates={"rack": "ab"[number // 2]})
    group = {"group": (Rule.parse("anti-affinity:rack", {"partitions": 2}),)}
    members = [RepairMember(name, host, Resources(1, 1, 1), "group", number) for name, host, number in
               (("big", 0, 1), ("other", 2, 1), ("small", 1, 2))]  # fmt: skip
    for size in (members, [replace(members[0], resources=Resources(5, 5, 5)), *members[1:]]):
        plan = repairs.repair(fleet, group, size)
        assert plan.fewest
        assert [(move.server, fleet.aggregate(move.target, "rack")) for move in plan.moves] == [("big", 1)]


GROUP = {"group": (Rule.parse("anti-affinity"), Rule.parse("soft-affinity"))}


def host(fleet: Fleet, vcpus: int, free: int) -> None:
    fleet.add_host(f"h{len(fleet)}", Resources(vcpus, 9, 9), free=Resources(free, 9, 9))


def servers(**vcpus: int) -> list[RepairMember]:
    """Members of one group, all on the first host."""
    return [RepairMember(name, 0, Resources(size, 0, 0), "group") for name, size in vcpus.items()]


def test_a_server_of_no_group_makes_room() -> None:
    fleet = Fleet()
    for vcpus, free in ((2, 0), (1, 0), (1, 1)):
        host(fleet, vcpus, free)
    near = {"group": (*GROUP["group"], Rule.parse("affinity:rack:here"))}
    for at in (0, 1):
        fleet.join(at, "rack", "here")
    crowd = servers(a=1, b=1)
    assert repair(fleet, near, crowd) == repairs.RepairPlan((), ("group",), 1)
    plan = repair(fleet, near, [*crowd, RepairMember("alone", 1, Resources(1, 0, 0))])
    assert plan.fewest
    assert [(move.server, move.target) for move in plan.moves][:1] == [("alone", 2)]
    assert len(plan.moves) == 2


def test_nothing_to_mend() -> None:
    fleet = Fleet()
    host(fleet, 1, 0)
    assert repair(fleet, GROUP, servers(a=1)) == repairs.RepairPlan((), (), 0)
    assert repair(fleet, {}, []).fewest


@pytest.mark.parametrize(
    ("size", "moves", "unrepaired", "fewest"),
    [(12, 2, (), True), (10, 3, (), False), (5, 1, ("group",), False)],
)
def test_past_its_size_a_repair_says_what_it_could_not_do(
    monkeypatch: pytest.MonkeyPatch, size: int, moves: int, unrepaired: tuple[str, ...], fewest: bool
) -> None:
    """The small server takes the place that the big one needs, unless all are thought of together."""
    fleet = Fleet()
    for vcpus, free in ((6, 0), (2, 2), (4, 1)):
        host(fleet, vcpus, free)
    monkeypatch.setattr(repairs, "ASSIGNABLE", size)
    alone = RepairMember("alone", 2, Resources(3, 0, 0))
    plan = repair(fleet, GROUP, [*servers(small=1, big=2, huge=3), alone])
    assert (len(plan.moves), plan.unrepaired, plan.fewest) == (moves, unrepaired, fewest)


def test_a_search_past_its_reach_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two servers that must change places have no order; the search for a way round is cut short."""
    fleet = Fleet()
    for _ in range(2):
        host(fleet, 1, 0)
    fleet.join(0, "rack", "x")
    fleet.join(1, "rack", "y")
    groups = {"x": (Rule.parse("affinity:rack:x"),), "y": (Rule.parse("affinity:rack:y"),)}
    swapped = [RepairMember("x", 1, Resources(1, 0, 0), "x"), RepairMember("y", 0, Resources(1, 0, 0), "y")]
    assert repair(fleet, groups, swapped) == repairs.RepairPlan((), ("x", "y"), 2)
    host(fleet, 1, 1)
    assert len(repair(fleet, {"x": groups["x"], "y": ()}, swapped).moves) == 2
    monkeypatch.setattr(repairs, "SEARCHABLE", 0)
    assert repair(fleet, groups, swapped).unrepaired == ("x", "y")


def test_no_time_mends_nothing() -> None:
    fleet = Fleet()
    for vcpus, free in ((6, 0), (2, 2), (4, 1)):
        host(fleet, vcpus, free)
    assert repair(fleet, GROUP, servers(small=1, big=2, huge=3), work=0).unrepaired == ("group",)
