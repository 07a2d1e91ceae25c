"""What the fault machine has found, each made small enough to be kept mended; see docs/reliability.md."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa
import time_machine

from roost.clouds.embedded import EmbeddedClouds
from roost.clusters.actions import control, queue, runner
from roost.clusters.actions.work import Work
from roost.clusters.records import ACTIONS
from roost.identity import tokens, users
from roost.store.database import Database
from roost.store.tables.clusters import actions
from tests.clusters.house import clustering
from tests.compute import truth
from tests.compute.cloud import Cloud


@asynccontextmanager
async def full_disk(database: Database, table: str) -> AsyncIterator[None]:
    """No room for another row in a table."""
    refuse = """
        CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN RAISE EXCEPTION 'No space left on device' USING ERRCODE = 'disk_full'; END $$
    """
    async with database.begin() as connection:
        await connection.execute(sa.text(refuse))
        await connection.execute(
            sa.text(f"CREATE TRIGGER full_disk BEFORE INSERT ON {table} EXECUTE FUNCTION full_disk()")
        )
    yield
    async with database.begin() as connection:
        await connection.execute(sa.text("DROP FUNCTION full_disk CASCADE"))


async def test_a_queue_that_cannot_be_written_to_is_503_and_nothing_is_done(database_url: str) -> None:
    async with clustering(database_url, engine=False) as house:
        profile = await house.profile()
        async with full_disk(house.database, "actions"):
            answer = await house.post("/clusters", {"cluster": {"name": "c", "profile_id": profile["id"]}})
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert await house.get("/clusters") == []


async def test_an_action_that_its_own_engine_has_dropped_is_taken_up_again(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the database does not answer at the end of an attempt: the engine lives, and no one works on it."""
    carry_out, failures = runner.carry_out, [sa.exc.OperationalError("end", None, OSError("gone"))]

    async def fail_once(work: Work) -> None:
        if failures:
            raise failures.pop()
        await carry_out(work)

    monkeypatch.setattr(runner, "carry_out", fail_once)
    async with clustering(database_url) as house:
        cluster = await house.cluster(1)
        assert len(cluster["nodes"]) == 1
    assert not failures


