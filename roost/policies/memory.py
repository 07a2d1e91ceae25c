"""A cloud in memory that keeps what it is asked for, to try policies and profiles on their own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from roost.clouds.base import (
    CloudError,
    CloudGroup,
    CloudResource,
    CloudServer,
    CloudZone,
    Hypervisor,
    LoadBalancer,
    LoadBalancerRequest,
    ServerOutcome,
    ServerRequest,
)
from roost.placement.rules import Rule


@dataclass
class MemoryCloud:
    """Everything there is; a test sets what it needs. Whatever is named in `broken` fails."""

    zones: dict[str, bool] = field(default_factory=lambda: {"nova-1": True, "nova-2": True})
    hosts: list[str | Hypervisor] = field(default_factory=list)
    region_names: list[str] = field(default_factory=lambda: ["RegionOne"])
    groups: dict[str, CloudGroup] = field(default_factory=dict)
    servers: dict[str, CloudServer] = field(default_factory=dict)
    requests: dict[str, ServerRequest] = field(default_factory=dict)
    flavors: tuple[str, ...] = ("m1.tiny", "m1.small")
    images: tuple[str, ...] = ("cirros", "ubuntu")
    networks: tuple[str, ...] = ("private",)
    keys: tuple[str, ...] = ("mine",)
    balancers: dict[str, dict[str, str]] = field(default_factory=dict)
    operations: list[tuple[str, str, Mapping[str, Any]]] = field(default_factory=list)
    messages: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    released: list[str] = field(default_factory=list)
    broken: set[str] = field(default_factory=set)
    batch_size: int = 100
    privileged: bool = False

    def _check(self, what: str) -> None:
        if what in self.broken:
            raise CloudError(f"{what} does not answer")

    async def create_servers(self, requests: Sequence[ServerRequest]) -> list[ServerOutcome]:
        return [self._create(request) for request in requests]

    def _create(self, request: ServerRequest) -> ServerOutcome:
        if request.node_id in self.broken:
            return ServerOutcome(request.node_id, None, "No valid host was found.")
        server_id = f"server-of-{request.node_id}"
        zone = request.availability_zone or "nova-1"
        self.requests[request.node_id] = request
        details = {"metadata": dict(request.metadata), "flavor": {"id": request.flavor}, "addresses": {"private": []}}
        self.servers[server_id] = CloudServer(
            server_id, request.name, "ACTIVE", zone, "host-1", request.node_id, details=details
        )
        return ServerOutcome(request.node_id, server_id, zone=zone)

    async def delete_servers(self, server_ids: Sequence[str], *, force: bool = False) -> dict[str, str]:
        reasons = {server: "it is locked" for server in server_ids if server in self.broken and not force}
        for server in server_ids:
            if server not in reasons:
                self.servers.pop(server, None)
        return reasons

    async def show_servers(self, server_ids: Sequence[str]) -> dict[str, CloudServer]:
        self._check("servers")
        return {server: self.servers[server] for server in server_ids if server in self.servers}

    async def find_port_problem(self, wanted: Mapping[str, Any]) -> str | None:
        return "There are no such ports." if "ports" in self.broken else None

    async def release_ports(self, node_ids: Sequence[str], others: Sequence[str] = ()) -> None:
        self.released += [*node_ids, *others]

    async def find_servers(self, node_ids: Sequence[str]) -> dict[str, CloudServer]:
        return {str(server.node_id): server for server in self.servers.values() if server.node_id in node_ids}

    async def update_server(
        self, server_id: str, *, name: str | None = None, metadata: Mapping[str, str | None] | None = None
    ) -> str | None:
        if server_id in self.broken:
            return "it is locked"
        self.operations.append((server_id, "update", {"name": name, "metadata": metadata}))
        return None

    async def operate(self, server_id: str, operation: str, params: Mapping[str, Any]) -> str | None:
        if server_id in self.broken:
            return "it is locked"
        self.operations.append((server_id, operation, params))
        return None

    async def find_server_group(self, name_or_id: str) -> CloudGroup | None:
        self._check("groups")
        return next((group for group in self.groups.values() if name_or_id in (group.id, group.name)), None)

    async def create_server_group(self, name: str, rules: Sequence[Rule]) -> CloudGroup:
        self._check("groups")
        group = CloudGroup(f"group-{len(self.groups)}", name, tuple(rules))
        self.groups[group.id] = group
        return group

    async def delete_server_group(self, group_id: str) -> None:
        self._check("groups")
        self.groups.pop(group_id, None)

    async def availability_zones(self) -> list[CloudZone]:
        return [CloudZone(name, available) for name, available in self.zones.items()]

    async def hypervisors(self) -> list[Hypervisor]:
        return [host if isinstance(host, Hypervisor) else Hypervisor(host, f"service-of-{host}") for host in self.hosts]

    async def regions(self) -> list[str]:
        return self.region_names

    async def find_flavor(self, name_or_id: str) -> CloudResource | None:
        return _named(name_or_id, self.flavors)

    async def find_image(self, name_or_id: str) -> CloudResource | None:
        return _named(name_or_id, self.images)

    async def find_network(self, name_or_id: str) -> CloudResource | None:
        return _named(name_or_id, self.networks)

    async def find_keypair(self, name: str) -> CloudResource | None:
        return _named(name, self.keys)

    async def create_load_balancer(self, request: LoadBalancerRequest) -> LoadBalancer:
        self._check("balancers")
        number = len(self.balancers)
        self.balancers[f"pool-{number}"] = {}
        return LoadBalancer(f"lb-{number}", f"listener-{number}", f"pool-{number}", None, "192.0.2.7")

    async def delete_load_balancer(self, balancer: LoadBalancer) -> None:
        self._check("balancers")
        self.balancers.pop(balancer.pool, None)

    async def add_member(
        self, balancer: LoadBalancer, server_id: str, port: int, subnet: str | None = None, weight: int = 1
    ) -> str:
        self._check(server_id)
        self.balancers.setdefault(balancer.pool, {})[f"member-of-{server_id}"] = server_id
        return f"member-of-{server_id}"

    async def remove_member(self, balancer: LoadBalancer, member_id: str) -> None:
        self._check(member_id)
        self.balancers[balancer.pool].pop(member_id, None)

    async def post_message(self, queue: str, body: Mapping[str, Any]) -> None:
        self._check(queue)
        self.messages.append((queue, dict(body)))


def _named(name: str, known: Sequence[str]) -> CloudResource | None:
    return CloudResource(f"id-of-{name}", name) if name in known else None
