"""Place servers: by the index, which looks at the best hosts only, or by the columns where the index cannot decide."""

from dataclasses import replace

from roost.placement import walk
from roost.placement.board import Board, offset
from roost.placement.decision import Account, Decision, Reasons, Request, Verdict, WorkBudget
from roost.placement.fleet import Bools, Fleet
from roost.placement.ranking import Names
from roost.placement.several import BoardOfSeveral


def place(fleet: Fleet, request: Request, budget: WorkBudget | None = None) -> Decision:
    """Where each server of a request goes, or why nowhere. A `budget` given here is shared with other requests, and
    takes the place of the request's own."""
    index = fleet.host_index
    found = None if index is None else walk.find(fleet, index, request, offset(fleet, request))
    if found is None:
        return scan(fleet, request, budget)
    placed = request if request.count == 1 or request.least is None else replace(request, least=None)
    return Decision(Verdict.PLACED, placed, found.hosts, found.partitions, LateReasons(fleet, request, found))


class LateReasons(Reasons):
    """The reasons of a decision by the index, which keeps no copy of the fleet or the members: they must be read before
    these change, if they are to be read at all."""

    __slots__ = ("_changes", "_fleet", "_found", "_request")

    def __init__(self, fleet: Fleet, request: Request, found: walk.Found) -> None:
        self._account = self._names = None
        self._fleet, self._request, self._found = fleet, request, found
        self._changes = fleet.changes + request.members.changes

    def _check(self) -> None:
        if self._fleet.changes + self._request.members.changes != self._changes:
            raise RuntimeError("the fleet or the members have changed since the decision; read its reasons earlier")

    def _count(self) -> Account:
        self._check()
        return scan(self._fleet, self._request).reasons.account()

    def _name(self) -> Names | None:
        self._check()
        return self._found.names()


def scan(fleet: Fleet, request: Request, budget: WorkBudget | None = None) -> Decision:
    """The same by the columns alone: for what the index cannot tell, and for the reasons."""
    if request.count == 1:
        return Board(fleet, request).decide_one()
    return BoardOfSeveral(fleet, request).decide_several(WorkBudget(request.budget) if budget is None else budget)


def candidates(fleet: Fleet, request: Request) -> Bools:
    """The hosts that pass every check for the first server of a request."""
    board = Board(fleet, request)
    if request.count == 1:
        board.narrow()
    return board.ok


def eligible(fleet: Fleet, request: Request) -> Bools:
    """The hosts that pass every check but skews, and are open to some partition."""
    return Board(fleet, request).ok
