"""What scoped policies are for: each use case of their specification, through the real clients, from end to end.

The deployer's part and the tenant's part are both played; versions that the stock command does not know are spoken
through openstacksdk's session.
"""

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import openstack
import pytest

from roost.compute.inventory import images
from tests.clients.conftest import Client

ZONES = 3
SCOPED = "2.1002"
JOINED = "2.1003"


@dataclass
class Person:
    """Somebody with a cloud of clouds.yaml."""

    connection: Any
    servers: list[str] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)

    def ask(self, method: str, path: str, body: Any = None, version: str = SCOPED) -> Any:
        """One request to the compute API; its answer."""
        response = self.connection.compute.request(path, method, json=body, microversion=version)
        assert response.ok, response.text
        return response.json() if response.content else None

    def refusal(self, method: str, path: str, body: Any = None, version: str = SCOPED) -> tuple[int, str]:
        """The status and the message of a request that must fail."""
        response = self.connection.compute.request(path, method, json=body, microversion=version)
        assert not response.ok, response.text
        ((_, fault),) = response.json().items()
        return response.status_code, fault["message"]

    def group(self, *policies: str) -> str:
        """A server group with these policies."""
        made = self.ask("POST", "/os-server-groups", {"server_group": {"name": "g", "policies": list(policies)}})
        self.groups.append(made["server_group"]["id"])
        return self.groups[-1]

    def boot(self, group: str | None = None) -> str:
        """A server, in this group if one is given; its id."""
        server = {"name": "s", "flavorRef": "1", "imageRef": images.USUAL[0].id, "networks": "none"}
        hints = {"os:scheduler_hints": {"group": group}} if group else {}
        self.servers.append(self.ask("POST", "/servers", {"server": server, **hints})["server"]["id"])
        return self.servers[-1]

    def settled(self, server: str) -> Any:
        """The server once it is done, well or not."""
        for _ in range(300):
            shown = self.ask("GET", f"/servers/{server}", version=JOINED)["server"]
            if shown["status"] in ("ACTIVE", "ERROR"):
                return shown
            time.sleep(0.1)
        raise AssertionError(f"{server} is never done")

    def clean(self) -> None:
        """Take everything away."""
        for server in self.servers:
            self.ask("DELETE", f"/servers/{server}")
        for group in self.groups:
            self.ask("DELETE", f"/os-server-groups/{group}")
        self.connection.close()


@dataclass
class Deployer(Person):
    """The administrator, who divides hosts into zones of a kind of their own."""

    scopes: dict[str, dict[str, int]] = field(default_factory=dict)

    def divide(self, name: str, **options: Any) -> dict[str, int]:
        """Make a scope, and three aggregates in it, of the hosts of one availability zone each; their ids by zone."""
        scope = self.ask("POST", "/os-policy-scopes", {"policy_scope": {"name": name, **options}})["policy_scope"]
        hosts = [row["hypervisor_hostname"] for row in self.ask("GET", "/os-hypervisors")["hypervisors"]]
        parts: dict[str, int] = {}
        self.scopes[scope["id"]] = parts
        for zone in (f"zone{number + 1}" for number in range(ZONES)):
            made = self.ask("POST", "/os-aggregates", {"aggregate": {"name": f"{name}-{zone}"}})["aggregate"]["id"]
            parts[zone] = made
            for host in hosts:
                if host.startswith(zone):
                    self.ask("POST", f"/os-aggregates/{made}/action", {"add_host": {"host": host}})
            self.ask("POST", f"/os-policy-scopes/{scope['id']}/action", {"add_aggregate": {"aggregate_id": made}})
        return parts

    def host(self, server: str) -> str:
        """The name of the host that a server is on."""
        return str(self.ask("GET", f"/servers/{server}", version=JOINED)["server"]["OS-EXT-SRV-ATTR:host"])

    def clean(self) -> None:
        for scope, parts in self.scopes.items():
            for aggregate in parts.values():
                action = {"remove_aggregate": {"aggregate_id": aggregate}}
                self.ask("POST", f"/os-policy-scopes/{scope}/action", action)
                for host in self.ask("GET", f"/os-aggregates/{aggregate}")["aggregate"]["hosts"]:
                    self.ask("POST", f"/os-aggregates/{aggregate}/action", {"remove_host": {"host": host}})
                self.ask("DELETE", f"/os-aggregates/{aggregate}")
            self.ask("DELETE", f"/os-policy-scopes/{scope}")
        super().clean()


