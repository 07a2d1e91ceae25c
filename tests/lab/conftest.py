"""What the tests on a real OpenStack share: the lab, which must be up, and tenants of their own in it."""

import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import openstack
import psycopg
import pytest

from lab import control, tenants
from lab import settings as lab_settings
from lab.settings import Settings
from roost.clouds.openstack import OpenStackClouds
from roost.store.embedded import EmbeddedPostgres
from tests.clients.test_policies_end_to_end import Cluster
from tests.clouds.conformance import Subject
from tests.lab.deployment import Deployment, until
from tests.lab.front import Front, Person, restart_scheduler, standing

TENANT = "tenant-"
ZONES: Mapping[str, tuple[str, ...]] = {
    "az1": ("fake-1", "fake-2"),
    "az2": ("fake-3", "fake-4"),
    "az3": ("fake-5", "fake-6"),
}


@pytest.fixture(scope="session")
def lab() -> Settings:
    """The lab of the environment's settings."""
    settings = lab_settings.load()
    if not control.is_up(settings):
        pytest.exit(f"The lab in {settings.dir} is not up: make lab", returncode=3)
    return settings


@pytest.fixture(scope="session")
def admin(lab: Settings) -> Any:
    """openstacksdk as the administrator, for reading back what is really there. What an earlier run, cut off, has left
    of its tenants is taken away first."""
    cloud = tenants.connect(lab)
    left = {project.id for project in cloud.identity.projects() if project.name.startswith(TENANT)}
    for server in [server for server in cloud.compute.servers(all_projects=True) if server.project_id in left]:
        cloud.compute.delete_server(server.id, force=True)
        cloud.compute.wait_for_delete(server, interval=0.3, wait=300)
    for aggregate in [each for each in cloud.compute.aggregates() if "policy_scope" in (each.metadata or {})]:
        for host in aggregate.hosts or ():
            cloud.compute.remove_host_from_aggregate(aggregate, host)
        cloud.compute.delete_aggregate(aggregate)
    return cloud


@pytest.fixture
def whole_host(admin: Any) -> Iterator[Any]:
    """A flavor that fills a host."""
    flavor = admin.compute.create_flavor(name=f"whole-{uuid.uuid4().hex[:6]}", ram=512, vcpus=10, disk=1)
    yield flavor
    admin.compute.delete_flavor(flavor)


@dataclass(frozen=True)
class Access:
    """How to sign in as somebody."""

    auth: Mapping[str, str]

    @property
    def config(self) -> dict[str, Any]:
        """For openstack.connect."""
        return {
            "load_yaml_config": False,
            "load_envvars": False,
            "region_name": "RegionOne",
            "auth": dict(self.auth),
        }


@pytest.fixture(scope="session")
def service(lab: Settings, admin: Any) -> Iterator[Access]:
    """Roost's own user, as docs/openstack.md says: administrator of the service project and, by inheritance, of all."""
    identity = admin.identity
    name = f"roost-{uuid.uuid4().hex[:6]}"
    project, domain = identity.find_project("service"), identity.find_domain("default")
    user = identity.create_user(name=name, password="lab", domain_id="default")
    role = identity.find_role("admin")
    for each in (role, identity.find_role("service")):
        identity.assign_project_role_to_user(project, user, each)
    identity.assign_domain_role_to_user(domain, user, role, inherited=True)
    yield Access(
        {
            "auth_url": lab.auth_url,
            "username": name,
            "password": "lab",
            "project_name": "service",
            "user_domain_id": "default",
            "project_domain_id": "default",
        }
    )
    identity.delete_user(user)


@dataclass(frozen=True)
class Tenant:
    """A project with one member."""

    project_id: str
    user_id: str
    access: Access


@pytest.fixture(scope="module")
def tenant(lab: Settings, admin: Any) -> Iterator[Tenant]:
    """A project of the module's own; nothing is left of it."""
    identity, name = admin.identity, f"{TENANT}{uuid.uuid4().hex[:6]}"
    project = identity.create_project(name=name, domain_id="default")
    user = identity.create_user(name=name, password="lab", domain_id="default")
    identity.assign_project_role_to_user(project, user, identity.find_role("member"))
    auth = {
        "auth_url": lab.auth_url,
        "username": name,
        "password": "lab",
        "project_name": name,
        "user_domain_id": "default",
        "project_domain_id": "default",
    }
    yield Tenant(project.id, user.id, Access(auth))
    for server in list(admin.compute.servers(all_projects=True, project_id=project.id)):
        admin.compute.delete_server(server.id, force=True)
        admin.compute.wait_for_delete(server, interval=0.3, wait=300)
    for balancer in list(admin.load_balancer.load_balancers(project_id=project.id)):
        admin.load_balancer.delete_load_balancer(balancer.id, cascade=True)
    identity.delete_user(user)
    identity.delete_project(project)