async def test_an_engine_outlives_a_database_that_does_not_answer(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim, failures = queue.claim, [sa.exc.OperationalError("claim", None, OSError("gone")) for _ in range(3)]

    async def lose(*given: Any) -> Any:
        if failures:
            raise failures.pop()
        return await claim(*given)

    monkeypatch.setattr(queue, "claim", lose)
    async with clustering(database_url) as house:
        await house.cluster(1)
    assert not failures


async def test_an_error_that_no_code_foresaw_ends_an_action_after_a_few_tries(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = []

    async def break_down(work: Work, *_: Any) -> None:
        tries.append(work.id)
        raise KeyError("mars")

    async with clustering(database_url) as house:
        cluster = await house.cluster(0)
        monkeypatch.setattr(runner, "end", break_down)
        action = await house.act(cluster, "check")
        monkeypatch.undo()
        assert (action["status"], len(tries)) == ("FAILED", 3)
        assert "failed unexpectedly: KeyError: 'mars'" in action["status_reason"]
        assert (await house.act(cluster, "scale_out"))["status"] == "SUCCEEDED"


@pytest.mark.parametrize("ahead", [timedelta(days=1), timedelta(days=-1)])
async def test_an_engine_whose_clock_is_off_keeps_to_the_time_of_the_others(
    database_url: str, ahead: timedelta
) -> None:
    with time_machine.travel(datetime.now(UTC) + ahead, tick=True):
        async with clustering(database_url) as house:
            cluster = await house.cluster(4, timeout=60)
            policy = await house.policy("senlin.policy.batch", min_in_service=0, max_batch_size=2, pause_time=1)
            await house.act(cluster, "policy_attach", {"policy_id": policy["id"]})
            profile = await house.profile(metadata={"release": "2"})
            body = {"cluster": {"profile_id": profile["id"]}}
            action = await house.done(await house.call("PATCH", f"/clusters/{cluster['id']}", body))
            assert action["status"] == "SUCCEEDED", action["status_reason"]
            (engine,) = await house.get("/services", cloud="roost-admin")
            assert engine["state"] == "up"


@pytest.mark.parametrize("ahead", [timedelta(days=1), timedelta(days=-1)])
async def test_a_token_is_valid_whatever_the_clock_of_the_process_that_looks(
    database: Database, ahead: timedelta
) -> None:
    async with database.begin() as connection:
        (user,) = await users.index(connection, name="demo")
        with time_machine.travel(datetime.now(UTC) + ahead, tick=True):
            there = await tokens.issue(connection, user.id, None, ("password",), tokens.expiry(60))
            found = await tokens.find(connection, there)
            gone = await tokens.issue(connection, user.id, None, ("password",), tokens.expiry(-60))
            assert await tokens.purge(connection) == 1
            assert await tokens.find(connection, gone) is None
    assert found is not None
    assert 50 < found.lasts <= 60


async def test_a_cluster_that_deletes_a_server_amid_its_resize_gives_all_of_it_back(cloud: Cloud) -> None:
    server = await cloud.boot()
    await cloud.done(server, "resize", {"flavorRef": "3"})
    services = cloud.api.services
    async with cloud.database.begin() as connection:
        row = (await connection.execute(sa.text("SELECT project_id, user_id FROM servers"))).one()
    clouds = EmbeddedClouds(cloud.database, services.settings, services.scheduler)
    embedded = clouds.of(row.project_id, row.user_id)
    deleting = asyncio.create_task(embedded.delete_servers([server]))
    while not deleting.done():
        await truth.settle(cloud.database)
        await asyncio.sleep(0.01)
    assert await deleting == {}
    await truth.check(cloud.database)


async def test_the_creation_of_a_server_that_finds_no_host_has_ended(cloud: Cloud) -> None:
    here = await cloud.host(await cloud.boot(cloud="roost-admin"))
    group = await cloud.group("anti-affinity", cloud="roost-admin")
    for _ in range(2):
        failed = await cloud.boot(group=group, host=here, cloud="roost-admin")
    query = "SELECT message, finish_time FROM instance_actions WHERE server_id = :server"
    async with cloud.database.begin() as connection:
        row = (await connection.execute(sa.text(query), {"server": failed})).one()
    assert (await cloud.status(failed), row.message) == ("ERROR", "Error")
    assert row.finish_time is not None


@pytest.mark.parametrize("end", ["confirmResize", "revertResize"])
async def test_nobody_joins_a_member_that_may_still_end_up_in_either_of_two_racks(cloud: Cloud, end: str) -> None:
    group = await cloud.group("affinity:rack")
    first = await cloud.boot(group=group, availability_zone="zone1")
    elsewhere = await cloud.host(await cloud.boot(availability_zone="zone2"))
    async with cloud.database.begin() as connection:
        await connection.execute(sa.text("UPDATE servers SET zone = NULL"))
    await cloud.done(first, "migrate", {"host": elsewhere}, cloud="roost-admin")
    second = await cloud.boot(group=group)
    assert await cloud.status(second) == "ERROR"
    await cloud.done(first, end)
    third = await cloud.boot(group=group)
    assert await cloud.status(third) == "ACTIVE"
    await cloud.check()


async def test_an_action_that_is_ended_by_a_request_from_before_its_start_ends_after_it(database_url: str) -> None:
    async with clustering(database_url, engine=False) as house:
        profile = await house.profile()
        answer = await house.post("/clusters", {"cluster": {"name": "c", "profile_id": profile["id"]}})
        assert answer.status_code == 202
        async with house.database.begin() as connection:
            await connection.execute(sa.text("SELECT now()"))
            async with house.database.begin() as other:
                await other.execute(sa.update(actions).values(start_time=sa.func.clock_timestamp()))
            (action,) = await ACTIONS.read(connection)
            await control.end_now(connection, action, "enough")
        async with house.database.begin() as connection:
            ended = (await connection.execute(sa.select(actions))).one()
        assert ended.status == "CANCELLED"
        assert ended.start_time < ended.end_time
