"""Placing servers: which hosts may take them, which of these is best, and all servers of a request together.

One server takes one pass over the columns: every check narrows the candidates and counts what it removed, the soft
rules and the capacity rank those left, and the best is an argmax. Several servers repeat the argmax; each server placed
changes only what its own aggregates and its own host say. Where that runs into a dead end, a bound tells whether there
was a way at all, and if it cannot, the exact search in `exact` does.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from roost.placement import walk
from roost.placement.decision import (
    Account,
    Decision,
    Ranking,
    RankingField,
    Reasons,
    Refusal,
    RefusalCount,
    Request,
    Verdict,
    WorkBudget,
)
from roost.placement.fleet import (
    HEADROOM,
    NOWHERE,
    TIE_BITS,
    TIES,
    Bools,
    Division,
    Fleet,
    Ints,
    Members,
    Values,
    headroom,
)
from roost.placement.rules import AVAILABILITY_ZONE, HOST, Kind, Rule

_SOFT_SHIFT: Final = TIE_BITS + 7
_WORD_BITS: Final = 62
_TRIES: Final = 8
"""How many aggregates are tried for an affinity, best first, before the exact search looks at all of them."""

ANY: Final = 0
SHARED: Final = -1
"""What an aggregate is for, beside the number of a partition: for any that comes first, or, for now, for none."""

_NO_AGGREGATE: Final = NOWHERE - 1

_SHORTAGES: Final = (Refusal.TOO_FEW_VCPUS, Refusal.TOO_LITTLE_MEMORY, Refusal.TOO_LITTLE_DISK)


def place(fleet: Fleet, request: Request, budget: WorkBudget | None = None) -> Decision:
    """Where each server of a request goes, or why nowhere. A `budget` given here is shared with other requests, and
    takes the place of the request's own."""
    index = fleet.host_index
    if index is not None and request.count == 1:
        found = walk.find(fleet, index, request, offset(fleet, request))
        if found is not None:
            reasons = Reasons.later(fleet, request.members, lambda: scan(fleet, request).reasons.read())
            partitions = () if found.partition is None else (found.partition,)
            return Decision(Verdict.PLACED, request, (found.host,), partitions, reasons)
    return scan(fleet, request, budget)


def scan(fleet: Fleet, request: Request, budget: WorkBudget | None = None) -> Decision:
    """The same by the columns alone: for what the index cannot tell, and for the reasons."""
    board = _Board(fleet, request)
    if request.count == 1:
        board.narrow()
    board.rank()
    if request.count == 1 or not board.candidates:
        return board.decide_one()
    return board.decide_several(WorkBudget(request.budget) if budget is None else budget)


def offset(fleet: Fleet, request: Request) -> int:
    """The position at which the seed of a request begins among hosts of equal headroom."""
    return _scattered(request.seed) & (fleet.room - 1)


def candidates(fleet: Fleet, request: Request) -> Bools:
    """The hosts that pass every check for the first server of a request."""
    board = _Board(fleet, request)
    if request.count == 1:
        board.narrow()
    return board.ok


def eligible(fleet: Fleet, request: Request) -> Bools:
    """The hosts that pass every check but skews, and are open to some partition."""
    return _Board(fleet, request).ok


def still_holds(fleet: Fleet, decision: Decision, members: Members) -> bool:
    """Whether a placement that was decided earlier can be carried out on this fleet, beside these members."""
    request = replace(decision.request, members=members)
    if not decision or not eligible(fleet, request)[list(decision.hosts)].all():
        return False
    room = (
        free >= servers * need
        for host, servers in Counter(decision.hosts).items()
        for free, need in zip(fleet.free(host), request.resources, strict=True)
        if need and servers > 1
    )
    return all(room) and not broken_rules(fleet, decision, members)


def broken_rules(fleet: Fleet, decision: Decision, members: Members) -> tuple[Rule, ...]:
    """The hard rules that a decision would break if the group's members were these. It looks at the chosen hosts
    only."""
    request = replace(decision.request, members=members)
    present, hosts = request.present(), np.array(decision.hosts, np.int64)
    feasible = dict(decision.feasible)
    broken = []
    for rule in request.rules:
        kept = rule.soft or _kept(fleet, rule, present, hosts, feasible.get(rule))
        if not kept or (rule.partitions and not _divided(fleet.division(rule.scope), present, decision)):
            broken.append(rule)
    return tuple(broken)


