"""The watch over clusters: what makes a node ill, and when the watch is off."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import sqlalchemy as sa

from roost.clouds.base import CloudServer
from roost.clusters import health
from roost.clusters.policies.health import HealthPolicy
from roost.clusters.profiles.nova_server import ServerProfile
from roost.policies.memory import MemoryCloud
from tests.clusters.builders import node, policy
from tests.clusters.house import House

STATUS = {"type": "NODE_STATUS_POLLING"}
HYPERVISOR = {"type": "HYPERVISOR_STATUS_POLLING"}


@asynccontextmanager
async def page(*answers: str) -> AsyncIterator[str]:
    """A page that answers these one after the other, and then the last for ever; a number is a status."""
    left = list(answers)

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        answer = left.pop(0) if len(left) > 1 else left[0]
        status, body = (answer, "") if answer.isdigit() else ("200", answer)
        head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        writer.write(head.encode() + body.encode())
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(handle, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/{{nodename}}"


def options(url: str, **more: Any) -> dict[str, Any]:
    given = {"poll_url": url, "poll_url_retry_limit": 1, "poll_url_retry_interval": 0, **more}
    mode = {"type": "NODE_STATUS_POLL_URL", "options": given}
    found: dict[str, Any] = watch(mode).detection["detection_modes"][0]["options"]
    return found


def watch(*modes: dict[str, Any], **detection: Any) -> HealthPolicy:
    spec = {
        "detection": {"detection_modes": list(modes), **detection},
        "recovery": {"actions": [{"name": "RECREATE"}]},
    }
    made = policy("health-1.2", spec)
    assert isinstance(made, HealthPolicy)
    return made


async def polled(given: dict[str, Any]) -> str | None:
    """What a page says of a node, where the operator allows pages of this machine."""
    return await health.poll_url("n", given, private=True)


async def test_a_page_that_may_not_be_asked_says_nothing() -> None:
    async with page("oh no") as url:
        assert await health.poll_url("n", options(url, poll_url_healthy_response="well")) is None


async def test_a_page_that_answers_as_it_should() -> None:
    async with page("all is well") as url:
        assert await polled(options(url)) is None
        assert await polled(options(url, poll_url_healthy_response="well")) is None


async def test_a_page_is_asked_again_before_a_node_is_given_up() -> None:
    async with page("oh no", "well") as url:
        assert await polled(options(url, poll_url_healthy_response="well")) is None
    async with page("503", "well") as url:
        assert await polled(options(url)) is None


async def test_a_page_that_never_answers_as_it_should() -> None:
    async with page("oh no") as url:
        shown = url.replace("{nodename}", "n")
        assert await polled(options(url, poll_url_healthy_response="well")) == (f"{shown} does not answer 'well'.")
    async with page("503") as url:
        assert str(await polled(options(url))).endswith("does not answer: status 503")


async def test_a_page_that_is_not_there() -> None:
    url = "http://127.0.0.1:1/"
    assert str(await polled(options(url))).startswith("http://127.0.0.1:1/ does not answer: ")
    assert await polled(options(url, poll_url_conn_error_as_unhealthy=False)) is None
    assert "it is no URL of http or https" in str(await polled(options("file:///etc/passwd")))


MEMBERS = (node("well", physical="s1"), node("gone", physical="s2"), node("lost", physical="s3"))
CLOUD = MemoryCloud(
    hosts=["h1"],
    servers={
        "s1": CloudServer("s1", "x", "ACTIVE", "nova-1", "h1", "well"),
        "s3": CloudServer("s3", "x", "ACTIVE", "nova-1", "h9", "lost"),
    },
)
PROFILE = ServerProfile("web", {"type": "os.nova.server", "version": "1.0", "properties": {"flavor": "1"}})


@pytest.mark.parametrize(
    ("asked", "ill"),
    [
        (watch(STATUS), {"gone"}),
        (watch({"type": "LIFECYCLE_EVENTS"}), {"gone"}),
        (watch(HYPERVISOR), {"lost"}),
        (watch(STATUS, HYPERVISOR), {"gone", "lost"}),
        (watch(STATUS, HYPERVISOR, recovery_conditional="ALL_FAILED"), set()),
    ],
)
async def test_nodes_are_ill_by_any_mode_or_by_all(asked: HealthPolicy, ill: set[str]) -> None:
    assert set(await health.diagnose(asked, PROFILE, CLOUD, MEMBERS)) == ill


async def test_the_owner_of_a_node_is_not_told_the_name_of_its_hypervisor() -> None:
    assert await health.diagnose(watch(HYPERVISOR), PROFILE, CLOUD, MEMBERS) == {"lost": "Its hypervisor is not there."}


async def test_every_node_has_its_own_page() -> None:
    async with page("node-well") as url:
        mode = {"poll_url": url, "poll_url_healthy_response": "node", "poll_url_retry_limit": 0}
        asked = watch({"type": "NODE_STATUS_POLL_URL", "options": mode})
        assert await health.diagnose(asked, PROFILE, CLOUD, MEMBERS, private_urls=True) == {}


async def registry(house: House) -> list[tuple[Any, ...]]:
    async with house.database.begin() as connection:
        query = sa.text("SELECT check_type, interval, enabled FROM health_registry")
        return [tuple(row) for row in (await connection.execute(query)).all()]


async def test_a_cluster_is_watched_while_the_policy_is_attached(house: House) -> None:
    cluster = await house.cluster(1)
    spec = watch(STATUS).spec["properties"]
    made = await house.policy("senlin.policy.health", "1.2", **spec)
    await house.act(cluster, "policy_attach", {"policy_id": made["id"]})
    assert await registry(house) == [("NODE_STATUS_POLLING", 60, True)]
    await house.act(cluster, "scale_out")
    await house.act(cluster, "scale_in")
    assert await registry(house) == [("NODE_STATUS_POLLING", 60, True)]
    await house.act(cluster, "policy_detach", {"policy_id": made["id"]})
    assert await registry(house) == []


@pytest.mark.parametrize("event", ["deleted", "stopped"])
async def test_what_befalls_a_server_is_heard_of_at_once(
    house: House, monkeypatch: pytest.MonkeyPatch, event: str
) -> None:
    monkeypatch.setattr(health, "LIFECYCLE_SECONDS", 3600)
    cluster = await house.cluster(2)
    spec = watch({"type": "LIFECYCLE_EVENTS"}, node_update_timeout=0).spec["properties"]
    made = await house.policy("senlin.policy.health", "1.2", **spec)
    await house.act(cluster, "policy_attach", {"policy_id": made["id"]})
    async with asyncio.timeout(10):
        while not await looked_at(house):  # noqa: ASYNC110 - another task moves it on
            await asyncio.sleep(0.05)
    fallen = (await house.members(cluster))[0]["physical_id"]
    server = f"/compute/v2.1/servers/{fallen}"
    if event == "deleted":
        assert (await house.api.delete(server, cloud="roost")).status_code == 204
    else:
        assert (await house.api.post(f"{server}/action", {"os-stop": None}, cloud="roost")).status_code == 202
    path = f"/actions?target={cluster['id']}&action=CLUSTER_RECOVER&status=SUCCEEDED"
    await house.until(path, bool, 10)
    assert fallen not in await house.servers()
    assert len(await house.servers()) == 2


async def looked_at(house: House) -> bool:
    """Whether the next look is far away."""
    async with house.database.begin() as connection:
        query = sa.text("SELECT bool_and(due_at > now() + interval '1 minute') FROM health_registry")
        return bool(await connection.scalar(query))
