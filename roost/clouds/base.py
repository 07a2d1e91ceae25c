"""What a cluster may ask of a cloud.

A cloud is bound to one project: what it creates belongs to that project, and it sees nothing of others. Everything
that changes many servers takes them in one batch, so that a cloud which can decide on all of them at once does.

An expected failure (no room, a quota, a server gone) is a value in the answer; where the answer has no room for one,
`Refused` is raised. `CloudError` is raised only when the cloud as a whole did not answer: nothing is known of what was
done, and the same request may be made again.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from roost.errors import Invalid, Unavailable
from roost.placement.rules import Rule

OF_PORTS = ("vnic_type", "security_groups", "subnet", "floating_network", "floating_ip")
"""What a network of a server may ask of its port, beside its network, the port itself and its address."""


def port_mark(node_id: str, place: object) -> str:
    """What is made for one of the networks of a node is called."""
    return f"roost-{node_id}-{place}"


class CloudError(Unavailable):
    """The cloud did not answer, or answered with something that makes no sense."""


class CloudRefused(Invalid):
    """The cloud understood the request and refused it."""


@dataclass(frozen=True, slots=True)
class ServerRequest:
    """A server to make for a node. The node's id travels with it, so a repeated request never makes two servers."""

    node_id: str
    name: str
    flavor: str
    image: str | None = None
    networks: tuple[Mapping[str, Any], ...] = ()
    key_name: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    user_data: str | None = None
    availability_zone: str | None = None
    server_group: str | None = None
    scheduler_hints: Mapping[str, Any] = field(default_factory=dict)
    security_groups: tuple[str, ...] = ()
    admin_pass: str | None = None
    config_drive: bool | None = None
    auto_disk_config: bool | None = None
    block_devices: tuple[Mapping[str, Any], ...] = ()
    personality: tuple[Mapping[str, str], ...] = ()
    region: str | None = None


@dataclass(frozen=True, slots=True)
class ServerOutcome:
    """The outcome for one server: its id, or why there is none. A server with both an id and an error is broken."""

    node_id: str
    server_id: str | None
    error: str | None = None
    zone: str | None = None


@dataclass(frozen=True, slots=True)
class CloudServer:
    """A server as the cloud sees it now."""

    id: str
    name: str
    status: str
    """In the compute API's words: ACTIVE, ERROR, SHUTOFF, BUILD, ..."""
    zone: str | None
    host: str | None
    node_id: str | None
    fault: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    """All that the compute API shows of it."""


@dataclass(frozen=True, slots=True)
class NodeServer:
    """A server, and the node of a cluster that it was made for, if it was."""

    id: str
    name: str
    project_id: str
    node_id: str | None


@dataclass(frozen=True, slots=True)
class CloudGroup:
    """A server group, as its own project may see it."""

    id: str
    name: str
    rules: tuple[Rule, ...]


@dataclass(frozen=True, slots=True)
class CloudZone:
    """An availability zone."""

    name: str
    available: bool


@dataclass(frozen=True, slots=True)
class Hypervisor:
    """A hypervisor, for the placements that name one."""

    hostname: str
    service_host: str
    zone: str | None = None
    """None where the cloud does not say."""
    up: bool = True
    """Whether it can take servers: it is enabled, and it answers."""


@dataclass(frozen=True, slots=True)
class CloudResource:
    """Something that is only looked up: a flavor, an image, a network, a key pair."""

    id: str
    name: str


@dataclass(frozen=True, slots=True)
class LoadBalancerRequest:
    """A load balancer with its listener, pool and health monitor; the maps are those of the policy's spec."""

    name: str
    vip: Mapping[str, Any]
    pool: Mapping[str, Any]
    health_monitor: Mapping[str, Any] | None = None
    availability_zone: str | None = None
    flavor: str | None = None
    loadbalancer: str | None = None
    """An existing one to use instead of making one."""
    timeout: float = 300.0
    token: str = field(default_factory=lambda: str(uuid.uuid4()))
    """Names the request: asking twice never makes two load balancers."""


@dataclass(frozen=True, slots=True)
class LoadBalancer:
    """A load balancer as the cloud made it."""

    id: str
    listener: str
    pool: str
    health_monitor: str | None
    vip_address: str