@pytest.fixture(scope="session")
def zones(admin: Any) -> Mapping[str, tuple[str, ...]]:
    """Three zones of two hosts each."""
    compute = admin.compute
    there = {aggregate.name: aggregate for aggregate in compute.aggregates()}
    for zone, hosts in ZONES.items():
        aggregate = there.get(zone) or compute.create_aggregate(name=zone, availability_zone=zone)
        for host in hosts:
            if host not in (aggregate.hosts or ()):
                compute.add_host_to_aggregate(aggregate, host)
    return ZONES


@pytest.fixture(scope="module")
async def clouds(service: Access) -> AsyncIterator[OpenStackClouds]:
    """The lab as Roost sees it."""
    clouds = OpenStackClouds(None, service.config)
    yield clouds
    clouds.close()


@pytest.fixture(scope="module")
async def subject(clouds: OpenStackClouds, tenant: Tenant, zones: object) -> Subject:
    """The lab, for the conformance suite."""
    return Subject(clouds.of(tenant.project_id, tenant.user_id), "m1.lab", "m2.lab", tenants.IMAGE)


SERVER = {"flavor": "m1.lab", "image": tenants.IMAGE, "networks": [{"network": tenants.NETWORK}]}


@dataclass
class LabCluster(Cluster):
    """A cluster on the lab; what its servers are is read from Nova as an administrator."""

    admin: Any = None

    def make(self, size: int = 0, **properties: Any) -> "LabCluster":
        super().make(size, **{**SERVER, **properties})
        return self

    def until(self, true: Callable[[], Any], seconds: float = 300) -> Any:
        return until(true, seconds)

    def servers(self) -> list[Any]:
        every = self.admin.compute.servers(all_projects=True, project_id=self.cloud.current_project_id)
        return [server for server in every if server.metadata.get("cluster_id") == self.id]

    def hosts(self) -> list[str]:
        """The host of each server."""
        return [server.compute_host for server in self.servers()]


@pytest.fixture(scope="session")
def deployment(lab: Settings, service: Access, postgres: EmbeddedPostgres, folders: Path) -> Iterator[Deployment]:
    """A Roost on the lab: in its catalogue, with one API and one engine."""
    folder = folders / "deployment"
    folder.mkdir()
    with psycopg.connect(postgres.url.replace("/roost?", "/postgres?"), autocommit=True) as connection:
        connection.execute("CREATE DATABASE deployment")
    made = Deployment(lab, folder, postgres.url.replace("/roost?", "/deployment?"), service.auth)
    for command in (("db", "upgrade"), ("keystone", "register")):
        ran = made.run(*command)
        assert ran.returncode == 0, ran.stderr
    made.start_api()
    made.start("engine")
    yield made
    made.stop()
    identity = tenants.connect(lab).identity
    for left in identity.services(type="clustering"):
        identity.delete_service(left)


@pytest.fixture
def cluster(deployment: Deployment, tenant: Tenant, admin: Any, zones: object) -> Iterator[LabCluster]:
    """A cluster of a tenant, who finds Roost in Keystone's catalogue; read back as an administrator."""
    made = LabCluster(openstack.connect(**tenant.access.config), admin=admin)
    yield made
    for undo in reversed(made.undo):
        undo()


SCOPES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "maintenance_zone": {"mz1": ("fake-1", "fake-2"), "mz2": ("fake-3", "fake-4"), "mz3": ("fake-5", "fake-6")},
    "ip_zone": {"ip1": ("fake-1", "fake-3", "fake-5"), "ip2": ("fake-2", "fake-4", "fake-6")},
    "switch": {"switch1": ("fake-1", "fake-2", "fake-3"), "switch2": ("fake-4", "fake-5", "fake-6")},
}


@pytest.fixture(scope="session")
def front(lab: Settings, service: Access, folders: Path) -> Iterator[Front]:
    """A Roost in front of the lab's Nova, with its plug-in in the scheduler; its scopes come from Nova's aggregates."""
    with standing(lab, folders / "front", service.auth) as roost:
        roost.plug_in()
        compute = tenants.connect(lab).compute
        made = []
        for scope, aggregates in SCOPES.items():
            for name, hosts in aggregates.items():
                aggregate = compute.create_aggregate(name=name)
                made.append((aggregate, hosts))
                compute.set_aggregate_metadata(aggregate, {"policy_scope": scope})
                for host in hosts:
                    compute.add_host_to_aggregate(aggregate, host)
        yield roost
        for aggregate, hosts in made:
            for host in hosts:
                compute.remove_host_from_aggregate(aggregate, host)
            compute.delete_aggregate(aggregate)
        restart_scheduler(lab)


@pytest.fixture
def operator(lab: Settings, front: Front, admin: Any) -> Person:
    """The administrator, who asks Roost."""
    auth = {"username": "admin", "password": "admin", "project_name": "admin"}
    domains = {"user_domain_id": "default", "project_domain_id": "default"}
    return Person(front.connect({"auth_url": lab.auth_url, **auth, **domains}), admin)


@pytest.fixture
def somebody(front: Front, tenant: Tenant, admin: Any) -> Iterator[Person]:
    """A tenant, who asks Roost; nothing is left of what they made."""
    person = Person(front.connect(tenant.access.auth), admin)
    person.await_scopes(SCOPES)
    yield person
    person.clean_up()
