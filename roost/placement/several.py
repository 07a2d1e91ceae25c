"""Several servers of one request, by the columns.

They are placed one after another: each changes only what its own aggregates and its own host say, and the next is one
more argmax. Where that runs into a dead end, a bound tells whether there was a way at all, and if it cannot, the exact
search in `exact` does.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

import numpy as np

from roost.placement.board import Board, OpenLimit, OpenPartitions, OpenSkew, hosts_sharing
from roost.placement.decision import Decision, Refusal, Verdict, WorkBudget
from roost.placement.fleet import HEADROOM, NOWHERE, TIE_BITS, Bools, Ints
from roost.placement.ranking import Ranking
from roost.placement.rules import HOST, Kind, Rule

_TRIES: Final = 8
"""How many aggregates are tried for an affinity, best first, before the exact search looks at all of them."""


class _Quotas(NamedTuple):
    """What the exact search found: how many servers each kind of host may take, and how many to place."""

    limit: OpenLimit
    servers: int
    most: bool
    """Whether no more can be placed."""


class _Preference(NamedTuple):
    """What one more member in an aggregate changes for the hosts in it."""

    scope: str
    column: Ints
    word: int
    step: int


@dataclass(slots=True)
class _State:
    """What changes while the servers of one request are placed one after another."""

    ranking: Ranking
    limits: list[OpenLimit]
    preferences: list[_Preference]
    skews: list[OpenSkew]
    partitions: OpenPartitions | None


@dataclass(slots=True)
class _Filled:
    """Servers placed one after another, as many as found a place."""

    ranking: Ranking
    hosts: list[int] = field(default_factory=list)
    rows: list[tuple[int, ...]] = field(default_factory=list)
    partitions: list[int] = field(default_factory=list)


class BoardOfSeveral(Board):
    """A request for several servers before one fleet."""

    def decide_several(self, budget: WorkBudget) -> Decision:
        """All servers one after another; if that ends short, all at once."""
        self.rank()
        if not self.candidates:
            return self._refuse()
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
                key[hosts_sharing(limit.scope, limit.column, host)] = 0
        for skew in state.skews:
            skew.counts[skew.column[host]] += 1
        for preference in state.preferences:
            if preference.column[host] == NOWHERE:  # hosts in no aggregate share nothing, and stay last
                continue
            hosts = hosts_sharing(preference.scope, preference.column, host)
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
        return key & ~HEADROOM | self.fleet.headroom_with(host, need, servers) << TIE_BITS

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

    def _wide_limits(self) -> list[OpenLimit]:
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
        limit = OpenLimit("", column, np.append(shares.servers, 0))
        return _Quotas(limit, min(int(shares.servers.sum()), most), shares.most)

    def _kind_ranks(self, hosts: Ints, kind: Ints, number: int) -> Ints:
        """The kinds in order of their best host."""
        best = np.zeros(number, np.int64)
        np.maximum.at(best, kind, self.ranking.words[0][hosts])
        ranks: Ints = best.argsort().argsort()
        return ranks

    def _fill_kinds(self, quotas: _Quotas) -> _Filled:
        """Place the servers with a quota for each kind; the quotas are such that the skews hold at the end."""
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


def _open_hosts(skews: list[OpenSkew]) -> Bools | None:
    """The hosts that every skew leaves open now; None where there is no skew."""
    among: Bools | None = None
    for skew in skews:
        hosts = skew.open()[skew.column]
        among = hosts if among is None else among & hosts
    return among


def _sums(places: Ints, values: Ints, number: int) -> Ints:
    return np.bincount(places, values, number).astype(np.int64)
