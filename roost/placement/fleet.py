"""The fleet: all hosts as NumPy columns, changed one event at a time and never rebuilt.

A host is a small integer, its place in every column. A snapshot shares the columns; a writer to a shared column
first, the fleet or the snapshot, copies that one column.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from roost.placement.rules import HOST

if TYPE_CHECKING:
    from roost.placement.index import HostIndex, Pool

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Values = TypeVar("Values", np.int64, np.bool_)

NOWHERE: Final = -1
"""The aggregate of a host that is in no aggregate of a scope."""
NO_AGGREGATE: Final = -2
"""The aggregate of an identifier that no host ever had: no host is in it."""

# One integer orders hosts by capacity: a bit that is always set, so that 0 can mean refused; the headroom, in whole
# per cent, so that hosts which differ by less count as equal and parallel schedulers spread over them; and the host's
# position, its number scrambled within the room of the columns. A seed says at which position to begin.
TIE_BITS: Final = 24
HEADROOM_BITS: Final = 7
TIES: Final = (1 << TIE_BITS) - 1
HEADROOM: Final = ((1 << HEADROOM_BITS) - 1) << TIE_BITS
LIVE: Final = 1 << 62
SCRAMBLE: Final = 0x9E3779
"""Odd, so that no two hosts have one position within any power of two."""
UNSCRAMBLE: Final = pow(SCRAMBLE, -1, 1 << TIE_BITS)
_VERSIONS: Final = count()

_FIRST_ROOM: Final = 16


class Resources(NamedTuple):
    """What a server takes, or what a host has."""

    vcpus: int = 0
    memory_mb: int = 0
    disk_gb: int = 0


class Column(Generic[Values]):
    """One value per host, shared between snapshots until the first write."""

    __slots__ = ("_blank", "_shared", "values")

    def __init__(self, values: NDArray[Values], blank: int) -> None:
        self.values: NDArray[Values] = values
        self._blank = blank
        self._shared = False

    def fork(self) -> "Column[Values]":
        """The same values for a snapshot: from now on both sides copy before they write."""
        other = Column(self.values, self._blank)
        self._shared = other._shared = True
        return other

    def put(self, host: int | Ints, value: int | NDArray[Values]) -> None:
        """Set one host's value, or each of several's, on a copy if a snapshot still reads the old one."""
        if self._shared:
            self.values = self.values.copy()
            self._shared = False
        self.values[host] = value

    def grow(self, room: int) -> None:
        """Make place for this many hosts."""
        grown = np.full(room, self._blank, self.values.dtype)
        grown[: len(self.values)] = self.values
        self.values = grown
        self._shared = False


def _numbers(room: int, blank: int = 0) -> Column[np.int64]:
    return Column(np.full(room, blank, np.int64), blank)


class ScopeColumn:
    """One way of dividing hosts: the aggregate of each, and the aggregates' identifiers."""

    __slots__ = ("_indexes_shared", "column", "indexes", "outside", "version")

    def __init__(self, column: Column[np.int64], indexes: dict[str, int], outside: int) -> None:
        self.column = column
        self.indexes = indexes
        """The aggregate of each identifier, shared with snapshots until an identifier is added."""
        self._indexes_shared = False
        self.version = next(_VERSIONS)
        """Changes whenever a host enters or leaves an aggregate; snapshots keep it as long as they are the same."""
        self.outside = outside
        """How many hosts are in no aggregate of this scope; 0 saves looking for them."""

    def fork(self) -> "ScopeColumn":
        other = ScopeColumn(self.column.fork(), self.indexes, self.outside)
        self._indexes_shared = other._indexes_shared = True
        other.version = self.version
        return other

    def index_of(self, identifier: str) -> int:
        """The aggregate of an identifier, which is new if no host was ever in it."""
        found = self.indexes.get(identifier)
        if found is None:
            if self._indexes_shared:
                self.indexes, self._indexes_shared = self.indexes.copy(), False
            found = self.indexes[identifier] = len(self.indexes)
        return found

    def put(self, host: int, aggregate: int) -> None:
        """Move a host into an aggregate, or out of all with NOWHERE."""
        self.outside += (aggregate == NOWHERE) - (int(self.column.values[host]) == NOWHERE)
        self.column.put(host, aggregate)
        self.version = next(_VERSIONS)


