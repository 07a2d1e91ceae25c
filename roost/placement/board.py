"""One request before all hosts of a fleet, as columns.

One server takes one pass over the columns: every check narrows the candidates and counts what it removed, the soft
rules and the capacity rank those left, and the best is an argmax.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from roost.placement.decision import Account, Decision, Reasons, Refusal, RefusalCount, Request, Verdict
from roost.placement.fleet import NO_AGGREGATE, NOWHERE, TIES, Bools, Division, Fleet, Ints, Members, Values
from roost.placement.ranking import Ranking, RankingField, lay_out
from roost.placement.rules import AVAILABILITY_ZONE, HOST, Kind, Rule

ANY: Final = 0
SHARED: Final = -1
"""What an aggregate is for, besides the number of a partition: for any that comes first, or, for now, for none."""

_SHORTAGES: Final = (Refusal.TOO_FEW_VCPUS, Refusal.TOO_LITTLE_MEMORY, Refusal.TOO_LITTLE_DISK)


def offset(fleet: Fleet, request: Request) -> int:
    """The position at which the seed of a request begins among hosts of equal headroom."""
    return _scattered(request.seed) & (fleet.room - 1)


def _scattered(seed: int) -> int:
    """Scatter a seed's bits, so that neighbouring seeds order ties quite differently."""
    mixed = seed * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF
    return (mixed ^ mixed >> 31) * 0xBF58476D1CE4E5B9 >> 20 & 0xFFFFFFFF


class OpenLimit(NamedTuple):
    """How many more members each aggregate of a scope may take."""

    scope: str
    column: Ints
    left: Ints


class OpenSkew(NamedTuple):
    """How far aggregates may be ahead of the least filled one that could take a server."""

    rule: Rule
    column: Ints
    counts: Ints
    feasible: Bools
    allowed: int

    def open(self) -> Bools:
        """The aggregates that may take one more now."""
        still_open: Bools = self.counts < self.counts[self.feasible].min() + self.allowed
        return still_open


@dataclass(slots=True)
class OpenPartitions:
    """Which partition each host may serve, and how many members each partition has."""

    rule: Rule
    column: Ints
    holder: Ints
    """For each host the partition that its aggregate holds; ANY where it holds none, SHARED where it holds several."""
    counts: Ints
    asked: int | None

    def copy(self) -> Self:
        """The same, to be changed apart."""
        return replace(self, holder=self.holder.copy(), counts=self.counts.copy())

    def choose(self, among: Bools) -> int | None:
        """The partition of the next server: the one asked for, else the emptiest that has a host among these."""
        here = np.bincount(self.holder[among], minlength=len(self.counts))
        open_to = here[: len(self.counts)] + here[ANY] > 0
        open_to[ANY] = False
        if self.asked is not None:
            return self.asked if open_to[self.asked] else None
        least = np.where(open_to, self.counts, np.iinfo(np.int64).max).argmin()
        return int(least) if open_to[least] else None

    def open(self, partition: int) -> Bools:
        """The hosts that a partition may have."""
        mask: Bools = (self.holder == ANY) | (self.holder == partition)
        return mask

    def spare(self, partition: int, among: Bools) -> Bools:
        """A partition that has a place keeps to it while the free places just suffice for partitions without one."""
        waiting = int(np.count_nonzero(self.counts[1:] == 0))
        own: Bools = among & (self.holder == partition)
        if not waiting or not own.any():
            return among
        unused = np.unique(self.column[among & (self.holder == ANY)])
        return own if len(unused) <= waiting else among

    def take(self, host: int, partition: int) -> None:
        """Account for one more member."""
        self.counts[partition] += 1
        self.holder[hosts_sharing(self.rule.scope, self.column, host)] = partition


