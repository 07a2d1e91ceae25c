"""What is in the lab from the start: services and users in Keystone; an image, flavors and a network. Done any number
of times, it is there once."""

import time
from typing import Any

import openstack
from openstack import exceptions

from lab.settings import Settings
from lab.steps import Failure

IMAGE, NETWORK, SUBNET = "tiny", "labnet", "labsub"
FLAVORS = {"m1.lab": (512, 1), "m2.lab": (1024, 2), "m4.lab": (2048, 4)}
"""Memory in MiB and virtual CPUs."""

_SERVICES = {
    "placement": ("placement", ""),
    "nova": ("compute", "/v2.1"),
    "glance": ("image", ""),
    "neutron": ("network", ""),
    "octavia": ("load-balancer", ""),
}


def connect(settings: Settings, **changed: Any) -> Any:
    """openstacksdk, signed in as the administrator, or as whom `changed` says."""
    auth = {
        "auth_url": settings.auth_url,
        "username": "admin",
        "password": "admin",
        "project_name": "admin",
        "user_domain_id": "default",
        "project_domain_id": "default",
        **changed,
    }
    return openstack.connect(
        load_yaml_config=False, load_envvars=False, region_name="RegionOne", auth=auth, compute_api_version="2"
    )


def register(settings: Settings) -> None:
    """Services with their endpoints, a user for each, and a project for tenants."""
    identity = connect(settings).identity
    service_project = _project(identity, "service")
    roles = [identity.find_role("admin"), identity.find_role("service") or identity.create_role(name="service")]
    known = {service.type: service for service in identity.services()}
    for name, (kind, path) in _SERVICES.items():
        for role in roles:
            identity.assign_project_role_to_user(service_project, _user(identity, name, "lab"), role)
        service = known.get(kind) or identity.create_service(name=name, type=kind)
        there = {endpoint.interface for endpoint in identity.endpoints(service_id=service.id)}
        for interface in {"public", "internal"} - there:
            url = settings.url(name) + path
            identity.create_endpoint(service_id=service.id, interface=interface, url=url, region_id="RegionOne")
    demo = _project(identity, "demo")
    identity.assign_project_role_to_user(demo, _user(identity, "demo", "demo"), identity.find_role("member"))
    identity.assign_project_role_to_user(demo, identity.find_user("admin", domain_id="default"), roles[0])


def seed(settings: Settings) -> None:
    """An image, flavors and a network."""
    cloud = connect(settings)
    if not cloud.image.find_image(IMAGE):
        cloud.image.create_image(
            name=IMAGE, data=b"lab", disk_format="raw", container_format="bare", visibility="public"
        )
    for name, (memory, cpus) in FLAVORS.items():
        if not cloud.compute.find_flavor(name):
            cloud.compute.create_flavor(name=name, ram=memory, vcpus=cpus, disk=1)
    network = cloud.network.find_network(NETWORK) or cloud.network.create_network(name=NETWORK, is_shared=True)
    if not cloud.network.find_subnet(SUBNET):
        cloud.network.create_subnet(
            name=SUBNET, network_id=network.id, ip_version=4, cidr="10.99.0.0/16", is_dhcp_enabled=False
        )


def await_hosts(settings: Settings) -> None:
    """Wait until as many hypervisors are up as the lab has."""
    compute = connect(settings).compute
    until = time.monotonic() + 120 + 5 * settings.hosts
    up = 0
    while time.monotonic() < until:
        try:
            up = sum(hypervisor.state == "up" for hypervisor in compute.hypervisors(details=True))
        except exceptions.HttpException:
            up = 0
        if up >= settings.hosts:
            return
        time.sleep(0.5)
    raise Failure(f"{up} of {settings.hosts} hypervisors are up: see {settings.dir}/log/nova-compute-*.log")


def _project(identity: Any, name: str) -> Any:
    return identity.find_project(name, domain_id="default") or identity.create_project(name=name, domain_id="default")


def _user(identity: Any, name: str, password: str) -> Any:
    found = identity.find_user(name, domain_id="default")
    return found or identity.create_user(name=name, password=password, domain_id="default")
