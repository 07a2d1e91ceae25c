"""A nova-scheduler's side of things, without Nova: hosts as it offers them, and Roost asked without HTTP between."""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar
from uuid import uuid4

from roost.api.scheduler import _group
from roost.compute.fronting import reservations
from roost.compute.fronting.reservations import Order, Reserved
from roost.compute.groups import groups
from roost.compute.groups.groups import GroupPolicy
from roost.config import Settings
from roost.errors import NotFound
from roost.nova.choice import Chooser, Wanted
from roost.placement.fleet import Resources
from roost.placement.rules import Rule
from roost.store.database import Database

T = TypeVar("T")

SMALL = Resources(1, 512, 1)


@dataclass(eq=False)
class HostState:
    """A host with room for ten small servers."""

    host: str
    vcpus_used: int = 0
    failed_builds: int = 0
    allocation_candidates: list[str] = field(default_factory=lambda: ["a candidate"])
    vcpus_total: int = 10
    cpu_allocation_ratio: float | None = 1.0
    total_usable_ram_mb: int = 8192
    free_ram_mb: int = 8192
    ram_allocation_ratio: float | None = None
    total_usable_disk_gb: int = 100
    disk_mb_used: int = 0
    disk_allocation_ratio: float | None = 1.0


def offer(*names: str) -> list[HostState]:
    """Hosts of these names."""
    return [HostState(name) for name in names]


@dataclass
class Roost:
    """Answers as the scheduler API does, from the same database, and counts the questions."""

    database: Database
    settings: Settings
    loop: asyncio.AbstractEventLoop
    asked: list[str] = field(default_factory=list)

    def _run(self, question: str, answer: Coroutine[Any, Any, T]) -> T:
        self.asked.append(question)
        return asyncio.run_coroutine_threadsafe(answer, self.loop).result(30)

    def topology(self, since: int, seconds: float) -> Mapping[str, Any]:
        async def answer() -> Mapping[str, Any]:
            async with self.database.begin() as connection:
                found = await reservations.topology(connection, since)
            return {name: getattr(found, name) for name in ("generation", "hosts", "complete", "adopted")}

        return self._run("topology", answer())

    def group(self, group_id: str, seconds: float) -> Mapping[str, Any] | None:
        async def answer() -> Mapping[str, Any] | None:
            try:
                async with self.database.begin() as connection:
                    return _group(await reservations.show(connection, group_id))
            except NotFound:
                return None

        return self._run("group", answer())

    def reserve(
        self, group_id: str, wanted: Mapping[str, Any], seconds: float
    ) -> tuple[bool, Mapping[str, Any]] | None:
        async def answer() -> tuple[bool, Mapping[str, Any]] | None:
            try:
                async with self.database.begin() as connection:
                    done = await reservations.reserve(connection, self.settings, group_id, Order(**wanted))
            except NotFound:
                return None
            if isinstance(done, Reserved):
                return True, {"version": done.version, "hosts": done.hosts}
            return False, {"group": _group(done.group), "generation": done.generation}

        return self._run("reserve", answer())


@dataclass
class Nova:
    """Some schedulers beside each other, as threads, and what they were told."""

    roost: Roost
    schedulers: list[Chooser[HostState]]

    @classmethod
    async def start(cls, database: Database, settings: Settings, schedulers: int = 1) -> "Nova":
        """As many schedulers, none of which knows anything yet."""
        roost = Roost(database, settings, asyncio.get_running_loop())
        return cls(roost, [Chooser(roost, 30.0, 0.0) for _ in range(schedulers)])

    async def group(self, *policies: str, **limits: int) -> str:
        """A group; limits go with the first policy."""
        rules = [Rule.parse(text, limits if at == 0 else None) for at, text in enumerate(policies)]
        async with self.roost.database.begin() as connection:
            made = await groups.create(
                connection,
                self.roost.settings,
                name="group",
                policies=[GroupPolicy(rule) for rule in rules],
                project_id="demo",
                user_id="user",
            )
        return made.id

    async def boot(
        self,
        group: str | None,
        hosts: Sequence[HostState],
        server: str | None = None,
        scheduler: int = 0,
        count: int = 1,
        partition: int | None = None,
    ) -> list[str]:
        """The names of the hosts that a scheduler lets pass for a server."""
        wanted = Wanted(server or str(uuid4()), group, "demo", "user", SMALL, count, partition)
        passing = await asyncio.to_thread(self.schedulers[scheduler].choose, wanted, hosts)
        return [host.host for host in passing]

    async def members(self, group: str) -> dict[str, tuple[str, ...]]:
        """Where the members of a group have places."""
        async with self.roost.database.begin() as connection:
            return dict((await reservations.show(connection, group)).members)
