"""The fewest migrations that remove every violation, in an order in which each step is itself allowed.

Three searches, each asked only where the one before it falls short:

1. For each group by itself, the most members that may stay where they are: one integer programme for all groups, and a
   lower bound on the moves. The scheduler places those that must leave one after another. If all find a place,
   the bound is met: there is no shorter plan.
2. Where capacity or rules leave no place so, all servers are assigned to hosts at once by an integer programme over
   servers and hosts, with the fewest moves, and the moves are put into an allowed order.
3. Where they have no such order, sequences of moves are searched, the shortest first.

The second and third are for problems of bounded size; past that, what could not be repaired is named.
"""

import heapq
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import count
from typing import Final

import numpy as np

from roost.placement import exact
from roost.placement.audit import Breach, Violation, audit, open_aggregates
from roost.placement.decision import Move, Request, WorkBudget
from roost.placement.exact import Programme, Unsolved
from roost.placement.fleet import NOWHERE, Bools, Fleet, Members, Resources
from roost.placement.rules import AVAILABILITY_ZONE, Kind, Rule
from roost.placement.scheduler import candidates, place

ASSIGNABLE: Final = 100_000
"""Servers times hosts, up to which the second search is tried."""
WORK: Final = 20_000_000
"""How much work the integer programmes of one repair may do together."""
SEARCHABLE: Final = 2_000
"""How many states the third search looks at."""


@dataclass(frozen=True, slots=True)
class RepairMember:
    """A server where it is now, and the group it belongs to, if any."""

    name: str
    host: int
    resources: Resources
    group: str | None = None
    partition: int | None = None
    """Its number, where the group is divided: a server that moves keeps it."""
    zone: str | None = None
    """The zone that its request named, and that it does not leave."""
    held: bool = False
    """Whether the cloud would refuse to move it."""


@dataclass(frozen=True, slots=True)
class Migration:
    """One step of a repair."""

    server: str
    source: int
    target: int


@dataclass(frozen=True, slots=True)
class RepairPlan:
    """The steps in order, what they leave unrepaired, and whether fewer could have done."""

    moves: tuple[Migration, ...]
    unrepaired: tuple[str, ...]
    """The groups that are still in violation after the steps."""
    bound: int
    """No plan that repairs every group has fewer steps than this."""

    @property
    def fewest(self) -> bool:
        """Whether everything is repaired, and provably nothing shorter repairs it."""
        return not self.unrepaired and len(self.moves) == self.bound


def repair(
    fleet: Fleet, groups: Mapping[str, Sequence[Rule]], servers: Sequence[RepairMember], work: int = WORK
) -> RepairPlan:
    """A plan for these groups; any of these servers may move, and the fleet's columns count them where they are."""
    start, budget = _Standing(fleet.snapshot(), groups, servers), WorkBudget(work)
    leavers, bound = _leavers(start, budget)
    quick = start.copy()
    moves = _place_each(quick, leavers)
    broken = quick.broken()
    if not broken:
        return RepairPlan(tuple(moves), (), bound)
    if len(servers) * len(fleet) <= ASSIGNABLE:
        whole = _repair_together(start, list(start.servers), budget)
        return whole or RepairPlan(tuple(moves), tuple(broken), bound)
    names = [name for group in broken for name in quick.named[group]]
    rest = _repair_together(quick, names, budget) if len(names) * len(fleet) <= ASSIGNABLE else None
    if rest is None:
        return RepairPlan(tuple(moves), tuple(broken), bound)
    return RepairPlan((*moves, *rest.moves), rest.unrepaired, bound)


