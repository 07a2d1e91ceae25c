"""How engines share actions: oldest first, and no project takes all the room."""

import asyncio
from datetime import timedelta
from typing import Any

import sqlalchemy as sa

from roost.clusters.actions import queue
from roost.clusters.actions.journal import Journal
from roost.clusters.actions.queue import Candidate, shares
from roost.clusters.actions.work import Engine
from roost.clusters.plugins import load
from roost.store.tables.clusters import actions, services
from tests.clusters.house import House, clustering


def due(*projects: str) -> list[Candidate]:
    return [Candidate(f"{project}{place}", project) for place, project in enumerate(projects)]


def test_a_project_alone_leaves_half_of_the_room_free() -> None:
    assert shares(due(*"a" * 20), {}, 10) == [f"a{place}" for place in range(5)]


def test_projects_take_turns_oldest_first() -> None:
    assert shares(due("a", "a", "a", "b", "c"), {}, 8) == ["a0", "b3", "c4", "a1", "a2"]


def test_a_project_that_holds_much_waits_for_one_that_holds_nothing() -> None:
    assert shares(due("a", "a", "b"), {"a": 5}, 5) == ["b2"]
    assert shares(due("a"), {"a": 4}, 5) == ["a0"]


def test_the_only_slot_is_given() -> None:
    assert shares(due("a", "b"), {}, 1) == ["a0"]
    assert shares([], {}, 4) == []


async def test_a_project_whose_actions_hang_does_not_hold_up_another(database_url: str) -> None:
    async with clustering(database_url, clusters__concurrency=4) as house:
        mine = [await house.cluster(0) for _ in range(5)]
        profile = await house.profile()
        opened = asyncio.Event()
        house.faults.before_create = opened.wait
        answers = [await house.post(f"/clusters/{each['id']}/actions", {"scale_out": {}}) for each in mine]
        await asyncio.sleep(0.5)
        body = {"cluster": {"name": "theirs", "profile_id": profile["id"]}}
        theirs = await house.post("/clusters", body, cloud="roost-admin")
        location = theirs.headers["location"].rpartition("/")[2]
        ended = await house.until(
            f"/actions/{location}", lambda action: action["status"] == "SUCCEEDED", 20, cloud="roost-admin"
        )
        assert ended["project"] != mine[0]["project"]
        opened.set()
        assert {(await house.done(answer))["status"] for answer in answers} == {"SUCCEEDED"}


async def test_nothing_that_a_tenant_writes_makes_an_action_wait(house: House) -> None:
    """A number in the metadata of a server, for tests, held a slot of the engine for ten minutes."""
    slow = {"simulated_wait_time": 600}
    profile = await house.profile(metadata={"simulated_wait_time": "600"})
    cluster = await house.cluster(1, profile=profile, metadata=slow)
    answer = await house.post(f"/clusters/{cluster['id']}/actions", {"scale_out": {"count": 1}})
    assert (await house.done(answer, seconds=30))["status"] == "SUCCEEDED"


def engine_of(house: House, name: str) -> Engine:
    clouds: Any = None
    settings = house.settings
    return Engine(name, house.database, settings.clusters, load(settings), clouds, Journal(house.database))


async def claimed(engine: Engine, *in_hand: str) -> list[str]:
    async with engine.database.begin() as connection:
        held = dict.fromkeys(in_hand, "p")
        works, _ = await queue.claim(connection, engine, held, await queue.choose(connection, engine, held, 10))
    return [work.id for work in works]


async def test_what_an_engine_holds_is_taken_over_when_it_gives_no_sign_of_life(database_url: str) -> None:
    async with clustering(database_url, engine=False) as house:
        profile = await house.profile()
        body = {"cluster": {"name": "c", "profile_id": profile["id"]}}
        answer = await house.post("/clusters", body)
        action = answer.headers["location"].rpartition("/")[2]
        first, second = engine_of(house, "first"), engine_of(house, "second")
        async with house.database.begin() as connection:
            row = {"host": "h", "binary": "b", "topic": "t"}
            await connection.execute(services.insert().values([{"id": "first", **row}, {"id": "second", **row}]))
        assert await claimed(first) == [action]
        assert await claimed(second) == []
        assert await claimed(first, action) == []
        assert await claimed(first) == [action]  # it has lost it, and is alive
        async with house.database.begin() as connection:
            silent = services.update().where(services.c.id == "first")
            await connection.execute(silent.values(updated_at=sa.func.now() - timedelta(seconds=60)))
        assert await claimed(second) == [action]


async def test_an_action_whose_plan_cannot_be_read_ends_with_a_sentence(database_url: str) -> None:
    async with clustering(database_url) as house:
        cluster = await house.cluster(0)
        async with house.database.begin() as connection:
            row = (await connection.execute(sa.select(actions))).one()._asdict()
            broken = {**row, "id": "broken", "status": "READY", "plan": {"total": "many"}, "end_time": None}
            del broken["sequence"]
            await connection.execute(actions.insert().values(broken))
        action = await house.ended("broken")
        assert action["status"] == "FAILED"
        assert action["status_reason"] == (
            "The action cannot be carried on: The plan.total must be of type int, and is 'many'."
        )
        assert (await house.act(cluster, "check"))["status"] == "SUCCEEDED"


async def test_what_a_look_for_work_costs_does_not_grow_with_what_waits(database_url: str) -> None:
    async with clustering(database_url, engine=False) as house:
        engine = engine_of(house, "first")
        looked = sa.text(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {queue._CANDIDATES.text}")
        looked = looked.bindparams(sa.bindparam("in_hand", type_=sa.ARRAY(sa.Text)))
        given = {**queue._given(engine, {}), "free": 10}
        async with house.database.begin() as connection:
            await connection.execute(_WAITING)
            for statement in ("SELECT 1", "ANALYZE actions"):
                await connection.execute(sa.text(statement))
                plan = (await connection.execute(looked, given)).scalar_one()[0]["Plan"]
                assert plan["Actual Rows"] == 10
                assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] < 200


_WAITING = sa.text(
    "INSERT INTO actions (id, name, action, target, cluster_id, lock, cause, timeout, status, user_id, project_id)"
    " SELECT n, 'a', 'CLUSTER_CHECK', n, n, n, 'RPC Request', 60, 'READY', 'u', 'p' FROM generate_series(1, 2000) AS n"
)
