"""The plug-in of the `openstack` command, against a served Roost: the words that a person reads."""

import secrets
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from openstack.exceptions import NotFoundException

import roost.client
from tests.clients.conftest import Client

ADMIN = "roost-admin"


class Openstack:
    """Commands as one writes them, by the tenant unless said otherwise."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def __call__(self, command: str, cloud: str = "roost") -> str:
        return self.client.do(*command.split(), cloud=cloud)

    def json(self, command: str, cloud: str = "roost") -> Any:
        return self.client.ask(*command.split(), cloud=cloud)

    def fails(self, command: str, cloud: str = "roost") -> str:
        return self.client.refusal(*command.split(), cloud=cloud).strip()


@pytest.fixture
def openstack(client: Client) -> Openstack:
    return Openstack(client)


@pytest.fixture
def name() -> str:
    return f"g-{secrets.token_hex(4)}"


@pytest.fixture
def group(openstack: Openstack, name: str) -> Iterator[str]:
    """A group that keeps its members in different racks; deleted, with its servers, afterwards."""
    openstack(f"server group create --policy anti-affinity --rule scope=rack {name}")
    yield name
    members = openstack.json(f"server group show {name}")["members"]
    for member in members:
        openstack(f"server delete --wait {member}")
    openstack(f"server group delete {name}")


@pytest.fixture
def boot(openstack: Openstack) -> Callable[..., str]:
    def boot(name: str, group: str, options: str = "") -> str:
        image = openstack("image list -f value -c ID").split()[0]
        return openstack(
            f"server create --flavor m1.tiny --image {image} --nic none --server-group {group} --wait {options} "
            f"-f value -c id {name}"
        ).strip()

    return boot


def test_scopes_from_creation_to_deletion(openstack: Openstack, name: str) -> None:
    openstack(f"policy scope create --allow-identifiers {name}", ADMIN)
    shown = openstack.json(f"policy scope show {name}", ADMIN)
    assert (shown["allow_identifiers"], shown["obfuscate_identifiers"], shown["aggregates"]) == (True, False, [])
    openstack(f"aggregate create agg-{name}", ADMIN)
    openstack(f"policy scope add aggregate {name} agg-{name}", ADMIN)
    assert len(openstack.json(f"policy scope show {name}")["aggregates"]) == 1
    openstack(f"policy scope set --obfuscate-identifiers {name}", ADMIN)
    openstack(f"policy scope unset --allow-identifiers {name}", ADMIN)
    shown = openstack.json(f"policy scope show {name}")
    assert (shown["allow_identifiers"], shown["obfuscate_identifiers"], shown["aggregates"]) == (False, True, [])
    assert "is in use by 1 aggregate" in openstack.fails(f"policy scope delete {name}", ADMIN)
    openstack(f"policy scope remove aggregate {name} agg-{name}", ADMIN)
    openstack(f"policy scope delete {name}", ADMIN)
    openstack(f"aggregate delete agg-{name}", ADMIN)
    assert name not in openstack("policy scope list")


def test_who_may_not_is_told_so_in_one_sentence(openstack: Openstack) -> None:
    assert openstack.fails("policy scope create mine") == (
        "Policy doesn't allow os_compute_api:os-policy-scopes:create to be performed."
    )
    assert openstack.fails("policy scope show nosuch") == "No policy scope is called 'nosuch'."


def test_a_group_is_changed_and_audited(openstack: Openstack, group: str, boot: Callable[..., str]) -> None:
    first, second = boot("first", group), boot("second", group)
    openstack(f"server group set --policy affinity:rack {group}")
    (violation,) = openstack.json(f"server group audit {group}")
    assert violation["Message"] == "1 member is apart from the rack that holds most, against 'affinity:rack'"
    members = openstack.json(f"server group audit --members {group}")
    assert {row["Server"] for row in members} == {first, second}
    racks = {str(each["ID"]) for each in openstack.json("aggregate list", ADMIN)}
    assert not {row["rack"] for row in members} & racks
    assert {row["rack"] for row in openstack.json(f"server group audit --members {group}", ADMIN)} < racks
    openstack(f"server group remove server {group} {second}")
    assert openstack.json(f"server group audit {group}") == []
    openstack(f"server group add server {group} {second}")
    assert len(openstack.json(f"server group audit {group}")) == 1


def test_a_group_is_divided_into_partitions(openstack: Openstack, group: str, boot: Callable[..., str]) -> None:
    openstack(f"server group set --policy anti-affinity:rack,partitions=2 {group}")
    assert openstack.json(f"server group show {group}")["rules"] == {"scope": "rack", "partitions": 2}
    first, second = boot("broker-1", group), boot("broker-2", group)
    third = boot("broker-3", group, "--hint partition=2")
    rows = openstack.json(f"server group audit --members {group}")
    assert {row["Server"]: row["Partition"] for row in rows} == {first: 1, second: 2, third: 2}
    racks = {row["Server"]: row["rack"] for row in rows}
    assert racks[first] not in (racks[second], racks[third])
    removed = openstack(f"server group remove server {group} {third}")
    assert third not in removed
    added = openstack(f"server group add server --partition 1 {group} {third}")
    assert f"1: {first}, {third}" in added
    printed = openstack(f"server group explain --flavor m1.tiny --partition 2 {group}")
    assert "Partition 2 was asked for." in printed
    planned = openstack.json(f"server group plan {group} --create 2 --flavor m1.tiny --partition 2")
    assert [line.rpartition(", ")[2] for line in planned["placements"]] == ["partition 2", "partition 2"]
    wider = openstack.json(f"server group plan {group} --policy anti-affinity:rack,partitions=3")
    assert wider["partitions"] == {first: 1, second: 2, third: 1}
    image = openstack("image list -f value -c ID").split()[0]
    create = f"server create --flavor m1.tiny --image {image} --nic none --server-group {group}"
    assert "has the partitions 1 to 2, not 3." in openstack.fails(f"{create} --hint partition=3 x")
    assert "both divide the group into partitions; keep one" in openstack.fails(
        f"server group set {group} --policy anti-affinity:rack,partitions=2 --policy anti-affinity:switch,partitions=2"
    )


def test_an_explanation_is_read_by_people(openstack: Openstack, group: str, boot: Callable[..., str]) -> None:
    too_many = f"server group explain --flavor m1.tiny --count 13 {group}"
    assert openstack.fails(too_many.replace("13", "201")) == (
        "Quota exceeded for instances: Requested 201, but already used 0 of 200 instances"
    )
    printed = openstack(too_many, ADMIN)
    assert "No place for 13 servers: 48 hosts pass every check, too few for all servers together." in printed
    assert "A limit of 2 per rack, or 1 more rack, or asking for 12 servers, would help." in printed
    server = boot("explained", group)
    assert "Of 48 hosts, the one chosen came first: it had room." in openstack(f"server explain {server}")
    admin = openstack.json(f"server explain {server}", ADMIN)
    assert admin["sentence"].startswith(f"Of 48 hosts, {admin['chosen'][0].partition(',')[0]} came first: ")
    assert len(admin["runners_up"]) == 3


def test_what_is_planned_is_applied(openstack: Openstack, group: str) -> None:
    image = openstack("image list -f value -c ID").split()[0]
    create = f"--create 2 --flavor m1.tiny --image {image} --name planned"
    planned = openstack.json(f"server group plan {group} {create}")
    assert planned["sentence"] == "2 servers would be placed, no rules would be broken."
    applied = openstack.json(f"server group plan {group} {create} --apply {planned['generation']}")
    assert (applied["applied"], len(applied["placements"])) == (True, 2)
    assert len(openstack.json(f"server group show {group}")["members"]) == 2
    names = sorted(row["Name"] for row in openstack.json("server list --name planned"))
    openstack(f"server group set --policy anti-affinity:availability_zone {group}")
    refused = openstack.json(f"server group plan {group} --create 4 --flavor m1.tiny")
    assert refused["sentence"] == "There is no place for these servers; see the explanation."
    assert names == ["planned-1", "planned-2"]
    assert openstack.fails(f"server group plan {group} --create 201 --flavor m1.tiny") == (
        "Quota exceeded for instances: Requested 201, but already used 2 of 200 instances"
    )


def test_a_plan_that_no_longer_holds_is_refused_in_words(
    openstack: Openstack, group: str, boot: Callable[..., str]
) -> None:
    boot("one", group)
    second = boot("two", group)
    change = f"server group plan {group} --policy affinity:rack"
    planned = openstack.json(change)
    assert planned["violations"] == ["1 member is apart from the rack that holds most, against 'affinity:rack'"]
    openstack(f"server group remove server {group} {second}")
    assert "The plan no longer holds: violations: 1 then, 0 now. Plan again." in openstack.fails(
        f"{change} --apply {planned['generation']}"
    )
    openstack(f"server group add server {group} {second}")


def test_a_group_is_repaired_and_watched(openstack: Openstack, group: str, boot: Callable[..., str]) -> None:
    boot("one", group)
    boot("two", group)
    openstack(f"server group set --policy affinity:rack {group}")
    found = openstack.json("server group audit --all-projects", ADMIN)
    assert any(row["Message"].startswith("1 member is apart from the rack that holds most") for row in found)
    planned = openstack.json(f"server group repair --dry-run {group}")
    assert planned["sentence"] == "1 live migration would repair everything; fewer cannot."
    assert openstack.fails(f"server group repair {group}") == (
        "Policy doesn't allow os_compute_api:os-server-groups:repair to be performed."
    )
    done = openstack.json(f"server group repair --wait {group}", ADMIN)
    assert (done["status"], done["sentence"]) == ("done", "1 of 1 move done.")
    assert openstack.json(f"server group audit {group}") == []
    assert openstack.json(f"server group repair --status {group}")["status"] == "done"
    assert openstack.json(f"server group repair --continuous {group}", ADMIN)["continuous"]
    assert not openstack.json(f"server group repair --no-continuous {group}", ADMIN)["continuous"]


def test_a_host_is_drained_and_watched(openstack: Openstack, group: str, boot: Callable[..., str]) -> None:
    server = boot("drained", group)
    host = openstack.json(f"server show {server}", ADMIN)["OS-EXT-SRV-ATTR:host"]
    done = openstack.json(f"drain start host={host} --max-parallel 2 --wait", ADMIN)
    assert (done["status"], done["identifier"], done["paused"]) == ("done", host, False)
    assert openstack.json(f"server show {server}", ADMIN)["OS-EXT-SRV-ATTR:host"] != host
    assert openstack.json("drain list", ADMIN)[0]["id"] == done["id"]
    assert openstack.fails(f"drain set --pause {done['id']}", ADMIN) == f"Drain {done['id']} has ended."
    assert openstack.fails("drain start nowhere", ADMIN).endswith("'nowhere' is not SCOPE=IDENTIFIER")
    assert openstack.fails("drain list") == "Policy doesn't allow os_compute_api:os-drains to be performed."
    openstack(f"compute service set --enable {host} nova-compute", ADMIN)


def test_the_loss_of_a_zone_is_told_for_all(openstack: Openstack, group: str, boot: Callable[..., str]) -> None:
    boot("zoned", group, "--availability-zone zone1")
    answer = openstack.json("server group plan --all --lose availability_zone=zone1")
    assert "would be affected" in answer["sentence"]
    assert openstack.fails("server group plan --all --lose rack=1") == (
        "The policy scope 'rack' does not allow identifiers."
    )


def test_the_typed_client_answers_in_values(sdk: Any, openstack: Openstack, group: str) -> None:
    client = roost.client.Client(sdk)
    found = client.find_server_group(group)
    answer = client.explain(found.id, flavor="1", count=13)
    assert (answer.verdict, answer.hosts, answer.help[0].change) == ("refused", 48, "raise_limit")
    plan = client.plan(found.id, {"create": {"flavorRef": "1", "count": 2}})
    assert [placed.host is not None for placed in plan.placements] == [True, True]
    assert client.audit(found.id).violations == ()
    assert client.repair(found.id, dry_run=True).ended
    assert {"host", "rack"} <= {scope.name for scope in client.policy_scopes()}
    with pytest.raises(NotFoundException, match="No policy scope is called 'nosuch'"):
        client.find_policy_scope("nosuch")


SPEC = "type: os.nova.server\nversion: 1.0\nproperties: {flavor: m1.tiny, image: cirros-0.6.2-x86_64-disk}\n"
ZONES = "type: senlin.policy.zone_placement\nversion: 1.0\nproperties: {zones: [{name: zone1}, {name: zone2}]}\n"


def test_clusters_are_back_on_the_command_line(openstack: Openstack, name: str, tmp_path: Path) -> None:
    profile, policy = tmp_path / "profile.yaml", tmp_path / "policy.yaml"
    profile.write_text(SPEC)
    policy.write_text(ZONES)
    openstack(f"cluster profile create --spec-file {profile} --metadata a=b {name}")
    openstack(f"cluster policy create --spec-file {policy} {name}")
    made = openstack.json(f"cluster create --profile {name} --desired-capacity 1 --max-size 3 --wait {name}")
    assert (made["status"], len(made["node_ids"])) == ("ACTIVE", 1)
    openstack(f"cluster policy attach --policy {name} --wait {name}")
    assert openstack.json(f"cluster policy binding list {name}")[0]["policy_name"] == name
    planned = openstack.json(f"cluster plan --expand 2 {name}")
    assert planned["sentence"] == ("CLUSTER_SCALE_OUT would do 2 NODE_CREATE; the cluster would go from 1 to 3 nodes.")
    assert "Request accepted by action: " in openstack(f"cluster expand --count 2 --wait {name}")
    assert len(openstack.json(f"cluster members list {name}")) == 3
    assert openstack.fails(f"cluster resize --capacity 9 --strict {name}") == (
        "Request error: The target capacity (9) is greater than the cluster's max_size (3)."
    )
    hook = openstack.json(f"cluster receiver create --cluster {name} --action CLUSTER_SCALE_IN {name}")
    assert "token=" not in str(openstack.json(f"cluster receiver show {name}")["channel"])
    with urllib.request.urlopen(urllib.request.Request(hook["channel"]["alarm_url"], method="POST")) as answer:
        assert answer.status == 202
    openstack(f"cluster receiver delete --force {name}")
    assert name in openstack("cluster list")
    assert openstack.fails("cluster show nosuch") == "Cluster not found: nosuch"
    assert "Failed to delete 1 of the 1 specified cluster(s)." in openstack.fails("cluster delete --force nosuch")
    assert ": accepted by action " in openstack(f"cluster delete --force --wait {name}")
    assert openstack(f"cluster policy delete --force {name}") == f"Policy deleted: ['{name}']\n"
    openstack(f"cluster profile delete --force {name}")
