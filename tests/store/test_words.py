"""Search by words, with an index."""

import uuid

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.store import words
from roost.store.database import Database
from roost.store.tables.servers import server_groups

TABLES = {
    "servers": words.SERVERS,
    "server_groups": words.GROUPS,
    "hosts": words.HOSTS,
    "clusters": words.NAMED,
    "nodes": words.NAMED,
}


@pytest.mark.parametrize(
    ("query", "found"),
    [("web", True), ("shop", True), ("SHOP-web", True), ("we 1", True), ("eb", False), ("web-2", False), ("o'x", True)],
)
async def test_words_are_found_by_their_beginnings(database: Database, query: str, found: bool) -> None:
    async with database.begin() as connection:
        # The id is searched as well: a random one may begin with the 2 that this name lacks.
        row = {"id": str(uuid.UUID(int=0)), "name": "Shop-web-1/o'x", "project_id": "p", "user_id": "u"}
        await connection.execute(server_groups.insert().values(**row))
        matches = words.matching(words.GROUPS, "server_groups", query)
        names = await connection.scalars(sa.select(server_groups.c.name).where(matches))
        assert bool(names.all()) is found


async def test_every_table_is_searched_through_its_index(database: Database) -> None:
    async with database.begin() as connection:
        await connection.execute(sa.text("SET LOCAL enable_seqscan = off"))
        for table, text in TABLES.items():
            assert f"ix_{table}_words" in await plan_of(connection, table, text), table


async def plan_of(connection: AsyncConnection, table: str, text: str) -> str:
    query = sa.select(sa.literal(1)).select_from(sa.text(table)).where(words.matching(text, table, "a'b web"))
    compiled = query.compile(connection.engine, compile_kwargs={"literal_binds": True})
    rows = await connection.execute(sa.text(f"EXPLAIN {compiled}".replace(":", "\\:")))
    return "\n".join(row[0] for row in rows)
