"""One server by the index: walk the best hosts in order until one passes every check.

The soft rules have an upper bound each: the fewest members that an aggregate holds, or the most. The first host in a
queue that reaches all bounds is the best there is. Where the first soft rule leaves few aggregates to look at, their
pools are walked instead of the whole fleet. If this ends without certainty after `STEPS` hosts, or if no host passes,
the answer is None: the columns then tell, and also say why.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from roost.placement.decision import Request
from roost.placement.fleet import NOWHERE, Fleet, Ints, Members, ScopeColumn
from roost.placement.index import HostIndex, Pool
from roost.placement.rules import AVAILABILITY_ZONE, HOST, Kind, Rule

STEPS: Final = 128
"""How many hosts are looked at before the columns are asked."""
_SHARED: Final = -1
_OUTSIDE: Final = -(1 << 62)
_FEW: Final = 8
"""Up to how many aggregates at the best level of the first soft rule are walked one by one."""

Rank = tuple[int, ...]


class _Counted(NamedTuple):
    """The members that each aggregate of a rule's scope holds; the column is None where the scope is `host`."""

    rule: Rule
    column: Ints | None
    tally: dict[int, int]

    def aggregate(self, host: int) -> int:
        """The aggregate of a host."""
        return host if self.column is None else self.column.item(host)


class _Parts(NamedTuple):
    """How a group is divided: the partition that each aggregate holds members of."""

    counted: _Counted
    holders: dict[int, int]
    number: int


class _Unsure(Exception):
    """The index cannot tell."""


class Found(NamedTuple):
    """The host of a server, and its partition where the group is divided."""

    host: int
    partition: int | None


def find(fleet: Fleet, index: HostIndex, request: Request, offset: int) -> Found | None:
    """The best host for one server; None where the columns must tell."""
    try:
        return _Walk(fleet, index, request, offset).find()
    except _Unsure:
        return None


