"""What the database itself promises about hosts and aggregates, whatever the code in front of it does."""

import asyncio
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from roost.store.database import Database, violated
from roost.store.tables.compute import aggregate_hosts, aggregates, hosts

HOST = 1


async def bare(database: Database, *rows: dict[str, Any]) -> list[int]:
    """New aggregates, for a host that is in none."""
    async with database.begin() as connection:
        await connection.execute(aggregate_hosts.delete().where(aggregate_hosts.c.host_id == HOST))
        await connection.execute(hosts.update().where(hosts.c.id == HOST).values(availability_zone=""))
        ids = await connection.scalars(aggregates.insert().values(list(rows)).returning(aggregates.c.id))
        return list(ids)


async def join(
    database: Database, aggregate_id: int, both_in: asyncio.Barrier, *, zone: str = "", scope_id: int = 0
) -> str | None:
    """Put the host into an aggregate without looking, at the same time as another; says what was violated."""
    try:
        async with database.begin() as connection:
            await both_in.wait()
            row = {"aggregate_id": aggregate_id, "host_id": HOST, "availability_zone": zone, "scope_id": scope_id}
            if zone:
                await connection.execute(hosts.update().where(hosts.c.id == HOST).values(availability_zone=zone))
            await connection.execute(aggregate_hosts.insert().values(row))
    except IntegrityError as error:
        return violated(error)
    return None


async def test_a_host_is_in_one_zone_however_many_write_at_once(database: Database) -> None:
    ids = await bare(database, {"name": "a", "availability_zone": "a"}, {"name": "b", "availability_zone": "b"})
    both_in = asyncio.Barrier(2)
    outcome = await asyncio.gather(join(database, ids[0], both_in, zone="a"), join(database, ids[1], both_in, zone="b"))
    assert sorted(map(str, outcome)) == ["None", "fk_aggregate_hosts_host_id_zone"]


async def test_a_host_is_in_one_aggregate_of_a_scope_however_many_write_at_once(database: Database) -> None:
    ids = await bare(database, {"name": "a", "scope_id": 1}, {"name": "b", "scope_id": 1})
    both_in = asyncio.Barrier(2)
    outcome = await asyncio.gather(*(join(database, number, both_in, scope_id=1) for number in ids))
    assert sorted(map(str, outcome)) == ["None", "uq_aggregate_hosts_host_id_scope_id"]


@pytest.mark.parametrize(
    ("statement", "constraint"),
    [
        ("UPDATE hosts SET availability_zone = 'b' WHERE id = 1", "fk_aggregate_hosts_host_id_zone"),
        ("UPDATE aggregates SET availability_zone = 'b' WHERE id = 1", "fk_aggregate_hosts_host_id_zone"),
        ("UPDATE aggregate_hosts SET availability_zone = 'b' WHERE host_id = 1", "fk_aggregate_hosts_aggregate"),
        ("UPDATE aggregate_hosts SET scope_id = 9 WHERE host_id = 1", "uq_aggregate_hosts_host_id_scope_id"),
        ("UPDATE aggregates SET scope_id = 9 WHERE id = 1", "fk_aggregates_scope"),
        ("DELETE FROM aggregates WHERE id = 1", "fk_aggregate_hosts_aggregate"),
        ("UPDATE hosts SET vcpus_used = 65 WHERE id = 1", "ck_hosts_vcpus"),
    ],
)
async def test_no_side_can_break_a_promise(database: Database, statement: str, constraint: str) -> None:
    with pytest.raises(IntegrityError) as refused:
        async with database.begin() as connection:
            await connection.execute(sa.text(statement))
    assert violated(refused.value) == constraint
