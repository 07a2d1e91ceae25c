"""Small fleets, groups and requests of every kind, each made twice: for the core and for the oracle."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random

from hypothesis import settings
from hypothesis import strategies as st

from roost.placement.decision import Decision, Request
from roost.placement.fleet import Fleet, Members, Resources
from roost.placement.rules import AVAILABILITY_ZONE, HOST, Kind, Rule, division_of
from roost.placement.scheduler import place
from tests.placement.oracle import PlainHost, PlainRequest, PlainRule, World

LONGER = int(os.environ.get("ROOST_ORACLE", "1"))
"""How many times as many cases as usual are tried against the oracle (`make oracle`)."""

SCOPES = ("rack", "switch", AVAILABILITY_ZONE)
NAMES = ("a", "b", "c")


def examples(number: int) -> settings:
    """So many cases, always the same ones; in the long form many more, and others every time."""
    return settings(max_examples=number * LONGER, deadline=None, derandomize=LONGER == 1, database=None)


@dataclass(frozen=True)
class Case:
    """One request before one fleet."""

    world: World
    fleet: Fleet
    plain: PlainRequest
    request: Request


def fleet_of(world: World) -> Fleet:
    """The core's fleet for an oracle's world."""
    fleet = Fleet()
    for number, host in enumerate(world):
        free, total = Resources(*host.free), Resources(*host.total)
        fleet.add_host(f"host{number}", total, free=free, enabled=host.up, aggregates=host.aggregates)
    return fleet


def in_turn(fleet: Fleet, requests: Sequence[Request]) -> list[Decision]:
    """Decisions on requests of one group, each made after the servers of those before it have arrived."""
    later, members = fleet.snapshot(), requests[0].members.copy()
    decisions = []
    for request in requests:
        decision = place(later, replace(request, members=members))
        decisions.append(decision)
        if request.moving is not None and decision:
            later.release(request.moving.host, request.moving.held)
            members.remove(request.moving.host, partition=request.partition)
        for host, partition in decision.placed():
            later.claim(host, request.resources)
            members.add(host, partition=partition)
    return decisions


def plain_rule(rule: Rule) -> PlainRule:
    """The oracle's words for a rule; the default limit is written out."""
    given = [n for n in (rule.max_server_per_host, rule.max_server_per_aggregate) if n is not None]
    bounded = rule.kind is Kind.ANTI_AFFINITY and not rule.soft and rule.identifier is None
    by_default = 1 if bounded and rule.max_skew is None and rule.partitions is None else None
    limit = min(given) if given else by_default
    near = rule.kind is Kind.AFFINITY
    return PlainRule(near, rule.soft, rule.scope, rule.identifier, limit, rule.max_skew, rule.partitions)


class Dice(Random):
    """Even throws: small cases are all alike, so an even spread finds more than the small numbers first."""

    def some(self, hosts: int, chance: float) -> tuple[int, ...]:
        return tuple(host for host in range(hosts) if self.random() < chance)

    def rarely(self) -> bool:
        return self.random() < 0.08


dice = st.integers(0, 2**64 - 1).map(Dice)


def roomy_hosts(dice: Dice, number: int) -> World:
    """Hosts that can all take a server, so that nothing but the rules can stand in the way."""
    free = dice.choices(((1, 4, 4), (2, 4, 4)), k=number)
    return [PlainHost(each, (4, 4, 4), True, {scope: dice.choice(NAMES) for scope in SCOPES}) for each in free]


def make_hosts(dice: Dice, most: int) -> World:
    """Up to `most` hosts in up to three overlapping scopes; some are down, full, or in no aggregate."""
    outside = dice.choice((0.0, 0.0, 0.2, 0.6))
    down = dice.choice((0.0, 0.15))
    world = []
    for _ in range(dice.randint(1, most)):
        aggregates = {scope: dice.choice(NAMES) for scope in SCOPES if dice.random() >= outside}
        free = (dice.randint(0, 4), dice.randint(0, 4), dice.randint(2, 4))
        total = (4, 4, 4)
        if dice.rarely():  # its memory shrank below what it carries
            free, total = (free[0], -1, free[2]), (4, dice.choice((0, 4)), 4)
        world.append(PlainHost(free, total, dice.random() >= down, aggregates))
    return world


