"""The server profile: what it asks of the cloud, in batches, and what it makes of the answers."""

from dataclasses import replace
from typing import Any

import pytest

from roost.clouds.base import CloudGroup, CloudServer
from roost.clusters.profiles.base import NodeOutcome
from roost.clusters.profiles.nova_server import ServerProfile
from roost.clusters.profiles.unsupported import DockerProfile, StackProfile
from roost.clusters.spec import InvalidSpec
from roost.placement.rules import Rule
from roost.policies.memory import MemoryCloud
from tests.clusters.builders import SETTINGS, node


def profile(**properties: Any) -> ServerProfile:
    spec = {"type": "os.nova.server", "version": "1.0", "properties": {"flavor": "m1.tiny", **properties}}
    return ServerProfile("web", spec, id="profile-1")


def unmade(id: str, **more: Any) -> Any:
    return node(id, physical=None, **more)


async def test_every_property_reaches_the_cloud() -> None:
    cloud = MemoryCloud(groups={"g": CloudGroup("g", "group", (Rule.parse("affinity"),))})
    full = profile(
        image="cirros",
        key_name="mine",
        metadata={"tier": 1},
        name="named",
        networks=[{"network": "private", "fixed_ip": "10.0.0.3"}, {"port": "port-1"}],
        user_data="#!/bin/sh",
        availability_zone="nova-2",
        scheduler_hints={"group": "g", "same_host": "s"},
        security_groups=["default"],
        admin_pass="secret",
        config_drive=True,
        auto_disk_config=False,
        block_device_mapping_v2=[{"source_type": "blank", "destination_type": "local", "volume_size": 1}],
        personality=[{"path": "/x", "contents": "y"}],
        context={"region_name": "RegionOne"},
    )
    [outcome] = await full.create(cloud, [unmade("a", index=7)], "cluster-1")
    asked = cloud.requests["a"]
    assert outcome == NodeOutcome("a", True, "server-of-a", data={"placement": {"zone": "nova-2"}})
    assert (asked.name, asked.flavor, asked.image, asked.key_name) == (
        "named",
        "id-of-m1.tiny",
        "id-of-cirros",
        "mine",
    )
    assert asked.metadata == {
        "tier": "1",
        "cluster_node_id": "a",
        "cluster_id": "cluster-1",
        "cluster_node_index": "7",
    }
    assert asked.networks == ({"uuid": "id-of-private", "fixed_ip": "10.0.0.3"}, {"port": "port-1"})
    assert (asked.availability_zone, asked.server_group, asked.region) == ("nova-2", "g", "RegionOne")
    assert asked.scheduler_hints == {"group": "g", "same_host": "s"}
    assert asked.block_devices == ({"source_type": "blank", "destination_type": "local", "volume_size": 1},)
    assert (asked.security_groups, asked.admin_pass, asked.config_drive, asked.auto_disk_config) == (
        ("default",),
        "secret",
        True,
        False,
    )
    assert (asked.user_data, asked.personality) == ("#!/bin/sh", ({"path": "/x", "contents": "y"},))


async def test_what_a_network_asks_of_its_port_reaches_the_cloud_and_goes_with_the_node() -> None:
    cloud = MemoryCloud()
    asked = {"vnic_type": "direct", "security_groups": ["web"], "subnet": "sub", "floating_network": "public"}
    plugged = profile(networks=[{"network": "private", **asked}])
    assert await plugged.validate(cloud, SETTINGS.clusters) is None
    await plugged.create(cloud, [unmade("a")], None)
    assert cloud.requests["a"].networks == ({"uuid": "id-of-private", **asked},)
    cloud.broken = {"server-of-b", "ports"}
    nodes = [node(each, physical=f"server-of-{each}") for each in "ab"]
    assert [each.ok for each in await plugged.delete(cloud, nodes)] == [True, False]
    assert cloud.released == ["a"], "a server that stays keeps its ports"
    assert await plugged.validate(cloud, SETTINGS.clusters) == "There are no such ports."


