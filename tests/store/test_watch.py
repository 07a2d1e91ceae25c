"""What changed, for watchers: announced by the database, merged for slow ones, and ended with the process."""

import asyncio
from contextlib import AsyncExitStack

import sqlalchemy as sa

from roost.store.database import Database
from roost.store.watch import EVERYTHING, Watch, WatchedChange, Watcher
from tests.store.test_upgrades import recorded


async def test_a_slow_watcher_holds_a_bounded_number_of_ids() -> None:
    watcher = Watcher(lambda change: change.kind == "servers")
    for number in range(5000):
        watcher.note(WatchedChange("servers", "p", frozenset({str(number)})))
        watcher.note(WatchedChange("groups", "p", frozenset({str(number)})))
    assert await watcher.take(1) == {"servers": None}
    assert await watcher.take(0.01) == {}


async def test_changes_are_merged_until_they_are_taken() -> None:
    watcher = Watcher(lambda change: True)
    for ids in ({"1"}, {"2"}, {"1", "3"}):
        watcher.note(WatchedChange("groups", "p", frozenset(ids)))
    assert await watcher.take(1) == {"groups": frozenset({"1", "2", "3"})}


async def test_a_commit_is_told_and_a_rollback_is_not(database: Database) -> None:
    insert = sa.text("INSERT INTO server_groups (name, project_id, user_id) VALUES ('g', :project, 'u') RETURNING id")
    async with Watch(database).look(lambda change: change.project_id == "mine") as watcher:
        assert await watcher.take(30) == EVERYTHING
        async with database.begin() as connection:
            made = {str((await connection.execute(insert, {"project": "mine"})).scalar_one()) for _ in range(2)}
            await connection.execute(insert, {"project": "theirs"})
        async with database.begin() as connection:
            await connection.execute(insert, {"project": "mine"})
            await connection.rollback()
        seen: set[str] = set()
        while seen != made:
            seen |= (await watcher.take(30) or {}).get("groups") or set()
        assert await watcher.take(0.2) == {}


async def test_every_table_of_clusters_is_told_by_the_cluster(database: Database) -> None:
    event = sa.text(
        "INSERT INTO events (id, oid, oname, otype, cluster_id, level, action, status, user_id, project_id) "
        "VALUES ('e', 'o', 'o', 'CLUSTER', 'c1', 20, 'A', 'start', 'u', 'p')"
    )
    async with Watch(database).look(lambda change: True) as watcher:
        assert await watcher.take(30) == EVERYTHING
        async with database.begin() as connection:
            await connection.execute(event)
        assert await watcher.take(30) == {"clusters": frozenset({"c1"})}


async def test_many_ids_are_told_as_any(database: Database) -> None:
    insert = "INSERT INTO server_groups (name, project_id, user_id) SELECT 'g', 'p', 'u' FROM generate_series(1, 300)"
    async with Watch(database).look(lambda change: True) as watcher:
        assert await watcher.take(30) == EVERYTHING
        async with database.begin() as connection:
            await connection.execute(sa.text(insert))
        assert await watcher.take(30) == {"groups": None}


async def test_any_number_of_watchers_share_one_reader(database: Database) -> None:
    watch = Watch(database)
    async with AsyncExitStack() as all_of_them:
        watchers = [await all_of_them.enter_async_context(watch.look(lambda change: True)) for _ in range(20)]
        for watcher in watchers:
            assert await watcher.take(30) == EVERYTHING
        with recorded() as statements:
            await asyncio.sleep(1)
        assert 1 <= sum("watch_changes" in statement for statement in statements) <= 6


async def test_nobody_listens_when_nobody_looks(database: Database) -> None:
    watch = Watch(database)
    async with watch.look(lambda change: True) as watcher:
        await watcher.take(30)
        assert watch._listening is not None
    assert watch._listening is None


async def test_those_who_look_on_are_let_go_when_the_process_stops(database: Database) -> None:
    watch = Watch(database)
    async with watch.look(lambda change: True) as watcher:
        await watcher.take(30)
        waiting = asyncio.create_task(watcher.take(30))
        watch.close()
        assert await waiting is None
    async with watch.look(lambda change: True) as late:
        assert await late.take(1) is None