@pytest.fixture
def deployer(client: Client) -> Iterator[Deployer]:
    """The administrator."""
    person = Deployer(openstack.connect(cloud="roost-admin"))
    yield person
    person.clean()


@pytest.fixture
def tenant(deployer: Deployer) -> Iterator[Person]:
    """A member of a project."""
    person = Person(openstack.connect(cloud="roost"))
    yield person
    person.clean()


@pytest.fixture
def other(deployer: Deployer) -> Iterator[Person]:
    """A member of another project."""
    person = Person(openstack.connect(cloud="roost-alt"))
    yield person
    person.clean()


def zone_of(host: str) -> str:
    return host.partition("-")[0]


def test_maintenance_zones(deployer: Deployer, tenant: Person) -> None:
    """No two servers in one zone, chosen by the scheduler; the tenant can neither see nor target a zone."""
    parts = deployer.divide("maintenance_zone", allow_identifiers=False)
    group = tenant.group("anti-affinity:maintenance_zone")
    servers = [tenant.boot(group) for _ in range(ZONES)]
    assert {tenant.settled(server)["status"] for server in servers} == {"ACTIVE"}
    assert {zone_of(deployer.host(server)) for server in servers} == set(parts)
    failed = tenant.settled(tenant.boot(group))
    assert failed["status"] == "ERROR"
    assert failed["fault"]["message"] == (
        "No valid host was found. No place for 1 server: 48 hosts are in a maintenance zone with as many members as "
        "'anti-affinity:maintenance_zone' allows."
    )
    body = {"server_group": {"name": "x", "policies": [f"affinity:maintenance_zone:{parts['zone1']}"]}}
    status, message = tenant.refusal("POST", "/os-server-groups", body)
    assert (status, "does not allow identifiers" in message) == (400, True)
    audits = [
        tenant.ask("GET", f"/os-server-groups/{group}/audit")["server_group_policy_audit"]["members"] for _ in range(2)
    ]
    shown = [{member["placements"]["maintenance_zone"] for member in members} - {None} for members in audits]
    assert [len(each) for each in shown] == [ZONES, ZONES]
    assert not shown[0] & shown[1]
    assert not (shown[0] | shown[1]) & {str(part) for part in parts.values()}


def test_an_ip_zone(deployer: Deployer, tenant: Person) -> None:
    """Servers that share an address stay in one network segment, on whichever hosts of it."""
    deployer.divide("ip_zone")
    group = tenant.group("affinity:ip_zone", "soft-anti-affinity")
    servers = [tenant.boot(group) for _ in range(5)]
    assert {tenant.settled(server)["status"] for server in servers} == {"ACTIVE"}
    hosts = [deployer.host(server) for server in servers]
    assert len({zone_of(host) for host in hosts}) == 1
    assert len(set(hosts)) == 5