def any_rule(dice: Dice) -> Rule:
    """Any rule there is."""
    kind = dice.choice(tuple(Kind))
    soft = dice.random() < 0.3
    scope = dice.choice((HOST, *SCOPES))
    if scope != HOST and dice.random() < 0.15:
        return Rule(kind, soft, scope, dice.choice(NAMES))
    if soft or kind is Kind.AFFINITY:
        return Rule(kind, soft, scope)
    limit = dice.choice((None, 1, 2, 3, 3, 0 if dice.rarely() else 2))
    return Rule(kind, soft, scope, max_server_per_aggregate=limit, max_skew=dice.choice((None, None, 1, 2)))


def any_rules(dice: Dice) -> tuple[Rule, ...]:
    """Up to three rules of any kind."""
    return tuple(any_rule(dice) for _ in range(dice.randint(0, 3)))


def limit_rules(dice: Dice) -> tuple[Rule, ...]:
    """Limits in all three scopes, which overlap: where the quick search most often errs."""
    return tuple(Rule(Kind.ANTI_AFFINITY, scope=scope, max_server_per_aggregate=dice.randint(1, 2)) for scope in SCOPES)


def skew_rules(dice: Dice) -> tuple[Rule, ...]:
    """A skew, with a limit or an affinity beside it."""
    skew = Rule(Kind.ANTI_AFFINITY, scope=dice.choice((HOST, *SCOPES)), max_skew=dice.randint(1, 2))
    return (skew, any_rule(dice)) if dice.random() < 0.7 else (skew,)


def affinity_rules(dice: Dice) -> tuple[Rule, ...]:
    """One or two affinities whose aggregate is not chosen yet, and limits."""
    near = tuple(Rule(Kind.AFFINITY, scope=scope) for scope in dice.sample(SCOPES, dice.randint(1, 2)))
    return (*near, *limit_rules(dice)[: dice.randint(0, 3)])


def partition_rules(dice: Dice) -> tuple[Rule, ...]:
    """Two or three partitions, with a limit now and then, and up to two rules of any kind beside them."""
    scope, limit = dice.choice((HOST, *SCOPES)), dice.choice((None, None, 1, 2))
    divided = Rule(Kind.ANTI_AFFINITY, scope=scope, max_server_per_aggregate=limit, partitions=dice.randint(2, 3))
    others = [any_rule(dice) for _ in range(dice.choice((0, 0, 1, 2)))]
    return tuple(dice.sample([divided, *others], 1 + len(others)))


def numbered(dice: Dice, rules: tuple[Rule, ...], members: int) -> tuple[int, ...]:
    """Any partition for each member of a group that is divided, kept to the rule or not."""
    divided = division_of(rules)
    return () if divided is None else tuple(dice.randint(1, divided.partitions or 0) for _ in range(members))


def members_in(hosts: tuple[int, ...], numbers: tuple[int, ...], between: tuple[tuple[int, int], ...] = ()) -> Members:
    """The core's members, with their partitions where there are any."""
    members = Members()
    members.between = between
    for host, number in zip(hosts, numbers or (None,) * len(hosts), strict=True):
        members.add(host, partition=number)
    return members


def some_moves(dice: Dice, hosts: int, most: int) -> tuple[tuple[int, int], ...]:
    """Members on the way from one host to another, now and then."""
    if hosts < 2 or dice.random() < 0.5:
        return ()
    moves = (dice.sample(range(hosts), 2) for _ in range(dice.randint(0, most)))
    return tuple((source, target) for source, target in moves)