class Cloud(Protocol):
    """A cloud, bound to one project."""

    @property
    def batch_size(self) -> int:
        """How many servers should be requested at once."""
        ...

    @property
    def privileged(self) -> bool:
        """Whether the caller is an administrator, who may choose hosts and see them."""
        ...

    # Servers

    async def create_servers(self, requests: Sequence[ServerRequest]) -> list[ServerOutcome]:
        """Make these servers, one outcome a request, in order. A node that has a server already keeps it."""
        ...

    async def delete_servers(self, server_ids: Sequence[str], *, force: bool = False) -> dict[str, str]:
        """Delete these servers and wait until they are gone; the reasons of those that could not be, by id.
        A server that is not there counts as deleted."""
        ...

    async def show_servers(self, server_ids: Sequence[str]) -> dict[str, CloudServer]:
        """Those of these servers that exist, by id."""
        ...

    async def find_port_problem(self, wanted: Mapping[str, Any]) -> str | None:
        """Why no server of the project can be plugged into this network in this way, if none can."""
        ...

    async def release_ports(self, node_ids: Sequence[str], others: Sequence[str] = ()) -> None:
        """Delete the ports and floating addresses that were made for these nodes, and the project's `others` with these
        ids; there may be none."""
        ...

    async def find_servers(self, node_ids: Sequence[str]) -> dict[str, CloudServer]:
        """The servers that were made for these nodes, by node id."""
        ...

    async def update_server(
        self, server_id: str, *, name: str | None = None, metadata: Mapping[str, str | None] | None = None
    ) -> str | None:
        """Change a server's name, or the metadata named (None removes a key); the reason if that is refused."""
        ...

    async def operate(self, server_id: str, operation: str, params: Mapping[str, Any]) -> str | None:
        """Do one of reboot, rebuild, resize, change_password, pause, unpause, suspend, resume, lock, unlock, start,
        stop, rescue, unrescue, evacuate, migrate, and wait for its effect; the reason if that is refused."""
        ...

    # Server groups

    async def find_server_group(self, name_or_id: str) -> CloudGroup | None:
        """The server group of this id, else the one of this name."""
        ...

    async def create_server_group(self, name: str, rules: Sequence[Rule]) -> CloudGroup:
        """Make a server group."""
        ...

    async def delete_server_group(self, group_id: str) -> None:
        """Delete a server group; one that is not there counts as deleted."""
        ...

    # What there is

    async def availability_zones(self) -> list[CloudZone]:
        """All zones, with whether they can take servers now."""
        ...

    async def hypervisors(self) -> list[Hypervisor]:
        """All hypervisors, in the cloud's order."""
        ...

    async def regions(self) -> list[str]:
        """The regions that this cloud has."""
        ...

    async def find_flavor(self, name_or_id: str) -> CloudResource | None:
        """The flavor, if the project may use it."""
        ...

    async def find_image(self, name_or_id: str) -> CloudResource | None:
        """The image."""
        ...

    async def find_network(self, name_or_id: str) -> CloudResource | None:
        """The network."""
        ...

    async def find_keypair(self, name: str) -> CloudResource | None:
        """The key pair of the cluster's owner."""
        ...

    # Load balancers

    async def create_load_balancer(self, request: LoadBalancerRequest) -> LoadBalancer:
        """Make a load balancer and wait until it forwards."""
        ...

    async def delete_load_balancer(self, balancer: LoadBalancer) -> None:
        """Delete a load balancer with all that belongs to it; one that is not there counts as deleted."""
        ...

    async def add_member(
        self, balancer: LoadBalancer, server_id: str, port: int, subnet: str | None = None, weight: int = 1
    ) -> str:
        """Put a server into the pool; the member's id."""
        ...

    async def remove_member(self, balancer: LoadBalancer, member_id: str) -> None:
        """Take a member out of the pool; one that is not there counts as removed."""
        ...

    # Messages

    async def post_message(self, queue: str, body: Mapping[str, Any]) -> None:
        """Put a message into a queue of the project's."""
        ...


class Clouds(Protocol):
    """Where clusters get their clouds from."""

    def of(self, project_id: str, user_id: str, *, privileged: bool = False) -> Cloud:
        """The cloud, bound to a project and to the user who owns the cluster in it."""
        ...