async def test_ports_that_senlin_made_go_with_their_node() -> None:
    cloud = MemoryCloud(broken={"server-of-b"})
    floating = {"id": "address", "remove": True}
    ports = [{"id": "port", "remove": True, "floating": floating}, {"id": "given"}]
    nodes = [node(each, physical=f"server-of-{each}") for each in "ab"]
    nodes = [each._replace(data={"internal_ports": ports}) for each in nodes]
    await profile().delete(cloud, nodes)
    assert cloud.released == ["a", "port", "address"], "those of a server that stays do not"


async def test_what_policies_decided_comes_before_the_profile() -> None:
    cloud = MemoryCloud()
    placed = unmade("a", zone="nova-2", region="RegionTwo")
    placed.data["placement"]["servergroup"] = "group"
    pinned = profile(availability_zone="nova-1", scheduler_hints={"group": "other"})
    [outcome] = await pinned.create(cloud, [placed], None)
    asked = cloud.requests["a"]
    assert (asked.availability_zone, asked.server_group, asked.region) == ("nova-2", "group", "RegionTwo")
    assert asked.scheduler_hints["group"] == "group"
    assert asked.metadata == {"cluster_node_id": "a"}
    assert outcome.data == {"placement": {"zone": "nova-2", "region_name": "RegionTwo", "servergroup": "group"}}


async def test_a_refusal_concerns_only_its_node() -> None:
    cloud = MemoryCloud(broken={"b"})
    outcomes = await profile().create(cloud, [unmade("a"), unmade("b")], "c")
    assert [(each.ok, each.reason) for each in outcomes] == [(True, ""), (False, "No valid host was found.")]


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ({"flavor": "mars"}, "The specified flavor 'mars' could not be found."),
        ({"image": "mars"}, "The specified image 'mars' could not be found."),
        ({"networks": [{"network": "mars"}]}, "The specified network mars could not be found."),
        ({"availability_zone": "nova-1:host"}, "Only an administrator of the cloud may choose a host."),
    ],
)
async def test_what_has_gone_since_the_profile_was_made_is_a_reason(properties: dict[str, Any], reason: str) -> None:
    [outcome] = await profile(**properties).create(MemoryCloud(), [unmade("a")], None)
    assert outcome == NodeOutcome("a", False, None, reason)
    assert await profile(**properties).validate(MemoryCloud(), SETTINGS.clusters) == reason


async def test_a_profile_that_can_be_used() -> None:
    full = profile(image="cirros", key_name="mine", availability_zone="nova-1", networks=[{"network": "private"}])
    assert await full.validate(MemoryCloud(), SETTINGS.clusters) is None


async def test_a_group_is_one_of_the_project() -> None:
    [outcome] = await profile(scheduler_hints={"group": "mars"}).create(MemoryCloud(), [unmade("a")], None)
    assert outcome == NodeOutcome("a", False, None, "The specified server group 'mars' could not be found.")


async def test_hosts_are_for_administrators_to_choose_and_to_see() -> None:
    cloud = MemoryCloud(privileged=True)
    pinned = profile(availability_zone="nova-1:host")
    assert await pinned.validate(cloud, SETTINGS.clusters) is None
    [made] = await pinned.create(cloud, [unmade("a")], None)
    assert made.ok
    known = node("a", physical="server-of-a")
    server = cloud.servers["server-of-a"]
    cloud.servers["server-of-a"] = replace(server, details={"OS-EXT-SRV-ATTR:host": "host", "status": "ACTIVE"})
    assert (await pinned.details(cloud, [known]))["a"] == {"OS-EXT-SRV-ATTR:host": "host", "status": "ACTIVE"}
    assert [outcome.ok for outcome in await pinned.operate(cloud, [known], "evacuate", {"host": "other"})] == [True]
    cloud.privileged = False
    assert (await pinned.details(cloud, [known]))["a"] == {"status": "ACTIVE"}
    [refused] = await pinned.operate(cloud, [known], "evacuate", {})
    assert refused.reason == "Only an administrator of the cloud may choose a host."
    assert cloud.operations == [("server-of-a", "evacuate", {"host": "other"})]


