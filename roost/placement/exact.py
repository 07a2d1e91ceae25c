"""The exact search: how many servers go to each kind of host, as a mixed-integer programme solved by HiGHS.

Hosts that lie in the same aggregates of every scope in question are one kind, so the programme grows with the number of
such kinds and hardly with the fleet. What a search costs is counted in work (`WorkBudget`): the size of the programme,
once for building it and once for every node that the solver opens. The clock plays no part, so the same request gets
the same answer on a busy machine.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, NamedTuple

import highspy
import numpy as np

from roost.placement.decision import WorkBudget
from roost.placement.fleet import Bools, Ints

_NODES_FOR_A_PREFERENCE: Final = 100
"""Preferring one placement over another is tried only where the budget still pays for this many nodes."""


class Unsolved(Enum):
    """Why there is no answer."""

    IMPOSSIBLE = auto()
    OUT_OF_WORK = auto()


class Cap(NamedTuple):
    """Aggregates that take so many more servers and no more."""

    aggregate: Ints
    """The aggregate of each kind."""
    left: Ints


class Level(NamedTuple):
    """Aggregates of which none that takes a server may stand too far above the lowest."""

    aggregate: Ints
    counts: Ints
    feasible: Bools
    allowed: int


@dataclass(slots=True)
class Programme:
    """Rows and columns as they are added, and the solver's answer."""

    cost: list[float] = field(default_factory=list)
    upper: list[float] = field(default_factory=list)
    row_lower: list[float] = field(default_factory=list)
    row_upper: list[float] = field(default_factory=list)
    starts: list[int] = field(default_factory=lambda: [0])
    indexes: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    optimal: bool = False
    """Whether the last answer is proven to be the best."""

    def column(self, upper: float, cost: float = 0.0) -> int:
        """A whole-numbered unknown from 0 to a bound; its number is returned."""
        self.upper.append(upper)
        self.cost.append(cost)
        return len(self.upper) - 1

    def row(self, terms: list[tuple[int, float]], lower: float, upper: float) -> None:
        """A sum of unknowns within bounds."""
        self.indexes += [index for index, _ in terms]
        self.values += [value for _, value in terms]
        self.starts.append(len(self.indexes))
        self.row_lower.append(lower)
        self.row_upper.append(upper)

    def rows(self, groups: Ints, upper: Ints) -> None:
        """For each group of the first unknowns, their sum is at most the group's bound."""
        order = groups.argsort(kind="stable")
        found, counts = np.unique(groups, return_counts=True)
        self.starts += (len(self.indexes) + counts.cumsum()).tolist()
        self.indexes += order.tolist()
        self.values += [1.0] * len(order)
        self.row_lower += [0.0] * len(found)
        self.row_upper += upper[found].astype(np.float64).tolist()

    @property
    def size(self) -> int:
        """The unknowns and the terms of all sums: what building the programme or opening a node costs."""
        return len(self.upper) + len(self.indexes)

    def solve(self, budget: WorkBudget, enough: float | None = None, start: Ints | None = None) -> Ints | Unsolved:
        """The values of the unknowns with the least cost found within the budget; any whose cost is `enough` will do.
        The search may `start` from an answer."""
        nodes = budget.left // self.size - 1
        if nodes < 1:
            return Unsolved.OUT_OF_WORK
        solver = highspy.Highs()
        options = {
            "output_flag": False,
            "mip_rel_gap": 0.0,
            "threads": 1,
            "mip_max_nodes": min(nodes, 2**31 - 1),
            "mip_pscost_minreliable": 0,  # else trying out branches at the first nodes takes more than all the nodes
        }
        for option, value in (options if enough is None else {**options, "objective_target": enough}).items():
            solver.setOptionValue(option, value)
        solver.passModel(self._model())
        if start is not None:
            known = highspy.HighsSolution()
            known.col_value = start.astype(np.float64).tolist()
            solver.setSolution(known)
        solver.run()
        status, info = solver.getModelStatus(), solver.getInfo()
        budget.spend(self.size * (1 + max(int(info.mip_node_count), 1)))
        self.optimal = status == highspy.HighsModelStatus.kOptimal
        if status == highspy.HighsModelStatus.kInfeasible:
            return Unsolved.IMPOSSIBLE
        if info.primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
            return Unsolved.OUT_OF_WORK
        answer: Ints = np.rint(np.array(solver.getSolution().col_value)).astype(np.int64)
        return answer

    def _model(self) -> highspy.HighsLp:
        model = highspy.HighsLp()
        model.num_col_, model.num_row_ = len(self.upper), len(self.row_lower)
        model.col_cost_, model.col_lower_, model.col_upper_ = self.cost, [0.0] * len(self.upper), self.upper
        model.row_lower_, model.row_upper_ = self.row_lower, self.row_upper
        model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        model.a_matrix_.start_, model.a_matrix_.index_, model.a_matrix_.value_ = self.starts, self.indexes, self.values
        model.integrality_ = [highspy.HighsVarType.kInteger] * len(self.upper)
        return model


