"""A repair is as short as can be, and each of its steps is allowed when it is taken."""

from dataclasses import dataclass

import pytest
from hypothesis import given, settings

from roost.placement import repair as repairs
from roost.placement.fleet import Fleet, Resources
from roost.placement.repair import Server, repair
from roost.placement.rules import Kind, Rule
from tests.placement import oracle
from tests.placement.oracle import PlainHost, PlainServer, World
from tests.placement.worlds import NAMES, SCOPES, Dice, any_rule, dice, fleet_of, limit_rules, plain_rule

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

    def repaired(self) -> repairs.Repair:
        groups = {str(number): rules for number, rules in enumerate(self.groups)}
        servers = [
            Server(str(number), host, Resources(*server.need), str(server.group))
            for number, (host, server) in enumerate(zip(self.start, self.servers, strict=True))
        ]
        return repair(self.fleet, groups, servers)


def make(dice: Dice, room: int) -> Broken:
    """Up to four hosts and five servers in one or two groups; `room` is the most that a host has to spare."""
    size = dice.randint(2, 4)
    groups = [
        tuple(any_rule(dice) for _ in range(dice.randint(1, 2))) if dice.random() < 0.7 else limit_rules(dice)[:2]
        for _ in range(dice.randint(1, 2))
    ]
    world = []
    for _ in range(size):
        aggregates = {scope: dice.choice(NAMES) for scope in SCOPES if dice.random() > 0.05}
        spare = dice.randint(0, room)
        world.append(PlainHost((spare, spare, 9), (9, 9, 9), dice.random() > 0.1, aggregates))
    servers = [
        PlainServer((dice.randint(1, 2), 1, 0), dice.randrange(len(groups))) for _ in range(dice.randint(1, 5))
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