def _kept(fleet: Fleet, rule: Rule, present: Members, hosts: Ints, feasible: Bools | None) -> bool:
    division = fleet.division(rule.scope)
    chosen = division.column[hosts]
    if NOWHERE in chosen:
        return False
    if rule.identifier is not None:
        return bool(np.all((chosen == _target(fleet, rule)) == (rule.kind is Kind.AFFINITY)))
    before = _tally(division, present)
    if rule.kind is Kind.AFFINITY:
        settled = _settled(division, present, before)
        return bool(np.all(settled[chosen] > 0) if present.total else np.all(chosen == chosen[0]))
    after = before.copy()
    np.add.at(after, chosen, 1)
    limit = rule.limit
    if limit is not None and after[chosen].max() > limit:
        return False
    if rule.max_skew is None or feasible is None:
        return True
    return bool(after[chosen].max() <= after[np.flatnonzero(feasible)].min() + rule.max_skew)


def _settled(division: Division, members: Members, tally: Ints) -> Ints:
    """How many members each aggregate holds that stay there: nobody can be sure to be with one that is on its way to
    another aggregate until it has arrived, or is back."""
    if not members.between:
        return tally
    settled = tally.copy()
    for source, target in members.between:
        here, there = division.column[source], division.column[target]
        if here != there:
            settled[[here, there]] -= 1
    return settled


def _divided(division: Division, present: Members, decision: Decision) -> bool:
    """Whether no aggregate comes to hold two partitions by a decision."""
    holder = _holders(division, present)
    for host, partition in zip(decision.hosts, decision.partitions, strict=True):
        aggregate = division.column[host]
        if holder[aggregate] not in (ANY, partition):
            return False
        holder[aggregate] = partition
    return True


def _holders(division: Division, members: Members) -> Ints:
    """The partition whose members each aggregate holds: ANY where it holds none, SHARED where it holds several."""
    holder = np.zeros(division.aggregates + 1, np.int64)
    for number, inside in members.partitions.items():
        aggregates = division.column[inside.hosts]
        before = holder[aggregates]
        holder[aggregates] = np.where((before == ANY) | (before == number), number, SHARED)
    return holder


def _target(fleet: Fleet, rule: Rule) -> int:
    """The aggregate a rule names; an identifier that no host has joined matches no host at all."""
    index = fleet.aggregate_index(rule.scope, rule.identifier or "")
    return _NO_AGGREGATE if index == NOWHERE else index


def _tally(division: Division, members: Members) -> Ints:
    """How many members each aggregate holds; the last place is for members outside all of them."""
    counts = np.zeros(division.aggregates + 1, np.int64)
    if members.total:
        np.add.at(counts, division.column[members.hosts], members.counts)
    return counts


class _Limit(NamedTuple):
    """How many more members each aggregate of a scope may take."""

    scope: str
    column: Ints
    left: Ints


class _Quotas(NamedTuple):
    """What the exact search found: how many servers each kind of host may take, and how many to place."""

    limit: _Limit
    servers: int
    most: bool
    """Whether no more can be placed."""


class _Preference(NamedTuple):
    """What one more member in an aggregate changes for the hosts in it."""

    scope: str
    column: Ints
    word: int
    step: int


class _Skew(NamedTuple):
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
class _Partitions:
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
        """A partition that has a place keeps to it while what nobody has is just enough for those that have none."""
        waiting = int(np.count_nonzero(self.counts[1:] == 0))
        own: Bools = among & (self.holder == partition)
        if not waiting or not own.any():
            return among
        unused = np.unique(self.column[among & (self.holder == ANY)])
        return own if len(unused) <= waiting else among

    def take(self, host: int, partition: int) -> None:
        """Account for one more member."""
        self.counts[partition] += 1
        self.holder[_hosts_in(self.rule.scope, self.column, host)] = partition


@dataclass(slots=True)
class _State:
    """What changes while the servers of one request are placed one after another."""

    ranking: Ranking
    limits: list[_Limit]
    preferences: list[_Preference]
    skews: list[_Skew]
    partitions: _Partitions | None


@dataclass(slots=True)
class _Filled:
    """Servers placed one after another, as far as that went."""

    ranking: Ranking
    hosts: list[int] = field(default_factory=list)
    rows: list[tuple[int, ...]] = field(default_factory=list)
    partitions: list[int] = field(default_factory=list)


