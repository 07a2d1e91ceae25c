"""What a new database gets: from `roost serve` a whole cloud, from `roost bootstrap` a first administrator."""

import asyncio
import os
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from sqlalchemy.ext.asyncio import AsyncConnection

from roost.cli.progress import progress
from roost.compute.inventory import flavors, images
from roost.compute.inventory import topology as topologies
from roost.config import Settings, database_url
from roost.errors import Conflict, Invalid
from roost.identity import users
from roost.store.database import Database, patient


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
    """Add what is missing; what exists is left as it is."""
    asyncio.run(_fill(settings, passwords, topology))


async def _fill(settings: Settings, passwords: dict[str, str], topology: str | None) -> None:
    async with _database(settings) as database:
        hashes = await users.kept(database, {user.name: passwords[user.name] for user in USERS})
        content = await _content(database, topology)
        async with _transaction(database) as connection:
            ids = await users.ensure(connection, hashes)
            for user in USERS:
                await users.grant_in(connection, ids[user.name], user.project, user.role)
            await _stock(connection, topology, content)


@asynccontextmanager
async def _database(settings: Settings) -> AsyncIterator[Database]:
    database = Database(database_url(settings), session_url=settings.session_url)
    try:
        yield database
    finally:
        await database.close()


@asynccontextmanager
async def _transaction(database: Database) -> AsyncIterator[AsyncConnection]:
    async with database.begin() as connection:
        await patient(connection)  # the rows of a large topology are worked out in it
        yield connection


PASSWORD = "ROOST_ADMIN_PASSWORD"  # noqa: S105


def run(settings: Settings, name: str, project: str, topology: str | None) -> int:
    """`roost bootstrap`: make the first administrator, and say what was made. It is safe to run again."""
    if settings.auth_strategy != "roost":
        raise Invalid("Users and projects are Keystone's here ([auth] strategy): there is nothing to bootstrap.")
    for line in asyncio.run(_bootstrap(settings, name, project, topology)):
        print(line)
    return 0


async def _bootstrap(settings: Settings, name: str, project: str, topology: str | None) -> list[str]:
    given = os.environ.get(PASSWORD)
    async with _database(settings) as database:
        async with database.autocommit() as connection:
            known = await users.find(connection, name=name)
        password = given or secrets.token_urlsafe(18)
        hashes = {} if known and not given else await users.kept(database, {name: password})
        content = None if topology is None else await _content(database, topology)
        async with _transaction(database) as connection:
            made = await users.ensure(connection, hashes)
            await users.grant_in(connection, known.id if known else made[name], project, "admin")
            lines = list(_said(name, project, known is not None, None if given else password))
            if settings.in_front_of_nova:
                return lines
            if topology is not None:
                await _stock(connection, topology, content)
                lines.append(f"Hosts, flavors and images: of the topology {topology}.")
            elif not await flavors.index(connection, project_id="", is_public=None):
                for flavor in flavors.USUAL:
                    await flavors.create(connection, flavor)
                lines.append(f"Flavors: {', '.join(flavor.name for flavor in flavors.USUAL)}.")
            else:
                lines.append("Flavors: there are some already, and none were added.")
            return lines


def _said(name: str, project: str, known: bool, password: str | None) -> Iterator[str]:
    yield f"User {name}: {'there already' if known else 'made'}, with the role admin in the project {project}."
    if password is None:
        yield f"Its password is that of {PASSWORD}."
    elif known:
        yield f"Its password was not changed; {PASSWORD} sets a new one."
    else:
        yield f"Its password, which is not shown again: {password}"


async def _content(database: Database, topology: str | None) -> topologies.Topology | None:
    """What the inventory is to be made of, unless there is one."""
    async with database.autocommit() as connection:
        stored = await topologies.stored(connection)
    return topologies.read(topology or topologies.DEFAULT) if stored is None else None


async def _stock(connection: AsyncConnection, topology: str | None, content: topologies.Topology | None) -> None:
    """Make the inventory once; what an operator changes or deletes later stays so."""
    if content is not None:
        with progress("making the cloud") as tell:
            made = await topologies.load(connection, content, tell)
        if made:
            for flavor in flavors.USUAL:
                await flavors.create(connection, flavor)
            await images.add(connection, *images.USUAL)
    elif topology is not None and topologies.identify(topology) != (stored := await topologies.stored(connection)):
        raise Conflict(f"The inventory was made from the topology {stored}: start without --topology, or elsewhere.")
