"""Servers through the real clients: the stock `openstack` command, openstacksdk and novaclient."""

import time
from collections.abc import Iterator
from typing import Any

import novaclient.client
import openstack
import pytest
import yaml

from tests.clients.conftest import Client
from tests.conftest import Served

IMAGE, FLAVOR = "cirros-0.6.2-x86_64-disk", "m1.tiny"


@pytest.fixture(autouse=True)
def nothing_stays(client: Client) -> Iterator[None]:
    """Delete what a test leaves."""
    yield
    ours = [server["ID"] for server in client.ask("server", "list", "--no-name-lookup", cloud="roost")]
    if ours:
        client.do("server", "delete", "--wait", *ours, cloud="roost")
    for group in client.ask("server", "group", "list", cloud="roost"):
        client.do("server", "group", "delete", group["ID"], cloud="roost")


def boot(client: Client, name: str, *options: str) -> Any:
    command = ["server", "create", "--flavor", FLAVOR, "--image", IMAGE, "--nic", "none", "--wait", *options, name]
    return client.ask(*command, cloud="roost")


def test_servers_of_an_anti_affinity_group(client: Client) -> None:
    group = client.ask("server", "group", "create", "--policy", "anti-affinity", "apart", cloud="roost")
    first = boot(client, "first", "--hint", f"group={group['id']}")
    assert (first["status"], first["image"].split()[0], first["flavor"]["name"]) == ("ACTIVE", IMAGE, FLAVOR)
    second = boot(client, "second", "--server-group", "apart")
    assert first["hostId"] != second["hostId"]
    shown = client.ask("server", "show", first["id"], cloud="roost")
    assert shown["server_groups"] == [group["id"]]
    assert shown["OS-EXT-SRV-ATTR:host"] is None  # what the command prints for what the answer lacks
    listed = client.ask("server", "list", "--long", cloud="roost")
    assert {(row["Name"], row["Status"], row["Image Name"], row["Host"]) for row in listed} == {
        ("first", "ACTIVE", IMAGE, None),
        ("second", "ACTIVE", IMAGE, None),
    }
    hosts = {row["Name"]: row["Host"] for row in client.ask("server", "list", "--long", "--all-projects")}
    assert hosts["first"] != hosts["second"]
    members = client.ask("server", "group", "show", "apart", cloud="roost")["members"]
    assert {first["id"], second["id"]} == set(members)
    client.do("server", "delete", "--wait", "first", "second", cloud="roost")
    assert client.ask("server", "list", cloud="roost") == []


def test_a_server_is_migrated_resized_stopped_and_started(client: Client) -> None:
    server = boot(client, "mover")["id"]
    host = client.ask("server", "show", server)["OS-EXT-SRV-ATTR:host"]
    client.do("server", "migrate", "--wait", server)
    assert client.ask("server", "show", server)["status"] == "VERIFY_RESIZE"
    client.do("server", "migration", "confirm", server)
    moved = client.ask("server", "show", server)
    assert (moved["status"], moved["OS-EXT-SRV-ATTR:host"] != host) == ("ACTIVE", True)
    client.do("server", "migrate", "--live-migration", "--host", host, "--wait", server)
    assert client.ask("server", "show", server)["OS-EXT-SRV-ATTR:host"] == host
    client.do("server", "resize", "--flavor", "m1.small", "--wait", server, cloud="roost")
    client.do("server", "resize", "confirm", server, cloud="roost")
    assert client.ask("server", "show", server, cloud="roost")["flavor"]["name"] == "m1.small"
    client.do("server", "stop", server, cloud="roost")
    client.do("server", "delete", "--wait", server, cloud="roost")
    assert "No Server found for mover" in client.refusal("server", "show", "mover")


def test_the_history_of_a_server(client: Client) -> None:
    server = boot(client, "historic", "--property", "k=v", "--description", "d", "--tag", "t")
    assert (server["properties"], server["description"], server["tags"]) == ({"k": "v"}, "d", ["t"])
    client.do("server", "lock", server["id"], cloud="roost")
    events = client.ask("server", "event", "list", server["id"], cloud="roost")
    assert [event["Action"] for event in events] == ["lock", "create"]
    shown = client.ask("server", "event", "show", server["id"], events[-1]["Request ID"], cloud="roost")
    assert (shown["action"], shown["message"]) == ("create", None)
    client.do("server", "unlock", server["id"], cloud="roost")
    client.do("server", "set", "--name", "renamed", "--property", "k=w", server["id"], cloud="roost")
    renamed = client.ask("server", "show", "renamed", cloud="roost")
    assert renamed["properties"] == {"k": "w"}
    assert client.ask("server", "migration", "list") is not None


def test_a_server_that_fits_nowhere_says_why(client: Client) -> None:
    client.ask("server", "group", "create", "--policy", "affinity", "together", cloud="roost")
    boot(client, "one", "--server-group", "together", "--availability-zone", "zone1")
    command = ("server", "create", "--flavor", FLAVOR, "--image", IMAGE, "--nic", "none", "--wait")
    refused = client.run(*command, "--server-group", "together", "--availability-zone", "zone2", "two", cloud="roost")
    assert refused.code != 0
    fault = client.ask("server", "show", "two", cloud="roost")["fault"]
    assert fault["message"] == (
        "No valid host was found. No place for 1 server: 32 hosts are outside the availability zone; 16 hosts hold "
        "none of the members, as 'affinity' asks."
    )


def test_the_sdk(client: Client, sdk: Any) -> None:
    cloud = openstack.connect(cloud="roost")
    try:
        group = cloud.compute.create_server_group(name="sdk", policy="soft-anti-affinity")
        image, flavor = cloud.image.find_image(IMAGE), cloud.compute.find_flavor(FLAVOR)
        server = cloud.compute.create_server(
            name="sdk", image_id=image.id, flavor_id=flavor.id, networks="none", scheduler_hints={"group": group.id}
        )
        server = cloud.compute.wait_for_server(server, interval=0.2)
        assert server.status == "ACTIVE"
        assert [each.id for each in cloud.compute.servers(limit=1)] == [server.id]
        sdk.compute.live_migrate_server(server.id, host=None, block_migration="auto")
        sdk.compute.wait_for_server(sdk.compute.get_server(server.id), interval=0.2)
        assert [action.action for action in cloud.compute.server_actions(server.id)] == ["live-migration", "create"]
        assert cloud.delete_server(server.id, wait=True)
    finally:
        cloud.close()


def test_novaclient(client: Client, served: Served) -> None:
    auth = yaml.safe_load(served.clouds.read_text())["clouds"]["roost"]["auth"]
    nova = novaclient.client.Client(
        "2.96",
        auth["username"],
        auth["password"],
        project_name=auth["project_name"],
        auth_url=auth["auth_url"] + "/v3",
        user_domain_id="default",
        project_domain_id="default",
    )
    group = nova.server_groups.create("nova", "anti-affinity")
    image = client.ask("image", "show", IMAGE)["id"]
    server = nova.servers.create("nova", image, "1", nics="none", scheduler_hints={"group": group.id})
    for _ in range(100):
        server = nova.servers.get(server.id)
        if server.status == "ACTIVE":
            break
    assert server.server_groups == [group.id]
    assert [each.id for each in nova.servers.list(limit=1)] == [server.id]
    server.stop()
    server.delete()
    while nova.servers.list():  # what is being deleted may be gone when it is to be deleted again
        time.sleep(0.1)
