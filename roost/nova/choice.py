"""Which of the hosts that Nova offers may take a member of a group, decided over all of them at once and reserved.

A decision is made on what is known of the group and the hosts (`groups`), and reserved with the version that it was
made on. If the group has changed since, Roost answers with the group as it is, and all is decided anew: what is
reserved was true when it was reserved, however many schedulers are at work.

What is reserved is a place: the best host, and with it every host that lies in the same aggregates of all scopes that
the hard rules count in. Whichever of them Nova takes, the rules hold.
"""

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from roost.nova.groups import PluginGroup, PluginTopology
from roost.placement.decision import Decision, Request
from roost.placement.fleet import NOWHERE, Bools, Fleet, Ints, Resources
from roost.placement.record import record
from roost.placement.rules import Rule
from roost.placement.scheduler import candidates, place

logger = logging.getLogger(__name__)

_LOCKS = 64


class Silent(Exception):
    """Roost did not answer in time, or not as it should."""


class Offered(Protocol):
    """A host as Nova's scheduler knows it."""

    host: str
    vcpus_total: int
    vcpus_used: int
    cpu_allocation_ratio: float | None
    total_usable_ram_mb: int
    free_ram_mb: int
    ram_allocation_ratio: float | None
    total_usable_disk_gb: int
    disk_mb_used: int
    disk_allocation_ratio: float | None
    failed_builds: int


Host = TypeVar("Host", bound=Offered)


class Service(Protocol):
    """What is asked of Roost; each raises `Silent` when there is no answer within so many seconds."""

    def topology(self, since: int, seconds: float) -> Mapping[str, Any]:
        """The hosts that changed since a generation."""
        ...

    def group(self, group_id: str, seconds: float) -> Mapping[str, Any] | None:
        """A group as it is now; None if it is none of Roost's."""
        ...

    def reserve(
        self, group_id: str, wanted: Mapping[str, Any], seconds: float
    ) -> tuple[bool, Mapping[str, Any]] | None:
        """Whether a place was reserved; if not, the group as it is now; None if it is no group of Roost's any more."""
        ...


@dataclass(frozen=True, slots=True)
class Wanted:
    """A server that needs a host, and how many more of the same request come with it."""

    instance_id: str
    group_id: str | None
    project_id: str
    user_id: str
    resources: Resources
    count: int = 1
    partition: int | None = None
    """The partition that it asks for."""


@dataclass(slots=True)
class Chooser(Generic[Host]):
    """Chooses for all threads of one nova-scheduler."""

    service: Service
    time_limit: float
    """Seconds that the questions for one server may take together."""
    cache_seconds: float
    """How long hosts, and groups that are none of Roost's, are remembered without a question."""
    _topology: PluginTopology = field(default_factory=PluginTopology)
    _topology_until: float = 0.0
    _topology_lock: threading.Lock = field(default_factory=threading.Lock)
    _groups: dict[str, PluginGroup] = field(default_factory=dict)
    _foreign: dict[str, float] = field(default_factory=dict)
    # The threads of one scheduler take turns on a group instead of overtaking each other.
    _turns: list[threading.Lock] = field(default_factory=lambda: [threading.Lock() for _ in range(_LOCKS)])

    def group_of(self, wanted: Wanted) -> str | None:
        """The group that binds a server: one that Roost made it a member of later, or the one that Nova names."""
        if time.monotonic() > self._topology_until:
            # Whether or not there is an answer: servers without a group are not to wait for Roost again and again.
            self._topology_until = time.monotonic() + self.cache_seconds
            try:
                self._follow(time.monotonic() + self.time_limit)
            except Silent as error:
                logger.warning("Roost does not say which servers it made members of groups: %s", error)
        return self._topology.adopted.get(wanted.instance_id, wanted.group_id)

    def choose(self, wanted: Wanted, hosts: Sequence[Host]) -> list[Host]:
        """The hosts that may take the server, once a place among them is reserved; none if no rule-keeping one is left.
        Raises `Silent`."""
        group_id = self.group_of(wanted)
        if group_id is None:
            return list(hosts)
        turn = self._turns[hash(group_id) % _LOCKS]
        if not turn.acquire(timeout=self.time_limit):
            raise Silent("the servers before this one took too long")
        try:
            deadline = time.monotonic() + self.time_limit
            group = self._group(group_id, deadline)
            if group is not None and not group.offers(wanted.partition):
                logger.warning("server group %s has no partition %s: no host passes", group_id, wanted.partition)
                return []
            return list(hosts) if group is None else self._reserve(wanted, group, hosts, deadline)
        finally:
            turn.release()

    def preferences(self, wanted: Wanted, hosts: Sequence[Host]) -> list[float]:
        """What the soft rules say of each host: the higher the better, and of those that they like equally the hosts
        at the place that is reserved. Raises `Silent`."""
        group_id = self.group_of(wanted)
        deadline = time.monotonic() + self.time_limit
        group = None if group_id is None else self._group(group_id, deadline, holding=wanted.instance_id)
        if group is None or not any(rule.soft for rule in group.rules):
            return [0.0] * len(hosts)
        stage, indexes = self._stage(hosts, deadline)
        request = _request(replace(wanted, count=1), group, stage.fleet, indexes[indexes != NOWHERE])
        ranked = 2 * place(stage.fleet, request).ranking.preferences()
        for name in group.hosts.get(wanted.instance_id, ()):
            reserved = stage.fleet.index(name)
            if reserved is not None:
                ranked += _together(stage.fleet, group.rules, reserved, soft=True)
        return [float(ranked[index]) if index != NOWHERE else -1.0 for index in indexes.tolist()]

    def _reserve(self, wanted: Wanted, group: PluginGroup, hosts: Sequence[Host], deadline: float) -> list[Host]:
        while True:
            if group.runs(wanted.instance_id):
                # Nova remembers with how many others a server was once made; it moves alone.
                wanted = replace(wanted, count=1)
            stage, everywhere = self._stage(hosts, deadline)
            known = [host for host, index in zip(hosts, everywhere.tolist(), strict=True) if index != NOWHERE]
            indexes = everywhere[everywhere != NOWHERE]
            request = _request(wanted, group, stage.fleet, indexes)
            stage.fleet.set_room(indexes, *_room(known, request.resources))
            decision = place(stage.fleet, request)
            answer = self.service.reserve(group.id, _order(wanted, group, stage, decision), _left(deadline))
            if answer is None:
                del self._groups[group.id]
                return list(hosts)
            reserved, now = answer
            if reserved:
                after = group.after(now["version"], wanted.instance_id, now["hosts"], decision.partitions)
                self._groups[group.id] = after
                passing = _same_place(stage.fleet, decision)[indexes].tolist() if decision else []
                return [host for host, passes in zip(known, passing, strict=bool(decision)) if passes]
            group = self._groups[group.id] = PluginGroup.read(now["group"])
            if now["generation"] != stage.generation:
                self._follow(deadline)

    def _group(self, group_id: str, deadline: float, holding: str | None = None) -> PluginGroup | None:
        """The group as it is known; asked for again where it should hold a member, and is not known to."""
        known = self._groups.get(group_id)
        if known is not None and (holding is None or holding in known.hosts):
            return known
        if self._foreign.get(group_id, 0.0) > time.monotonic():
            return None
        answer = self.service.group(group_id, _left(deadline))
        if answer is None:
            self._foreign[group_id] = time.monotonic() + self.cache_seconds
            return None
        group = self._groups[group_id] = PluginGroup.read(answer)
        return group

    def _stage(self, hosts: Sequence[Host], deadline: float) -> tuple[PluginTopology, Ints]:
        """The hosts as they are known, for one decision, and the place of each in the columns."""
        if self._topology.generation < 0:
            self._follow(deadline)
        with self._topology_lock:
            stage = self._topology.snapshot()
        indexes = [stage.fleet.index(host.host) for host in hosts]
        return stage, np.array([NOWHERE if index is None else index for index in indexes], np.int64)

    def _follow(self, deadline: float) -> None:
        with self._topology_lock:
            self._topology.apply(self.service.topology(self._topology.generation, _left(deadline)))


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise Silent("it took too long")
    return left


