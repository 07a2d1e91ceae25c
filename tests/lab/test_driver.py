"""What only a real OpenStack can show of the driver: hosts chosen from live inventory, keys, moves, load balancers."""

import asyncio
import uuid
from dataclasses import replace
from typing import Any

import openstack

from lab import control, tenants
from lab.settings import Settings
from roost.clouds.base import LoadBalancerRequest
from roost.clouds.openstack import OpenStackClouds
from roost.placement.rules import Rule
from roost.store.database import Database
from tests.clouds.conformance import Subject
from tests.clouds.fault_proxy import FaultProxy
from tests.lab.conftest import Access, Tenant
from tests.lab.deployment import until


def host_of(admin: Any, server_id: str | None) -> str:
    """Where a server is, as Nova tells an administrator."""
    return str(admin.compute.get_server(server_id).compute_host)


async def test_a_host_that_somebody_else_took_in_between_is_left_for_another(
    lab: Settings, service: Access, tenant: Tenant, admin: Any, subject: Subject, whole_host: Any
) -> None:
    """Roost is shown how Placement looked before five of the six hosts were filled."""
    resources = "VCPU:10,MEMORY_MB:512,DISK_GB:1&required=%21COMPUTE_STATUS_DISABLED"
    path = f"/allocation_candidates?resources={resources}"
    before = admin.placement.get(path, microversion="1.29").json()
    assert len(before["provider_summaries"]) == 6
    requests = [replace(request, flavor=whole_host.id) for request in await subject.wanted(6)]
    full = await subject.cloud.create_servers(requests[:5])
    assert len({host_of(admin, outcome.server_id) for outcome in full}) == 5
    async with FaultProxy(lab.url("placement")).running() as proxy:
        proxy.fail("GET", "/allocation_candidates", 200, times=100, body=before)
        clouds = OpenStackClouds(None, {**service.config, "placement_endpoint_override": proxy.url})
        [last] = await clouds.of(tenant.project_id, tenant.user_id).create_servers(requests[5:])
        clouds.close()
    assert last.error is None
    assert host_of(admin, last.server_id) not in {host_of(admin, outcome.server_id) for outcome in full}
    [none] = await subject.cloud.create_servers([replace(requests[5], node_id=str(uuid.uuid4()))])
    assert none.server_id is None
    assert none.error == "No valid host was found. No place for 1 server: 6 hosts have too few free vCPUs."
    await subject.cloud.delete_servers([one.server_id for one in (*full, last) if one.server_id])


async def test_two_engines_that_fill_one_group_at_once_break_no_rule_and_lose_no_server(
    service: Access, tenant: Tenant, admin: Any, subject: Subject, database_url: str
) -> None:
    group = await subject.cloud.create_server_group(f"race-{uuid.uuid4().hex[:6]}", [Rule.parse("anti-affinity")])
    requests = [replace(request, server_group=group.id) for request in await subject.wanted(6)]
    databases = [Database(database_url) for _ in range(2)]
    engines = [OpenStackClouds(None, service.config, database) for database in databases]
    made = await asyncio.gather(
        *(
            clouds.of(tenant.project_id, tenant.user_id).create_servers(requests[start::2])
            for start, clouds in enumerate(engines)
        )
    )
    outcomes = [outcome for batch in made for outcome in batch]
    assert [outcome.error for outcome in outcomes] == [None] * 6
    assert len({host_of(admin, outcome.server_id) for outcome in outcomes}) == 6
    for clouds, database in zip(engines, databases, strict=True):
        clouds.close()
        await database.close()
    await subject.cloud.delete_servers([outcome.server_id for outcome in outcomes if outcome.server_id])
    await subject.cloud.delete_server_group(group.id)


async def test_a_host_that_is_down_or_disabled_gets_no_server(admin: Any, subject: Subject) -> None:
    services = {each.host: each for each in admin.compute.services(binary="nova-compute")}
    for host in ("fake-1", "fake-2", "fake-3", "fake-4"):
        admin.compute.disable_service(services[host])
    try:
        made = await subject.cloud.create_servers(await subject.wanted(4))
        assert {host_of(admin, outcome.server_id) for outcome in made} == {"fake-5", "fake-6"}
        [refused] = await subject.cloud.create_servers(await subject.wanted(1, availability_zone="az1"))
        assert refused.error == (
            "No valid host was found. No place for 1 server: 4 hosts are down or disabled; "
            "2 hosts are outside the availability zone."
        )
    finally:
        for host in ("fake-1", "fake-2", "fake-3", "fake-4"):
            admin.compute.enable_service(services[host])
    await subject.cloud.delete_servers([outcome.server_id for outcome in made if outcome.server_id])


