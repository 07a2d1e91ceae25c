"""What is asked of Roost, and what is known without a question: servers outside groups must not wait for Roost."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from roost_nova.service import Hanging, Silent

logger = logging.getLogger(__name__)

_MOST = 1000
"""Groups remembered as none of Roost's."""


class Service(Protocol):
    """Roost; each question raises `Silent` when there is no answer within so many seconds."""

    def adopted(self, seconds: float) -> frozenset[str]:
        """The servers that Roost made members of groups, and of which Nova does not know that they are."""
        ...

    def choose(self, wanted: Mapping[str, Any], seconds: float) -> Mapping[str, Any] | None:
        """The hosts that may take a server, with their weights; None if no group of Roost's binds the server."""
        ...


@dataclass(frozen=True)
class Wanted:
    """A server that needs a host, and how many more of the same request come with it."""

    instance_id: str
    group_id: str | None
    project_id: str
    user_id: str
    resources: Mapping[str, int]
    count: int = 1
    partition: int | None = None
    token: str | None = None


class Asker:
    """Asks for all threads of one nova-scheduler."""

    def __init__(self, service: Service, time_limit: float, quick_limit: float, cache_seconds: float) -> None:
        self._service = service
        self._time_limit = time_limit
        self._quick_limit = quick_limit
        self._cache_seconds = cache_seconds
        self._adopted: frozenset[str] = frozenset()
        self._adopted_until = 0.0
        self._hung = False
        self._hung_until = 0.0
        self._foreign: dict[str, float] = {}
        self._refreshing = threading.Lock()

    def choose(self, wanted: Wanted, hosts: Sequence[Any]) -> Mapping[str, float] | None:
        """The weight of each host that may take the server, by its name; None if all may. Raises `Silent`."""
        if wanted.group_id is None and wanted.instance_id not in self._known_adopted():
            return None
        if wanted.group_id is not None and self._foreign.get(wanted.group_id, 0.0) > time.monotonic():
            return None
        self._must_not_hang()
        try:
            # Of what is not asked for, a Roost that is older than this plug-in need not know.
            asked = {key: value for key, value in asdict(wanted).items() if value is not None}
            answer = self._service.choose({**asked, "hosts": _offer(hosts)}, self._time_limit)
        except Hanging:
            self._note_hanging()
            raise
        if answer is not None:
            return dict(zip(answer["hosts"], answer["weights"]))
        if wanted.group_id is not None:
            self._remember_foreign(wanted.group_id)
        return None

    def _known_adopted(self) -> frozenset[str]:
        """As Roost last said; one thread asks again when that is old, and only for a moment."""
        if time.monotonic() > self._adopted_until and self._refreshing.acquire(blocking=False):
            try:
                self._adopted = self._service.adopted(self._quick_limit)
                self._hung = False
            except Silent as error:
                logger.warning("Roost does not say which servers it made members of groups: %s", error)
            finally:
                # From now, not from before the wait, or the next callers would wait as well.
                self._adopted_until = time.monotonic() + self._cache_seconds
                self._refreshing.release()
        return self._adopted

    def _must_not_hang(self) -> None:
        """Raise `Silent` while Roost hangs; one that hung before is first asked something small."""
        if not self._hung:
            return
        if time.monotonic() < self._hung_until:
            raise Silent("it did not answer a moment ago")
        try:
            self._service.adopted(self._quick_limit)
        except Silent:
            self._note_hanging()
            raise
        self._hung = False

    def _note_hanging(self) -> None:
        self._hung, self._hung_until = True, time.monotonic() + self._cache_seconds

    def _remember_foreign(self, group_id: str) -> None:
        now = time.monotonic()
        if len(self._foreign) >= _MOST:
            self._foreign = {known: until for known, until in self._foreign.items() if until > now}
        if len(self._foreign) < _MOST:
            self._foreign[group_id] = now + self._cache_seconds


def _offer(hosts: Sequence[Any]) -> dict[str, Any]:
    """The hosts as columns: their names, and what they have and have used of each resource."""
    return {
        "names": [host.host for host in hosts],
        "vcpus_total": [host.vcpus_total * (host.cpu_allocation_ratio or 1.0) for host in hosts],
        "vcpus_used": [host.vcpus_used for host in hosts],
        "memory_mb_total": [host.total_usable_ram_mb * (host.ram_allocation_ratio or 1.0) for host in hosts],
        "memory_mb_used": [host.total_usable_ram_mb - host.free_ram_mb for host in hosts],
        "disk_gb_total": [host.total_usable_disk_gb * (host.disk_allocation_ratio or 1.0) for host in hosts],
        "disk_gb_used": [host.disk_mb_used / 1024 for host in hosts],
        "failed_builds": [host.failed_builds for host in hosts],
    }