class _Walk:
    """One request before one fleet."""

    __slots__ = (
        "_banned",
        "_ceilings",
        "_fleet",
        "_index",
        "_inside",
        "_limits",
        "_near",
        "_needs",
        "_offset",
        "_only",
        "_open",
        "_outside",
        "_own",
        "_parts",
        "_present",
        "_request",
        "_soft",
        "_steps",
    )

    def __init__(self, fleet: Fleet, index: HostIndex, request: Request, offset: int) -> None:
        self._fleet, self._index, self._request, self._offset = fleet, index, request, offset
        self._present: Members = request.present()
        self._steps = STEPS
        self._needs = [(free, need) for free, need in zip(fleet.free_columns, request.resources, strict=True) if need]
        self._only: set[int] | None = None
        self._banned: set[int] = {*request.excluded, *request.different_host}
        self._inside: list[tuple[str, Ints, int]] = []
        self._outside: list[tuple[Ints, int]] = []
        self._near: list[tuple[_Counted, set[int]]] = []
        self._limits: list[tuple[_Counted, int]] = []
        self._ceilings: list[tuple[_Counted, int]] = []
        self._soft: list[_Counted | tuple[Ints, int, bool]] = []
        self._parts: _Parts | None = None
        self._open = request.partition
        self._own = False
        self._read_hosts()
        skews = []
        for rule in request.rules:
            if rule.soft:
                self._read_soft(rule)
            else:
                self._read_hard(rule)
                if rule.max_skew is not None:
                    skews.append(rule)
        self._ceilings = [self._ceiling(rule) for rule in skews]

    # What the request says

    def _read_hosts(self) -> None:
        request = self._request
        if request.moving is not None and not request.moving.may_stay:
            self._banned.add(request.moving.host)
        for hosts in (request.targets, request.same_host):
            if hosts is not None:
                if len(hosts) > STEPS:
                    raise _Unsure
                self._only = set(hosts) if self._only is None else self._only & set(hosts)
        if request.zone is not None:
            self._target(AVAILABILITY_ZONE, request.zone)

    def _target(self, scope: str, identifier: str) -> None:
        aggregate = self._fleet.aggregate_index(scope, identifier)
        if aggregate == NOWHERE:
            raise _Unsure
        self._inside.append((scope, self._scope(scope).column.values, aggregate))

    def _scope(self, name: str) -> ScopeColumn:
        found = self._fleet.scope(name)
        if found is None:
            raise _Unsure
        return found

    def _counted(self, rule: Rule) -> _Counted:
        if rule.scope == HOST:
            return _Counted(rule, None, self._present.by_host())
        scope = self._scope(rule.scope)
        return _Counted(rule, scope.column.values, self._present.tally(rule.scope, scope))

    def _read_hard(self, rule: Rule) -> None:
        if rule.kind is Kind.AFFINITY and self._present.between:
            raise _Unsure
        if rule.identifier is not None:
            if rule.kind is Kind.AFFINITY:
                self._target(rule.scope, rule.identifier)
            else:
                aggregate = self._fleet.aggregate_index(rule.scope, rule.identifier)
                self._outside.append((self._scope(rule.scope).column.values, aggregate))
            return
        counted = self._counted(rule)
        if rule.kind is Kind.AFFINITY:
            if self._present.total:
                self._near.append((counted, counted.tally.keys() - {NOWHERE}))
            elif counted.column is not None:
                self._outside.append((counted.column, NOWHERE))
        else:
            # Without a limit the rule still keeps to hosts that are in the scope.
            self._limits.append((counted, 1 << 62 if rule.limit is None else rule.limit))
        if rule.partitions is not None:
            self._parts = _Parts(counted, self._holders(counted), rule.partitions)

    def _holders(self, counted: _Counted) -> dict[int, int]:
        """The partition whose members each aggregate holds, or `_SHARED`."""
        holders: dict[int, int] = {}
        for number, inside in self._present.partitions.items():
            scope = None if counted.column is None else self._scope(counted.rule.scope)
            for place in inside.by_host() if scope is None else inside.tally(counted.rule.scope, scope):
                holders[place] = number if holders.get(place, number) == number else _SHARED
        return holders

    def _read_soft(self, rule: Rule) -> None:
        if rule.identifier is None:
            self._soft.append(self._counted(rule))
        else:
            aggregate = self._fleet.aggregate_index(rule.scope, rule.identifier)
            if aggregate != NOWHERE:  # else it likes all hosts equally
                self._soft.append((self._scope(rule.scope).column.values, aggregate, rule.kind is Kind.AFFINITY))

    def _ceiling(self, rule: Rule) -> tuple[_Counted, int]:
        """How many members an aggregate must have at most to take one more: the least filled one that could take a
        server sets it. A host that passes in an aggregate with the fewest members of all shows which that is."""
        counted = self._counted(rule)
        fewest = self._fewest(counted)
        for host in self._hosts():
            if counted.tally.get(counted.aggregate(host), 0) == fewest and self._passes(host):
                assert rule.max_skew is not None
                return counted, fewest + rule.max_skew
        raise _Unsure

    def _fewest(self, counted: _Counted) -> int:
        """The fewest members that an aggregate with enabled hosts holds."""
        if counted.column is None:
            return 0 if len(counted.tally) < len(self._fleet) else min(counted.tally.values())
        pools = self._fleet.pools(counted.rule.scope)
        if len(counted.tally) < len(pools):
            return 0
        return min(counted.tally.get(aggregate, 0) for aggregate in pools) if pools else 0

    # The checks of one host

    def _passes(self, host: int) -> bool:
        """Whether a host passes every check, skews aside where they are not known yet."""
        if not self._steps:
            raise _Unsure
        self._steps -= 1
        if host in self._banned or (self._only is not None and host not in self._only):
            return False
        moving = self._request.moving
        if moving is not None and moving.host == host:
            free, needs = self._fleet.free(host), self._request.resources
            if any(need > left + held for need, left, held in zip(needs, free, moving.held, strict=True) if need):
                return False
        else:
            for column, need in self._needs:
                if column.item(host) < need:
                    return False
        for _, column, aggregate in self._inside:
            if column.item(host) != aggregate:
                return False
        for column, aggregate in self._outside:
            if column.item(host) in (aggregate, NOWHERE):
                return False
        for counted, holding in self._near:
            if counted.aggregate(host) not in holding:
                return False
        for counted, limit in self._limits:
            place = counted.aggregate(host)
            if place == NOWHERE or counted.tally.get(place, 0) >= limit:
                return False
        if self._parts is not None:
            holder = self._parts.holders.get(self._parts.counted.aggregate(host))
            if holder == _SHARED or (self._own and holder is None):
                return False
            if holder is not None and self._open is not None and holder != self._open:
                return False
        return all(counted.tally.get(counted.aggregate(host), 0) < most for counted, most in self._ceilings)

    # The order of hosts

    def _rank(self, host: int) -> Rank:
        """What the soft rules say of a host, in their order: more is better."""
        rank = []
        for soft in self._soft:
            if isinstance(soft, _Counted):
                place = soft.aggregate(host)
                members = soft.tally.get(place, 0) if soft.rule.kind is Kind.AFFINITY else -soft.tally.get(place, 0)
                rank.append(_OUTSIDE if place == NOWHERE else members)
            else:
                column, aggregate, near = soft
                rank.append(int((column.item(host) == aggregate) is near))
        return tuple(rank)

    def _bound(self) -> Rank:
        """No host has a higher rank."""
        bound = []
        for soft in self._soft:
            if not isinstance(soft, _Counted):
                bound.append(1)
            elif soft.rule.kind is Kind.AFFINITY:
                bound.append(max((number for place, number in soft.tally.items() if place != NOWHERE), default=0))
            else:
                bound.append(-self._fewest(soft))
        return tuple(bound)

    def _hosts(self) -> Iterator[int]:
        """The hosts that can come into question, in the order of headroom."""
        return self._in_order(self._smallest_pool())

    def _smallest_pool(self) -> Pool | Iterable[int] | None:
        if self._only is not None:
            return [host for host in self._only if self._fleet.is_enabled(host)]
        for counted, holding in self._near:
            if counted.column is None:
                return [host for host in holding if self._fleet.is_enabled(host)]
        pools = [self._fleet.pools(scope).get(aggregate) for scope, _, aggregate in self._inside]
        for counted, holding in self._near:
            if len(holding) > 1:
                raise _Unsure
            pools += [self._fleet.pools(counted.rule.scope).get(aggregate) for aggregate in holding]
        if not pools:
            return None
        return min((pool or Pool() for pool in pools), key=lambda pool: len(pool.hosts))

    def _in_order(self, pool: Pool | Iterable[int] | None) -> Iterator[int]:
        if isinstance(pool, Pool) and pool.queue is None:
            pool = pool.hosts
        if pool is None or isinstance(pool, Pool):
            queue = self._index.everyone if pool is None else pool.queue
            assert queue is not None
            return map(self._index.host, queue.walk(self._offset))
        return iter(sorted(pool, key=self._standing, reverse=True))

    def _standing(self, host: int) -> tuple[int, int]:
        """Where a host comes among those that the soft rules like equally."""
        behind = self._index.position(host) - self._offset
        return self._fleet.headroom_of(host), -behind if behind >= 0 else -(behind + (1 << 24))

    def find(self) -> Found | None:
        """The best host of all, in the partition that comes first; None if none passes."""
        if self._parts is None:
            host = self._best()
            return None if host is None else Found(host, None)
        members = {number: inside.total for number, inside in self._present.partitions.items()}
        numbers = range(1, self._parts.number + 1) if self._open is None else [self._open]
        waiting = sum(not members.get(number) for number in range(1, self._parts.number + 1))
        for number in sorted(numbers, key=lambda each: members.get(each, 0)):
            self._open = number
            self._own = False
            if any(map(self._passes, self._hosts())):
                self._own = bool(waiting) and self._keeps_to_its_own(self._parts, number, waiting)
                host = self._best()
                return None if host is None else Found(host, number)
        return None

    def _keeps_to_its_own(self, parts: _Parts, number: int, waiting: int) -> bool:
        """Whether a partition has a place in its own aggregates, and the others are just enough for those that wait."""
        if not any(map(self._passes, self._held_by(parts, number))):
            return False
        unused = set()
        for host in self._hosts():
            place = parts.counted.aggregate(host)
            if place not in unused and place not in parts.holders and self._passes(host):
                unused.add(place)
                if len(unused) > waiting:
                    return False
        return True

    def _held_by(self, parts: _Parts, number: int) -> Iterator[int]:
        """The enabled hosts of a partition's aggregates."""
        held = [place for place, holder in parts.holders.items() if holder == number and place != NOWHERE]
        if parts.counted.column is None:
            return (host for host in held if self._fleet.is_enabled(host))
        pools = self._fleet.pools(parts.counted.rule.scope)
        return (host for place in held if place in pools for host in sorted(pools[place].hosts))

    def _best(self) -> int | None:
        """The best host of all; None if none passes."""
        bound = self._bound()
        levels = self._levels()
        if levels is None:
            return self._best_in(self._smallest_pool(), bound)[1]
        for level, pools in levels:
            bounded = (level, *bound[1:])
            found = [self._best_in(pool, bounded) for pool in pools]
            ranked = [(rank, self._standing(host), host) for rank, host in found if host is not None]
            if ranked:
                return max(ranked)[2]
        first = self._soft[0]
        if not isinstance(first, _Counted) or first.rule.kind is not Kind.AFFINITY:
            raise _Unsure
        return self._best_in(self._smallest_pool(), (0, *bound[1:]))[1]  # where there are no members

    def _levels(self) -> list[tuple[int, list[Pool]]] | None:
        """Where the first soft rule prefers few aggregates: these, the most liked first."""
        first = self._soft[0] if self._soft else None
        if self._only is not None or not isinstance(first, _Counted) or first.column is None:
            return None
        pools = self._fleet.pools(first.rule.scope)
        if first.rule.kind is Kind.AFFINITY:
            held = [(number, place) for place, number in first.tally.items() if place in pools]
        else:
            fewest = self._fewest(first)
            if not fewest:
                return None
            held = [(-fewest, place) for place in pools if first.tally.get(place, 0) == fewest]
        if len(held) > _FEW:
            return None
        levels: dict[int, list[Pool]] = {}
        for level, place in sorted(held, reverse=True):
            levels.setdefault(level, []).append(pools[place])
        return list(levels.items())

    def _best_in(self, pool: Pool | Iterable[int] | None, bound: Rank) -> tuple[Rank, int | None]:
        """The best host of a pool: the first that reaches the bound, or the best of all that pass."""
        best: tuple[Rank, int | None] = ((), None)
        for host in self._in_order(pool):
            if self._passes(host):
                rank = self._rank(host)
                if rank >= bound:
                    return rank, host
                if best[1] is None or rank > best[0]:
                    best = rank, host
        return best
