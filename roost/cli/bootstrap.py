"""What `roost serve` puts into a new database: projects, users, hosts, flavors and an image."""

import asyncio
from dataclasses import dataclass

from sqlalchemy.ext.asyncio import AsyncConnection

from roost.compute.inventory import flavors, images
from roost.compute.inventory import topology as topologies
from roost.config import Settings, database_url
from roost.errors import Conflict
from roost.identity import users
from roost.store.database import Database


@dataclass(frozen=True, slots=True)
class User:
    """A user that every `roost serve` has, and the cloud in clouds.yaml that signs in as it."""

    cloud: str
    name: str
    project: str
    role: str


USERS = (
    User("roost", "demo", "demo", "member"),
    User("roost-reader", "demo-reader", "demo", "reader"),
    User("roost-manager", "demo-manager", "demo", "manager"),
    User("roost-alt", "alt", "alt", "member"),
    User("roost-alt-reader", "alt-reader", "alt", "reader"),
    User("roost-alt-manager", "alt-manager", "alt", "manager"),
    User("roost-admin", "admin", "admin", "admin"),
)


def fill(settings: Settings, passwords: dict[str, str], topology: str | None) -> None:
    """Add what is missing; what is there is left as people made it."""
    asyncio.run(_fill(settings, passwords, topology))


async def _fill(settings: Settings, passwords: dict[str, str], topology: str | None) -> None:
    database = Database(database_url(settings), session_url=settings.session_url)
    try:
        async with database.begin() as connection:
            for user in USERS:
                await users.ensure(connection, user.name, passwords[user.name], user.project, user.role)
            await _stock(connection, topology)
    finally:
        await database.close()


async def _stock(connection: AsyncConnection, topology: str | None) -> None:
    """Make the inventory once; what an operator changes or deletes later stays so."""
    stored = await topologies.stored(connection)
    if stored is None:
        if await topologies.load(connection, topologies.read(topology or topologies.DEFAULT)):
            for flavor in flavors.USUAL:
                await flavors.create(connection, flavor)
            await images.add(connection, *images.USUAL)
    elif topology is not None and topologies.identify(topology) != stored:
        raise Conflict(f"The inventory was made from the topology {stored}: start without --topology, or elsewhere.")
