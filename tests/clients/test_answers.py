"""The plug-in of the `openstack` command, against a served Roost: the words that a person reads."""

import secrets
from collections.abc import Callable, Iterator
from typing import Any

import pytest

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
    openstack(f"server group remove server {group} {second}")
    assert openstack.json(f"server group audit {group}") == []
    openstack(f"server group add server {group} {second}")
    assert len(openstack.json(f"server group audit {group}")) == 1


def test_an_explanation_is_read_by_people(openstack: Openstack, group: str, boot: Callable[..., str]) -> None:
    told = openstack(f"server group explain --flavor m1.tiny --count 13 {group}")
    assert "No place for 13 servers: 48 hosts pass every check, too few for all servers together." in told
    assert "A limit of 2 per rack, or 1 more rack, or asking for 12 servers, would help." in told
    server = boot("explained", group)
    assert "hosts passed every check. The one chosen came first: it had room." in openstack(f"server explain {server}")
    admin = openstack.json(f"server explain {server}", ADMIN)
    assert admin["sentence"].partition(". Host ")[2].startswith("host-") or "came first" in admin["sentence"]
    assert len(admin["runners_up"]) == 3
