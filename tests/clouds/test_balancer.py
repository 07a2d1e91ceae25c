"""The embedded load balancer really forwards: to members that answer, by its method, and no further than its limit.

What is said of both, HAProxy and the forwarder, is tested with both; with HAProxy where it is installed.
"""

import asyncio
import shutil
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy as sa

from roost.clouds import balancer
from roost.clouds.balancer import Forwarder, addresses
from roost.clouds.haproxy import Address, Haproxy, configuration, free, usable
from roost.store.rounds import Rounds
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
    try:
        reader, writer = await asyncio.open_connection(host, port)
        name = (await reader.readline()).decode().strip()
    except ConnectionResetError:
        return ""
    if name and words:
        writer.write(words)
        assert await reader.readline() == words
    writer.close()
    return name


HAPROXY = shutil.which("haproxy")
BOTH = [
    "forwarder",
    pytest.param("haproxy", marks=pytest.mark.skipif(HAPROXY is None, reason="HAProxy is not installed")),
]


@asynccontextmanager
async def by_forwarder(members: list[Address], limit: int = -1) -> AsyncIterator[int]:
    forwarder = Forwarder(limit=limit, members=members)
    async with await asyncio.start_server(forwarder.handle, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


@asynccontextmanager
async def by_haproxy(folder: Path, members: list[Address], limit: int = -1) -> AsyncIterator[int]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    haproxy = Haproxy(str(HAPROXY), folder, ("127.0.0.1", port), limit=limit)
    await haproxy.serve(members)
    async with asyncio.timeout(10):
        while free(haproxy.vip):  # noqa: ASYNC110 - another process binds it
            await asyncio.sleep(0.02)
    try:
        yield port
    finally:
        await haproxy.close()
    assert [process.returncode is None for process in haproxy._processes] == [False]


Forwarding = Callable[..., AbstractAsyncContextManager[int]]


@pytest.fixture(params=BOTH)
def forwarding(request: pytest.FixtureRequest, tmp_path: Path) -> Forwarding:
    """Either of the two, for members and a limit: the port at which it listens."""
    return by_forwarder if request.param == "forwarder" else partial(by_haproxy, tmp_path)


async def test_connections_go_round_the_members_and_past_those_that_do_not_answer(forwarding: Forwarding) -> None:
    members = [("127.1.0.1", 18081), ("127.1.0.2", 18081), ("127.1.0.3", 18081)]
    async with backend(*members[0], "a"), backend(*members[1], "b"), forwarding(members) as port:
        names = Counter([await talk("127.0.0.1", port, b"hello\n") for _ in range(12)])
    assert set(names) == {"a", "b"}
    assert sum(names.values()) == 12


async def test_without_a_member_that_answers_the_connection_ends(forwarding: Forwarding) -> None:
    async with forwarding([("127.1.0.9", 18081)]) as port:
        assert await talk("127.0.0.1", port) == ""


async def test_without_a_member_the_connection_ends(forwarding: Forwarding) -> None:
    async with forwarding([]) as port:
        assert await talk("127.0.0.1", port) == ""


async def test_no_more_connections_than_the_limit(forwarding: Forwarding) -> None:
    async with backend("127.1.0.1", 18082, "a"), forwarding([("127.1.0.1", 18082)], limit=1) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await reader.readline() == b"a\n"
        assert await talk("127.0.0.1", port) == ""
        writer.close()


def test_nothing_that_a_user_names_becomes_a_line_of_its_own() -> None:
    assert usable(("127.0.0.1", 80))
    assert not usable(("127.0.0.1:80\n    log stdout", 80))
    assert not usable(("127.0.0.1", 0))
    plain = configuration(("127.0.0.1", 80), [("127.1.0.1", 81)], "SOURCE_IP", 5)
    assert plain.endswith("server member0 127.1.0.1:81\n")
    odd = [("127.1.0.1", 81), ("x\n    log stdout", 81), ("x check", 81), ("127.1.0.1", 99999)]
    assert configuration(("127.0.0.1", 80), odd, "SOURCE_IP", 5) == plain


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


@pytest.fixture(params=BOTH)
async def house(request: pytest.FixtureRequest, database_url: str) -> AsyncIterator[House]:
    """A clustering service with an engine and its load balancers."""
    async with clustering(database_url) as made:
        haproxy = HAPROXY if request.param == "haproxy" else None
        task = asyncio.create_task(balancer.run(made.database, haproxy, Rounds(made.database)))
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
