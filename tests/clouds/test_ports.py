"""What a profile asks of the ports of its servers, on Roost's own network and on Neutron's API over HTTP."""

import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import openstack
import pytest
import yaml

from roost import config
from roost.clouds.base import Cloud
from roost.clouds.embedded import EmbeddedClouds
from roost.clouds.openstack import OpenStackClouds
from roost.compute.scheduling.scheduler import Scheduler
from roost.store.database import Database
from roost.store.embedded import EmbeddedPostgres
from tests.clouds.conformance import Subject
from tests.clouds.test_conformance import NAMES
from tests.conftest import Served


@dataclass(frozen=True)
class Network:
    """A network of a project, with two subnets and a security group; read back by somebody of the project."""

    api: Any
    id: str
    subnet: Any
    group: Any

    def ports(self, server_id: str) -> list[Any]:
        """The ports of a server."""
        return list(self.api.ports(device_id=server_id))

    def addresses(self) -> list[Any]:
        """The floating addresses of the project."""
        return list(self.api.ips())


@pytest.fixture
def own(served: Served) -> Any:
    """Somebody of a project."""
    entry = yaml.safe_load(served.clouds.read_text())["clouds"]["roost"]
    return openstack.connect(load_yaml_config=False, load_envvars=False, **entry)


@pytest.fixture
def network(own: Any) -> Iterator[Network]:
    name, api = f"ports-{uuid.uuid4().hex[:6]}", own.network
    made = api.create_network(name=name)
    for third in (1, 2):
        subnet = api.create_subnet(
            network_id=made.id, name=f"{name}-{third}", ip_version=4, cidr=f"172.30.{third}.0/24"
        )
    group = api.create_security_group(name=name)
    yield Network(api, made.id, subnet, group)
    for port in list(api.ports(network_id=made.id)):
        api.delete_port(port)
    api.delete_security_group(group)
    api.delete_network(made)


@pytest.fixture(params=["embedded", "openstack"])
async def subject(request: pytest.FixtureRequest, served: Served, own: Any) -> AsyncIterator[Subject]:
    """The cloud of the served Roost, from within and over HTTP."""
    if request.param == "openstack":
        entry = yaml.safe_load(served.clouds.read_text())["clouds"]["roost"]
        clouds = OpenStackClouds(None, {"load_yaml_config": False, "load_envvars": False, **entry})
        yield Subject(clouds.of(own.current_project_id, own.current_user_id), **NAMES)
        clouds.close()
        return
    url = EmbeddedPostgres(served.folder).url
    database, settings = Database(url), config.with_database(config.load(), url)
    inside = EmbeddedClouds(database, settings, Scheduler(database, settings))
    yield Subject(inside.of(own.current_project_id, own.current_user_id), **NAMES)
    await database.close()


async def gone(cloud: Cloud, *outcomes: Any) -> None:
    """As a profile deletes nodes."""
    await cloud.delete_servers([each.server_id for each in outcomes if each.server_id])
    await cloud.release_ports([each.node_id for each in outcomes])


async def test_a_port_is_made_as_asked_for_exposed_once_and_given_back(subject: Subject, network: Network) -> None:
    asked = {"subnet": network.subnet.name, "security_groups": [network.group.name], "vnic_type": "normal"}
    wishes = {"uuid": network.id, **asked, "floating_network": "public"}
    before = {each.id for each in network.addresses()}
    assert await subject.cloud.find_port_problem(wishes) is None
    requests = await subject.wanted(2, networks=(wishes,))
    for _ in range(2):  # also where an earlier attempt got no answer
        made = await subject.cloud.create_servers(requests)
        assert [each.error for each in made] == [None, None]
        for each in made:
            [port] = network.ports(str(each.server_id))
            assert [place["subnet_id"] for place in port.fixed_ips] == [network.subnet.id]
            assert port.security_group_ids == [network.group.id]
            assert [address.port_id for address in network.addresses()].count(port.id) == 1
    assert len(network.addresses()) == len(before) + 2
    await gone(subject.cloud, *made)
    await gone(subject.cloud, *made)
    assert {each.id for each in network.addresses()} == before
    assert [port for port in network.api.ports(network_id=network.id) if port.name.startswith("roost-")] == []