def soft_rules(dice: Dice) -> tuple[Rule, ...]:
    """One soft rule."""
    return (Rule(dice.choice(tuple(Kind)), True, dice.choice((HOST, *SCOPES))),)


def gathering_rules(dice: Dice) -> tuple[Rule, ...]:
    """A soft affinity before any other soft rule, with hard rules beside it now and then."""
    soft = Rule(Kind.AFFINITY, True, dice.choice((HOST, *SCOPES)))
    hard = [rule for rule in (any_rule(dice) for _ in range(dice.randint(0, 2))) if not rule.soft]
    return (*hard, soft, *soft_rules(dice)[: dice.randint(0, 1)])


def many_soft_rules(dice: Dice) -> tuple[Rule, ...]:
    """More soft rules than one word of the ranking holds, and a limit now and then."""
    soft = [Rule(dice.choice(tuple(Kind)), True, dice.choice((HOST, *SCOPES))) for _ in range(dice.randint(9, 14))]
    return (*soft, *limit_rules(dice)[: dice.choice((0, 0, 1))])


def make_case(dice: Dice, most_servers: int, rules: tuple[Rule, ...], most_hosts: int, most_members: int) -> Case:
    """A request for one to `most_servers` servers, with all that can narrow it."""
    world = make_hosts(dice, most_hosts)
    size = len(world)
    staying = tuple(dice.randrange(size) for _ in range(dice.randint(0, most_members)))
    between = some_moves(dice, size, most_members - len(staying))
    members = (*staying, *(host for move in between for host in move))
    need = (dice.randint(0, 2), dice.randint(0, 1), dice.randint(0, 1))
    numbers = numbered(dice, rules, len(staying))
    for number in numbered(dice, rules, len(between)):
        numbers += (number, number)
    divided = division_of(rules)
    asked = None if divided is None or dice.random() < 0.6 else dice.randint(1, divided.partitions or 0)
    plain = PlainRequest(
        need,
        dice.randint(1, most_servers),
        tuple(map(plain_rule, rules)),
        members,
        zone=dice.choice((*NAMES, "nowhere")) if dice.rarely() else None,
        targets=dice.some(size, 0.7) if dice.rarely() else None,
        excluded=dice.some(size, 0.3) if dice.rarely() else (),
        same=dice.some(size, 0.7) if dice.rarely() else None,
        different=dice.some(size, 0.3) if dice.rarely() else (),
        numbers=numbers,
        partition=asked,
        between=between,
    )
    request = Request(
        Resources(*need),
        plain.count,
        rules,
        members_in(members, numbers, between),
        zone=plain.zone,
        targets=plain.targets,
        excluded=plain.excluded,
        same_host=plain.same,
        different_host=plain.different,
        partition=asked,
        seed=dice.randrange(1000),
    )
    return Case(world, fleet_of(world), plain, request)


def cases(
    most_servers: int = 1,
    rules: Callable[[Dice], tuple[Rule, ...]] = any_rules,
    most_hosts: int = 5,
    most_members: int = 4,
) -> st.SearchStrategy[Case]:
    """Cases with rules of one sort."""
    return dice.map(lambda dice: make_case(dice, most_servers, rules(dice), most_hosts, most_members))


def tight_cases(rules: Callable[[Dice], tuple[Rule, ...]], most_servers: int) -> st.SearchStrategy[Case]:
    """Cases in which only the rules bind, and several servers must be thought of together."""

    def make(dice: Dice) -> Case:
        world = roomy_hosts(dice, dice.randint(4, 7))
        chosen, need, count = rules(dice), (1, 0, 0), dice.randint(2, most_servers)
        plain = PlainRequest(need, count, tuple(map(plain_rule, chosen)))
        return Case(world, fleet_of(world), plain, Request(Resources(*need), count, chosen, seed=dice.randrange(1000)))

    return dice.map(make)