async def test_a_server_has_the_key_of_the_clusters_owner(tenant: Tenant, admin: Any, subject: Subject) -> None:
    owner = openstack.connect(**tenant.access.config).compute
    key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIIlkNPEMN4DzD1eAvWZO3LQ6bXJIcXqCbmPAOv7iWSpN owner"
    owner.create_keypair(name="mine", public_key=key, type="ssh")
    assert await subject.cloud.find_keypair("mine") is not None
    made = await subject.cloud.create_servers(await subject.wanted(2, key_name="mine"))
    assert [outcome.error for outcome in made] == [None, None]
    names = {admin.compute.get_server(outcome.server_id).key_name for outcome in made}
    assert names == {f"{tenant.user_id}-mine"}
    [refused] = await subject.cloud.create_servers(await subject.wanted(1, key_name="nobodys"))
    assert refused.error == "The key pair 'nobodys' could not be found."
    await subject.cloud.delete_servers([outcome.server_id for outcome in made if outcome.server_id])


async def test_a_server_is_moved_and_evacuated(lab: Settings, admin: Any, subject: Subject) -> None:
    [made] = await subject.cloud.create_servers(await subject.wanted(1))
    assert made.server_id is not None
    first = host_of(admin, made.server_id)
    assert await subject.cloud.operate(made.server_id, "migrate", {}) is None
    second = host_of(admin, made.server_id)
    assert second != first
    [service] = [each for each in admin.compute.services(binary="nova-compute") if each.host == second]
    control.kill_host(lab, int(second.removeprefix("fake-")))
    admin.compute.update_service_forced_down(service, forced=True)
    try:
        assert await subject.cloud.operate(made.server_id, "evacuate", {}) is None
        assert host_of(admin, made.server_id) != second
    finally:
        await asyncio.to_thread(bring_back, lab, admin, service)
    await subject.cloud.delete_servers([made.server_id])


def bring_back(lab: Settings, admin: Any, service: Any) -> None:
    """Start a host again that was killed and forced down."""
    control.revive_hosts(lab)

    def lifted() -> bool:
        # Nova refuses until the host has started again.
        try:
            admin.compute.update_service_forced_down(service, forced=False)
        except openstack.exceptions.BadRequestException:
            return False
        return True

    until(lifted)
    tenants.await_hosts(lab)


async def test_a_load_balancer_asked_for_twice_is_one_and_a_member_too(
    tenant: Tenant, admin: Any, subject: Subject
) -> None:
    request = LoadBalancerRequest(
        name="lb",
        vip={"subnet": tenants.SUBNET, "protocol": "HTTP", "protocol_port": 80, "connection_limit": -1},
        pool={"protocol": "HTTP", "lb_method": "ROUND_ROBIN", "session_persistence": {"type": "SOURCE_IP"}},
        health_monitor={"type": "TCP", "delay": 5, "timeout": 3, "max_retries": 2},
    )
    made = await subject.cloud.create_servers(await subject.wanted(2))
    servers = [outcome.server_id for outcome in made if outcome.server_id]
    balancer = await subject.cloud.create_load_balancer(request)
    assert await subject.cloud.create_load_balancer(request) == balancer
    assert len(list(admin.load_balancer.load_balancers(project_id=tenant.project_id))) == 1
    members = [
        await subject.cloud.add_member(balancer, server, 8080, subnet=tenants.SUBNET) for server in (*servers, *servers)
    ]
    assert members[:2] == members[2:]
    await subject.cloud.remove_member(balancer, members[0])
    await subject.cloud.remove_member(balancer, members[0])
    assert [member.id for member in admin.load_balancer.members(balancer.pool)] == members[1:2]
    await subject.cloud.delete_load_balancer(balancer)
    await subject.cloud.delete_load_balancer(balancer)
    assert admin.load_balancer.find_load_balancer(balancer.id) is None
    await subject.cloud.delete_servers(servers)
