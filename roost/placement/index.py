"""The index: hosts in queues by headroom, so that a decision looks at the best hosts and not at all of them.

    headroom 100 % | slots: 1..1.....  ->  256 positions each: ..1.....1..
              99 % | slots: .1.......  ->  ...
               .   |
               0 % | slots: ......1..

A queue has a bucket for each per cent of headroom. A bucket is a set of positions in two levels of bits, so that the
next host in order costs a few operations on integers, and so does a change. A position is a host's number scrambled: a
seed says at which position to begin, and hosts of equal headroom are taken in turn from there.

All enabled hosts are in one queue. Each scope that a decision asked for has a pool for each aggregate: the plain set of
its hosts, and for a large one a queue as well. A snapshot has no index, and is decided on by its columns.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import numpy as np

from roost.placement.fleet import NOWHERE, SCRAMBLE, TIE_BITS, UNSCRAMBLE, Ints, ScopeColumn

_BUCKETS: Final = 101
_LARGE: Final = 256
"""How many hosts an aggregate has before it gets its own queue."""


class HostQueue:
    """Hosts in the order of headroom, the most first."""

    __slots__ = ("_mask", "_slots", "_tops")

    def __init__(self, mask: int) -> None:
        self._mask = mask
        self._tops = [0] * _BUCKETS
        self._slots: dict[int, int] = {}

    def add(self, bucket: int, position: int) -> None:
        """A host comes in."""
        slot = position >> 8
        place = bucket << 16 | slot
        bits = self._slots.get(place, 0)
        if not bits:
            self._tops[bucket] |= 1 << slot
        self._slots[place] = bits | 1 << (position & 255)

    def remove(self, bucket: int, position: int) -> None:
        """A host goes."""
        slot = position >> 8
        place = bucket << 16 | slot
        bits = self._slots[place] ^ 1 << (position & 255)
        if bits:
            self._slots[place] = bits
        else:
            del self._slots[place]
            self._tops[bucket] ^= 1 << slot

    def move(self, before: int, after: int, position: int) -> None:
        """A host goes from one bucket to another."""
        slot, bit, slots, tops = position >> 8, 1 << (position & 255), self._slots, self._tops
        place = before << 16 | slot
        bits = slots[place] ^ bit
        if bits:
            slots[place] = bits
        else:
            del slots[place]
            tops[before] ^= 1 << slot
        place = after << 16 | slot
        bits = slots.get(place, 0)
        if not bits:
            tops[after] |= 1 << slot
        slots[place] = bits | bit

    def walk(self, offset: int) -> Iterator[int]:
        """All hosts, those with the most headroom first, and among equals from a position on and round."""
        slots, first = self._slots, offset >> 8
        for bucket in range(_BUCKETS - 1, -1, -1):
            top = self._tops[bucket]
            if not top:
                continue
            base = bucket << 16
            later = top >> first << first
            here = slots.get(base | first, 0)
            late = here >> (offset & 255) << (offset & 255)
            if here:
                later ^= 1 << first
            if late:
                yield from self._hosts(late, first)
            for ahead in (later, top & ((1 << first) - 1)):
                while ahead:
                    slot = (ahead & -ahead).bit_length() - 1
                    ahead &= ahead - 1
                    yield from self._hosts(slots[base | slot], slot)
            if here != late:
                yield from self._hosts(here ^ late, first)

    def _hosts(self, bits: int, slot: int) -> Iterator[int]:
        base = (slot << 8) - 1
        while bits:
            yield (base + (bits & -bits).bit_length()) * UNSCRAMBLE & self._mask
            bits &= bits - 1


class Pool:
    """The enabled hosts of one aggregate."""

    __slots__ = ("hosts", "queue")

    def __init__(self) -> None:
        self.hosts: set[int] = set()
        self.queue: HostQueue | None = None


class HostIndex:
    """The enabled hosts of a fleet by headroom, and by aggregate."""

    __slots__ = ("_large", "_mask", "everyone", "pools")

    def __init__(self, order: Ints, enabled: Ints, room: int) -> None:
        self._mask = room - 1
        self.everyone = HostQueue(self._mask)
        self.pools: dict[str, dict[int, Pool]] = {}
        self._large: list[tuple[str, dict[int, Pool]]] = []
        """The scopes in which some aggregate has a queue."""
        for host, bucket in zip(enabled.tolist(), (order[enabled] >> TIE_BITS & 127).tolist(), strict=True):
            self.everyone.add(bucket, self.position(host))

    def position(self, host: int) -> int:
        """Where a host stands among those of equal headroom."""
        return host * SCRAMBLE & self._mask

    def offset(self, seed: int) -> int:
        """The position to begin at."""
        return seed & self._mask

    def divide(self, scope: str, column: Ints, enabled: Ints, order: Ints) -> dict[int, Pool]:
        """The pools of a scope, made when a decision first asks for them and kept up to date from then on."""
        pools: dict[int, Pool] = {}
        aggregates = column[enabled]
        sorting = aggregates.argsort(kind="stable")
        found, starts = np.unique(aggregates[sorting], return_index=True)
        parts = np.split(enabled[sorting], starts)[1:]
        for aggregate, hosts in zip(found.tolist(), parts, strict=True):
            if aggregate != NOWHERE:
                pool = pools[aggregate] = Pool()
                pool.hosts.update(hosts.tolist())
                if len(pool.hosts) > _LARGE:
                    self._enqueue(pool, zip(hosts.tolist(), (order[hosts] >> TIE_BITS & 127).tolist(), strict=True))
        self.pools[scope] = pools
        if any(pool.queue is not None for pool in pools.values()):
            self._large.append((scope, pools))
        return pools

    def _enqueue(self, pool: Pool, hosts: Iterable[tuple[int, int]]) -> None:
        pool.queue = HostQueue(self._mask)
        for host, bucket in hosts:
            pool.queue.add(bucket, self.position(host))

    def enter(self, host: int, bucket: int) -> None:
        """A host is enabled; `join` says where it is."""
        self.everyone.add(bucket, self.position(host))

    def leave(self, host: int, bucket: int) -> None:
        """A host is disabled, once it has left its aggregates."""
        self.everyone.remove(bucket, self.position(host))

    def shift(self, host: int, before: int, after: int, scopes: Mapping[str, ScopeColumn]) -> None:
        """The headroom of a host changes, which is in one aggregate of each of these scopes, or in none."""
        position = host * SCRAMBLE & self._mask
        self.everyone.move(before, after, position)
        for scope, pools in self._large:
            aggregate = scopes[scope].column.values.item(host)
            if aggregate != NOWHERE:
                queue = pools[aggregate].queue
                if queue is not None:
                    queue.move(before, after, position)

    def join(self, host: int, bucket: int, scope: str, aggregate: int) -> None:
        """An enabled host enters an aggregate."""
        pools = self.pools.get(scope)
        if pools is None or aggregate == NOWHERE:
            return
        pool = pools.get(aggregate)
        if pool is None:
            pool = pools[aggregate] = Pool()
        pool.hosts.add(host)
        if pool.queue is not None:
            pool.queue.add(bucket, self.position(host))
        elif len(pool.hosts) > 2 * _LARGE:
            del self.pools[scope]  # rebuilt, with a queue for this pool, when it is next needed
            self._large = [each for each in self._large if each[0] != scope]

    def part(self, host: int, bucket: int, scope: str, aggregate: int) -> None:
        """An enabled host leaves an aggregate."""
        pools = self.pools.get(scope)
        if pools is None or aggregate == NOWHERE:
            return
        pool = pools[aggregate]
        pool.hosts.remove(host)
        if pool.queue is not None:
            pool.queue.remove(bucket, self.position(host))
        if not pool.hosts:
            del pools[aggregate]