class _Standing:
    """Where every server is, in the fleet and in its group."""

    def __init__(self, fleet: Fleet, groups: Mapping[str, Sequence[Rule]], servers: Sequence[RepairMember]) -> None:
        self.fleet = fleet
        self.groups = {group: tuple(dict.fromkeys(rules)) for group, rules in groups.items()}
        self.servers = {server.name: server for server in servers}
        self.hosts = {server.name: server.host for server in servers}
        self.named: dict[str, list[str]] = {group: [] for group in groups}
        for server in servers:
            if server.group is not None:
                self.named[server.group].append(server.name)
        self.partitions = {server.name: server.partition for server in servers}
        self.members = {group: Members() for group in groups}
        for server in servers:
            if server.group is not None:
                self.members[server.group].add(server.host, partition=server.partition)

    def copy(self) -> "_Standing":
        other = object.__new__(_Standing)
        other.groups, other.servers, other.named = self.groups, self.servers, self.named
        other.partitions = self.partitions
        other.fleet = self.fleet.snapshot()
        other.hosts = self.hosts.copy()
        other.members = {group: members.copy() for group, members in self.members.items()}
        return other

    def violations(self, group: str) -> tuple[Violation, ...]:
        hosts = {name: self.hosts[name] for name in self.named[group]}
        return audit(self.fleet, self.groups[group], hosts, self.partitions).violations

    def broken(self) -> list[str]:
        return [group for group in self.groups if self.violations(group)]

    def request(self, name: str, targets: Sequence[int] | None = None) -> Request:
        """The migration of one server, as the scheduler sees it."""
        server = self.servers[name]
        moving = Move(self.hosts[name], server.resources)
        if server.group is None:
            return Request(server.resources, moving=moving, targets=targets, zone=server.zone)
        rules, members = self.groups[server.group], self.members[server.group]
        partition, zone = server.partition, server.zone
        return Request(server.resources, 1, rules, members, zone, moving=moving, targets=targets, partition=partition)

    def open_to(self, name: str) -> Bools:
        """The hosts that one server may migrate to now."""
        open_to = candidates(self.fleet, self.request(name))
        return np.zeros_like(open_to) if self.servers[name].held else open_to

    def may_hold(self, host: int, name: str) -> bool:
        """Whether a host takes servers at all and is in the zone that this one asked for, and it may leave its own."""
        zone = self.servers[name].zone
        inside = zone is None or self.fleet.aggregate(host, AVAILABILITY_ZONE) == self.fleet.aggregate_index(
            AVAILABILITY_ZONE, zone
        )
        return self.fleet.is_enabled(host) and inside and not self.servers[name].held

    def move(self, name: str, target: int) -> Migration:
        server, source = self.servers[name], self.hosts[name]
        self.fleet.release(source, server.resources)
        self.fleet.claim(target, server.resources)
        if server.group is not None:
            self.members[server.group].remove(source, partition=server.partition)
            self.members[server.group].add(target, partition=server.partition)
        self.hosts[name] = target
        return Migration(name, source, target)

    def by_aggregate(self, rule: Rule, names: Iterable[str]) -> dict[int, list[str]]:
        """Members by the aggregate that they are in."""
        column = self.fleet.division(rule.scope).column
        found: dict[int, list[str]] = {}
        for name in names:
            found.setdefault(int(column[self.hosts[name]]), []).append(name)
        return found

    def least(self) -> int:
        """A lower bound on the moves: of each rule by itself, and the most demanding one of each group."""
        total = 0
        for group in self.groups:
            needs: dict[tuple[Rule, bool], int] = {}
            for violation in self.violations(group):
                # One move can mend several aggregates' skew at once, so all of it counts as one.
                need = 0 if violation.breach is Breach.SKEWED else violation.excess
                # Who leaves an aggregate that partitions share may be one too many there as well.
                key = violation.rule, violation.breach is Breach.PARTITIONS_SHARE
                needs[key] = max(1, needs.get(key, 0) + need)
            total += max(needs.values(), default=0)
        return total


# First: who must leave, and a place for each


def _leavers(standing: _Standing, budget: WorkBudget) -> tuple[list[str], int]:
    """The fewest members whose leaving lets the others stay, as if there were room for them elsewhere; and a bound."""
    programme = Programme()
    stays: dict[str, int] = {}
    largest = max((sum(server.resources) for server in standing.servers.values()), default=0) + 1
    for group in standing.broken():
        for name in standing.named[group]:
            # Of equals the larger stay, being harder to place; all such shares together weigh less than one server.
            share = sum(standing.servers[name].resources) / largest / (2 * len(standing.servers))
            stays[name] = programme.column(1.0, -1.0 - share)
            if standing.servers[name].held:
                programme.row([(stays[name], 1.0)], 1, 1)
        for rule in standing.groups[group]:
            if not rule.soft:
                _let_stay(programme, standing, rule, {name: stays[name] for name in standing.named[group]})
    answer = programme.solve(budget) if stays else np.zeros(0, np.int64)
    if isinstance(answer, Unsolved):
        return [], standing.least()
    leavers = [name for name, stay in stays.items() if not answer[stay]]
    return leavers, max(standing.least(), len(leavers) if programme.optimal else 0)