def _order(wanted: Wanted, group: PluginGroup, stage: PluginTopology, decision: Decision) -> dict[str, Any]:
    """What is asked of Roost: a place on the host that came first, or to note that there was none."""
    written = record(decision, stage.where)
    return {
        "instance_id": wanted.instance_id,
        "project_id": wanted.project_id,
        "user_id": wanted.user_id,
        "resources": wanted.resources._asdict(),
        "host": written["chosen"][0]["host"] if decision else None,
        "version": group.version,
        "generation": stage.generation,
        "record": {**written, "chosen": written["chosen"][:1]},
        "partition": decision.partitions[0] if decision.partitions else None,
    }


def _request(wanted: Wanted, group: PluginGroup, fleet: Fleet, indexes: Ints) -> Request:
    # That each host has room for one is Placement's business, and settled; for several it has to be counted.
    size = wanted.resources if wanted.count > 1 else Resources()
    targets = indexes.tolist()
    return Request(
        size,
        wanted.count,
        group.rules,
        group.members_but(wanted.instance_id, fleet),
        targets=targets,
        partition=group.partition_of(wanted.instance_id, wanted.partition),
        seed=hash(wanted.instance_id),
    )


def _room(hosts: Sequence[Offered], need: Resources) -> tuple[list[Ints], list[Ints]]:
    """What the hosts have, and have left, of each resource; at least room for one, as Placement has found it. Hosts on
    which builds failed come last."""
    rows = [
        (
            host.vcpus_total * (host.cpu_allocation_ratio or 1.0),
            host.vcpus_used,
            host.total_usable_ram_mb * (host.ram_allocation_ratio or 1.0),
            host.total_usable_ram_mb - host.free_ram_mb,
            host.total_usable_disk_gb * (host.disk_allocation_ratio or 1.0),
            host.disk_mb_used / 1024,
            host.failed_builds,
        )
        for host in hosts
    ]
    columns = np.array(rows, np.float64).reshape(-1, 7).T
    total = [columns[at].astype(np.int64) for at in (0, 2, 4)]
    used = [columns[at].astype(np.int64) for at in (1, 3, 5)]
    sound = columns[6] == 0
    left = zip(total, used, need, strict=True)
    return total, [np.maximum((whole - taken) * sound, least) for whole, taken, least in left]


def _same_place(fleet: Fleet, decision: Decision) -> Bools:
    """The hosts that pass every check and share with the one chosen every aggregate in which the hard rules count."""
    alone = decision.request.count == 1
    passing = decision.ranking.key > 0 if alone else candidates(fleet, replace(decision.request, count=1))
    return passing & _together(fleet, decision.request.rules, decision.hosts[0], soft=False)


def _together(fleet: Fleet, rules: Sequence[Rule], host: int, *, soft: bool) -> Bools:
    """The hosts that share with one every aggregate in which the hard, or the soft, rules count."""
    same: Bools = np.ones(fleet.size, np.bool_)
    for rule in rules:
        if rule.soft is soft and rule.identifier is None:
            column = fleet.division(rule.scope).column
            same &= column == column[host]
    return same
