"""Requests for several servers, of which Nova asks about one after another.

A host that a filter drops for the first server is not offered again for the second, which may well belong there. So
the other hosts pass too, but without their allocation candidates: Nova skips such a host, and it gets its candidates
back when the next server is looked at.
"""

import threading
import weakref
from collections.abc import Sequence
from typing import Any


class Rationing:
    """The hosts of one request, of which only some may be taken at a time."""

    def __init__(self, spec: Any) -> None:
        self._spec = weakref.ref(spec)
        self._held_back: list[tuple[Any, Any]] = []
        self._served: str | None = None

    @classmethod
    def of(cls, thread: threading.local, spec: Any) -> "Rationing":
        """That of the request which this thread is at work on: a new one if it is another than before."""
        known: Rationing | None = getattr(thread, "rationing", None)
        if known is None or known._spec() is not spec:
            known = thread.rationing = cls(spec)
        return known

    def restored(self, hosts: Sequence[Any]) -> list[Any]:
        """All hosts, with all their candidates."""
        for host, allocation_candidates in self._held_back:
            host.allocation_candidates = allocation_candidates
        self._held_back = []
        return list(hosts)

    def only(self, chosen: Sequence[Any], hosts: Sequence[Any], server: str) -> list[Any]:
        """All hosts, of which a server can only take the chosen ones; none if none was chosen."""
        if not chosen:
            return []
        kept = {id(host) for host in chosen}
        self._held_back = [(host, host.allocation_candidates) for host in hosts if id(host) not in kept]
        for host, _ in self._held_back:
            host.allocation_candidates = []
        if self._held_back:
            self._served = server
        return list(hosts)

    def served(self, server: str) -> bool:
        """Whether a server has its place: then Nova asks for alternates, which it would share among all servers of the
        request, though the place of one is not that of another."""
        return self._served == server