class Board:
    """One request before one fleet: the candidates that are left, what removed the others, and their ranking."""

    def __init__(self, fleet: Fleet, request: Request) -> None:
        self.fleet = fleet
        self.request = request
        self.present = request.present()
        self.refused: list[RefusalCount] = []
        self.ok: Bools = fleet.enabled_column.copy()
        self.candidates = len(fleet)
        self._count(Refusal.DISABLED)
        self._check_hosts()
        self._check_capacity()
        self._tallies: dict[str, Ints] = {}
        self.limits: list[OpenLimit] = []
        self.partitions: OpenPartitions | None = None
        for rule in request.rules:
            if not rule.soft:
                self._check_rule(rule)
        self.skews = self._find_skews()

    def narrow(self) -> None:
        """For a single server, check the skews and choose its partition."""
        for skew in self.skews:
            self._keep(skew.open()[skew.column], Refusal.SKEWED, skew.rule)
        self._choose_partition()

    # The checks

    def _count(self, reason: Refusal, rule: Rule | None = None) -> None:
        """Note how many candidates the last check removed."""
        left = int(np.count_nonzero(self.ok))
        if left < self.candidates:
            self.refused.append(RefusalCount(reason, self.candidates - left, rule))
            self.candidates = left

    def _keep(self, good: Bools, reason: Refusal, rule: Rule | None = None) -> None:
        self.ok &= good
        self._count(reason, rule)

    def _keep_only(self, hosts: Sequence[int], reason: Refusal) -> None:
        self._keep(self._mask(hosts), reason)

    def _drop(self, hosts: Sequence[int], reason: Refusal) -> None:
        if len(hosts):
            self.ok[list(hosts)] = False
            self._count(reason)

    def _mask(self, hosts: Sequence[int]) -> Bools:
        mask = np.zeros(self.fleet.size, np.bool_)
        mask[list(hosts)] = True
        return mask

    def _check_hosts(self) -> None:
        request = self.request
        if request.zone is not None:
            zone = self.fleet.aggregate_index(AVAILABILITY_ZONE, request.zone)
            column = self.fleet.division(AVAILABILITY_ZONE).column
            self._keep((column == zone) & (zone != NOWHERE), Refusal.OUTSIDE_ZONE)
        if request.targets is not None:
            self._keep_only(request.targets, Refusal.NOT_TARGETED)
        self._drop(request.excluded, Refusal.EXCLUDED)
        if request.moving is not None and not request.moving.may_stay:
            self._drop([request.moving.host], Refusal.EXCLUDED)
        if request.same_host is not None:
            self._keep_only(request.same_host, Refusal.NOT_SAME_HOST)
        self._drop(request.different_host, Refusal.NOT_DIFFERENT_HOST)

    def _check_capacity(self) -> None:
        moving = self.request.moving
        wanted = zip(self.request.resources, self.fleet.free_columns, _SHORTAGES, strict=True)
        for at, (need, free, shortage) in enumerate(wanted):
            if need:
                good = free >= need
                if moving is not None:
                    good[moving.host] = free[moving.host] + moving.held[at] >= need
                self._keep(good, shortage)

    def _check_rule(self, rule: Rule) -> None:
        division = self.fleet.division(rule.scope)
        if division.outside:
            self._keep(division.column != NOWHERE, Refusal.OUTSIDE_SCOPE, rule)
        if rule.identifier is not None:
            self._check_target(rule, division)
        elif rule.kind is Kind.AFFINITY:
            self._check_members(rule, division)
        elif rule.limit is not None:
            self._check_limit(rule, division, rule.limit)
        if rule.partitions is not None:
            self._check_partitions(rule, division, rule.partitions)

    def _check_target(self, rule: Rule, division: Division) -> None:
        inside = division.column == target_of(self.fleet, rule)
        if rule.kind is Kind.AFFINITY:
            self._keep(inside, Refusal.OUTSIDE_TARGET, rule)
        else:
            self._keep(~inside, Refusal.FORBIDDEN_TARGET, rule)

    def _check_members(self, rule: Rule, division: Division) -> None:
        """With members there are, a host must share an aggregate with some; which one is free where there are none."""
        if self.present.total:
            holding = settled(division, self.present, self._tally_of(rule.scope, division)) > 0
            self._keep(self._by_host(rule.scope, division, holding), Refusal.AWAY_FROM_MEMBERS, rule)

    def _check_limit(self, rule: Rule, division: Division, limit: int) -> None:
        if limit == 0:
            self.ok[:] = False
        elif rule.scope == HOST:
            self.ok[self.present.hosts[self.present.counts >= limit]] = False
        elif self.present.total:
            self.ok &= (self._tally_of(rule.scope, division) < limit)[division.column]
        self._count(Refusal.SCOPE_FULL, rule)
        if self.request.count > 1:
            left = limit - self._tally_of(rule.scope, division)
            self.limits.append(OpenLimit(rule.scope, division.column, left))

    def _check_partitions(self, rule: Rule, division: Division, number: int) -> None:
        """An aggregate is for one partition: for the one whose members it holds, or for any where it holds none."""
        holder = self._by_host(rule.scope, division, holders(division, self.present))
        self._keep(holder != SHARED, Refusal.SHARED_BY_PARTITIONS, rule)
        counts = np.zeros(number + 1, np.int64)
        for partition, inside in self.present.partitions.items():
            counts[partition] = inside.total
        self.partitions = OpenPartitions(rule, division.column, holder, counts, self.request.partition)
        if self.request.partition is not None:
            self._keep(self.partitions.open(self.request.partition), Refusal.OTHER_PARTITION, rule)

    def _choose_partition(self) -> None:
        """For a single server, the hosts of the partition that it comes to."""
        partitions = self.partitions
        if partitions is None or (chosen := partitions.choose(self.ok)) is None:
            return
        partitions.asked = chosen
        self._keep(partitions.open(chosen), Refusal.OTHER_PARTITION, partitions.rule)

    def _find_skews(self) -> list[OpenSkew]:
        """The skews, each over the aggregates in which some host passes every other check."""
        skews = []
        for rule in self.request.rules:
            if rule.max_skew is not None and self.candidates:
                division = self.fleet.division(rule.scope)
                feasible = np.zeros(division.aggregates + 1, np.bool_)
                feasible[division.column[self.ok]] = True
                counts = self._tally_of(rule.scope, division)
                skews.append(OpenSkew(rule, division.column, counts, feasible, rule.max_skew))
        return skews

    def _tally_of(self, scope: str, division: Division) -> Ints:
        if scope not in self._tallies:
            self._tallies[scope] = tally_of(division, self.present)
        return self._tallies[scope]

    def _by_host(self, scope: str, division: Division, values: NDArray[Values]) -> NDArray[Values]:
        """What holds for each aggregate, for each host."""
        return values[:-1] if scope == HOST else values[division.column]

    # The ranking

    def rank(self) -> None:
        """Rank the candidates."""
        flip = offset(self.fleet, self.request)
        order = self.fleet.order_column
        key = order & ~TIES | flip - 1 - order & TIES
        fields, high = lay_out(self.request.rules, self.present.total + self.request.count + 1)
        words = [*(np.zeros(self.fleet.size, np.int64) for _ in range(high)), key]
        for each in fields:
            self._add_preference(each, words[each.word])
        key *= self.ok
        self.ranking = Ranking(words, fields, flip)

    def _add_preference(self, field: RankingField, word: Ints) -> None:
        """Write a soft rule's preference, from 1 up; 0 stands for hosts in no aggregate of the scope."""
        rule = field.rule
        division = self.fleet.division(rule.scope)
        if rule.identifier is not None:
            inside = division.column == target_of(self.fleet, rule)
            liked = inside if rule.kind is Kind.AFFINITY else ~inside
            word += (1 + liked.astype(np.int64)) << field.shift
            return
        counts = self._tally_of(rule.scope, division)
        values = (field.top - counts if field.top else counts + 1) << field.shift
        values[-1] = 0
        word += values[:-1] if rule.scope == HOST else values[division.column]

    # One server

    def decide_one(self) -> Decision:
        """The best candidate, if there is one."""
        self.narrow()
        self.rank()
        if not self.candidates:
            return self._refuse()
        chosen = self._spare_for_others()
        host = self.ranking.best()
        return self._placed(self.ranking, [host], [self.ranking.row(host)], chosen)

    def _spare_for_others(self) -> list[int]:
        """Leave to other partitions what they need; the partition of the server, where the group is divided."""
        partitions = self.partitions
        if partitions is None or partitions.asked is None:
            return []
        self._keep(partitions.spare(partitions.asked, self.ok), Refusal.KEPT_FOR_PARTITIONS, partitions.rule)
        self.ranking.key[~self.ok] = 0
        return [partitions.asked]

    def _placed(
        self, ranking: Ranking, hosts: list[int], rows: list[tuple[int, ...]], partitions: list[int]
    ) -> Decision:
        return self._decision(Verdict.PLACED, ranking, tuple(hosts), tuple(rows), tuple(partitions))

    def _refuse(self, verdict: Verdict = Verdict.REFUSED) -> Decision:
        return self._decision(verdict, self.ranking, (), (), (), self.fleet.snapshot())

    def _decision(
        self,
        verdict: Verdict,
        ranking: Ranking,
        hosts: tuple[int, ...],
        rows: tuple[tuple[int, ...], ...],
        partitions: tuple[int, ...],
        fleet: Fleet | None = None,
    ) -> Decision:
        feasible = tuple((skew.rule, skew.feasible) for skew in self.skews)
        account = Account(tuple(self.refused), self.candidates, feasible, ranking, hosts, rows)
        return Decision(verdict, self.request, hosts, partitions, Reasons(account), fleet)