def _let_stay(programme: Programme, standing: _Standing, rule: Rule, stays: Mapping[str, int]) -> None:
    """As many members as a rule allows, of those where they are."""
    held = standing.by_aggregate(rule, stays)
    sets = [[stays[name] for name in names] for aggregate, names in held.items() if aggregate != NOWHERE]
    if rule.together and sets:
        exact.keep_together(programme, sets, len(stays))
    if rule.partitions is not None:
        _let_partitions_stay(programme, standing, rule, {a: held[a] for a in held if a != NOWHERE}, stays)
    for aggregate, names in held.items():
        most = _allowed(standing.fleet, rule, aggregate)
        if most is not None:
            programme.row([(stays[name], 1.0) for name in names], 0, most)


def _let_partitions_stay(
    programme: Programme, standing: _Standing, rule: Rule, held: Mapping[int, Sequence[str]], stays: Mapping[str, int]
) -> None:
    """Each aggregate for one partition, and for each partition one of those that hold members or one that holds none:
    else those that leave could find no place."""
    numbers = {standing.partitions[name] for name in stays}
    unused = set(open_aggregates(standing.fleet, rule.scope)) - held.keys()
    switches = exact.keep_apart(
        programme,
        {
            (a, number): [stays[n] for n in held[a] if standing.partitions[n] == number]
            for a in held
            for number in numbers
        },
        len(stays),
    )
    fresh = {number: programme.column(1.0) for number in numbers}
    programme.row([(switch, 1.0) for switch in fresh.values()], 0, len(unused))
    for number in numbers:
        places = [switches[aggregate, number] for aggregate in held]
        programme.row([(switch, 1.0) for switch in (*places, fresh[number])], 1, len(held) + 1)


def _allowed(fleet: Fleet, rule: Rule, aggregate: int) -> int | None:
    """How many members a rule by itself allows in an aggregate; None for any number."""
    if aggregate == NOWHERE:
        return 0
    if rule.identifier is None:
        return rule.limit
    inside = aggregate == fleet.aggregate_index(rule.scope, rule.identifier)
    return None if inside == (rule.kind is Kind.AFFINITY) else 0


def _place_each(standing: _Standing, leavers: Sequence[str]) -> list[Migration]:
    """Let the scheduler place the leavers, and repeat that while one move makes room for another."""
    leaving, moves = set(leavers), []
    targets = {group: _kept_hosts(standing, group, leaving) for group in standing.groups}
    waiting, progress = list(leavers), True
    while waiting and progress:
        stuck = []
        for name in waiting:
            near = targets.get(standing.servers[name].group or "")
            decision = place(standing.fleet, standing.request(name, near))
            # Among few hosts a skew is measured over these few; the move itself will be measured over all.
            if decision and (near is None or standing.open_to(name)[decision.hosts[0]]):
                moves.append(standing.move(name, decision.hosts[0]))
            else:
                stuck.append(name)
        waiting, progress = stuck, len(stuck) < len(waiting)
    return moves


def _kept_hosts(standing: _Standing, group: str, leaving: Set[str]) -> Sequence[int] | None:
    """Where an affinity wants the leavers: in the aggregates of the members that stay."""
    kept = [standing.hosts[name] for name in standing.named[group] if name not in leaving]
    near = [rule for rule in standing.groups[group] if rule.together]
    if not near or not kept:
        return None
    hosts = np.ones(standing.fleet.size, np.bool_)
    for rule in near:
        column = standing.fleet.division(rule.scope).column
        hosts &= column == column[kept[0]]
    return np.flatnonzero(hosts).tolist()


# Second: all servers at once


def _repair_together(standing: _Standing, names: Sequence[str], budget: WorkBudget) -> RepairPlan | None:
    """The fewest moves of these servers that leave no violation, in an order, or None if there are none in reach."""
    wanted = _assign(standing, names, budget)
    if wanted is None:
        return None
    goal, bound = wanted
    end = standing.copy()
    moves = _in_order(end, goal)
    if moves is not None and not end.broken():
        return RepairPlan(tuple(moves), (), bound)
    return _shortest(standing, names)


