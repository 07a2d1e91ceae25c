"""A nova-scheduler's side of things, without Nova: hosts as it offers them, and Roost asked without HTTP between."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from roost_nova import asker

from roost.compute.fronting import reservations
from roost.compute.fronting.choice import Choice, GroupChooser, Offered, Wanted
from roost.compute.groups import groups
from roost.compute.groups.groups import GroupPolicy
from roost.compute.inventory.live_fleet import LiveFleet
from roost.config import Settings
from roost.placement.fleet import Resources
from roost.placement.rules import Rule
from roost.store.database import Database

SMALL = Resources(1, 512, 1)


@dataclass(eq=False)
class HostState:
    """A host with room for ten small servers."""

    host: str
    vcpus_used: int = 0
    failed_builds: int = 0
    allocation_candidates: list[Any] = field(default_factory=lambda: ["a candidate"])
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
class Nova:
    """Some schedulers beside each other, each of which asks an API process of its own."""

    database: Database
    settings: Settings
    choosers: list[GroupChooser]

    @classmethod
    async def start(cls, database: Database, settings: Settings, schedulers: int = 1) -> "Nova":
        """As many processes, none of which knows anything yet."""
        return cls(database, settings, [GroupChooser(database, settings, LiveFleet()) for _ in range(schedulers)])

    async def group(self, *policies: str, **limits: int) -> str:
        """A group; limits go with the first policy."""
        rules = [Rule.parse(text, limits if at == 0 else None) for at, text in enumerate(policies)]
        async with self.database.begin() as connection:
            made = await groups.create(
                connection,
                self.settings,
                name="group",
                policies=[GroupPolicy(rule) for rule in rules],
                project_id="demo",
                user_id="user",
            )
        return made.id

    async def choose(
        self,
        group: str | None,
        hosts: Sequence[HostState],
        server: str | None = None,
        scheduler: int = 0,
        count: int = 1,
        partition: int | None = None,
        token: str | None = None,
    ) -> Choice:
        """What a scheduler hears about a server. Raises `NotFound` where no group binds it."""
        offered = asker._offer(hosts)
        wanted = Wanted(server or str(uuid4()), group, "demo", "user", SMALL, count, partition, token)
        return await self.choosers[scheduler].choose(wanted, Offered.read(offered["names"], offered))

    async def boot(self, group: str | None, hosts: Sequence[HostState], *more: Any, **others: Any) -> list[str]:
        """The names of the hosts that a scheduler lets pass for a server."""
        return list((await self.choose(group, hosts, *more, **others)).hosts)

    async def members(self, group: str) -> dict[str, tuple[str, ...]]:
        """Where the members of a group have places."""
        async with self.database.begin() as connection:
            return dict((await reservations.show(connection, group)).members)
