"""The inventory through the real clients: the commands that a newcomer types first, and what an operator does."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.clients.conftest import Client

HOST = "zone3-rack4-host4"


def test_the_command_itself_works_in_a_process_of_its_own(client: Client) -> None:
    command = [str(Path(sys.executable).parent / "openstack"), "--os-cloud", "roost", "flavor", "list", "-f", "json"]
    ran = subprocess.run(command, env=dict(os.environ), capture_output=True, check=True, timeout=120)
    assert json.loads(ran.stdout)[0]["Name"] == "m1.tiny"


def test_token_catalogue_and_versions(client: Client) -> None:
    assert client.ask("token", "issue", cloud="roost")["project_id"]
    catalogue = {service["Type"] for service in client.ask("catalog", "list", cloud="roost")}
    assert {"identity", "compute", "image", "clustering"} <= catalogue
    versions = client.ask("versions", "show", cloud="roost")
    compute = next(row for row in versions if row["Service Type"] == "compute" and row["Status"] == "CURRENT")
    assert (compute["Min Microversion"], compute["Max Microversion"]) == ("2.1", "2.1003")


def test_hypervisors(client: Client) -> None:
    names = [row["Hypervisor Hostname"] for row in client.ask("hypervisor", "list")]
    assert HOST in names
    assert len(client.ask("hypervisor", "list", "--matching", "zone3-rack4")) == 4
    assert len(client.ask("hypervisor", "list", "--limit", "20")) == 48
    shown = client.ask("hypervisor", "show", HOST)
    assert (shown["hypervisor_hostname"], shown["state"], shown["status"]) == (HOST, "up", "enabled")
    assert set(shown["aggregates"]) == {"zone3", "zone3-rack4", "zone3-switch2"}
    old = client.ask("--os-compute-api-version", "2.52", "hypervisor", "show", HOST)
    assert old["vcpus"] == 64
    assert client.ask("hypervisor", "stats", "show")["count"] == 48
    assert {row["Host Name"] for row in client.ask("host", "list")} == set(names)


def test_an_aggregate_from_its_creation_to_its_end(client: Client) -> None:
    created = client.ask("aggregate", "create", "--zone", "z", "--property", "ssd=true", "a")
    assert (created["name"], created["availability_zone"]) == ("a", "z")
    refusal = client.refusal("aggregate", "add", "host", "a", HOST, cloud="roost-admin")
    assert "One or more hosts already in availability zone(s) ['zone3']." in refusal
    client.do("aggregate", "remove", "host", "zone3", HOST)
    assert client.ask("aggregate", "add", "host", "a", HOST)["hosts"] == [HOST]
    assert "z" in {row["Zone Name"] for row in client.ask("availability", "zone", "list", cloud="roost")}
    client.do("aggregate", "set", "--property", "colour=red", "--name", "b", "a")
    shown = client.ask("aggregate", "show", "b")
    assert shown["properties"] == {"ssd": "true", "colour": "red"}
    client.do("aggregate", "unset", "--property", "ssd", "b")
    listed = next(row for row in client.ask("aggregate", "list", "--long") if row["Name"] == "b")
    assert (listed["Availability Zone"], listed["Properties"]) == ("z", {"colour": "red"})
    client.do("aggregate", "cache", "image", "b", "cirros-0.6.2-x86_64-disk")
    assert "Host aggregate is not empty." in client.refusal("aggregate", "delete", "b", cloud="roost-admin")
    assert client.ask("aggregate", "remove", "host", "b", HOST)["hosts"] == []
    client.do("aggregate", "delete", "b")
    assert "No Aggregate found for b" in client.refusal("aggregate", "show", "b", cloud="roost-admin")
    client.do("aggregate", "add", "host", "zone3", HOST)


def test_zones_for_anyone_and_in_full_for_the_operator(client: Client) -> None:
    zones = client.ask("availability", "zone", "list", cloud="roost-reader")
    assert {(row["Zone Name"], row["Zone Status"]) for row in zones} >= {("zone1", "available")}
    rows = client.ask("availability", "zone", "list", "--compute", "--long")
    assert len([row for row in rows if row["Zone Name"] == "zone1"]) == 16


def test_compute_services_are_set(client: Client) -> None:
    def state() -> dict[str, Any]:
        (row,) = client.ask("compute", "service", "list", "--host", HOST, "--service", "nova-compute", "--long")
        return dict(row)

    client.do("compute", "service", "set", "--disable", "--disable-reason", "repair", HOST, "nova-compute")
    assert (state()["Status"], state()["Disabled Reason"]) == ("disabled", "repair")
    client.do("compute", "service", "set", "--enable", HOST, "nova-compute")
    client.do("compute", "service", "set", "--down", HOST, "nova-compute")
    assert (state()["Status"], state()["State"], state()["Forced Down"]) == ("enabled", "down", True)
    client.do("compute", "service", "set", "--up", HOST, "nova-compute")
    assert state()["State"] == "up"
    client.do("--os-compute-api-version", "2.11", "compute", "service", "set", "--disable", HOST, "nova-compute")
    assert state()["Status"] == "disabled"
    client.do("--os-compute-api-version", "2.11", "compute", "service", "set", "--enable", HOST, "nova-compute")


def test_flavors_and_images(client: Client) -> None:
    created = client.ask("flavor", "create", "--ram", "64", "--disk", "1", "--vcpus", "1", "--property", "a=b", "nano")
    assert (created["name"], created["ram"]) == ("nano", 64)
    client.do("flavor", "set", "--property", "c=d", "--description", "tiny", "nano")
    shown = client.ask("flavor", "show", "nano")
    assert (shown["properties"], shown["description"]) == ({"a": "b", "c": "d"}, "tiny")
    client.do("flavor", "unset", "--property", "a", "nano")
    client.do("flavor", "delete", "nano")
    names = [row["Name"] for row in client.ask("flavor", "list", cloud="roost")]
    assert names == ["m1.tiny", "m1.small", "m1.medium", "m1.large", "m1.xlarge"]
    client.do("flavor", "create", "--private", "--project", "demo", "--ram", "1", "--vcpus", "1", "own")
    assert "own" in [row["Name"] for row in client.ask("flavor", "list", cloud="roost")]
    assert "own" not in [row["Name"] for row in client.ask("flavor", "list", cloud="roost-alt")]
    client.do("flavor", "delete", "own")
    images = {row["Name"]: row["Status"] for row in client.ask("image", "list", cloud="roost")}
    assert images == {"cirros-0.6.2-x86_64-disk": "active", "cirros-0.5.2-x86_64-disk": "active"}
    assert client.ask("image", "show", "cirros-0.6.2-x86_64-disk", cloud="roost")["size"] == 21_430_272


def test_key_pairs(client: Client, tmp_path: Path) -> None:
    client.do("keypair", "create", "--private-key", str(tmp_path / "key"), "mine", cloud="roost")
    assert "PRIVATE KEY" in (tmp_path / "key").read_text()
    assert [row["Name"] for row in client.ask("keypair", "list", cloud="roost")] == ["mine"]
    assert client.ask("keypair", "show", "mine", cloud="roost")["type"] == "ssh"
    client.do("keypair", "delete", "mine", cloud="roost")
    assert client.ask("keypair", "list", cloud="roost") == []


def test_quotas_and_limits(client: Client) -> None:
    def quota(*options: str, cloud: str = "roost") -> dict[str, Any]:
        return {row["Resource"]: row for row in client.ask("quota", "show", *options, cloud=cloud)}

    assert quota()["server-groups"]["Limit"] == 100
    assert quota("--compute", "--usage")["cores"]["In Use"] == 0
    assert quota("--default")["instances"]["Limit"] == 200
    client.do("quota", "set", "--server-groups", "20", "--server-group-members", "30", "demo")
    assert (quota()["server-groups"]["Limit"], quota()["server-group-members"]["Limit"]) == (20, 30)
    (listed,) = client.ask("quota", "list", "--compute")
    assert listed["Cores"] == 400
    client.do("quota", "delete", "--compute", "demo")
    assert quota()["server-groups"]["Limit"] == 100
    limits = {row["Name"]: row["Value"] for row in client.ask("limits", "show", "--absolute", cloud="roost")}
    assert (limits["max_server_groups"], limits["total_cores"]) == (100, 400)
    extensions = {row["Alias"] for row in client.ask("extension", "list", "--compute", cloud="roost")}
    assert {"os-quota-sets", "os-server-groups", "OS-SCH-HNT"} <= extensions


def test_what_only_the_operator_may_is_refused_in_the_apis_own_words(client: Client) -> None:
    for command, rule in (
        (("hypervisor", "list"), "os-hypervisors:list-detail"),
        (("aggregate", "create", "--zone", "z", "x"), "os-aggregates:create"),
        (("aggregate", "list"), "os-aggregates:index"),
        (("compute", "service", "list"), "os-services:list"),
        (("flavor", "create", "--ram", "1", "--vcpus", "1", "x"), "os-flavor-manage:create"),
    ):
        refusal = client.refusal(*command)
        assert f"Policy doesn't allow os_compute_api:{rule} to be performed." in refusal
        assert "403" in refusal


def test_the_sdk_finds_pages_and_changes_things(sdk: Any) -> None:
    assert sdk.compute.find_hypervisor(HOST, details=True).status == "enabled"
    assert len(list(sdk.compute.hypervisors(limit=10))) == 48
    assert sdk.compute.find_flavor("m1.small").ram == 2048
    assert next(sdk.compute.flavors(sort_key="vcpus", sort_dir="desc", limit=2)).name == "m1.xlarge"
    aggregate = sdk.compute.create_aggregate(name="sdk")
    try:
        aggregate = sdk.compute.set_aggregate_metadata(aggregate, {"k": "v"})
        assert aggregate.metadata == {"k": "v"}
        assert sdk.compute.add_host_to_aggregate(aggregate, HOST).hosts == [HOST]
        assert sdk.compute.remove_host_from_aggregate(aggregate, HOST).hosts == []
        assert sdk.compute.find_aggregate("sdk").id == aggregate.id
    finally:
        sdk.compute.delete_aggregate(aggregate)
    assert {zone.name for zone in sdk.compute.availability_zones()} >= {"zone1", "zone2", "zone3"}
    assert sdk.get_compute_limits()["max_server_groups"] == 100
    assert sdk.image.find_image("cirros-0.6.2-x86_64-disk").status == "active"
