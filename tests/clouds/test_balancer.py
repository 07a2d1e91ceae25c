"""The embedded load balancer really forwards: to members that answer, by its method, and no further than its limit."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy as sa

from roost.clouds import balancer
from roost.clouds.balancer import Forwarder, addresses
from tests.clusters.house import House, clustering


@asynccontextmanager
async def backend(host: str, port: int, name: str) -> AsyncIterator[None]:
    """Something that says its name, then repeats what it hears."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(name.encode() + b"\n")
        while line := await reader.readline():
            writer.write(line)
            await writer.drain()
        writer.close()

    async with await asyncio.start_server(handle, host, port):
        yield


async def talk(host: str, port: int, words: bytes = b"") -> str:
    """Who answers at an address, if anybody does; and that it hears what is said."""
    reader, writer = await asyncio.open_connection(host, port)
    name = (await reader.readline()).decode().strip()
    if name and words:
        writer.write(words)
        assert await reader.readline() == words
    writer.close()
    return name


@asynccontextmanager
async def forwarding(forwarder: Forwarder) -> AsyncIterator[int]:
    async with await asyncio.start_server(forwarder.handle, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


async def test_connections_go_round_the_members_and_past_those_that_do_not_answer() -> None:
    members = [("127.1.0.1", 18081), ("127.1.0.2", 18081), ("127.1.0.3", 18081)]
    async with backend(*members[0], "a"), backend(*members[1], "b"), forwarding(Forwarder(members=members)) as port:
        names = Counter([await talk("127.0.0.1", port, b"hello\n") for _ in range(12)])
    assert set(names) == {"a", "b"}
    assert sum(names.values()) == 12


async def test_without_a_member_that_answers_the_connection_ends() -> None:
    async with forwarding(Forwarder(members=[("127.1.0.9", 18081)])) as port:
        assert await talk("127.0.0.1", port) == ""
    async with forwarding(Forwarder()) as port:
        assert await talk("127.0.0.1", port) == ""


async def test_no_more_connections_than_the_limit() -> None:
    async with backend("127.1.0.1", 18082, "a"), forwarding(Forwarder(limit=1, members=[("127.1.0.1", 18082)])) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await reader.readline() == b"a\n"
        assert await talk("127.0.0.1", port) == ""
        writer.close()


@pytest.mark.parametrize(
    ("method", "client", "expected"),
    [
        ("ROUND_ROBIN", "10.0.0.1", ["b", "c", "a"]),
        ("LEAST_CONNECTIONS", "10.0.0.1", ["c", "b", "a"]),
        ("SOURCE_IP", "10.0.0.1", ["c", "a", "b"]),
    ],
)
def test_the_methods(method: str, client: str, expected: list[str]) -> None:
    members = [(name, 1) for name in "abc"]
    forwarder = Forwarder(method, members=members, open=Counter({("a", 1): 5, ("b", 1): 2}), served=4)
    assert [name for name, _ in forwarder.order(client)] == expected


@pytest.mark.parametrize(
    ("metadata", "networks", "expected"),
    [
        ({"roost.address": "127.1.0.{index}:81", "cluster_node_index": "7"}, {}, [("127.1.0.7", 81)]),
        ({"roost.address": "127.1.0.1"}, {}, [("127.1.0.1", 8080)]),
        ({}, {"private": [{"addr": "10.0.0.3", "version": 4}]}, [("10.0.0.3", 8080)]),
        ({}, {}, []),
    ],
)
def test_where_a_server_is_reached(
    metadata: dict[str, str], networks: dict[str, Any], expected: list[tuple[str, int]]
) -> None:
    assert addresses([SimpleNamespace(metadata=metadata, addresses=networks, port=8080)]) == expected


@pytest.fixture
async def house(database_url: str) -> AsyncIterator[House]:
    """A clustering service with an engine and its forwarders."""
    async with clustering(database_url) as made:
        task = asyncio.create_task(balancer.run(made.database))
        yield made
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def answers(host: str, port: int, expected: set[str]) -> None:
    """Wait until exactly these answer at an address."""
    async with asyncio.timeout(15):
        while True:
            try:
                found = {await talk(host, port) for _ in range(6)}
            except OSError:
                found = set()
            if found == expected:
                return
            await asyncio.sleep(0.05)


async def test_a_balanced_cluster_can_be_seen_to_work(house: House) -> None:
    profile = await house.profile(metadata={"roost.address": "127.1.0.{index}"})
    cluster = await house.cluster(1, profile=profile)
    spec = {
        "pool": {"subnet": "private", "protocol": "TCP", "protocol_port": 18083},
        "vip": {"subnet": "private", "protocol": "TCP", "protocol_port": 18080},
    }
    policy = await house.policy("senlin.policy.loadbalance", "1.3", **spec)
    await house.act(cluster, "policy_attach", {"policy_id": policy["id"]})
    [address] = (await house.show(cluster))["data"]["loadbalancers"].values()
    async with backend("127.1.0.1", 18083, "first"), backend("127.1.0.2", 18083, "second"):
        await answers(address["vip_address"], 18080, {"first"})
        await house.act(cluster, "scale_out")
        await answers(address["vip_address"], 18080, {"first", "second"})
        first = (await house.members(cluster))[0]
        await house.act(cluster, "del_nodes", {"nodes": [first["id"]], "destroy_after_deletion": True})
        await answers(address["vip_address"], 18080, {"second"})
        await house.act(cluster, "policy_detach", {"policy_id": policy["id"]})
    async with house.database.begin() as connection:
        assert await connection.scalar(sa.text("SELECT count(*) FROM load_balancers")) == 0
