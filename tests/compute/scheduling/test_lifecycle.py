"""The engine: finishes what is due, in the time and with the failures that the topology asks for, once each."""

import asyncio
from typing import Any

import pytest
import sqlalchemy as sa

from roost.compute.scheduling import lifecycle
from roost.store.rounds import Rounds
from tests.compute.cloud import Cloud

LIVE = {"host": None, "block_migration": "auto"}


async def test_a_boot_that_takes_no_time_and_cannot_fail_is_over_with_the_claim(cloud: Cloud) -> None:
    server = await cloud.boot(settle=False)
    shown = await cloud.show(server)
    assert (shown["status"], shown["OS-EXT-STS:power_state"]) == ("ACTIVE", 1)
    assert shown["OS-SRV-USG:launched_at"] is not None
    action = (await cloud.ask("GET", f"/servers/{server}/os-instance-actions")).json()["instanceActions"][0]
    assert (action["action"], action["updated_at"] is None, action["message"]) == ("create", False, None)
    assert await lifecycle.finish(cloud.database) == 0
    await cloud.simulate(failure_rate=1.0)
    assert await cloud.status(await cloud.boot(settle=False)) == "BUILD"
    await cloud.check()


async def test_a_boot_takes_as_long_as_the_topology_says(cloud: Cloud) -> None:
    await cloud.simulate(boot_seconds=3600)
    slow = await cloud.boot()
    assert await cloud.status(slow) == "BUILD"
    assert (await cloud.show(slow))["OS-SRV-USG:launched_at"] is None
    async with cloud.database.begin() as connection:
        await connection.execute(sa.text("UPDATE servers SET due_at = now()"))
    await cloud.settle()
    shown = await cloud.show(slow)
    assert (shown["status"], shown["OS-SRV-USG:launched_at"] is None) == ("ACTIVE", False)
    await cloud.act(slow, "os-stop")
    await cloud.settle()
    assert (await cloud.show(slow))["OS-EXT-STS:task_state"] == "powering-off"
    await cloud.delete(slow)  # deleting does not wait
    assert (await cloud.ask("GET", f"/servers/{slow}")).status_code == 404
    await cloud.check()


async def test_a_boot_that_fails_gives_everything_back(cloud: Cloud) -> None:
    await cloud.simulate(failure_rate=1)
    group = await cloud.group("anti-affinity")
    server = await cloud.boot(group=group)
    shown = await cloud.show(server)
    assert (shown["status"], shown["OS-EXT-SRV-ATTR:host"], shown["OS-SRV-USG:launched_at"]) == ("ERROR", None, None)
    assert shown["fault"]["message"] == "The boot failed, as the topology's failure_rate asks."
    assert await cloud.claims(server) == {}
    assert await cloud.history(server) == [("create", "Error")]
    assert (await cloud.usage())[0] == 1
    await cloud.check()


STEPS: list[tuple[list[str], str, Any, str]] = [
    ([], "migrate", None, "ACTIVE"),
    ([], "os-migrateLive", LIVE, "ACTIVE"),
    ([], "resize", {"flavorRef": "4"}, "ACTIVE"),
    (["os-stop"], "resize", {"flavorRef": "4"}, "SHUTOFF"),
    (["shelve"], "unshelve", None, "SHELVED_OFFLOADED"),
]


@pytest.mark.parametrize("hosts", [1, 3])
async def test_a_move_that_fails_leaves_all_as_it_was(cloud: Cloud, hosts: int) -> None:
    await cloud.hosts(hosts)
    for before, action, value, status in STEPS:
        if hosts == 1 and action in ("migrate", "os-migrateLive"):
            continue
        await cloud.simulate(failure_rate=0)
        server = await cloud.boot()
        for earlier in before:
            await cloud.done(server, earlier)
        await cloud.simulate(failure_rate=1)
        host, held, usage = await cloud.host(server), await cloud.claims(server), await cloud.usage()
        await cloud.done(server, action, value)
        assert await cloud.status(server) == status, action
        assert (await cloud.host(server), await cloud.claims(server), await cloud.usage()) == (host, held, usage), (
            action
        )
        assert (await cloud.history(server))[0][1] == "Error"
        await cloud.check()
        await cloud.delete(server)


async def test_many_engines_finish_each_step_once(cloud: Cloud) -> None:
    await cloud.quota(instances=-1, cores=-1, ram=-1)
    await cloud.boots_take_a_moment()
    await cloud.boot(min_count=60, settle=False)
    finished = await asyncio.gather(*(lifecycle.finish(cloud.database) for _ in range(4)))
    assert sum(finished) == 60
    assert await lifecycle.finish(cloud.database) == 0
    async with cloud.database.begin() as connection:
        ids = (await connection.execute(sa.text("SELECT id::text FROM servers"))).scalars().all()
    await asyncio.gather(*(cloud.ask("DELETE", f"/servers/{server_id}") for server_id in ids))
    await asyncio.gather(*(lifecycle.finish(cloud.database) for _ in range(4)))
    await cloud.settle()
    assert await cloud.usage() == (0, 0, 0)
    await cloud.check()


async def test_what_one_project_has_locked_holds_up_no_other(cloud: Cloud) -> None:
    group = await cloud.group("anti-affinity")
    mine = [await cloud.boot(group=group) for _ in range(2)]
    await cloud.boots_take_a_moment()
    others = await cloud.boot(cloud="roost-alt", settle=False)
    for server in mine:
        assert (await cloud.ask("DELETE", f"/servers/{server}")).status_code == 204
    async with cloud.database.begin() as holding:
        await holding.execute(sa.text("SELECT FROM server_groups FOR UPDATE"))
        finishing = asyncio.create_task(lifecycle.finish(cloud.database))
        async with asyncio.timeout(5):
            while await cloud.status(others) != "ACTIVE":  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert not finishing.done()
        async with cloud.database.begin() as connection:
            theirs = sa.text("SELECT count(*) FROM (SELECT FROM servers WHERE id = :id FOR UPDATE SKIP LOCKED) AS free")
            assert await connection.scalar(theirs, {"id": others}) == 1
    assert await finishing == 3


async def test_the_engine_is_woken_and_goes_on(cloud: Cloud) -> None:
    await cloud.boots_take_a_moment()
    engine = asyncio.create_task(lifecycle.run(cloud.database, Rounds(cloud.database)))
    try:
        for _ in range(2):
            server = await cloud.boot(settle=False)
            for _ in range(300):
                if await cloud.status(server) == "ACTIVE":
                    break
                await asyncio.sleep(0.02)
            assert await cloud.status(server) == "ACTIVE"
    finally:
        engine.cancel()
        await asyncio.gather(engine, return_exceptions=True)
    await cloud.check()


async def test_a_state_set_by_hand_ends_what_was_under_way(cloud: Cloud) -> None:
    for action, value, settled in (
        ("resize", {"flavorRef": "4"}, False),
        ("resize", {"flavorRef": "4"}, True),
        ("migrate", None, False),
        ("migrate", None, True),
        ("os-migrateLive", LIVE, False),
    ):
        server = await cloud.boot()
        await cloud.act(server, action, value)
        if settled:
            await cloud.settle()
        await cloud.done(server, "os-resetState", {"state": "active"})
        assert (await cloud.show(server))["OS-EXT-STS:task_state"] is None
        await cloud.check()
        await cloud.done(server, "migrate")
        await cloud.done(server, "confirmResize")
        await cloud.check()
        await cloud.delete(server)
    assert await cloud.usage() == (0, 0, 0)