def settled(division: Division, members: Members, tally: Ints) -> Ints:
    """How many members each aggregate holds that stay there. A member on its way to another aggregate does not count
    until it has arrived, or is back."""
    if not members.between:
        return tally
    settled = tally.copy()
    for source, target in members.between:
        here, there = division.column[source], division.column[target]
        if here != there:
            settled[[here, there]] -= 1
    return settled


def holders(division: Division, members: Members) -> Ints:
    """The partition whose members each aggregate holds: ANY where it holds none, SHARED where it holds several."""
    holder = np.zeros(division.aggregates + 1, np.int64)
    for number, inside in members.partitions.items():
        aggregates = division.column[inside.hosts]
        before = holder[aggregates]
        holder[aggregates] = np.where((before == ANY) | (before == number), number, SHARED)
    return holder


def target_of(fleet: Fleet, rule: Rule) -> int:
    """The aggregate a rule names; an identifier that no host has joined matches no host at all."""
    index = fleet.aggregate_index(rule.scope, rule.identifier or "")
    return NO_AGGREGATE if index == NOWHERE else index


def tally_of(division: Division, members: Members) -> Ints:
    """How many members each aggregate holds; the last place is for members outside all of them."""
    counts = np.zeros(division.aggregates + 1, np.int64)
    if members.total:
        np.add.at(counts, division.column[members.hosts], members.counts)
    return counts


def hosts_sharing(scope: str, column: Ints, host: int) -> Ints | slice:
    """The hosts that share an aggregate of a scope with a host."""
    return slice(host, host + 1) if scope == HOST else np.flatnonzero(column == column[host])