class _Board:
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
        self.limits: list[_Limit] = []
        self.partitions: _Partitions | None = None
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
        inside = division.column == _target(self.fleet, rule)
        if rule.kind is Kind.AFFINITY:
            self._keep(inside, Refusal.OUTSIDE_TARGET, rule)
        else:
            self._keep(~inside, Refusal.FORBIDDEN_TARGET, rule)

    def _check_members(self, rule: Rule, division: Division) -> None:
        """With members there are, a host must share an aggregate with some; which one is free where there are none."""
        if self.present.total:
            holding = _settled(division, self.present, self._tally_of(rule.scope, division)) > 0
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
            self.limits.append(_Limit(rule.scope, division.column, left))

    def _check_partitions(self, rule: Rule, division: Division, number: int) -> None:
        """An aggregate is for one partition: for the one whose members it holds, or for any where it holds none."""
        holder = self._by_host(rule.scope, division, _holders(division, self.present))
        self._keep(holder != SHARED, Refusal.SHARED_BY_PARTITIONS, rule)
        counts = np.zeros(number + 1, np.int64)
        for partition, inside in self.present.partitions.items():
            counts[partition] = inside.total
        self.partitions = _Partitions(rule, division.column, holder, counts, self.request.partition)
        if self.request.partition is not None:
            self._keep(self.partitions.open(self.request.partition), Refusal.OTHER_PARTITION, rule)

    def _choose_partition(self) -> None:
        """For a single server, the hosts of the partition that it comes to."""
        partitions = self.partitions
        if partitions is None or (chosen := partitions.choose(self.ok)) is None:
            return
        partitions.asked = chosen
        self._keep(partitions.open(chosen), Refusal.OTHER_PARTITION, partitions.rule)

    def _find_skews(self) -> list[_Skew]:
        """The skews, each over the aggregates in which some host passes every other check."""
        skews = []
        for rule in self.request.rules:
            if rule.max_skew is not None and self.candidates:
                division = self.fleet.division(rule.scope)
                feasible = np.zeros(division.aggregates + 1, np.bool_)
                feasible[division.column[self.ok]] = True
                counts = self._tally_of(rule.scope, division)
                skews.append(_Skew(rule, division.column, counts, feasible, rule.max_skew))
        return skews

    def _tally_of(self, scope: str, division: Division) -> Ints:
        if scope not in self._tallies:
            self._tallies[scope] = _tally(division, self.present)
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
        fields, high = self._lay_out()
        words = [*(np.zeros(self.fleet.size, np.int64) for _ in range(high)), key]
        for each in fields:
            self._add_preference(each, words[each.word])
        key *= self.ok
        self.ranking = Ranking(words, fields, flip)

    def _lay_out(self) -> tuple[tuple[RankingField, ...], int]:
        """A field for each soft rule, the last one lowest in the last word, and how many words stand before that."""
        most = self.present.total + self.request.count + 1
        slots: list[tuple[Rule, int, int, int]] = []
        word, shift = 0, _SOFT_SHIFT
        for rule in reversed([rule for rule in self.request.rules if rule.soft]):
            width = 2 if rule.identifier is not None else most.bit_length()
            if shift + width > _WORD_BITS:
                word, shift = word + 1, 0
            slots.append((rule, word, shift, width))
            shift += width
        tops = {Kind.ANTI_AFFINITY: most, Kind.AFFINITY: 0}
        fields = [
            RankingField(rule, word - at, start, width, 0 if rule.identifier else tops[rule.kind])
            for rule, at, start, width in reversed(slots)
        ]
        return tuple(fields), word

    def _add_preference(self, field: RankingField, word: Ints) -> None:
        """Write a soft rule's preference, from 1 up; 0 stands for hosts in no aggregate of the scope."""
        rule = field.rule
        division = self.fleet.division(rule.scope)
        if rule.identifier is not None:
            inside = division.column == _target(self.fleet, rule)
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
        account = Account(tuple(self.refused), self.candidates, feasible, ranking, rows)
        return Decision(verdict, self.request, hosts, partitions, Reasons(account), fleet)

    # Several servers

    def decide_several(self, budget: WorkBudget) -> Decision:
        """All servers one after another; if that ends short, all at once."""
        cells = self._cells()
        filled = self._fill(self._state(), self.request.count) if cells is None else self._fill_a_cell(cells)
        filled = self._gather(filled, budget)
        if len(filled.hosts) == self.request.count:
            return self._placed_several(filled)
        return self._search(filled, budget)

    def _placed_several(self, filled: _Filled, *, cut_short: bool = False) -> Decision:
        """The servers that found a place, all of them or as many as must."""
        hosts, rows, partitions = tuple(filled.hosts), tuple(filled.rows), tuple(filled.partitions)
        placed = self._decision(Verdict.PLACED, filled.ranking, hosts, rows, partitions)
        return replace(placed, request=replace(self.request, count=len(hosts), least=None), cut_short=cut_short)

    def _end(self, filled: _Filled, verdict: Verdict) -> Decision:
        """What the quick search found, if it is enough, where the exact one finds no more."""
        cut_short = verdict is Verdict.UNDECIDED
        if len(filled.hosts) >= self.least:
            return self._placed_several(filled, cut_short=cut_short)
        return replace(self._refuse_several(verdict), cut_short=cut_short)

    @property
    def least(self) -> int:
        """How many servers must find a place."""
        return self.request.count if self.request.least is None else self.request.least

    def _refuse_several(self, verdict: Verdict) -> Decision:
        """A refusal that also counts the hosts that the skews closed to the first server."""
        for skew in self.skews:
            self._keep(skew.open()[skew.column], Refusal.SKEWED, skew.rule)
        return self._refuse(verdict)

    def _state(self) -> _State:
        limits = [limit._replace(left=limit.left.copy()) for limit in self.limits]
        skews = [skew._replace(counts=skew.counts.copy()) for skew in self.skews]
        partitions = None if self.partitions is None else self.partitions.copy()
        return _State(self.ranking.copy(), limits, self._preferences(), skews, partitions)

    def _preferences(self) -> list[_Preference]:
        found = []
        for each in self.ranking.fields:
            if each.rule.identifier is None:
                column = self.fleet.division(each.rule.scope).column
                step = -1 << each.shift if each.top else 1 << each.shift
                found.append(_Preference(each.rule.scope, column, each.word, step))
        return found

    def _fill(self, state: _State, count: int) -> _Filled:
        """Place each server on the best host that the ones before it have left, as far as that goes."""
        ranking = state.ranking
        key = ranking.key
        filled = _Filled(ranking)
        taken: dict[int, int] = {}
        for _ in range(count):
            among = _open_hosts(state.skews)
            if state.partitions is not None:
                open_to = key > 0 if among is None else (key > 0) & among
                partition = state.partitions.choose(open_to)
                if partition is None:
                    break
                among = state.partitions.spare(partition, open_to & state.partitions.open(partition))
            host = ranking.best(among)
            if not key[host] or (among is not None and not among[host]):
                break
            filled.rows.append(ranking.row(host))
            filled.hosts.append(host)
            taken[host] = taken.get(host, 0) + 1
            self._take(state, host, taken[host])
            if state.partitions is not None:
                assert partition is not None
                filled.partitions.append(partition)
                state.partitions.take(host, partition)
        return filled

    def _take(self, state: _State, host: int, servers: int) -> None:
        """Account for one more server on a host."""
        key = state.ranking.key
        for limit in state.limits:
            aggregate = limit.column[host]
            limit.left[aggregate] -= 1
            if not limit.left[aggregate]:
                key[_hosts_in(limit.scope, limit.column, host)] = 0
        for skew in state.skews:
            skew.counts[skew.column[host]] += 1
        for preference in state.preferences:
            if preference.column[host] == NOWHERE:  # hosts in no aggregate share nothing, and stay last
                continue
            hosts = _hosts_in(preference.scope, preference.column, host)
            word = state.ranking.words[preference.word]
            word[hosts] += preference.step * (key[hosts] > 0)
        if key[host]:
            key[host] = self._key_after(int(key[host]), host, servers)

    def _key_after(self, key: int, host: int, servers: int) -> int:
        """A host's key once it carries so many of the servers: 0 where no other fits."""
        need = self.request.resources
        left = [free - servers * each for free, each in zip(self.fleet.free(host), need, strict=True)]
        if any(free < each for free, each in zip(left, need, strict=True) if each):
            return 0
        share = headroom(left, self.fleet.total(host)) << TIE_BITS
        return key & ~HEADROOM | share

    # Several servers that must share an aggregate

    def _together(self) -> list[Rule]:
        """The rules that bind the servers to one aggregate which no member has chosen yet."""
        return [] if self.present.total else [rule for rule in self.request.rules if rule.together]

    def _cells(self) -> Ints | None:
        """A number for each host, equal for hosts that share every aggregate which the servers must share."""
        columns = [self.fleet.division(rule.scope).column for rule in self._together()]
        return _kinds(columns) if columns else None

    def _fill_a_cell(self, cells: Ints) -> _Filled:
        """Try the cells that may hold all servers, the one with the best host first; where fewer servers are enough,
        the cells that may hold most of them."""
        most = np.minimum(self._most(cells, int(cells.max()) + 1), self.request.count)
        self._keep((most >= self.least)[cells], Refusal.TOO_SMALL_FOR_ALL, self._together()[0])
        self.ranking.key[~self.ok] = 0
        among, best = self.ok.copy(), _Filled(self.ranking)
        for _ in range(_TRIES):
            left = np.flatnonzero(among)
            largest = int(most[cells[left]].max(initial=0))
            if largest <= len(best.hosts):
                break
            inside = cells == cells[self.ranking.best(among & (most == largest)[cells])]
            filled = self._fill_inside(inside)
            best = max(best, filled, key=lambda each: len(each.hosts))
            among &= ~inside
        return best

    def _fill_inside(self, inside: Bools) -> _Filled:
        state = self._state()
        state.ranking.key[~inside] = 0
        return self._fill(state, self.request.count)

    # Several servers that would rather share an aggregate

    def _gathering(self) -> Rule | None:
        """The first soft rule, if it is an affinity: what it asks of several servers depends on all of them."""
        first = next((rule for rule in self.request.rules if rule.soft), None)
        return first if first and first.kind is Kind.AFFINITY and first.identifier is None else None

    def _gather(self, filled: _Filled, budget: WorkBudget) -> _Filled:
        """All servers in one aggregate of the first soft affinity, where one can hold them and that keeps more of the
        members together than one server after another would.

        kept together = sum over the aggregates of (members there, old and new)²
        """
        rule = self._gathering()
        if rule is None:
            return filled
        count, division = self.request.count, self.fleet.division(rule.scope)
        members = self._tally_of(rule.scope, division)
        gain = np.append((2 * members[:-1] + count) * count, 0)
        if len(filled.hosts) == count:
            new = np.bincount(division.column[filled.hosts] + 1, minlength=len(members))
            gain[gain <= int(((2 * members[:-1] + new[1:]) * new[1:]).sum())] = 0
        cells = _kinds([self.fleet.division(each.scope).column for each in (*self._together(), rule)])
        large = self._most(cells, int(cells.max()) + 1) >= count
        among = self.ok & (gain > 0)[division.column] & large[cells]
        worth_it = among.copy()
        for _ in range(_TRIES):
            if not among.any():
                return filled
            inside = cells == cells[self.ranking.best(among)]
            gathered = self._fill_inside(inside)
            if len(gathered.hosts) == count:
                return gathered
            among &= ~inside
        found = self._divide(count, count, budget, rule, worth_it)
        return filled if isinstance(found, Verdict) else self._fill_kinds(found)

    def _room(self) -> Ints:
        """How many of the servers each host can take, by its capacity and by its own aggregates' limits."""
        room = np.full(self.fleet.size, self.request.count, np.int64)
        for need, free in zip(self.request.resources, self.fleet.free_columns, strict=True):
            if need:
                np.minimum(room, free // need, out=room)
        for limit in self.limits:
            np.minimum(room, limit.left[limit.column], out=room)
        return room * self.ok

    def _wide_limits(self) -> list[_Limit]:
        """The limits that several hosts share; those of single hosts are in their room already."""
        return [limit for limit in self.limits if limit.scope != HOST]

    def _most(self, cells: Ints, number: int) -> Ints:
        """No more servers than this fit into each cell.

        most(cell) = min over the limits of sum over the limit's aggregates of min(left there, room of its hosts)
        """
        room = self._room()
        hosts = np.flatnonzero(room)
        room, cells = room[hosts], cells[hosts]
        most = _sums(cells, room, number)
        for limit in self._wide_limits():
            width = len(limit.left)
            pairs, place = np.unique(cells * width + limit.column[hosts], return_inverse=True)
            inside = np.minimum(_sums(place, room, len(pairs)), limit.left[pairs % width])
            np.minimum(most, _sums(pairs // width, inside, number), out=most)
        return most

    # Several servers, all at once

    def _search(self, filled: _Filled, budget: WorkBudget) -> Decision:
        """More servers than the quick search has placed, all at once: first whether a bound allows them at all."""
        cells = self._cells()
        cells = np.zeros(self.fleet.size, np.int64) if cells is None else cells
        most = min(int(self._most(cells, int(cells.max()) + 1).max()), self.request.count)
        least = max(self.least, len(filled.hosts) + 1)
        if most < least:
            return self._end(filled, Verdict.REFUSED)
        found = self._divide(least, most, budget)
        if isinstance(found, Verdict):
            return self._end(filled, found)
        whole = self._fill_kinds(found)
        if len(whole.hosts) == self.request.count:
            whole = self._gather(whole, budget)
        return self._placed_several(whole, cut_short=not found.most)

    def _divide(
        self, least: int, most: int, budget: WorkBudget, gathering: Rule | None = None, among: Bools | None = None
    ) -> _Quotas | Verdict:
        """How many servers each kind of host takes, by the exact search: `most`, or as many as can be."""
        try:
            from roost.placement import exact
        except ImportError:  # no HiGHS, as in a nova-scheduler: what the quick search did not find stays unknown
            return Verdict.UNDECIDED
        if not budget.left:
            return Verdict.UNDECIDED
        limits = self._wide_limits()
        near = [*self._together(), *([gathering] if gathering else [])]
        together = [self.fleet.division(rule.scope).column for rule in near]
        columns = [*(limit.column for limit in limits), *(skew.column for skew in self.skews), *together]
        room = self._room() if among is None else self._room() * among
        hosts = np.flatnonzero(room)
        kind = _kinds([column[hosts] for column in columns])
        _, first = np.unique(kind, return_index=True)
        rows = iter([column[hosts[first]] for column in columns])
        shares = exact.divide(
            least,
            most,
            _sums(kind, room[hosts], len(first)),
            self._kind_ranks(hosts, kind, len(first)),
            [exact.Cap(next(rows), limit.left) for limit in limits],
            [exact.Level(next(rows), skew.counts, skew.feasible, skew.allowed) for skew in self.skews],
            list(rows),
            budget,
        )
        if isinstance(shares, exact.Unsolved):
            return Verdict.REFUSED if shares is exact.Unsolved.IMPOSSIBLE else Verdict.UNDECIDED
        column = np.full(self.fleet.size, NOWHERE)
        column[hosts] = kind
        limit = _Limit("", column, np.append(shares.servers, 0))
        return _Quotas(limit, min(int(shares.servers.sum()), most), shares.most)

    def _kind_ranks(self, hosts: Ints, kind: Ints, number: int) -> Ints:
        """The kinds in order of their best host."""
        best = np.zeros(number, np.int64)
        np.maximum.at(best, kind, self.ranking.words[0][hosts])
        ranks: Ints = best.argsort().argsort()
        return ranks

    def _fill_kinds(self, quotas: _Quotas) -> _Filled:
        """Place the servers with a quota for each kind; the skews hold at the end by the quotas' making."""
        state, limit = self._state(), quotas.limit
        state.skews.clear()
        state.limits.append(limit)
        state.ranking.key[(limit.left == 0)[limit.column]] = 0
        filled = self._fill(state, quotas.servers)
        assert len(filled.hosts) == quotas.servers, "quotas that the search found can be filled"
        return filled


def _kinds(columns: Sequence[Ints]) -> Ints:
    """A number for each host, from 0 up, equal for hosts that every column says the same of."""
    kinds = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        kinds = np.unique(kinds * (int(column.max(initial=0)) + 2) + column + 1, return_inverse=True)[1].reshape(-1)
    return kinds


def _open_hosts(skews: list[_Skew]) -> Bools | None:
    """The hosts that every skew leaves open now; None where there is no skew."""
    among: Bools | None = None
    for skew in skews:
        hosts = skew.open()[skew.column]
        among = hosts if among is None else among & hosts
    return among


def _hosts_in(scope: str, column: Ints, host: int) -> Ints | slice:
    """The hosts that share an aggregate of a scope with a host."""
    return slice(host, host + 1) if scope == HOST else np.flatnonzero(column == column[host])


def _sums(places: Ints, values: Ints, number: int) -> Ints:
    return np.bincount(places, values, number).astype(np.int64)


def _scattered(seed: int) -> int:
    """Scatter a seed's bits, so that neighbouring seeds order ties quite differently."""
    mixed = seed * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF
    return (mixed ^ mixed >> 31) * 0xBF58476D1CE4E5B9 >> 20 & 0xFFFFFFFF
