"""Server groups through the real clients: the stock `openstack` command, openstacksdk and novaclient."""

from collections.abc import Iterator
from typing import Any

import novaclient.client
import openstack
import pytest
import yaml
from novaclient.v2.client import Client as NovaClient

from tests.clients.conftest import Client
from tests.conftest import Served


@pytest.fixture(autouse=True)
def no_group_stays(client: Client) -> Iterator[None]:
    """Tests of lists need to know what there is."""
    yield
    for group in client.ask("server", "group", "list", cloud="roost"):
        client.do("server", "group", "delete", group["ID"], cloud="roost")


def create(client: Client, name: str, *options: str) -> Any:
    return client.ask("server", "group", "create", *options, name, cloud="roost")


def test_a_group_from_its_creation_to_its_end(client: Client) -> None:
    made = create(client, "web", "--policy", "anti-affinity", "--rule", "max_server_per_host=3")
    assert (made["policy"], made["rules"]) == ("anti-affinity", {"max_server_per_host": 3})
    assert client.ask("server", "group", "show", "web", cloud="roost") == made
    (listed,) = client.ask("server", "group", "list", "--long", cloud="roost")
    assert (listed["ID"], listed["Name"], listed["Policy"], listed["Members"]) == (
        made["id"],
        "web",
        "anti-affinity",
        [],
    )
    client.do("server", "group", "delete", "web", cloud="roost")
    assert "No ServerGroup found for web" in client.refusal("server", "group", "show", "web")


def test_a_scope_travels_in_the_rules_of_the_stock_client(client: Client) -> None:
    rules = ("--rule", "scope=rack", "--rule", "max_server_per_aggregate=2")
    made = create(client, "db", "--policy", "anti-affinity", *rules)
    assert made["rules"] == {"scope": "rack", "max_server_per_aggregate": 2}
    made = create(
        client, "near", "--policy", "affinity", "--rule", "scope=availability_zone", "--rule", "identifier=zone2"
    )
    assert made["rules"] == {"scope": "availability_zone", "identifier": "zone2"}
    refused = client.refusal("server", "group", "create", "--policy", "affinity", "--rule", "scope=moon", "x")
    assert "There is no policy scope 'moon': " in refused


def test_several_policies_are_made_shown_and_listed(client: Client) -> None:
    policies = ["anti-affinity:rack,max_server_per_aggregate=2", "soft-affinity:availability_zone"]
    made = create(client, "many", *(word for each in policies for word in ("--policy", each)))
    assert made["policies"] == policies
    assert client.ask("server", "group", "show", "many", cloud="roost") == made
    create(client, "plain", "--policy", "soft-affinity")
    listed = {each["Name"]: each["Policy"] for each in client.ask("server", "group", "list", cloud="roost")}
    assert listed == {"many": policies, "plain": "soft-affinity"}
    divided = create(client, "divided", "--policy", "anti-affinity:rack,partitions=3")
    assert divided["policies"] == ["anti-affinity:rack,partitions=3"]


def test_a_scoped_policy_is_shown_also_in_the_newest_versions(client: Client) -> None:
    create(client, "db", "--policy", "anti-affinity:rack")
    for version in ("2.1002", "2.1003"):
        shown = client.ask("--os-compute-api-version", version, "server", "group", "show", "db", cloud="roost")
        assert shown["policies"] == ["anti-affinity:rack"]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--policy", "anti-affinity:rack", "--rule", "max_server_per_host=2"], "--rule is for one plain policy"),
        (["--policy", "wrong"], "wrong"),
        (["--policy", "affinity:rakc"], "did you mean rack?"),
    ],
)
def test_a_policy_that_cannot_be_is_refused_in_a_sentence(client: Client, options: list[str], why: str) -> None:
    assert why in client.refusal("server", "group", "create", *options, "x", cloud="roost")


@pytest.mark.parametrize(("version", "policy"), [("2.1", "affinity"), ("2.15", "soft-anti-affinity")])
def test_older_versions(client: Client, version: str, policy: str) -> None:
    options = ("--os-compute-api-version", version, "server", "group")
    made = client.ask(*options, "create", "--policy", policy, "old", cloud="roost")
    assert made["policies"] == [policy]
    assert client.ask(*options, "show", "old", cloud="roost") == made


def test_a_list_that_is_cut_into_pages(client: Client) -> None:
    for name in ("a", "b", "c"):
        create(client, name, "--policy", "affinity")
    every = client.ask("server", "group", "list", cloud="roost")
    assert [group["Name"] for group in every] == ["a", "b", "c"]
    # The client's limit is the length of a page: it goes on to the next by itself.
    assert client.ask("server", "group", "list", "--limit", "1", cloud="roost") == every
    everybodys = client.ask("server", "group", "list", "--all-projects")
    assert {group["Name"] for group in everybodys} >= {"a", "b", "c"}


def test_two_groups_of_one_name_are_told_apart_by_id(client: Client) -> None:
    one, other = (create(client, "twin", "--policy", "affinity") for _ in range(2))
    assert one["id"] != other["id"]
    assert "More than one" in client.refusal("server", "group", "show", "twin")


def test_the_sdk(client: Client) -> None:
    with openstack.connect(cloud="roost") as cloud:
        made = [
            cloud.compute.create_server_group(name=f"sdk{number}", policy="anti-affinity", rules={"scope": "rack"})
            for number in range(3)
        ]
        pages = list(cloud.compute.server_groups(limit=1))
        assert [group.id for group in pages] == [group.id for group in made]
        assert cloud.compute.find_server_group("sdk1").rules == {"scope": "rack"}
        assert cloud.compute.get_server_group(made[0].id).policy == "anti-affinity"
        for group in made:
            cloud.compute.delete_server_group(group)
        assert list(cloud.compute.server_groups()) == []


@pytest.fixture
def nova(served: Served) -> NovaClient:
    cloud = yaml.safe_load(served.clouds.read_text())["clouds"]["roost"]["auth"]
    return novaclient.client.Client(
        "2.96",
        username=cloud["username"],
        password=cloud["password"],
        project_name=cloud["project_name"],
        auth_url=cloud["auth_url"],
        user_domain_id="default",
        project_domain_id="default",
    )


def test_novaclient(nova: NovaClient) -> None:
    made = nova.server_groups.create("nova", "anti-affinity", {"max_server_per_host": 2})
    assert (made.policy, made.rules) == ("anti-affinity", {"max_server_per_host": 2})
    assert nova.server_groups.get(made.id).name == "nova"
    assert [group.id for group in nova.server_groups.list()] == [made.id]
    scoped = nova.server_groups.create("scoped", "anti-affinity", {"scope": "rack", "max_skew": 1})
    assert scoped.rules == {"scope": "rack", "max_skew": 1}
    for group in (made, scoped):
        nova.server_groups.delete(group.id)
    assert nova.server_groups.list() == []