async def test_servers_are_deleted_even_those_that_the_node_does_not_know_yet() -> None:
    cloud = MemoryCloud()
    await profile().create(cloud, [unmade("a"), unmade("b"), unmade("c")], None)
    known = node("a", physical="server-of-a")
    locked = node("c", physical="server-of-c")
    cloud.broken = {"server-of-c"}
    outcomes = await profile().delete(cloud, [known, unmade("b"), locked, unmade("never-made")])
    assert outcomes == [
        NodeOutcome("a", True),
        NodeOutcome("b", True),
        NodeOutcome("c", False, "server-of-c", "it is locked"),
        NodeOutcome("never-made", True),
    ]
    assert list(cloud.servers) == ["server-of-c"]


async def test_a_check_tells_what_is_wrong() -> None:
    cloud = MemoryCloud(
        servers={
            "s1": CloudServer("s1", "x", "ACTIVE", "nova-1", "h", "a", details={"id": "s1"}),
            "s2": CloudServer("s2", "x", "ERROR", "nova-1", "h", "b", fault="it burnt"),
        }
    )
    members = [node("a", physical="s1"), node("b", physical="s2"), node("c", physical="s3"), unmade("d")]
    assert [each.reason for each in await profile().check(cloud, members)] == [
        "",
        "The server is in status ERROR: it burnt",
        "The server 's3' could not be found.",
        "The node has no server.",
    ]
    assert await profile().details(cloud, members) == {"a": {"id": "s1"}, "b": {}}


async def test_an_update_does_only_what_differs() -> None:
    cloud = MemoryCloud()
    old = profile(image="cirros", metadata={"a": "1", "b": "2"}, name="old")
    new = profile(image="ubuntu", metadata={"b": "3"}, name="new", flavor="m1.small")
    [outcome] = await old.update(cloud, [node("n")], new)
    assert outcome.ok
    assert cloud.operations == [
        ("server-n", "update", {"name": "new", "metadata": {"a": None, "b": "3"}}),
        ("server-n", "resize", {"flavor": "id-of-m1.small"}),
        ("server-n", "rebuild", {"image": "id-of-ubuntu"}),
    ]
    cloud.operations.clear()
    await old.update(cloud, [node("n")], old)
    assert cloud.operations == []


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"key_name": "mine"}, "The property 'key_name' of profile type os.nova.server-1.0 cannot be changed"),
        ({"networks": [{"network": "private"}]}, "The networks of a server cannot be changed in place"),
        ({"image": None}, "Updating Nova server with image set to None is not supported by Nova"),
        ({"flavor": "mars"}, "The specified flavor 'mars' could not be found."),
        ({"image": "mars"}, "The specified image 'mars' could not be found."),
    ],
)
async def test_updates_that_cannot_be_done(change: dict[str, Any], reason: str) -> None:
    given = {key: value for key, value in {"image": "cirros", **change}.items() if value is not None}
    [outcome] = await profile(image="cirros").update(MemoryCloud(), [node("n")], profile(**given))
    assert not outcome.ok
    assert outcome.reason.startswith(reason)


async def test_recovery() -> None:
    cloud = MemoryCloud()
    ill = node("a", physical="server-old")
    [again] = await profile().recover(cloud, [ill], "recreate", {}, "c")
    assert (again.ok, again.physical_id, again.data["recovery"]) == (True, "server-of-a", "RECREATE")
    cloud.broken = {"server-old"}
    [stuck] = await profile().recover(cloud, [ill], "RECREATE", {}, "c")
    assert (stuck.ok, stuck.reason) == (False, "it is locked")
    [forced] = await profile().recover(cloud, [ill], "RECREATE", {"force_recreate": True}, "c")
    assert forced.ok
    cloud.broken = set()
    [rebuilt] = await profile(image="cirros").recover(cloud, [ill], "REBUILD", {}, "c")
    [rebooted] = await profile().recover(cloud, [ill], "REBOOT", {}, "c")
    assert (rebuilt.data, rebooted.data) == ({"recovery": "REBUILD"}, {"recovery": "REBOOT"})
    assert cloud.operations == [
        ("server-old", "rebuild", {"image": "id-of-cirros"}),
        ("server-old", "reboot", {"type": "HARD"}),
    ]