class Shares(NamedTuple):
    """How many servers each kind of host can take at once."""

    servers: Ints
    most: bool
    """Whether no more servers than these can be placed."""


def divide(
    least: int,
    most: int,
    room: Ints,
    rank: Ints,
    caps: list[Cap],
    levels: list[Level],
    together: list[Ints],
    budget: WorkBudget,
) -> Shares | Unsolved:
    """How many servers each kind of host takes: `most` of them or as many as can be, and no fewer than `least`.

    That there is a way comes first. Then, where the budget still allows it, kinds of higher rank are preferred.
    """
    if budget.left < 2 * len(room) * (2 + len(caps) + len(levels) + len(together)):
        return Unsolved.OUT_OF_WORK
    programme = Programme()
    for each in room.tolist():
        programme.column(each, -1.0)
    # Without a level to keep, any part of a placement is a placement. To look for as many as fit, and to use `most` of
    # them, is far easier for the solver than to hit a number.
    programme.row([(kind, 1.0) for kind in range(len(room))], least, most if levels else float(room.sum()))
    for cap in caps:
        programme.rows(cap.aggregate, cap.left)
    for level in levels:
        _keep_level(programme, level, most)
    for aggregates in together:
        keep_together(programme, [kinds for _, kinds in _by_aggregate(aggregates)], most)
    answer = programme.solve(budget, enough=0.5 - most)
    if isinstance(answer, Unsolved):
        return answer
    found = int(answer[: len(room)].sum())
    proven = found >= most or programme.optimal
    if budget.left >= programme.size * _NODES_FOR_A_PREFERENCE:
        answer = _prefer(programme, rank, answer if found <= most else None, min(found, most), budget, answer)
    return Shares(answer[: len(room)], proven)


def _prefer(
    programme: Programme, rank: Ints, start: Ints | None, servers: int, budget: WorkBudget, otherwise: Ints
) -> Ints:
    """The same number of servers on kinds of higher rank, if that is found."""
    programme.cost[: len(rank)] = (-rank / len(rank)).tolist()
    programme.row_lower[0] = programme.row_upper[0] = servers
    better = programme.solve(budget, start=start)
    return otherwise if isinstance(better, Unsolved) else better


def _by_aggregate(aggregates: Ints) -> list[tuple[int, list[int]]]:
    """The kinds in each aggregate."""
    kinds: dict[int, list[int]] = {}
    for kind, aggregate in enumerate(aggregates.tolist()):
        kinds.setdefault(aggregate, []).append(kind)
    return list(kinds.items())


def _keep_level(programme: Programme, level: Level, count: int) -> None:
    """With the lowest count as an unknown: no feasible aggregate is below it, none that gains is too far above it.

    An aggregate that is too high already may stay so, if it gains nothing: a switch of 0 or 1 lets it.
    """
    members = dict(_by_aggregate(level.aggregate))
    start = level.counts[level.feasible]
    lowest = programme.column(float(start.min() + count))
    for aggregate in np.flatnonzero(level.feasible).tolist():
        held = int(level.counts[aggregate])
        gained = [(kind, 1.0) for kind in members.get(aggregate, [])]
        programme.row([*gained, (lowest, -1.0)], -held, highspy.kHighsInf)
        above = held - level.allowed - int(start.min())
        if above <= 0:
            programme.row([*gained, (lowest, -1.0)], -highspy.kHighsInf, level.allowed - held)
        else:
            gains = programme.column(1.0)
            programme.row([*gained, (gains, -float(count))], -highspy.kHighsInf, 0)
            terms = [*gained, (lowest, -1.0), (gains, float(above))]
            programme.row(terms, -highspy.kHighsInf, level.allowed - held + above)


def keep_apart(
    programme: Programme, sets: Mapping[tuple[int, int | None], list[int]], most: int
) -> dict[tuple[int, int | None], int]:
    """In each aggregate only the unknowns of one partition may be above 0, and no more than so many in sum; the switch
    of each aggregate and partition."""
    switches = {}
    by_aggregate: dict[int, list[tuple[int, float]]] = {}
    for place, unknowns in sets.items():
        switch = switches[place] = programme.column(1.0)
        programme.row([*((unknown, 1.0) for unknown in unknowns), (switch, -float(most))], -highspy.kHighsInf, 0)
        by_aggregate.setdefault(place[0], []).append((switch, 1.0))
    for terms in by_aggregate.values():
        programme.row(terms, 0, 1)
    return switches


def keep_together(programme: Programme, sets: list[list[int]], most: int) -> None:
    """Only the unknowns of one set may be above 0, and no more than so many in sum."""
    chosen = []
    for unknowns in sets:
        switch = programme.column(1.0)
        chosen.append((switch, 1.0))
        programme.row([*((unknown, 1.0) for unknown in unknowns), (switch, -float(most))], -highspy.kHighsInf, 0)
    programme.row(chosen, 1, 1)