class Division(NamedTuple):
    """A scope as a decision reads it: each host's aggregate, how many aggregates, how many hosts outside."""

    column: Ints
    aggregates: int
    outside: int


class Fleet:
    """All hosts, as columns. Every change is one event, touches one host, and costs the same in any fleet."""

    __slots__ = (
        "_free",
        "_index",
        "_indexes",
        "_names",
        "_names_shared",
        "_numbers",
        "_order",
        "_scopes",
        "_spare",
        "_total",
        "_up",
        "changes",
    )

    def __init__(self) -> None:
        self._free = tuple(_numbers(_FIRST_ROOM) for _ in Resources._fields)
        self._total = tuple(_numbers(_FIRST_ROOM) for _ in Resources._fields)
        self._order = _numbers(_FIRST_ROOM)
        self._up: Column[np.bool_] = Column(np.zeros(_FIRST_ROOM, np.bool_), False)
        self._numbers: Ints = np.arange(_FIRST_ROOM)
        self._scopes: dict[str, ScopeColumn] = {}
        self._names: list[str | None] = []
        self._indexes: dict[str, int] = {}
        self._spare: list[int] = []
        self._names_shared = False
        self._index: HostIndex | None = None
        self.changes = 0
        """How many changes there have been."""

    # What there is

    def __len__(self) -> int:
        """How many hosts there are."""
        return len(self._indexes)

    @property
    def size(self) -> int:
        """How long the columns are: the hosts there are, and the places of those removed."""
        return len(self._names)

    def hosts(self) -> Iterator[int]:
        """Every host."""
        return iter(self._indexes.values())

    def index(self, name: str) -> int | None:
        """The host with this name."""
        return self._indexes.get(name)

    def name(self, host: int) -> str:
        """The name of a host."""
        name = self._names[host]
        if name is None:
            raise KeyError(host)
        return name

    def free(self, host: int) -> Resources:
        """What a host has left. Negative where its capacity shrank below what it carries."""
        return Resources(*(int(column.values[host]) for column in self._free))

    def total(self, host: int) -> Resources:
        """What a host has in all."""
        return Resources(*(int(column.values[host]) for column in self._total))

    def is_enabled(self, host: int) -> bool:
        """Whether a host takes servers."""
        return bool(self._up.values[host])

    def aggregate(self, host: int, scope: str) -> int:
        """The aggregate of a host in a scope, or NOWHERE."""
        return int(self.division(scope).column[host])

    def aggregate_index(self, scope: str, identifier: str) -> int:
        """The aggregate with this identifier, or NOWHERE if no host was ever in it."""
        found = self._scopes.get(scope)
        return NOWHERE if found is None else found.indexes.get(identifier, NOWHERE)

    def identifiers(self, scope: str) -> list[str]:
        """The identifiers of a scope's aggregates, in the order of their indexes."""
        if scope == HOST:
            return [name or "" for name in self._names]
        found = self._scopes.get(scope)
        return [] if found is None else list(found.indexes)

    # What a decision reads

    @property
    def free_columns(self) -> tuple[Ints, Ints, Ints]:
        """What is free of each resource."""
        vcpus, memory, disk = self._free
        size = self.size
        return vcpus.values[:size], memory.values[:size], disk.values[:size]

    @property
    def order_column(self) -> Ints:
        """The hosts' order by capacity."""
        column: Ints = self._order.values[: self.size]
        return column

    @property
    def enabled_column(self) -> Bools:
        """Which hosts take servers."""
        column: Bools = self._up.values[: self.size]
        return column

    def division(self, scope: str) -> Division:
        """How a scope divides the hosts; in a scope without aggregates, all hosts are outside."""
        size = self.size
        if scope == HOST:
            return Division(self._numbers[:size], size, 0)
        found = self._scopes.get(scope)
        if found is None:
            return Division(np.full(size, NOWHERE), 0, len(self))
        return Division(found.column.values[:size], len(found.indexes), found.outside)

    # What happens

    def add_host(
        self,
        name: str,
        total: Resources,
        *,
        free: Resources | None = None,
        enabled: bool = True,
        aggregates: Mapping[str, str] | None = None,
    ) -> int:
        """A host appears, with an aggregate for each scope it is in; its number is returned."""
        if name in self._indexes:
            raise ValueError(f"host '{name}' already exists")
        self._own_names()
        host = self._spare.pop() if self._spare else self._append()
        self._names[host] = name
        self._indexes[name] = host
        for scope in self._scopes.values():
            scope.outside += 1
        self._set_capacity(host, total, total if free is None else free)
        self.enable(host, enabled)
        for scope_name, identifier in (aggregates or {}).items():
            self.join(host, scope_name, identifier)
        return host

    def remove_host(self, host: int) -> None:
        """A host is gone for good; its number may be given to another."""
        self._own_names()
        self.enable(host, False)
        for scope in self._scopes.values():
            scope.put(host, NOWHERE)
            scope.outside -= 1
        del self._indexes[self.name(host)]
        self._names[host] = None
        self._set_capacity(host, Resources(), Resources())
        self._spare.append(host)

    def enable(self, host: int, enabled: bool = True) -> None:
        """A host comes up or goes down."""
        self.changes += 1
        if self._index is not None and enabled != self._up.values.item(host):
            bucket = self._bucket(host)
            note = self._index.join if enabled else self._index.part
            for scope, aggregate in self._aggregates(host):
                note(host, bucket, scope, aggregate)
            (self._index.enter if enabled else self._index.leave)(host, bucket)
        self._up.put(host, enabled)

    def claim(self, host: int, resources: Resources, servers: int = 1) -> None:
        """Servers arrive on a host."""
        share = self.headroom_with(host, resources, servers)
        for column, need in zip(self._free, resources, strict=True):
            if need:
                column.put(host, column.values.item(host) - servers * need)
        self._set_headroom(host, share)

    def release(self, host: int, resources: Resources, servers: int = 1) -> None:
        """Servers leave a host."""
        self.claim(host, resources, -servers)

    def set_total(self, host: int, total: Resources) -> None:
        """A host's capacity changes; what its servers take stays taken."""
        old, free = self.total(host), self.free(host)
        shifted = (f + new - was for f, new, was in zip(free, total, old, strict=True))
        self._set_capacity(host, total, Resources(*shifted))

    def set_room(self, hosts: Ints, total: Sequence[Ints], free: Sequence[Ints]) -> None:
        """Set what many hosts have and have left, as counted elsewhere: one column per resource."""
        share = np.full(len(hosts), 100)
        for kept, left, whole, unused in zip(self._total, self._free, total, free, strict=True):
            kept.put(hosts, whole)
            left.put(hosts, unused)
            share = np.minimum(share, np.where(whole > 0, 100 * unused // np.maximum(whole, 1), 100))
        share[~np.any(total, axis=0)] = 0
        self._order.put(hosts, LIVE | np.maximum(share, 0) << TIE_BITS | (hosts * SCRAMBLE & self._mask))
        self.changes += 1
        if self._index is not None:
            self.index_hosts()

    def join(self, host: int, scope: str, identifier: str) -> None:
        """A host enters an aggregate of a scope, and leaves the one it was in."""
        if scope == HOST:
            raise ValueError("every host is its own aggregate in the scope host; nothing can join it")
        found = self._scopes.get(scope)
        if found is None:
            found = self._scopes[scope] = ScopeColumn(_numbers(len(self._numbers), NOWHERE), {}, len(self))
        self._move(host, scope, found, found.index_of(identifier))

    def leave(self, host: int, scope: str) -> None:
        """A host leaves its aggregate of a scope."""
        if scope in self._scopes:
            self._move(host, scope, self._scopes[scope], NOWHERE)

    def _move(self, host: int, name: str, scope: ScopeColumn, aggregate: int) -> None:
        self.changes += 1
        if self._index is not None and self._up.values.item(host):
            bucket = self._bucket(host)
            self._index.part(host, bucket, name, scope.column.values.item(host))
            self._index.join(host, bucket, name, aggregate)
        scope.put(host, aggregate)

    def snapshot(self) -> "Fleet":
        """The fleet as it is now, untouched by what happens later, for the price of a few references."""
        other = Fleet.__new__(Fleet)
        other._free = tuple(column.fork() for column in self._free)
        other._total = tuple(column.fork() for column in self._total)
        other._order = self._order.fork()
        other._up = self._up.fork()
        other._numbers = self._numbers
        other._scopes = {name: scope.fork() for name, scope in self._scopes.items()}
        other._names, other._indexes, other._spare = self._names, self._indexes, self._spare
        self._names_shared = other._names_shared = True
        other._index, other.changes = None, 0
        return other

    # The index

    def index_hosts(self) -> None:
        """Keep an index from now on. It pays off where many decisions are made on this very fleet."""
        from roost.placement.index import HostIndex

        self._index = HostIndex(self.order_column, np.flatnonzero(self.enabled_column), len(self._numbers))

    @property
    def host_index(self) -> "HostIndex | None":
        """The index, where one is kept."""
        return self._index

    def pools(self, scope: str) -> "dict[int, Pool]":
        """The enabled hosts of each aggregate of a scope that has any, by the index."""
        assert self._index is not None
        found = self._index.pools.get(scope)
        if found is None:
            enabled = np.flatnonzero(self.enabled_column)
            found = self._index.divide(scope, self.division(scope).column, enabled, self.order_column)
        return found

    def scope(self, name: str) -> ScopeColumn | None:
        """How a scope divides the hosts, if any host has joined it."""
        return self._scopes.get(name)

    def headroom_with(self, host: int, resources: Resources, servers: int = 1) -> int:
        """How much of a host's scarcest resource is free, in whole per cent, once servers of a size have arrived.

        headroom = min over the resources the host has of floor(100 * free / total), within 0 and 100
        """
        share, known = 100, False
        for free, total, need in zip(self._free, self._total, resources, strict=True):
            whole = total.values.item(host)
            if whole > 0:
                known = True
                part = 100 * (free.values.item(host) - servers * need) // whole
                if part < share:
                    share = part
        return share if known and share > 0 else 0

    @property
    def room(self) -> int:
        """How many hosts the columns have room for: a power of two."""
        return len(self._numbers)

    @property
    def _mask(self) -> int:
        return len(self._numbers) - 1

    def _bucket(self, host: int) -> int:
        return int(self._order.values.item(host) >> TIE_BITS & 127)

    def _aggregates(self, host: int) -> Iterator[tuple[str, int]]:
        for name, scope in self._scopes.items():
            yield name, scope.column.values.item(host)

    def _own_names(self) -> None:
        if self._names_shared:
            self._names, self._indexes, self._spare = self._names[:], self._indexes.copy(), self._spare[:]
            self._names_shared = False

    def _append(self) -> int:
        host = len(self._names)
        if host > TIES:
            raise ValueError(f"a fleet holds {TIES + 1} hosts at most")
        self._names.append(None)
        if host == len(self._numbers):
            self._grow(2 * host)
        return host

    def _grow(self, room: int) -> None:
        self._numbers = np.arange(room)
        for column in (*self._free, *self._total, self._order, *(scope.column for scope in self._scopes.values())):
            column.grow(room)
        self._up.grow(room)
        positions = self._numbers * SCRAMBLE & self._mask
        self._order.values = np.where(self._order.values, self._order.values & ~TIES | positions, 0)
        if self._index is not None:
            self.index_hosts()

    def _set_capacity(self, host: int, total: Resources, free: Resources) -> None:
        for column, value in zip((*self._total, *self._free), (*total, *free), strict=True):
            column.put(host, value)
        self._set_headroom(host, self.headroom_with(host, Resources()))

    def _set_headroom(self, host: int, share: int) -> None:
        self.changes += 1
        order = self._order.values.item(host)
        before = order >> TIE_BITS & 127
        if share != before or not order:
            if self._index is not None and self._up.values.item(host):
                self._index.shift(host, before, share, self._scopes)
            self._order.put(host, LIVE | share << TIE_BITS | (host * SCRAMBLE & self._mask))


class _Tally(NamedTuple):
    """How many members each aggregate of a scope holds, counted on a version of the scope."""

    version: int
    column: Ints | None
    """The aggregate of each host; None where the scope is `host`."""
    counts: dict[int, int]


class Members:
    """How many members of a group each host holds, kept by single changes, so that no decision counts them again.

    Where the group is divided, each partition's own members are counted beside the whole.
    """

    __slots__ = ("_counts", "_hosts", "_places", "_tallies", "between", "changes", "partitions", "total")

    def __init__(self, hosts: Iterable[int] = ()) -> None:
        self._hosts: Ints = np.zeros(4, np.int64)
        self._counts: Ints = np.zeros(4, np.int64)
        self._places: dict[int, int] = {}
        self._tallies: dict[str, _Tally] = {}
        self.changes = 0
        """How many changes there have been."""
        self.total = 0
        self.between: tuple[tuple[int, int], ...] = ()
        """Of each member that moves, its two hosts: it counts on both, and will be on one of them."""
        self.partitions: dict[int, Members] = {}
        """The members of each partition, by its number; of those only that ever had one."""
        for host in hosts:
            self.add(host)

    def __getstate__(self) -> tuple[None, dict[str, object]]:
        """What goes to another process: all but the counts, which can be made again."""
        kept = {name: getattr(self, name) for name in self.__slots__ if name != "_tallies"}
        return None, {**kept, "_tallies": {}}

    @property
    def hosts(self) -> Ints:
        """The hosts that hold members, each once, in no particular order."""
        return self._hosts[: len(self._places)]

    @property
    def counts(self) -> Ints:
        """How many members each of these hosts holds."""
        return self._counts[: len(self._places)]

    def on(self, host: int) -> int:
        """How many members a host holds."""
        place = self._places.get(host)
        return 0 if place is None else int(self._counts[place])

    def add(self, host: int, servers: int = 1, partition: int | None = None) -> None:
        """Members arrive on a host."""
        if partition is not None:
            self.partitions.setdefault(partition, Members()).add(host, servers)
        place = self._places.get(host)
        if place is None:
            place = self._places[host] = len(self._places)
            if place == len(self._hosts):
                self._hosts = np.concatenate([self._hosts, self._hosts])
                self._counts = np.concatenate([self._counts, self._counts])
            self._hosts[place], self._counts[place] = host, 0
        self._counts[place] += servers
        self._count(host, servers)

    def remove(self, host: int, servers: int = 1, partition: int | None = None) -> None:
        """Members leave a host; the last place fills the gap of a host that holds none any more."""
        if partition is not None:
            self.partitions[partition].remove(host, servers)
        place = self._places[host]
        self._counts[place] -= servers
        self._count(host, -servers)
        if self._counts[place] > 0:
            return
        last = len(self._places) - 1
        moved = int(self._hosts[last])
        self._hosts[place], self._counts[place] = moved, self._counts[last]
        self._places[moved] = place
        del self._places[host]

    def tally(self, scope: str, division: ScopeColumn) -> dict[int, int]:
        """How many members each aggregate of a scope holds that holds any. Kept from one decision to the next, as long
        as no host enters or leaves an aggregate."""
        known = self._tallies.get(scope)
        if known is None or known.version != division.version:
            column = division.column.values
            known = self._tallies[scope] = _Tally(division.version, column, {})
            for aggregate, servers in zip(column[self.hosts].tolist(), self.counts.tolist(), strict=True):
                known.counts[aggregate] = known.counts.get(aggregate, 0) + servers
        return known.counts

    def by_host(self) -> dict[int, int]:
        """How many members each host holds that holds any; kept from one decision to the next."""
        known = self._tallies.get(HOST)
        if known is None:
            counts = dict(zip(self.hosts.tolist(), self.counts.tolist(), strict=True))
            known = self._tallies[HOST] = _Tally(0, None, counts)
        return known.counts

    def _count(self, host: int, servers: int) -> None:
        self.total += servers
        self.changes += 1
        for scope, tally in list(self._tallies.items()):
            if tally.column is not None and host >= len(tally.column):  # the host is newer than the count
                del self._tallies[scope]
                continue
            aggregate = host if tally.column is None else tally.column.item(host)
            left = tally.counts.get(aggregate, 0) + servers
            if left:
                tally.counts[aggregate] = left
            else:
                del tally.counts[aggregate]

    def copy(self) -> Self:
        """The same members, to be changed apart."""
        other = type(self)()
        other._tallies = {scope: each._replace(counts=each.counts.copy()) for scope, each in self._tallies.items()}
        other._hosts, other._counts = self._hosts.copy(), self._counts.copy()
        other._places, other.total = self._places.copy(), self.total
        other.between = self.between
        other.partitions = {number: inside.copy() for number, inside in self.partitions.items()}
        return other