async def test_operations_joining_and_leaving() -> None:
    cloud = MemoryCloud(broken={"server-b"})
    outcomes = await profile().operate(cloud, [node("a"), node("b"), unmade("c")], "reboot", {"type": "SOFT"})
    assert [each.reason for each in outcomes] == ["", "it is locked", "The node has no server."]
    await profile().operate(cloud, [node("a")], "rebuild", {})
    await profile().join(cloud, [node("a", index=3)], "cluster-1")
    await profile().leave(cloud, [node("a")])
    assert cloud.operations[-2:] == [
        (
            "server-a",
            "update",
            {
                "name": None,
                "metadata": {"cluster_node_id": "a", "cluster_id": "cluster-1", "cluster_node_index": "3"},
            },
        ),
        ("server-a", "update", {"name": None, "metadata": {"cluster_id": None, "cluster_node_index": None}}),
    ]


async def test_a_server_that_exists_is_adopted() -> None:
    cloud = MemoryCloud()
    await profile().create(cloud, [unmade("a")], None)
    found = await ServerProfile.adopt(cloud, "server-of-a")
    assert isinstance(found, dict)
    assert found["flavor"] == "id-of-m1.tiny"
    assert found["networks"] == [{"network": "private"}]
    assert await ServerProfile.adopt(cloud, "x") == "The specified server 'x' could not be found."
    assert await StackProfile.adopt(cloud, "x") == "Profile type os.heat.stack cannot adopt what exists."


@pytest.mark.parametrize(
    ("networks", "message"),
    [
        ([{}], "One of 'port' and 'network' must be provided"),
        (
            [{"port": "p", "fixed_ip": "1"}],
            "The 'port' property and the 'fixed_ip' property cannot be specified at the same time",
        ),
        (
            [{"network": "n", "vnic_type": "odd"}],
            "vnic_type: 'odd' is not supported.(supported types are: normal, direct, macvtap)",
        ),
    ],
)
def test_networks_that_make_no_sense_are_refused(networks: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        profile(networks=networks)
    assert caught.value.message == message


# Types that are known and not supported


def stack(**properties: Any) -> StackProfile:
    return StackProfile("st", {"type": "os.heat.stack", "version": "1.0", "properties": properties})


def docker(**properties: Any) -> DockerProfile:
    return DockerProfile("d", {"type": "container.dockerinc.docker", "version": "1.0", "properties": properties})


async def test_nodes_of_types_that_are_not_supported_are_refused_and_can_be_deleted() -> None:
    made, cloud, one = stack(template={"a": 1}), MemoryCloud(), [node("a")]
    refused = [NodeOutcome("a", False, None, "Profile type os.heat.stack-1.0 is not supported here.")]
    assert await made.create(cloud, one, None) == refused
    assert await made.check(cloud, one) == refused
    assert await made.update(cloud, one, made) == refused
    assert await made.recover(cloud, one, "RECREATE", {}, None) == refused
    assert await made.operate(cloud, one, "abandon", {}) == refused
    assert await made.delete(cloud, one) == [NodeOutcome("a", True)]
    assert await made.details(cloud, one) == {}
    assert await made.join(cloud, one, "c") == await made.leave(cloud, one) == [NodeOutcome("a", True, "server-a")]
    assert await made.validate(cloud, SETTINGS.clusters) is None


def test_their_specs_are_checked_all_the_same() -> None:
    with pytest.raises(InvalidSpec, match="Both template and template_url are not specified for profile 'st'"):
        stack()
    with pytest.raises(InvalidSpec, match="Exactly one of host_node and host_cluster must be specified"):
        docker(image="x")
    assert docker(image="x", host_node="n").spec_data["port"] == 2375
    other = profile()
    assert stack(template_url="u").update_problem(other) is not None