def _assign(standing: _Standing, names: Sequence[str], budget: WorkBudget) -> tuple[dict[str, int], int] | None:
    """A host for each of these servers with the fewest moves, the order of moves aside; and a bound on the moves."""
    fleet, programme = standing.fleet, Programme()
    spots: dict[str, dict[int, int]] = {}
    for name in names:
        here = standing.hosts[name]
        hosts = [host for host in fleet.hosts() if host == here or standing.may_hold(host, name)]
        spots[name] = {host: programme.column(1.0, float(host != here)) for host in hosts}
        programme.row([(spot, 1.0) for spot in spots[name].values()], 1, 1)
    _keep_capacity(programme, standing, spots)
    for group in dict.fromkeys(standing.servers[name].group for name in names):
        if group is not None:
            for rule in standing.groups[group]:
                if not rule.soft:
                    _keep_rule(programme, standing, rule, {name: spots[name] for name in standing.named[group]})
    answer = programme.solve(budget)
    if isinstance(answer, Unsolved):
        return None
    goal = {name: host for name, hosts in spots.items() for host, spot in hosts.items() if answer[spot]}
    moves = sum(host != standing.hosts[name] for name, host in goal.items())
    return goal, moves if programme.optimal else standing.least()


def _keep_capacity(programme: Programme, standing: _Standing, spots: Mapping[str, Mapping[int, int]]) -> None:
    """No host takes more than it has; one that carries too much already may keep it."""
    for host in standing.fleet.hosts():
        free = standing.fleet.free(host)
        for at, left in enumerate(free):
            loads = [(spots[name][host], standing.servers[name].resources[at]) for name in spots if host in spots[name]]
            here = sum(standing.servers[name].resources[at] for name in spots if standing.hosts[name] == host)
            terms = [(spot, float(load)) for spot, load in loads if load]
            programme.row(terms, 0, max(here, here + left))


def _keep_rule(programme: Programme, standing: _Standing, rule: Rule, spots: Mapping[str, Mapping[int, int]]) -> None:
    """What a rule allows in each aggregate, wherever its members come from."""
    column = standing.fleet.division(rule.scope).column
    inside: dict[int, list[int]] = {}
    by_partition: dict[tuple[int, int | None], list[int]] = {}
    for name, hosts in spots.items():
        for host, spot in hosts.items():
            inside.setdefault(int(column[host]), []).append(spot)
            by_partition.setdefault((int(column[host]), standing.partitions[name]), []).append(spot)
    if rule.partitions is not None:
        exact.keep_apart(programme, by_partition, len(spots))
    if rule.together:
        exact.keep_together(programme, [inside[a] for a in inside if a != NOWHERE], len(spots))
    if rule.max_skew is not None:
        _keep_skew(programme, rule.max_skew, inside, open_aggregates(standing.fleet, rule.scope), len(spots))
    for aggregate, every in inside.items():
        most = _allowed(standing.fleet, rule, aggregate)
        if most is not None:
            programme.row([(spot, 1.0) for spot in every], 0, most)


def _keep_skew(
    programme: Programme, skew: int, inside: Mapping[int, Sequence[int]], open_to: Sequence[int], members: int
) -> None:
    lowest = programme.column(float(members))
    for aggregate, every in inside.items():
        terms = [(spot, 1.0) for spot in every]
        if aggregate in open_to:
            programme.row([*terms, (lowest, -1.0)], 0, float(members))
        programme.row([*terms, (lowest, -1.0)], -float(members), skew)


def _in_order(standing: _Standing, goal: Mapping[str, int]) -> list[Migration] | None:
    """The moves to the goal, each when it is allowed; None where they stand in each other's way."""
    waiting = [name for name, host in goal.items() if host != standing.hosts[name]]
    moves: list[Migration] = []
    while waiting:
        ready = next((name for name in waiting if standing.open_to(name)[goal[name]]), None)
        if ready is None:
            return None
        waiting.remove(ready)
        moves.append(standing.move(ready, goal[ready]))
    return moves


# Third: sequences of moves


def _shortest(standing: _Standing, names: Sequence[str]) -> RepairPlan | None:
    """The shortest sequence of allowed moves that leaves no violation, by A*; None if it is not within reach."""
    number = count()
    queue: list[tuple[int, int, _Standing, tuple[Migration, ...]]] = [(standing.least(), next(number), standing, ())]
    seen: set[tuple[int, ...]] = set()
    while queue and len(seen) < SEARCHABLE:
        _, _, here, moves = heapq.heappop(queue)
        state = tuple(here.hosts[name] for name in names)
        if state in seen:
            continue
        seen.add(state)
        if not here.broken():
            return RepairPlan(moves, (), len(moves))
        for name in names:
            for host in np.flatnonzero(here.open_to(name)).tolist():
                there = here.copy()
                path = (*moves, there.move(name, host))
                heapq.heappush(queue, (len(path) + there.least(), next(number), there, path))
    return None
