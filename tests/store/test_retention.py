"""What ended long ago is forgotten; what has not, or is in use, is not."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from roost import config, engine
from roost.config import Settings
from roost.store import retention
from roost.store.database import Database

# Of each kind one from yesterday and some from long ago, of which one has not ended yet.
HISTORY = """
    INSERT INTO actions (id, name, action, target, cause, timeout, status, end_time, user_id, project_id)
    SELECT id, 'a', 'CLUSTER_CHECK', 'c', 'RPC Request', 1, status, now() - days * interval '1 day', 'u', 'p'
    FROM (VALUES ('new', 'SUCCEEDED', 1), ('old', 'SUCCEEDED', 31), ('failed', 'FAILED', 31), ('runs', 'RUNNING', NULL))
        AS given (id, status, days);
    INSERT INTO actions (id, name, action, target, cause, timeout, status, end_time, parent_id, user_id, project_id)
    SELECT 'step of ' || id, 's', 'NODE_CHECK', 'n', 'Derived Action', 1, status, end_time, id, 'u', 'p' FROM actions;
    INSERT INTO events (id, timestamp, oid, oname, otype, level, action, status, user_id, project_id)
    SELECT 'e' || days, now() - days * interval '1 day', 'c', 'c', 'CLUSTER', 20, 'CLUSTER_CHECK', 'end', 'u', 'p'
    FROM (VALUES (1), (31), (400)) AS given (days);
    INSERT INTO server_groups (id, name, project_id, user_id)
    VALUES ('00000000-0000-4000-8000-000000000010', 'g', 'p', 'u');
    INSERT INTO repairs (group_id, status, fewest, repairs_all, user_id, project_id, request_id, updated_at)
    SELECT '00000000-0000-4000-8000-000000000010', status, true, true, 'u', 'p', 'r', now() - days * interval '1 day'
    FROM (VALUES ('done', 1), ('done', 31), ('failed', 31), ('running', 31)) AS given (status, days);
    INSERT INTO outbox (event_type, payload, created_at)
    VALUES ('x', '{}', now() - interval '31 days'), ('x', '{}', now());
    INSERT INTO happenings (kind, at) VALUES ('host_up', now() - interval '31 days'), ('host_up', now());
    INSERT INTO samples (at, name, value) VALUES (now() - interval '31 days', 's', 1), (now(), 's', 1);
"""
LEFT = """
    SELECT (SELECT array_agg(id ORDER BY id) FROM actions), (SELECT array_agg(id ORDER BY id) FROM events),
           (SELECT array_agg(status ORDER BY status) FROM repairs), (SELECT count(*) FROM outbox)
"""


@pytest.fixture
def history(database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        connection.execute(HISTORY)


async def left(database: Database) -> tuple[Any, ...]:
    async with database.begin() as connection:
        return tuple((await connection.execute(sa.text(LEFT))).one())


@pytest.mark.usefixtures("history")
async def test_what_ended_long_ago_is_forgotten_with_all_that_belongs_to_it(database: Database) -> None:
    purged = await retention.purge(database, 30, notifications=True)
    ended = {"actions": 2, "events": 2, "repairs": 2, "outbox": 1, "happenings": 1, "samples": 1}
    assert purged == {**ended, "deleted_servers": 0}
    kept = ["new", "runs", "step of new", "step of runs"]
    assert await left(database) == (kept, ["e1"], ["done", "running"], 1)
    assert set((await retention.purge(database, 30, notifications=True)).values()) == {0}


@pytest.mark.usefixtures("history")
async def test_notifications_that_wait_to_be_sent_are_not(database: Database) -> None:
    await retention.purge(database, 30, notifications=False)
    assert (await left(database))[-1] == 2


@pytest.mark.usefixtures("history")
async def test_what_somebody_holds_is_left_for_the_next_time(database: Database, database_url: str) -> None:
    with psycopg.connect(database_url) as other:
        other.execute("SELECT id FROM actions WHERE id = 'old' FOR UPDATE")
        assert (await retention.purge(database, 30, notifications=False))["actions"] == 1
        other.rollback()
    assert (await retention.purge(database, 30, notifications=False))["actions"] == 1


async def test_it_goes_in_batches_and_two_engines_share_them(database: Database, database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        connection.execute(
            "INSERT INTO events (id, timestamp, oid, oname, otype, level, action, status, user_id, project_id) "
            "SELECT number::text, now() - interval '31 days', 'c', 'c', 'CLUSTER', 20, 'a', 'end', 'u', 'p' "
            "FROM generate_series(1, 1600) AS number"
        )
    engines = [retention.purge(database, 30, notifications=False) for _ in range(2)]
    gone = await asyncio.gather(*engines)
    assert sum(purged["events"] for purged in gone) == 1600


@pytest.mark.usefixtures("history")
async def test_looking_for_what_to_forget_reads_no_table_from_end_to_end(database: Database) -> None:
    async with database.begin() as connection:
        await connection.execute(sa.text("SET enable_seqscan = off"))  # these tables are too small for an index to pay
        for _, statement in retention.batches(datetime.now(UTC), notifications=False):
            text = statement.compile(connection.sync_connection, compile_kwargs={"literal_binds": True})
            plan = (await connection.execute(sa.text(f"EXPLAIN {text}"))).scalars().all()
            assert not [line for line in plan if "Seq Scan" in line]


@pytest.mark.usefixtures("history")
async def test_the_engine_forgets_unless_told_to_keep_everything(database: Database, settings: Settings) -> None:
    assert settings.keep_days == 30
    for keep, events in ((0, 3), (30, 1)):
        kept = config.with_database(config.load(history__keep_days=keep), str(settings.database_url))
        await engine.forget(database, kept)
        assert len((await left(database))[1]) == events
