"""Claims: taken, changed and given back in bulk, each sum with them; and what a server counts for."""

import asyncio

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from roost.compute.inventory import claims
from roost.compute.inventory.claims import NOTHING, Claim, FreedRoom, Usage
from roost.compute.inventory.flavors import ServerFlavor
from roost.placement.fleet import Resources
from roost.store.database import Database
from tests.compute import truth
from tests.compute.cloud import Cloud
from tests.compute.members import put_server

SMALL, LARGE = Resources(1, 512, 1), Resources(4, 8192, 80)


async def used(database: Database, host_id: int) -> tuple[int, ...]:
    """What a host has given: vCPUs, memory, disk, servers."""
    query = sa.text("SELECT vcpus_used, memory_mb_used, disk_gb_used, servers FROM hosts WHERE id = :id")
    async with database.begin() as connection:
        return tuple((await connection.execute(query, {"id": host_id})).one())


async def test_hosts_are_the_sums_of_their_claims(database: Database) -> None:
    servers = [await put_server(database, "p") for _ in range(3)]
    async with database.begin() as connection:
        await claims.lock_hosts(connection, [1, 2])
        await claims.take(connection, [Claim(server, 1, SMALL) for server in servers])
        await claims.take(connection, [Claim(servers[0], 2, LARGE)])
        await claims.take(connection, [])
    assert await used(database, 1) == (3, 1536, 3, 3)
    assert await used(database, 2) == (*LARGE, 1)
    async with database.begin() as connection:
        grown = await claims.resize(connection, [Claim(servers[0], 1, LARGE)])
        assert grown == [FreedRoom(1, Resources(-3, -7680, -79), 0)]
        await claims.give_back(connection, grown)
        assert await claims.held_by(connection, servers[0]) == [1, 2]
    assert await used(database, 1) == (6, 9216, 82, 3)
    async with database.begin() as connection:
        freed = await claims.give_up(connection, [(servers[0], 1), (servers[1], 1), (servers[2], 2)])
        assert sorted(freed, key=lambda each: each.resources) == [FreedRoom(1, SMALL, 1), FreedRoom(1, LARGE, 1)]
        assert await used(database, 1) == (6, 9216, 82, 3)
        await claims.give_back(connection, freed, usage={"p": Usage(-2, -5, -8704)})
        assert [*await claims.give_up(connection, []), *await claims.resize(connection, [])] == []
        await claims.give_back(connection, [])
    assert await used(database, 1) == (1, 512, 1, 1)
    async with database.begin() as connection:
        assert await claims.usage(connection, "p") == Usage(-2, -5, -8704)


async def test_who_holds_hosts_does_not_wait_for_more(database: Database) -> None:
    async with database.begin() as holder:
        await claims.lock_hosts(holder, [2])
        with pytest.raises(DBAPIError) as refused:
            async with database.begin() as other:
                await claims.lock_hosts(other, [1, 2], wait=False)
    assert claims.lost_race(refused.value)
    assert not claims.lost_race(ValueError())


async def test_usage_is_counted_once_however_many_begin_at_once(database: Database) -> None:
    async def count(project: str) -> None:
        async with database.begin() as connection:
            before = await claims.lock_usage(connection, project)
            await claims.count_usage(connection, {project: Usage(1, before.instances, 1)})

    await asyncio.gather(*(count("p") for _ in range(10)), *(count("q") for _ in range(3)))
    async with database.begin() as connection:
        used = [await claims.usage(connection, project) for project in ("p", "q", "new")]
    assert used == [Usage(10, 45, 10), Usage(3, 3, 3), NOTHING]


@pytest.mark.parametrize(
    ("flavor", "other", "counts"),
    [
        ((1, 512), None, (1, 512)),
        ((1, 8192), (4, 512), (4, 8192)),
    ],
)
def test_a_server_counts_for_the_larger_of_its_flavors(
    flavor: tuple[int, int], other: tuple[int, int] | None, counts: tuple[int, int]
) -> None:
    counted = Usage.of(ServerFlavor(*flavor), other and ServerFlavor(*other))
    assert counted == Usage(1, *counts)
    assert counted - counted == NOTHING
    assert NOTHING + counted == counted


async def noticed(database: Database, damage: str) -> list[str]:
    """What the recount would say of this damage, which is then undone."""
    async with database.begin() as connection:
        await connection.execute(sa.text(damage))
        found = [text for text, query in truth.WRONG.items() if (await connection.execute(sa.text(query))).all()]
        await connection.rollback()
    return found


async def test_the_recount_notices_what_is_wrong(cloud: Cloud) -> None:
    server = await cloud.boot()
    await cloud.check()
    for damage in (
        "UPDATE hosts SET vcpus_used = vcpus_used + 1 WHERE servers > 0",
        "UPDATE project_usage SET ram = ram + 1",
        "INSERT INTO usage_shards (project_id, shard, ram) SELECT project_id, 1, 1 FROM project_usage",
        "UPDATE project_usage SET server_groups = 1",
        "DELETE FROM claims",
        "UPDATE servers SET host_id = NULL",
    ):
        assert await noticed(cloud.database, damage), damage
    assert await cloud.status(server) == "ACTIVE"
    await cloud.check()
