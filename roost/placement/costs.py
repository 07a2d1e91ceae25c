"""What hosts cost the soft rules: by the aggregate that they are in, and by the members that it holds."""

from collections.abc import Collection
from typing import NamedTuple

from roost.placement.fleet import NOWHERE, Fleet, Ints
from roost.placement.ranking import OUTSIDE

Places = tuple[int, ...]
"""The aggregate of a host in the scope of each soft rule."""
Cost = tuple[int, ...]
"""What a host costs each soft rule, in their order: less is better. See `RankingField.bits`."""


class CountedScope(NamedTuple):
    """The members that each aggregate of a scope holds; the column is None where the scope is `host`."""

    scope: str
    column: Ints | None
    tally: dict[int, int]

    def aggregate(self, host: int) -> int:
        """The aggregate of a host."""
        return host if self.column is None else self.column.item(host)


class LikedTarget(NamedTuple):
    """A soft rule that names an aggregate; the column is None where no host ever joined it."""

    column: Ints | None
    aggregate: int
    near: bool
    floor: int = 0

    def place(self, host: int) -> int:
        """The aggregate of a host."""
        return NOWHERE if self.column is None else self.column.item(host)

    def cost(self, place: int) -> int:
        """What the hosts of an aggregate cost."""
        return int((place == self.aggregate) is not self.near)


class Gathering:
    """A soft affinity between members."""

    __slots__ = ("counted", "place")

    def __init__(self, counted: CountedScope) -> None:
        self.counted, self.place = counted, counted.aggregate

    @property
    def floor(self) -> int:
        """No host costs less."""
        return -max((number for place, number in self.counted.tally.items() if place != NOWHERE), default=0)

    def cost(self, place: int) -> int:
        """What the hosts of an aggregate cost."""
        return OUTSIDE if place == NOWHERE else -self.counted.tally.get(place, 0)


class Spreading:
    """A soft anti-affinity between members: the fewest that an aggregate with enabled hosts holds, and how many
    aggregates hold so few, or some of them at least."""

    __slots__ = ("_aggregates", "_left", "_number", "counted", "floor", "place")

    def __init__(self, counted: CountedScope, fleet: Fleet) -> None:
        self.counted, self.place = counted, counted.aggregate
        # Where each host is an aggregate, the members' own hosts are all there are once each of them holds some.
        own = counted.column is None
        self._aggregates: Collection[int] = counted.tally if own else fleet.pools(counted.scope)
        self._number = len(fleet) if own else len(self._aggregates)
        self._count()

    def _count(self) -> None:
        tally = self.counted.tally
        if len(tally) < self._number:
            self.floor, self._left = 0, self._number - len(tally)
        else:
            held = [tally.get(aggregate, 0) for aggregate in self._aggregates]
            self.floor = min(held, default=0)
            self._left = held.count(self.floor)

    def cost(self, place: int) -> int:
        """What the hosts of an aggregate cost."""
        return OUTSIDE if place == NOWHERE else self.counted.tally.get(place, 0)

    def take(self, host: int) -> None:
        """A host has one more member; the tally has it already."""
        if self.cost(self.place(host)) == self.floor + 1:
            self._left -= 1
            if self._left <= 0:
                self._count()
