"""The conformance suite on the clouds that are always at hand: the embedded one, and Roost itself over HTTP."""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from typing import Any

import openstack
import pytest
import yaml

from roost import config
from roost.clouds.base import CloudError, CloudRefused
from roost.clouds.embedded import EmbeddedClouds
from roost.clouds.openstack import OpenStackClouds
from roost.compute.scheduling import lifecycle
from roost.compute.scheduling.scheduler import Scheduler
from roost.placement.rules import Rule
from roost.store.database import Database
from roost.store.rounds import Rounds
from tests.clouds.conformance import *  # noqa: F403
from tests.clouds.conformance import Subject
from tests.conftest import Served

NAMES = {"flavor": "m1.tiny", "bigger": "m1.small", "image": "cirros-0.6.2-x86_64-disk"}


@pytest.fixture(params=["embedded", "openstack"])
def place(request: pytest.FixtureRequest) -> Any:
    """Where the cloud is: a database, or a Roost that is served."""
    return request.getfixturevalue("database_url" if request.param == "embedded" else "served")


@pytest.fixture
async def subject(place: Any) -> AsyncIterator[Subject]:
    """One of the clouds."""
    if isinstance(place, Served):
        entry = yaml.safe_load(place.clouds.read_text())["clouds"]["roost"]
        access = {"load_yaml_config": False, "load_envvars": False, **entry}
        own = openstack.connect(**access)
        clouds = OpenStackClouds(None, access)
        yield Subject(clouds.of(own.current_project_id, own.current_user_id), **NAMES)
        clouds.close()
        return
    database = Database(place)
    settings = config.with_database(config.load(), place)
    engine = asyncio.create_task(lifecycle.run(database, Rounds(database)))
    yield Subject(EmbeddedClouds(database, settings, Scheduler(database, settings)).of("project", "user"), **NAMES)
    engine.cancel()
    await asyncio.gather(engine, return_exceptions=True)
    await database.close()


async def test_a_scope_travels_with_a_group(subject: Subject) -> None:
    rule = Rule.parse("soft-anti-affinity:rack")
    group = await subject.cloud.create_server_group(f"group-{uuid.uuid4().hex[:6]}", [rule])
    found = await subject.cloud.find_server_group(group.id)
    assert found is not None
    assert found.rules == group.rules == (rule,)
    await subject.cloud.delete_server_group(group.id)


async def test_a_message_reaches_zaqar_and_a_cloud_without_queues_says_so(served: Served) -> None:
    heard: list[tuple[str, Any]] = []

    async def zaqar(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = int(head.lower().partition("content-length: ")[2].partition("\r\n")[0] or 0)
        heard.append((head.partition(" HTTP/")[0], json.loads(await reader.readexactly(length) or b"null")))
        answer = b'{"resources": ["/v2/queues/q/messages/1"]}'
        writer.write(b"HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nConnection: close\r\n")
        writer.write(b"Content-Length: %d\r\n\r\n" % len(answer) + answer)
        await writer.drain()
        writer.close()

    entry = yaml.safe_load(served.clouds.read_text())["clouds"]["roost"]
    access = {"load_yaml_config": False, "load_envvars": False, **entry}
    own = openstack.connect(**access)
    async with await asyncio.start_server(zaqar, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with_queues = OpenStackClouds(None, {**access, "message_endpoint_override": f"http://127.0.0.1:{port}/v2"})
        await with_queues.of(own.current_project_id, own.current_user_id).post_message("q", {"node_id": "n"})
        with_queues.close()
    # The SDK first asks what is there.
    assert heard[1:] == [("POST /v2/queues/q/messages", {"messages": [{"body": {"node_id": "n"}, "ttl": 300}]})]

    without = OpenStackClouds(None, access)
    with pytest.raises((CloudRefused, CloudError), match="messag"):
        await without.of(own.current_project_id, own.current_user_id).post_message("q", {})
    without.close()