def test_a_database_cluster(deployer: Deployer, tenant: Person) -> None:
    """Different hosts for certain, one switch if possible: the ninth server of a switch with eight hosts goes on."""
    group = tenant.group("anti-affinity:host", "soft-affinity:switch")
    servers = [tenant.boot(group) for _ in range(9)]
    assert {tenant.settled(server)["status"] for server in servers} == {"ACTIVE"}
    hosts = [deployer.host(server) for server in servers]
    assert len(set(hosts)) == 9
    switches = Counter((zone_of(host), (int(host.split("-")[1].removeprefix("rack")) - 1) // 2) for host in hosts)
    assert sorted(switches.values()) == [1, 8]


def test_adding_an_existing_server(deployer: Deployer, tenant: Person) -> None:
    """The server that was there first does not move; those that come later keep away from its zone."""
    deployer.divide("maintenance_zone")
    single = tenant.boot()
    assert tenant.settled(single)["status"] == "ACTIVE"
    before = deployer.host(single)
    group = tenant.group("anti-affinity:maintenance_zone")
    tenant.ask("POST", f"/os-server-groups/{group}/action", {"add_instance": {"instance_id": single}})
    assert deployer.host(single) == before
    servers = [single, *(tenant.boot(group) for _ in range(ZONES - 1))]
    assert {tenant.settled(server)["status"] for server in servers} == {"ACTIVE"}
    assert len({zone_of(deployer.host(server)) for server in servers}) == ZONES
    # A second server from outside may break the rule: it is added, and the audit says so.
    guest = tenant.boot()
    tenant.settled(guest)
    tenant.ask("POST", f"/os-server-groups/{group}/action", {"add_instance": {"instance_id": guest}})
    audit = tenant.ask("GET", f"/os-server-groups/{group}/audit", version=JOINED)["server_group_policy_audit"]
    assert len(audit["violations"]) == 1
    tenant.ask("POST", f"/os-server-groups/{group}/action", {"remove_instance": {"instance_id": guest}})


def test_many_servers_evenly_over_few_zones(deployer: Deployer, tenant: Person) -> None:
    """More servers than zones: spread evenly, and evened out again by those that come after some are gone."""
    deployer.divide("maintenance_zone")
    group = tenant.group("soft-anti-affinity:maintenance_zone")
    servers = [tenant.boot(group) for _ in range(9)]
    assert {tenant.settled(server)["status"] for server in servers} == {"ACTIVE"}
    by_zone = Counter(zone_of(deployer.host(server)) for server in servers)
    assert sorted(by_zone.values()) == [3, 3, 3]
    in_one = [server for server in servers if zone_of(deployer.host(server)) == "zone1"]
    for server in in_one[:2]:
        tenant.ask("DELETE", f"/servers/{server}")
        tenant.servers.remove(server)
    while len(tenant.ask("GET", "/servers")["servers"]) > 7:
        time.sleep(0.1)
    later = [tenant.boot(group) for _ in range(2)]
    assert {tenant.settled(server)["status"] for server in later} == {"ACTIVE"}
    assert {zone_of(deployer.host(server)) for server in later} == {"zone1"}


def test_obfuscated_targeting(deployer: Deployer, tenant: Person, other: Person) -> None:
    """Each tenant has its own names for the zones, can target them, and learns nothing about the real ones."""
    parts = deployer.divide("maintenance_zone", allow_identifiers="true", obfuscate_identifiers="true")
    (scope_id,) = deployer.scopes
    seen = {}
    for person in (tenant, other):
        shown = person.ask("GET", f"/os-policy-scopes/{scope_id}")["policy_scope"]
        seen[id(person)] = {each["group_id"] for each in shown["aggregates"]}
        assert len(seen[id(person)]) == ZONES
        assert not seen[id(person)] & {str(part) for part in parts.values()}
    assert not seen[id(tenant)] & seen[id(other)]
    zones = set()
    for identifier in sorted(seen[id(tenant)]):
        group = tenant.group(f"affinity:maintenance_zone:{identifier}")
        server = tenant.boot(group)
        assert tenant.settled(server)["status"] == "ACTIVE"
        zones.add(zone_of(deployer.host(server)))
        policies = tenant.ask("GET", f"/os-server-groups/{group}")["server_group"]["policies"]
        assert policies == [f"affinity:maintenance_zone:{identifier}"]
    assert zones == set(parts)
    # Another tenant's name for a zone, and the real one, are as unknown as any other word.
    for unknown in (sorted(seen[id(other)])[0], str(parts["zone1"])):
        body = {"server_group": {"name": "x", "policies": [f"affinity:maintenance_zone:{unknown}"]}}
        status, message = tenant.refusal("POST", "/os-server-groups", body)
        assert status == 400
        assert message.startswith(f"The policy scope 'maintenance_zone' has no '{unknown}': ")
