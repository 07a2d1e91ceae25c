"""Requests for several servers, of which Nova asks about one after another.

A host that a filter drops for the first server is not offered again for the second, which may well belong there. So
all hosts pass, and those that the present server must not take are held back: Nova skips a host that has no allocation
candidates, and theirs say that they are empty. Filters that read them (NUMATopologyFilter, PciPassthroughFilter) run
through all of them, as ever.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from typing import Any


class Withheld(list[Any]):
    """The allocation candidates of a host that is held back: all there to read, and none to take."""

    def __bool__(self) -> bool:
        return False


class Rationing:
    """The hosts of one request, of which only some may be taken at a time."""

    def __init__(self, spec: Any) -> None:
        self._spec = weakref.ref(spec)
        self._served: str | None = None

    @classmethod
    def of(cls, thread: threading.local, spec: Any) -> Rationing:
        """That of the request which this thread is at work on: a new one if it is another than before."""
        known: Rationing | None = getattr(thread, "rationing", None)
        if known is None or known._spec() is not spec:
            known = thread.rationing = cls(spec)
        return known

    def restored(self, hosts: Sequence[Any]) -> list[Any]:
        """All hosts, none of them held back."""
        for host in hosts:
            if isinstance(host.allocation_candidates, Withheld):
                host.allocation_candidates = list(host.allocation_candidates)
        return list(hosts)

    def only(self, chosen: Sequence[Any], hosts: Sequence[Any], server: str) -> list[Any]:
        """All hosts, of which a server can only take the chosen ones; none if none was chosen."""
        if not chosen:
            return []
        kept = {id(host) for host in chosen}
        for host in hosts:
            if id(host) not in kept:
                host.allocation_candidates = Withheld(host.allocation_candidates)
                self._served = server
        return list(hosts)

    def served(self, server: str) -> bool:
        """Whether a server has its place: then Nova asks for alternates, which it would share among all servers of the
        request, though the place of one is not that of another."""
        return self._served == server
