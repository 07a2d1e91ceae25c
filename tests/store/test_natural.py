"""Names in the order in which people count, with an index."""

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.store.database import Database
from roost.store.natural import expression, natural
from roost.store.tables.servers import server_groups

NAMES = ["host", "host-1", "host-2", "host-2a1", "host-2a10", "host-10", "host-0011", "host-20261118170500", "zone2"]
LONG = "1a" * 127


async def test_numbers_in_names_sort_by_their_size(database: Database) -> None:
    async with database.begin() as connection:
        rows = [{"name": name, "project_id": "p", "user_id": "u"} for name in reversed(NAMES)]
        await connection.execute(server_groups.insert(), rows)
        found = await connection.scalars(sa.select(server_groups.c.name).order_by(natural(server_groups.c.name)))
        assert found.all() == NAMES


async def test_a_name_of_many_numbers_fits_into_the_index(database: Database) -> None:
    async with database.begin() as connection:
        await connection.execute(server_groups.insert().values(name=LONG, project_id="p", user_id="u"))
        found = await connection.scalars(sa.select(server_groups.c.name).order_by(natural(server_groups.c.name)))
        assert found.all() == [LONG]


async def plan_of(connection: AsyncConnection, table: str, *columns: str) -> str:
    for way in ("seqscan", "bitmapscan", "sort"):
        await connection.execute(sa.text(f"SET LOCAL enable_{way} = off"))
    order = ", ".join(expression(f"{table}.{column}") for column in columns)
    rows = await connection.execute(sa.text(f"EXPLAIN SELECT id FROM {table} ORDER BY {order} LIMIT 50"))
    return "\n".join(row[0] for row in rows)


@pytest.mark.parametrize("table", ["servers", "server_groups", "hosts", "clusters", "nodes"])
async def test_every_long_list_of_names_follows_an_index(database: Database, table: str) -> None:
    async with database.begin() as connection:
        assert f"ix_{table}_natural" in await plan_of(connection, table, "name")


async def test_servers_sorted_by_zone_follow_an_index_of_hosts(database: Database) -> None:
    async with database.begin() as connection:
        assert "ix_hosts_zone_natural" in await plan_of(connection, "hosts", "availability_zone", "name")
