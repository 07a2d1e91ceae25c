"""Is there an order in which these operations could have happened one by one?

The search of Wing and Gong, with Lowe's memory of what was tried: take any operation that no other had ended before it
began, do it to the state, and go on with the rest; one that comes to the same rest in the same state turns back.
An operation of unknown outcome may take effect at any time after it began, or never.

The state is that of one server group: where each member holds its claim, and the servers outside that may join. What an
operation may answer in a state is said by `apply`, from the promises of the API and from nothing else.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

FOREVER = float("inf")

NOWHERE = ""
"""Where a server is that found no host."""


class Group(NamedTuple):
    """A group whose rule is one member a host, and what could become a member of it."""

    members: frozenset[tuple[str, str]]
    """Each member with its host; `NOWHERE` if it found none."""
    others: frozenset[tuple[str, str]]
    """Servers that were members and are no longer."""

    @property
    def taken(self) -> frozenset[str]:
        """The hosts that hold a member."""
        return frozenset(host for _, host in self.members if host != NOWHERE)


@dataclass(frozen=True, slots=True)
class Operation:
    """What a client asked for between two moments, and what came back."""

    kind: str
    """create, delete, add, remove or read."""
    begun: float
    ended: float
    """`FOREVER` if no answer came."""
    server: str = ""
    host: str = NOWHERE
    """Of a creation: where the server came to be."""
    seen: frozenset[str] = frozenset()
    """Of a read: the members that it showed."""
    refused: bool = False
    """The answer was that this cannot be done."""

    @property
    def known(self) -> bool:
        return self.ended < FOREVER


def apply(operation: Operation, group: Group, hosts: int) -> Group | None:
    """The group after an operation; None if the operation cannot have ended as it did in this state."""
    members = dict(group.members)
    if operation.kind == "read":
        return group if members.keys() == operation.seen else None
    if operation.kind == "create":
        full = len(group.taken) >= hosts
        # No two share a host, and none is refused while a host is free.
        if (operation.host == NOWHERE) != full or operation.host in group.taken:
            return None
        return group._replace(members=group.members | {(operation.server, operation.host)})
    others = dict(group.others)
    if operation.kind == "delete":
        return Group(_without(group.members, operation.server), _without(group.others, operation.server))
    if operation.kind == "add":
        if operation.server in members:
            return None if operation.refused else group
        if operation.refused or operation.server not in others:
            return group if operation.refused and operation.server not in others else None
        joined = (operation.server, others[operation.server])
        return Group(group.members | {joined}, group.others - {joined})
    if (operation.server in members) == operation.refused:
        return None
    if operation.refused:
        return group
    left = (operation.server, members[operation.server])
    return Group(group.members - {left}, group.others | {left})


def _without(servers: frozenset[tuple[str, str]], server: str) -> frozenset[tuple[str, str]]:
    return frozenset(each for each in servers if each[0] != server)


def order(history: Sequence[Operation], hosts: int) -> list[Operation] | None:
    """An order in which the history of a new group could have happened, which may use so many hosts; None if none."""
    operations = sorted(history, key=lambda operation: operation.begun)
    everything = (1 << len(operations)) - 1
    must = sum(1 << place for place, operation in enumerate(operations) if operation.known)
    tried: set[tuple[int, Group]] = set()
    path: list[int] = []
    # Each entry: the group, what is left to do, and what may come next and was not yet tried.
    stack = [(Group(frozenset(), frozenset()), everything, _next(operations, everything))]
    while stack:
        group, left, choices = stack[-1]
        if not left & must:
            return [operations[place] for place in path]
        if not choices:
            stack.pop()
            if path:
                path.pop()
            continue
        place = choices.pop()
        after = apply(operations[place], group, hosts)
        rest = left & ~(1 << place)
        if after is not None and (rest, after) not in tried:
            tried.add((rest, after))
            path.append(place)
            stack.append((after, rest, _next(operations, rest)))
    return None


def _next(operations: Sequence[Operation], left: int) -> list[int]:
    """Those that may be first of what is left: nothing else that is left had ended before they began."""
    remaining = [place for place in range(len(operations)) if left >> place & 1]
    first_end = min((operations[place].ended for place in remaining), default=FOREVER)
    possible = [place for place in remaining if operations[place].begun <= first_end]
    # Taken from the end of the list: those that ended first are tried first, which is most often right.
    return sorted(possible, key=lambda place: operations[place].ended, reverse=True)


def linearizable(history: Iterable[Operation], hosts: int) -> bool:
    """Whether there is such an order."""
    return order(list(history), hosts) is not None