async def test_an_address_that_the_project_has_is_used_and_kept(subject: Subject, network: Network) -> None:
    outside = network.api.find_network("public")
    given = network.api.create_ip(floating_network_id=outside.id)
    wishes = {"uuid": network.id, "floating_ip": given.floating_ip_address}
    first, second = await subject.wanted(2, networks=(wishes,))
    [made] = await subject.cloud.create_servers([first])
    assert made.error is None
    [port] = network.ports(str(made.server_id))
    assert network.api.get_ip(given.id).port_id == port.id
    [refused] = await subject.cloud.create_servers([second])
    assert refused.error == f"The floating IP address {given.floating_ip_address} is in use."
    await gone(subject.cloud, made, refused)
    assert network.api.get_ip(given.id).port_id is None
    network.api.delete_ip(given)


@pytest.mark.parametrize(
    ("wish", "sentence"),
    [
        ({"security_groups": ["mars"]}, "mars"),
        ({"subnet": "mars"}, "The specified subnet 'mars' could not be found."),
        ({"floating_network": "mars"}, "The specified floating network 'mars' could not be found."),
        ({"floating_network": "private"}, "The specified floating network 'private' could not be found."),
        ({"floating_ip": "203.0.113.9"}, "The project has no floating IP address 203.0.113.9: allocate it first."),
    ],
)
async def test_what_a_port_cannot_have_is_refused(
    subject: Subject, network: Network, wish: dict[str, Any], sentence: str
) -> None:
    wishes = {"uuid": network.id, **wish}
    assert sentence in str(await subject.cloud.find_port_problem(wishes))
    [refused] = await subject.cloud.create_servers(await subject.wanted(1, networks=(wishes,)))
    assert sentence in str(refused.error)
    await gone(subject.cloud, refused)


async def test_a_port_that_exists_is_as_it_is(subject: Subject, network: Network) -> None:
    port = network.api.create_port(network_id=network.id)
    for wish in ({"vnic_type": "normal"}, {"subnet": network.subnet.name}, {"security_groups": ["default"]}):
        [key] = wish
        assert f"has its own {key}" in str(await subject.cloud.find_port_problem({"port": port.id, **wish}))
    wishes = {"port": port.id, "floating_network": "public"}
    [made] = await subject.cloud.create_servers(await subject.wanted(1, networks=(wishes,)))
    assert made.error is None
    assert [address.port_id for address in network.addresses()].count(port.id) == 1
    await gone(subject.cloud, made)
    assert network.api.find_port(port.id) is not None
    assert port.id not in [address.port_id for address in network.addresses()]


async def test_groups_and_addresses_of_other_projects_are_not_lent(
    subject: Subject, network: Network, served: Served
) -> None:
    entry = yaml.safe_load(served.clouds.read_text())["clouds"]["roost-alt"]
    other = openstack.connect(load_yaml_config=False, load_envvars=False, **entry).network
    address = other.create_ip(floating_network_id=other.find_network("public").id)
    group = other.create_security_group(name=f"theirs-{uuid.uuid4().hex[:6]}")
    try:
        for wish in ({"floating_ip": address.floating_ip_address}, {"security_groups": [group.id]}):
            assert await subject.cloud.find_port_problem({"uuid": network.id, **wish}) is not None
    finally:
        other.delete_ip(address)
        other.delete_security_group(group)


async def test_the_embedded_cloud_has_normal_ports_only(subject: Subject, network: Network) -> None:
    problem = await subject.cloud.find_port_problem({"uuid": network.id, "vnic_type": "direct"})
    expected = "The embedded cloud has no ports of vnic_type direct, only normal ones."
    assert problem == (expected if "Embedded" in type(subject.cloud).__name__ else None)
