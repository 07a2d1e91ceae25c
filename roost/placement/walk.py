"""Servers by the index: walk the best hosts in order until one passes every check.

Every soft rule has a floor: what the cheapest host could cost it. The first host in a queue that costs no more than all
floors is the best there is. Where the first soft rule leaves few aggregates to look at, their pools are walked instead
of the whole fleet. Hosts that cost more wait in a heap, and come when the walk has ended.

Several servers go on with one walk. The hosts that wait are kept by their aggregates in the scopes of soft rules: all
of one kind cost the same at any time. A placement only refuses hosts or makes kinds dearer, so what comes out of the
heap is looked at again, and nothing else needs to be.

If this ends without certainty after so many steps, or if no host passes, the answer is None: the columns then tell, and
also say why.
"""

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush, heapreplace, merge
from itertools import islice
from typing import Final, NamedTuple

from roost.placement.costs import Cost, CountedScope, Gathering, LikedTarget, Places, Spreading
from roost.placement.decision import Request
from roost.placement.fleet import HEADROOM, NO_AGGREGATE, NOWHERE, TIE_BITS, TIES, Fleet, Ints, Members, ScopeColumn
from roost.placement.index import HostIndex, Pool
from roost.placement.ranking import RUNNERS_UP, Names, RankingField, Row, lay_out
from roost.placement.rules import AVAILABILITY_ZONE, HOST, Kind, Rule

STEPS: Final = 128
"""How many hosts the walk tries before it falls back on the columns."""
_STEPS_A_SERVER: Final = 8
"""How many more of them for each of several servers."""
_SHARED: Final = -1
_FEW: Final = 8
"""Up to how many aggregates that the first soft rule prefers are walked one by one."""

Standing = tuple[Cost, int, int]
"""A host's cost, its place in the order of headroom (less is better), and the host."""


class _Parts(NamedTuple):
    """How a group is divided: the partition that each aggregate holds members of."""

    counted: CountedScope
    holders: dict[int, int]
    number: int


class _Unsure(Exception):
    """The index cannot tell."""


class Found(NamedTuple):
    """The hosts of the servers, and their partitions where the group is divided."""

    hosts: tuple[int, ...]
    partitions: tuple[int, ...]
    walk: "_Walk"
    chosen: list[Standing]
    others: Iterator[Standing]
    """The walk goes on: the best of those not chosen."""

    def names(self) -> Names | None:
        """The chosen hosts and those that came next; None if the walk does not get that far."""
        return self.walk.names(self.chosen, self.others)


def find(fleet: Fleet, index: HostIndex, request: Request, offset: int) -> Found | None:
    """The best hosts for the servers of a request; None where the columns must tell."""
    try:
        walk = _Walk(fleet, index, request, offset)
        return walk.place_one() if request.count == 1 else walk.place_several()
    except _Unsure:
        return None


