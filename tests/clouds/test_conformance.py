"""What every cloud must do for clusters. The embedded one is asked in process, an OpenStack over HTTP: Roost's own."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from typing import Any

import openstack
import pytest
import yaml

from roost import config
from roost.clouds.base import Cloud, ServerRequest
from roost.clouds.embedded import EmbeddedClouds
from roost.clouds.openstack import OpenStackClouds
from roost.compute import lifecycle
from roost.compute.scheduling import Scheduler
from roost.store.database import Database
from tests.conftest import Served

IMAGE = "cirros-0.6.2-x86_64-disk"


@pytest.fixture(params=["embedded", "openstack"])
def place(request: pytest.FixtureRequest) -> Any:
    """Where the cloud is: a database, or a Roost that is served."""
    return request.getfixturevalue("database_url" if request.param == "embedded" else "served")


@pytest.fixture
async def cloud(place: Any) -> AsyncIterator[Cloud]:
    """One of the clouds, for a project that may make servers."""
    if isinstance(place, Served):
        entry = yaml.safe_load(place.clouds.read_text())["clouds"]["roost"]
        access = {"load_yaml_config": False, "load_envvars": False, **entry}
        own = openstack.connect(**access)
        clouds = OpenStackClouds(None, access)
        yield clouds.of(own.current_project_id, own.current_user_id)
        clouds.close()
        return
    database = Database(place)
    settings = config.with_database(config.load(), place)
    engine = asyncio.create_task(lifecycle.run(database))
    yield EmbeddedClouds(database, settings, Scheduler(database, settings)).of("project", "user")
    engine.cancel()
    await asyncio.gather(engine, return_exceptions=True)
    await database.close()


async def wanted(cloud: Cloud, count: int, **given: Any) -> list[ServerRequest]:
    """Requests for that many small servers, each for a node of its own."""
    flavor, image = await cloud.find_flavor("m1.tiny"), await cloud.find_image(IMAGE)
    assert flavor is not None
    assert image is not None
    ids = [str(uuid.uuid4()) for _ in range(count)]
    return [
        ServerRequest(
            node_id, f"node-{node_id[:8]}", flavor.id, image.id, metadata={"cluster_node_id": node_id}, **given
        )
        for node_id in ids
    ]


async def test_a_batch_of_servers_is_made_found_and_deleted(cloud: Cloud) -> None:
    requests = await wanted(cloud, 3)
    made = await cloud.create_servers(requests)
    assert [outcome.node_id for outcome in made] == [request.node_id for request in requests]
    assert all(outcome.error is None and outcome.server_id and outcome.zone for outcome in made)
    found = await cloud.find_servers([request.node_id for request in requests])
    assert {server.id for server in found.values()} == {outcome.server_id for outcome in made}
    assert {server.status for server in found.values()} == {"ACTIVE"}
    ids = [server.id for server in found.values()]
    assert await cloud.delete_servers(ids) == {}
    assert await cloud.show_servers(ids) == {}


async def test_asking_twice_makes_no_second_server(cloud: Cloud) -> None:
    requests = await wanted(cloud, 2)
    first = await cloud.create_servers(requests[:1])
    both = await cloud.create_servers(requests)
    assert both[0].server_id == first[0].server_id
    assert both[1].server_id is not None
    await cloud.delete_servers([outcome.server_id for outcome in both if outcome.server_id])


async def test_a_zone_is_kept_to_and_an_unknown_one_is_a_reason(cloud: Cloud) -> None:
    zone = (await cloud.availability_zones())[0]
    assert zone.available
    [placed] = await cloud.create_servers(await wanted(cloud, 1, availability_zone=zone.name))
    assert placed.zone == zone.name
    [refused] = await cloud.create_servers(await wanted(cloud, 1, availability_zone="nowhere"))
    assert refused.error
    await cloud.delete_servers([server for server in (placed.server_id, refused.server_id) if server])


async def test_a_group_is_made_found_kept_to_and_deleted(cloud: Cloud) -> None:
    group = await cloud.create_server_group(f"group-{uuid.uuid4().hex[:6]}", ["anti-affinity"])
    assert (await cloud.find_server_group(group.name)) == (await cloud.find_server_group(group.id))
    made = await cloud.create_servers(await wanted(cloud, 2, server_group=group.id))
    assert all(outcome.error is None for outcome in made)
    servers = await cloud.show_servers([outcome.server_id for outcome in made if outcome.server_id])
    assert len(servers) == 2
    await cloud.delete_servers(list(servers))
    await cloud.delete_server_group(group.id)
    await cloud.delete_server_group(group.id)
    assert await cloud.find_server_group(group.id) is None


async def test_a_scope_travels_with_a_group(cloud: Cloud) -> None:
    group = await cloud.create_server_group(f"group-{uuid.uuid4().hex[:6]}", ["soft-anti-affinity:rack"])
    found = await cloud.find_server_group(group.id)
    assert found is not None
    assert found.policies == ("soft-anti-affinity:rack",)
    await cloud.delete_server_group(group.id)


async def test_a_server_is_renamed_relabelled_and_operated(cloud: Cloud) -> None:
    [made] = await cloud.create_servers(await wanted(cloud, 1))
    assert made.server_id is not None
    assert await cloud.update_server(made.server_id, name="other", metadata={"a": "b"}) is None
    assert await cloud.update_server(made.server_id, metadata={"a": None, "never-there": None}) is None
    for operation, params, status in (
        ("reboot", {"type": "SOFT"}, "ACTIVE"),
        ("stop", {}, "SHUTOFF"),
        ("start", {}, "ACTIVE"),
        ("pause", {}, "PAUSED"),
        ("unpause", {}, "ACTIVE"),
        ("rebuild", {}, "ACTIVE"),
    ):
        assert await cloud.operate(made.server_id, operation, params) is None
        server = (await cloud.show_servers([made.server_id]))[made.server_id]
        assert server.status == status, operation
    assert server.name == "other"
    assert "a" not in server.details["metadata"]
    assert await cloud.operate(made.server_id, "unpause", {})
    await cloud.delete_servers([made.server_id])


async def test_a_server_gets_another_flavor(cloud: Cloud) -> None:
    [made] = await cloud.create_servers(await wanted(cloud, 1))
    flavor = await cloud.find_flavor("m1.small")
    assert flavor is not None
    assert made.server_id is not None
    assert await cloud.operate(made.server_id, "resize", {"flavor": flavor.id}) is None
    assert (await cloud.show_servers([made.server_id]))[made.server_id].status == "ACTIVE"
    await cloud.delete_servers([made.server_id])


async def test_what_is_not_there_is_none_or_counts_as_gone(cloud: Cloud) -> None:
    assert await cloud.find_flavor("no-such-flavor") is None
    assert await cloud.find_image("no-such-image") is None
    assert await cloud.find_network("no-such-network") is None
    assert await cloud.find_keypair("no-such-key") is None
    assert await cloud.find_server_group("no-such-group") is None
    assert await cloud.find_servers([str(uuid.uuid4())]) == {}
    assert await cloud.delete_servers([str(uuid.uuid4())]) == {}
    assert await cloud.operate(str(uuid.uuid4()), "stop", {})


async def test_there_is_a_region(cloud: Cloud) -> None:
    assert "RegionOne" in await cloud.regions()
