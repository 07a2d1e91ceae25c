"""An engine is killed with SIGKILL at random moments; another one finishes, and the cloud has exactly what it should.

What counts is what the cloud has, not what our own tables say of it.
"""

import asyncio
import multiprocessing
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest
import sqlalchemy as sa

from roost.store.tables.clusters import actions, unfinished
from roost.store.tables.servers import servers
from tests.clusters import engine_process
from tests.clusters.house import House, clustering

KILLS = 20
"""For each of the two actions."""
LONGEST = 0.6
"""Seconds after its beginning within which the action is cut off: longer than it takes when no engine is killed."""


_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["tests.clusters.engine_process"])


class Engine:
    """An engine in a separate process."""

    def __init__(self, url: str) -> None:
        self._begun, theirs = _FORKS.Pipe(duplex=False)
        self._process = _FORKS.Process(target=engine_process.main, args=(url, theirs), daemon=True)
        self._process.start()

    async def ready(self) -> None:
        assert await asyncio.to_thread(self._begun.recv) == "ready"

    def kill(self) -> None:
        self._process.kill()
        self._process.join()


class Engines:
    """Engines in processes of their own, the next one always started already."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.running: list[Engine] = []

    def start(self) -> None:
        self.running.append(Engine(self.url))

    def stop(self) -> None:
        for engine in self.running:
            engine.kill()


@pytest.fixture
async def house(database_url: str) -> AsyncIterator[House]:
    """The API alone: engines come and go."""
    async with clustering(database_url, engine=False) as made:
        yield made


async def made_for(house: House, cluster: dict[str, Any]) -> list[dict[str, Any]]:
    """The servers that the cloud has for a cluster."""
    mine = servers.c.metadata["cluster_id"].astext == cluster["id"]
    async with house.database.begin() as connection:
        rows = (
            await connection.execute(sa.select(servers.c.id, servers.c.metadata, servers.c.vm_state).where(mine))
        ).all()
    return [{"id": str(row.id), "state": row.vm_state, **row.metadata} for row in rows]


async def nothing_is_held(house: House) -> bool:
    async with house.database.begin() as connection:
        return await connection.scalar(sa.select(actions.c.id).where(unfinished).limit(1)) is None


async def cut_off(engines: Engines, house: House, answer: Any, seconds: float) -> dict[str, Any]:
    """Kill the engine that many seconds into an action, and let another one finish it."""
    engines.start()
    await asyncio.sleep(seconds)
    victim, successor = engines.running
    victim.kill()
    engines.running = [successor]
    await successor.ready()
    return await house.done(answer, 60)


@pytest.mark.parametrize("seed", [1])
async def test_a_scale_out_that_is_cut_off_makes_every_server_once(house: House, database_url: str, seed: int) -> None:
    dice = random.Random(seed)
    engines = Engines(database_url)
    try:
        engines.start()
        await engines.running[0].ready()
        for _ in range(KILLS):
            cluster = await house.cluster(0)
            answer = await house.post(f"/clusters/{cluster['id']}/actions", {"scale_out": {"count": 30}})
            action = await cut_off(engines, house, answer, dice.uniform(0, LONGEST))
            assert action["status"] == "SUCCEEDED", action["status_reason"]
            there = await made_for(house, cluster)
            members = await house.members(cluster)
            assert len(there) == len(members) == 30
            assert {server["cluster_node_id"] for server in there} == {node["id"] for node in members}
            assert {server["id"] for server in there} == {node["physical_id"] for node in members}
            assert (await house.show(cluster))["desired_capacity"] == 30
            assert await nothing_is_held(house)
    finally:
        engines.stop()


@pytest.mark.parametrize("seed", [2])
async def test_a_rolling_update_that_is_cut_off_reaches_every_node(house: House, database_url: str, seed: int) -> None:
    dice = random.Random(seed)
    engines = Engines(database_url)
    try:
        engines.start()
        await engines.running[0].ready()
        cluster = await house.cluster(12)
        policy = await house.policy("senlin.policy.batch", min_in_service=0, max_batch_size=3, pause_time=0)
        await house.act(cluster, "policy_attach", {"policy_id": policy["id"]})
        before = {node["physical_id"] for node in await house.members(cluster)}
        for release in range(KILLS):
            new = await house.profile(metadata={"release": str(release)}, flavor="12"[release % 2])
            body = {"cluster": {"profile_id": new["id"]}}
            answer = await house.call("PATCH", f"/clusters/{cluster['id']}", body)
            action = await cut_off(engines, house, answer, dice.uniform(0, LONGEST))
            assert action["status"] == "SUCCEEDED", action["status_reason"]
            there = await made_for(house, cluster)
            assert {server["id"] for server in there} == before
            assert {server["release"] for server in there} == {str(release)}
            assert {server["state"] for server in there} == {"active"}
            assert {node["profile_id"] for node in await house.members(cluster)} == {new["id"]}
            assert await nothing_is_held(house)
    finally:
        engines.stop()