class _Walk:
    """One request before one fleet."""

    __slots__ = (
        "_banned",
        "_counts",
        "_fleet",
        "_index",
        "_inside",
        "_limits",
        "_near",
        "_needs",
        "_offset",
        "_only",
        "_open",
        "_order",
        "_outside",
        "_own",
        "_parts",
        "_present",
        "_request",
        "_soft",
        "_steps",
        "_taken",
        "_to_place",
    )

    def __init__(self, fleet: Fleet, index: HostIndex, request: Request, offset: int) -> None:
        self._fleet, self._index, self._request, self._offset = fleet, index, request, offset
        self._order = fleet.order_column
        self._present: Members = request.present()
        self._steps = STEPS
        self._needs = [(free, need) for free, need in zip(fleet.free_columns, request.resources, strict=True) if need]
        self._only: set[int] | None = None
        self._banned: set[int] = {*request.excluded, *request.different_host}
        self._counts: dict[str, CountedScope] = {}
        self._inside: list[tuple[str, Ints, int]] = []
        self._outside: list[tuple[Ints, int]] = []
        self._near: list[tuple[CountedScope, set[int]]] = []
        self._limits: list[tuple[CountedScope, int]] = []
        self._soft: list[LikedTarget | Gathering | Spreading] = []
        self._parts: _Parts | None = None
        self._open = request.partition
        self._own = False
        self._taken: dict[int, int] = {}
        self._read_hosts()
        skews = []
        for rule in request.rules:
            if rule.soft:
                self._read_soft(rule)
            else:
                self._read_hard(rule)
                if rule.max_skew is not None:
                    skews.append(rule)
        self._limits += [self._ceiling(rule) for rule in skews]

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

    def _counted(self, scope: str) -> CountedScope:
        """The members in each aggregate of a scope: a separate count where servers are added to it."""
        known = self._counts.get(scope)
        if known is None:
            if scope == HOST:
                column, tally = None, self._present.by_host()
            else:
                division = self._scope(scope)
                column, tally = division.column.values, self._present.tally(scope, division)
            known = CountedScope(scope, column, tally if self._request.count == 1 else tally.copy())
            self._counts[scope] = known
        return known

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
        counted = self._counted(rule.scope)
        if rule.kind is Kind.AFFINITY:
            if self._present.total:
                self._near.append((counted, counted.tally.keys() - {NOWHERE}))
            elif self._request.count > 1:  # which aggregate is best depends on all servers
                raise _Unsure
            elif counted.column is not None:
                self._outside.append((counted.column, NOWHERE))
        else:
            limit = rule.limit  # without one the rule still keeps to hosts that are in the scope
            self._limits.append((counted, 1 << 62 if limit is None else limit))
        if rule.partitions is not None:
            self._parts = _Parts(counted, self._holders(counted), rule.partitions)

    def _holders(self, counted: CountedScope) -> dict[int, int]:
        """The partition whose members each aggregate holds, or `_SHARED`."""
        holders: dict[int, int] = {}
        for number, inside in self._present.partitions.items():
            scope = None if counted.column is None else self._scope(counted.scope)
            for place in inside.by_host() if scope is None else inside.tally(counted.scope, scope):
                holders[place] = number if holders.get(place, number) == number else _SHARED
        return holders

    def _read_soft(self, rule: Rule) -> None:
        near = rule.kind is Kind.AFFINITY
        if rule.identifier is not None:
            aggregate = self._fleet.aggregate_index(rule.scope, rule.identifier)
            column = None if aggregate == NOWHERE else self._scope(rule.scope).column.values
            self._soft.append(LikedTarget(column, NO_AGGREGATE if column is None else aggregate, near))
        elif near:
            self._soft.append(Gathering(self._counted(rule.scope)))
        else:
            self._soft.append(Spreading(self._counted(rule.scope), self._fleet))

    def _ceiling(self, rule: Rule) -> tuple[CountedScope, int]:
        """How many members an aggregate must have fewer than to take one more: the least filled one that could take a
        server sets it. A host that passes in an aggregate with the fewest members of all shows which that is."""
        counted = self._counted(rule.scope)
        fewest = Spreading(counted, self._fleet).floor
        for host in self._hosts():
            if counted.tally.get(counted.aggregate(host), 0) == fewest and self._passes(host):
                assert rule.max_skew is not None
                return counted, fewest + rule.max_skew
        raise _Unsure

    # The checks of one host

    def _step(self) -> None:
        if not self._steps:
            raise _Unsure
        self._steps -= 1

    def _hosts(self) -> Iterator[int]:
        """The candidate hosts in the order of headroom; each counts as a step."""
        for host in self._in_order(self._smallest_pool()):
            self._step()
            yield host

    def _passes(self, host: int) -> bool:
        """Whether a host passes every check, skews aside where they are not known yet."""
        if host in self._banned or (self._only is not None and host not in self._only):
            return False
        for counted, limit in self._limits:
            place = counted.aggregate(host)
            if place == NOWHERE or counted.tally.get(place, 0) >= limit:
                return False
        moving = self._request.moving
        if moving is not None and moving.host == host:
            free, needs = self._fleet.free(host), self._request.resources
            if any(need > left + held for need, left, held in zip(needs, free, moving.held, strict=True) if need):
                return False
        else:
            servers = 1 + self._taken.get(host, 0)
            for column, need in self._needs:
                if column.item(host) < servers * need:
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
        if self._parts is not None:
            holder = self._parts.holders.get(self._parts.counted.aggregate(host))
            if holder == _SHARED or (self._own and holder is None):
                return False
            if holder is not None and self._open is not None and holder != self._open:
                return False
        return True

    # The order of hosts

    def _cost(self, host: int) -> Cost:
        return tuple([soft.cost(soft.place(host)) for soft in self._soft]) if self._soft else ()

    def _kind(self, host: int) -> Places:
        return tuple([soft.place(host) for soft in self._soft])

    def _cost_of(self, kind: Places) -> Cost:
        return tuple([soft.cost(place) for soft, place in zip(self._soft, kind, strict=True)]) if kind else ()

    def _floor(self) -> Cost:
        """No host costs less."""
        return tuple([soft.floor for soft in self._soft])

    def _place(self, host: int) -> int:
        """The place of a host among those of equal cost: less its last word in the ranking, but for soft rules."""
        order = self._order.item(host)
        return -(order & ~TIES | self._offset - 1 - order & TIES)

    def _smallest_pool(self) -> Pool | Iterable[int] | None:
        """The pool, or the hosts, to look at; None for all there are."""
        if self._only is not None:
            return [host for host in self._only if self._fleet.is_enabled(host)]
        for counted, holding in self._near:
            if counted.column is None:
                return [host for host in holding if self._fleet.is_enabled(host)]
        if not self._inside and not self._near:
            return None
        pools = [self._fleet.pools(scope).get(aggregate) for scope, _, aggregate in self._inside]
        for counted, holding in self._near:
            if len(holding) > 1:
                raise _Unsure
            pools += [self._fleet.pools(counted.scope).get(aggregate) for aggregate in holding]
        return min((pool or Pool() for pool in pools), key=lambda pool: len(pool.hosts), default=Pool())

    def _in_order(self, pool: Pool | Iterable[int] | None) -> Iterator[int]:
        if isinstance(pool, Pool) and pool.queue is None:
            pool = pool.hosts
        if pool is None or isinstance(pool, Pool):
            queue = self._index.everyone if pool is None else pool.queue
            assert queue is not None
            return queue.walk(self._offset)
        return iter(sorted(pool, key=self._place))

    def _in_turn(self, pool: Pool | Iterable[int] | None, floor: Cost) -> Iterator[Standing]:
        """The hosts of a pool that pass, the best first."""
        waiting: list[Standing] = []
        for host in self._in_order(pool):
            self._step()
            cost = self._cost(host)
            if cost > floor:
                waiting.append((cost, self._place(host), host))
            elif self._passes(host):
                yield cost, self._place(host), host
        waiting.sort()
        yield from (standing for standing in waiting if self._passes(standing[2]))

    # One server

    def place_one(self) -> Found | None:
        """The best host of all, in the partition that comes first; None if none passes."""
        if not self._choose_partition():
            return None
        ranked = self._ranked()
        first = next(ranked, None)
        if first is None:
            return None
        partitions = () if self._parts is None or self._open is None else (self._open,)
        return Found((first[2],), partitions, self, [first], ranked)

    def _choose_partition(self) -> bool:
        """Open the partition that comes first of those that have a host, where the group is divided."""
        if self._parts is None:
            return True
        members = {number: inside.total for number, inside in self._present.partitions.items()}
        numbers = range(1, self._parts.number + 1) if self._open is None else [self._open]
        waiting = sum(not members.get(number) for number in range(1, self._parts.number + 1))
        for number in sorted(numbers, key=lambda each: members.get(each, 0)):
            self._open = number
            if any(map(self._passes, self._hosts())):
                self._own = bool(waiting) and self._keeps_to_its_own(self._parts, number, waiting)
                return True
        return False

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
        """The enabled hosts of a partition's aggregates; each counts as a step."""
        held = [place for place, holder in parts.holders.items() if holder == number and place != NOWHERE]
        pools = {} if parts.counted.column is None else self._fleet.pools(parts.counted.scope)
        for place in held:
            hosts = [place] if parts.counted.column is None else sorted(pools[place].hosts) if place in pools else []
            for host in hosts:
                self._step()
                if self._fleet.is_enabled(host):
                    yield host

    def _ranked(self) -> Iterator[Standing]:
        """All hosts that pass, the best first."""
        floor, levels = self._floor(), self._levels()
        return self._in_turn(self._smallest_pool(), floor) if levels is None else self._by_level(floor, levels)

    def _by_level(self, floor: Cost, levels: list[tuple[int, list[Pool | list[int]]]]) -> Iterator[Standing]:
        for level, pools in levels:
            ranked = [self._in_turn(pool, (level, *floor[1:])) for pool in pools]
            yield from ranked[0] if len(ranked) == 1 else merge(*ranked)
        if not isinstance(self._soft[0], Gathering):
            raise _Unsure
        for standing in self._in_turn(self._smallest_pool(), (0, *floor[1:])):
            if standing[0][0] >= 0:  # those that hold members have come already
                yield standing

    def _levels(self) -> list[tuple[int, list[Pool | list[int]]]] | None:
        """Where the first soft rule prefers few aggregates: these by their cost, the cheapest first."""
        first = self._soft[0] if self._soft else None
        if self._only is not None or first is None or isinstance(first, LikedTarget):
            return None
        counted, levels = first.counted, dict[int, list[Pool | list[int]]]()
        if counted.column is None:
            if isinstance(first, Spreading) or len(counted.tally) > STEPS // 2:
                return None
            for host, number in counted.tally.items():
                if self._fleet.is_enabled(host):
                    levels.setdefault(-number, []).append([host])
            return sorted(levels.items())
        pools = self._fleet.pools(counted.scope)
        if isinstance(first, Gathering):
            held = [(-number, place) for place, number in counted.tally.items() if place in pools]
        elif first.floor:
            held = [(first.floor, place) for place in pools if counted.tally.get(place, 0) == first.floor]
        else:
            return None
        if len(held) > _FEW:
            return None
        for level, place in held:
            levels.setdefault(level, []).append(pools[place])
        return sorted(levels.items())

    # Several servers

    def place_several(self) -> Found | None:
        """All servers one after another; None if one of them finds no host."""
        if any(rule.partitions or rule.max_skew is not None for rule in self._request.rules):
            return None
        if any(isinstance(soft, Gathering) for soft in self._soft):  # a placement would make its hosts cheaper
            return None
        count, self._to_place = self._request.count, self._request.count
        self._steps += _STEPS_A_SERVER * count
        ranked = self._one_by_one(self._smallest_pool())
        chosen = list(islice(ranked, count))
        if len(chosen) < count:
            return None
        others = (standing for standing in ranked if standing[2] not in self._taken)
        return Found(tuple([host for *_, host in chosen]), (), self, chosen, others)

    def _one_by_one(self, pool: Pool | Iterable[int] | None) -> Iterator[Standing]:
        """The best host for each server after those before it; when all are placed, the hosts as they are then."""
        lines: dict[Places, list[tuple[int, int]]] = {}
        heap: list[tuple[Cost, int, Places]] = []
        walked, reached, ended, soft = self._in_order(pool), 0, False, self._soft
        while True:
            if heap:
                cost, place, kind = heap[0]
                line = lines[kind]
                if not line or line[0][0] != place:  # that host is gone, or another came before it
                    heappop(heap)
                    continue
                if soft and (now := self._cost_of(kind)) != cost:
                    heapreplace(heap, (now, place, kind))
                    continue
            # The best that waits is the best of all if none before it is to come, and none can cost less.
            if not ended and (not heap or place > reached or (soft and cost > self._floor())):
                host = next(walked, None)
                if host is None:
                    ended = True
                    continue
                self._step()
                reached, kind = self._place(host), self._kind(host) if soft else ()
                line = lines.setdefault(kind, [])
                heappush(line, (reached, host))
                if line[0][0] == reached:
                    heappush(heap, (self._cost_of(kind), reached, kind))
                continue
            if not heap:
                return
            heappop(heap)
            host = heappop(line)[1]
            if self._passes(host):
                if self._to_place:
                    self._to_place -= 1
                    self._take(host, place, line)
                yield cost, place, host
            if line:
                heappush(heap, (self._cost_of(kind), line[0][0], kind))

    def _take(self, host: int, place: int, line: list[tuple[int, int]]) -> None:
        """Account for one more server on a host; it comes back if it can take another."""
        servers = self._taken[host] = self._taken.get(host, 0) + 1
        for counted in self._counts.values():
            aggregate = counted.aggregate(host)
            counted.tally[aggregate] = counted.tally.get(aggregate, 0) + 1
        for soft in self._soft:
            if isinstance(soft, Spreading):
                soft.take(host)
        if self._passes(host):
            share = self._fleet.headroom_with(host, self._request.resources, servers) << TIE_BITS
            heappush(line, (-(-place & ~HEADROOM | share), host))

    # Who came next

    def names(self, chosen: list[Standing], others: Iterator[Standing]) -> Names | None:
        """The chosen hosts, and the next ones that the walk comes to; None if it does not get that far."""
        self._steps = max(self._steps, STEPS)
        try:
            after = list(islice(others, RUNNERS_UP))
        except _Unsure:
            return None
        fields, words = lay_out(self._request.rules, self._present.total + self._request.count + 1)
        return Names(
            fields,
            self._offset,
            tuple(_row(each, fields, words) for each in chosen),
            tuple((each[2], _row(each, fields, words)) for each in after),
            len(self._fleet),
        )


def _row(standing: Standing, fields: tuple[RankingField, ...], words: int) -> Row:
    """The words of a host, as the columns have them."""
    cost, place, _ = standing
    row = [0] * words + [-place]
    for field, each in zip(fields, cost, strict=True):
        row[field.word] += field.bits(each)
    return tuple(row)
