"""A real OpenStack, through openstacksdk, which blocks: everything is done in threads beside the event loop.

Nova has no name for a request, so that the same request again could be recognised. A server carries its node's id in
its metadata; before servers are made those that exist are looked up, and where two were made the older one stays.
"""

import asyncio
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

import openstack
from keystoneauth1 import exceptions as keystone
from openstack import exceptions

from roost.clouds.base import (
    CloudError,
    Hypervisor,
    LoadBalancer,
    LoadBalancerRequest,
    Named,
    Server,
    ServerGroup,
    ServerOutcome,
    ServerRequest,
    Zone,
)

NODE_ID = "cluster_node_id"
"""The key of a server's metadata that names its node; profiles set it too."""

_AT_ONCE = 16
_POLL_SECONDS = 0.5
_BUILD_SECONDS = 600.0
_OWN_MICROVERSION = "2.1003"
"""Several policies in one group can only be asked of Roost's own compute API."""

T = TypeVar("T")


@dataclass(slots=True)
class OpenStackClouds:
    """The clouds of all projects of an OpenStack, by the cloud of clouds.yaml that this process signs in as."""

    cloud: str | None
    config: Mapping[str, Any] = field(default_factory=dict)
    _threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(_AT_ONCE, "openstack"))
    _connections: dict[str, Any] = field(default_factory=dict)

    def of(self, project_id: str, user_id: str, *, privileged: bool = False) -> "OpenStackCloud":
        """The cloud as one project sees it."""
        connect = functools.partial(self._connection, project_id)
        return OpenStackCloud(self._threads, connect, project_id, privileged)

    def _connection(self, project_id: str) -> Any:
        """Signed in to the project; in a thread, since it asks the identity service."""
        if project_id not in self._connections:
            own = openstack.connect(cloud=self.cloud, **self.config)
            same = own.current_project_id == project_id
            self._connections[project_id] = own if same else own.connect_as_project(project_id)
        return self._connections[project_id]

    def close(self) -> None:
        """End the threads."""
        self._threads.shutdown(wait=False)


@dataclass(frozen=True, slots=True)
class OpenStackCloud:
    """An OpenStack, for one project.

    It is signed in to as an administrator, who is shown what belongs to other projects. What a tenant names by its id
    is therefore held against the tenant's own project here.
    """

    threads: ThreadPoolExecutor
    connect: Callable[[], Any]
    project_id: str
    privileged: bool = False

    @property
    def batch_size(self) -> int:
        """As many as are asked for side by side, a few times over."""
        return 50

    async def _run(self, work: Callable[[Any], T]) -> T:
        """Do something with the connection, in a thread; what the cloud as a whole failed to do is a `CloudError`."""

        def call() -> T:
            return work(self.connect())

        try:
            return await asyncio.get_running_loop().run_in_executor(self.threads, call)
        except (exceptions.HttpException, keystone.ClientException) as error:
            if _is_refusal(error):
                raise
            raise CloudError(str(error)) from error
        except exceptions.SDKException as error:
            raise CloudError(str(error)) from error

    async def _reason(self, work: Callable[[Any], Any]) -> str | None:
        """The reason if this is refused."""
        try:
            await self._run(work)
        except (exceptions.HttpException, keystone.ClientException) as error:
            return _message(error)
        return None

    # Servers

    async def create_servers(self, requests: Sequence[ServerRequest]) -> list[ServerOutcome]:
        """Side by side; those that exist are kept."""
        there = await self.find_servers([request.node_id for request in requests])
        missing = [request for request in requests if request.node_id not in there]
        refused = dict(
            zip(
                [request.node_id for request in missing],
                await asyncio.gather(*(self._create(request) for request in missing)),
                strict=True,
            )
        )
        awaited = [request.node_id for request in requests if refused.get(request.node_id) is None]
        found = await self._settled(awaited)
        return [_outcome(request.node_id, found.get(request.node_id), refused) for request in requests]

    async def _create(self, request: ServerRequest) -> str | None:
        attributes = _attributes(request)
        return await self._reason(lambda connection: connection.compute.create_server(**attributes))

    async def _settled(self, node_ids: Sequence[str]) -> dict[str, Server]:
        until = time.monotonic() + _BUILD_SECONDS
        while True:
            found = await self.find_servers(node_ids)
            if all(server.status != "BUILD" for server in found.values()) or time.monotonic() > until:
                return found
            await asyncio.sleep(_POLL_SECONDS)

    async def delete_servers(self, server_ids: Sequence[str], *, force: bool = False) -> dict[str, str]:
        """Side by side, then wait until they are gone."""

        def delete(server_id: str) -> Callable[[Any], Any]:
            return lambda connection: connection.compute.delete_server(server_id, ignore_missing=True, force=False)

        reasons = await asyncio.gather(*(self._reason(delete(server_id)) for server_id in server_ids))
        refused = {server_id: reason for server_id, reason in zip(server_ids, reasons, strict=True) if reason}
        going = [server_id for server_id in server_ids if server_id not in refused]
        until = time.monotonic() + _BUILD_SECONDS
        while going and time.monotonic() < until:
            there = await self.show_servers(going)
            going = [server_id for server_id in going if server_id in there]
            if going:
                await asyncio.sleep(_POLL_SECONDS)
        return refused | dict.fromkeys(going, "The server is still there.")

    async def show_servers(self, server_ids: Sequence[str]) -> dict[str, Server]:
        """From one list, whatever their number."""
        wanted = set(server_ids)
        return {server.id: server for server in await self._list() if server.id in wanted} if wanted else {}

    async def find_servers(self, node_ids: Sequence[str]) -> dict[str, Server]:
        """By the node's id in their metadata; of two with the same, the older one stays and the other goes."""
        wanted = set(node_ids)
        found: dict[str, Server] = {}
        surplus = []
        for server in await self._list() if wanted else ():
            if server.node_id not in wanted:
                continue
            if server.node_id in found:
                surplus.append(server.id)
            else:
                found[server.node_id] = server
        if surplus:
            await self.delete_servers(surplus)
        return found

    async def _list(self) -> list[Server]:
        """All servers of the project, the oldest first."""
        rows = await self._run(lambda connection: list(connection.compute.servers(details=True)))
        return [_server(row) for row in sorted(rows, key=lambda row: (str(row.created_at), row.id))]

    async def update_server(
        self, server_id: str, *, name: str | None = None, metadata: Mapping[str, str | None] | None = None
    ) -> str | None:
        """Name and metadata are two requests, removed keys a third."""

        def change(connection: Any) -> None:
            if name is not None:
                connection.compute.update_server(server_id, name=name)
            given = {key: value for key, value in (metadata or {}).items() if value is not None}
            if given:
                connection.compute.set_server_metadata(server_id, **given)
            removed = [key for key, value in (metadata or {}).items() if value is None]
            present = connection.compute.get_server_metadata(server_id).metadata if removed else {}
            if set(removed) & set(present):
                connection.compute.delete_server_metadata(server_id, [key for key in removed if key in present])

        return await self._reason(change)

    async def operate(self, server_id: str, operation: str, params: Mapping[str, Any]) -> str | None:
        """Ask for it, and wait until the server is at rest again; what an earlier attempt began is finished first."""

        def act(connection: Any) -> None:
            server = _confirmed(connection, server_id)
            if operation == "resize" and _flavor_of(server) == str(params["flavor"]):
                return
            _OPERATIONS[operation](connection.compute, server_id, params)
            _confirmed(connection, server_id)

        return await self._reason(act)

    # Server groups

    async def find_server_group(self, name_or_id: str) -> ServerGroup | None:
        """By id, else by name."""
        found = await self._run(lambda connection: connection.compute.find_server_group(name_or_id))
        return None if found is None or found.project_id != self.project_id else _group(found)

    async def create_server_group(
        self, name: str, policies: Sequence[str], rules: Mapping[str, Any] | None = None
    ) -> ServerGroup:
        """One policy in Nova's own words, its scope among the rules; several only where Roost is asked."""
        kind, *scope = policies[0].split(":")
        more = dict(zip(("scope", "identifier"), scope, strict=False))

        def create(connection: Any) -> ServerGroup:
            if len(policies) == 1:
                made = connection.compute.create_server_group(name=name, policy=kind, rules={**more, **(rules or {})})
                return _group(made)
            body = {"server_group": {"name": name, "policies": [_policy(policy) for policy in policies]}}
            answer = connection.compute.post("/os-server-groups", json=body, microversion=_OWN_MICROVERSION)
            exceptions.raise_from_response(answer)
            return ServerGroup(answer.json()["server_group"]["id"], name, tuple(policies))

        return await self._run(create)

    async def delete_server_group(self, group_id: str) -> None:
        """Its members stay."""
        await self._run(lambda connection: connection.compute.delete_server_group(group_id, ignore_missing=True))

    # What there is

    async def availability_zones(self) -> list[Zone]:
        """As Nova reports them."""
        zones = await self._run(lambda connection: list(connection.compute.availability_zones()))
        return [Zone(zone.name, bool((zone.state or {}).get("available"))) for zone in zones]

    async def hypervisors(self) -> list[Hypervisor]:
        """For administrators only."""
        rows = await self._run(lambda connection: list(connection.compute.hypervisors(details=True)))
        return [Hypervisor(row.name, (row.service_details or {}).get("host") or row.name) for row in rows]

    async def regions(self) -> list[str]:
        """Those of the identity service, or the one that is configured."""

        def names(connection: Any) -> list[str]:
            try:
                return [region.id for region in connection.identity.regions()] or [connection.config.region_name]
            except (exceptions.SDKException, keystone.ClientException):
                return [connection.config.region_name]

        return await self._run(names)

    async def find_flavor(self, name_or_id: str) -> Named | None:
        """One that the project may use."""

        def find(connection: Any) -> Any:
            found = connection.compute.find_flavor(name_or_id)
            return found if found is None or usable_flavor(connection, found, self.project_id) else None

        return await self._named(find)

    async def find_image(self, name_or_id: str) -> Named | None:
        """One that the project may see."""

        def find(connection: Any) -> Any:
            found = connection.image.find_image(name_or_id)
            return found if found is None or usable_image(connection, found, self.project_id) else None

        return await self._named(find)

    async def find_network(self, name_or_id: str) -> Named | None:
        """One that the project may use; none in a cloud without a network service."""

        def find(connection: Any) -> Any:
            found = connection.network.find_network(name_or_id) if connection.has_service("network") else None
            return found if found is None or usable_network(found, self.project_id) else None

        return await self._named(find)

    async def find_keypair(self, name: str) -> Named | None:
        """One of the user that this process signs in as."""
        return await self._named(lambda connection: connection.compute.find_keypair(name))

    async def _named(self, find: Callable[[Any], Any]) -> Named | None:
        found = await self._run(find)
        return None if found is None else Named(found.id, found.name)

    # Load balancers

    async def create_load_balancer(self, request: LoadBalancerRequest) -> LoadBalancer:
        """One after the other, since Octavia locks the whole of it for each change."""
        return await self._run(lambda connection: _make_balancer(connection.load_balancer, request))

    async def delete_load_balancer(self, balancer: LoadBalancer) -> None:
        """With all that belongs to it."""
        await self._run(
            lambda connection: connection.load_balancer.delete_load_balancer(
                balancer.id, cascade=True, ignore_missing=True
            )
        )

    async def add_member(
        self, balancer: LoadBalancer, server_id: str, port: int, subnet: str | None = None, weight: int = 1
    ) -> str:
        """By the server's first address."""

        def add(connection: Any) -> str:
            server = connection.compute.get_server(server_id)
            address = next(one["addr"] for net in (server.addresses or {}).values() for one in net)
            member = connection.load_balancer.create_member(
                balancer.pool, address=address, protocol_port=port, weight=weight, subnet_id=subnet, name=server_id
            )
            connection.load_balancer.wait_for_load_balancer(balancer.id)
            return str(member.id)

        return await self._run(add)

    async def remove_member(self, balancer: LoadBalancer, member_id: str) -> None:
        """And wait until Octavia has done it."""

        def remove(connection: Any) -> None:
            connection.load_balancer.delete_member(member_id, balancer.pool, ignore_missing=True)
            connection.load_balancer.wait_for_load_balancer(balancer.id)

        await self._run(remove)


def usable_flavor(connection: Any, flavor: Any, project_id: str) -> bool:
    """Whether a flavor is for everybody, or was given to the project."""
    if flavor.is_public:
        return True
    try:
        return any(row["tenant_id"] == project_id for row in connection.compute.get_flavor_access(flavor.id))
    except exceptions.ForbiddenException:
        return True  # Who may not ask is shown only what is its own.


def usable_image(connection: Any, image: Any, project_id: str) -> bool:
    """Whether an image is for everybody, the project's own, or shared with it."""
    if image.visibility in ("public", "community") or image.owner_id == project_id:
        return True
    shared = image.visibility == "shared"
    return shared and any(member.member_id == project_id for member in connection.image.members(image.id))


def usable_network(network: Any, project_id: str) -> bool:
    """Whether a network is for everybody, or the project's own."""
    return bool(network.is_shared or network.is_router_external or network.project_id == project_id)


def _is_refusal(error: Exception) -> bool:
    """Whether the cloud understood and said no, rather than not answering."""
    status = getattr(error, "status_code", None) or getattr(error, "http_status", None)
    return status is not None and 400 <= int(status) < 500 and int(status) not in (401, 408, 429)


def _message(error: Exception) -> str:
    return str(getattr(error, "details", None) or getattr(error, "message", None) or error)


def _attributes(request: ServerRequest) -> dict[str, Any]:
    hints = dict(request.scheduler_hints)
    if request.server_group is not None:
        hints["group"] = request.server_group
    given: dict[str, Any] = {
        "name": request.name,
        "flavor_id": request.flavor,
        "image_id": request.image,
        "networks": [dict(network) for network in request.networks] or "auto",
        "key_name": request.key_name,
        "metadata": {**request.metadata, NODE_ID: request.node_id},
        "user_data": request.user_data,
        "availability_zone": request.availability_zone,
        "scheduler_hints": hints,
        "security_groups": [{"name": name} for name in request.security_groups],
        "admin_password": request.admin_pass,
        "has_config_drive": request.config_drive,
        "block_device_mapping": [dict(device) for device in request.block_devices],
        "personality": [dict(file) for file in request.personality],
    }
    return {key: value for key, value in given.items() if value not in (None, [], {})}


def _outcome(node_id: str, server: Server | None, refused: Mapping[str, str | None]) -> ServerOutcome:
    if server is None:
        return ServerOutcome(node_id, None, refused.get(node_id) or "The server was not made.")
    if server.status == "ACTIVE":
        return ServerOutcome(node_id, server.id, None, server.zone)
    return ServerOutcome(node_id, server.id, server.fault or f"The server is in status {server.status}.")


def _server(row: Any) -> Server:
    fault = row.fault or {}
    details = {
        **row.to_dict(computed=False),
        "flavor": row.flavor.to_dict() if hasattr(row.flavor, "to_dict") else row.flavor,
        "image": row.image.to_dict() if hasattr(row.image, "to_dict") else row.image,
    }
    return Server(
        id=row.id,
        name=row.name,
        status=row.status,
        zone=row.availability_zone or None,
        host=row.compute_host,
        node_id=(row.metadata or {}).get(NODE_ID),
        fault=fault.get("message"),
        details=details,
    )


def _group(row: Any) -> ServerGroup:
    rules = dict((row.rules or {}).items())
    scope = [str(rules[key]) for key in ("scope", "identifier") if key in rules]
    policies = tuple(row.policies or ()) or (":".join([row.policy, *scope]),)
    return ServerGroup(row.id, row.name, policies, rules)


def _policy(text: str) -> dict[str, Any]:
    name, *scope = text.split(":")
    return {"name": name, **dict(zip(("scope", "identifier"), scope, strict=False))}


def _confirmed(connection: Any, server_id: str) -> Any:
    """The server once it is at rest, kept as it was moved or resized."""
    until = time.monotonic() + _BUILD_SECONDS
    while True:
        server = connection.compute.get_server(server_id)
        resting = server.task_state is None and server.status != "BUILD"
        if resting and server.status == "VERIFY_RESIZE":
            connection.compute.confirm_server_resize(server_id)
        elif resting or time.monotonic() > until:
            return server
        time.sleep(_POLL_SECONDS)


def _flavor_of(server: Any) -> str | None:
    """The id of its flavor, as far as Nova still tells it: newer versions only show what the flavor was."""
    return getattr(server.flavor, "id", None)


_OPERATIONS: Mapping[str, Callable[[Any, str, Mapping[str, Any]], Any]] = {
    "reboot": lambda compute, server, given: compute.reboot_server(server, str(given.get("type") or "HARD").upper()),
    "rebuild": lambda compute, server, given: compute.rebuild_server(server, image=_image_of(compute, server, given)),
    "resize": lambda compute, server, given: compute.resize_server(server, given["flavor"]),
    "migrate": lambda compute, server, given: compute.migrate_server(server, host=given.get("host")),
    "change_password": lambda compute, server, given: compute.change_server_password(server, given["admin_pass"]),
    "pause": lambda compute, server, given: compute.pause_server(server),
    "unpause": lambda compute, server, given: compute.unpause_server(server),
    "suspend": lambda compute, server, given: compute.suspend_server(server),
    "resume": lambda compute, server, given: compute.resume_server(server),
    "lock": lambda compute, server, given: compute.lock_server(server),
    "unlock": lambda compute, server, given: compute.unlock_server(server),
    "start": lambda compute, server, given: compute.start_server(server),
    "stop": lambda compute, server, given: compute.stop_server(server),
    "rescue": lambda compute, server, given: compute.rescue_server(server, image_ref=given.get("image_ref")),
    "unrescue": lambda compute, server, given: compute.unrescue_server(server),
    "evacuate": lambda compute, server, given: compute.evacuate_server(server, host=given.get("host")),
}


def _image_of(compute: Any, server_id: str, given: Mapping[str, Any]) -> str:
    return str(given.get("image") or compute.get_server(server_id).image.id)


def _make_balancer(octavia: Any, request: LoadBalancerRequest) -> LoadBalancer:
    def settled() -> None:
        octavia.wait_for_load_balancer(balancer.id, wait=request.timeout)

    vip, pool, monitor = request.vip, request.pool, request.health_monitor
    if request.loadbalancer is not None:
        balancer = octavia.find_load_balancer(request.loadbalancer, ignore_missing=False)
    else:
        balancer = octavia.create_load_balancer(
            **_given(
                name=request.name,
                vip_subnet_id=vip.get("subnet"),
                vip_network_id=vip.get("network"),
                vip_address=vip.get("address"),
                availability_zone=request.availability_zone,
                flavor_id=request.flavor,
            )
        )
    settled()
    listener = octavia.create_listener(
        **_given(
            name=request.name,
            load_balancer_id=balancer.id,
            protocol=vip.get("protocol", "HTTP"),
            protocol_port=vip.get("protocol_port", 80),
            connection_limit=vip.get("connection_limit"),
        )
    )
    settled()
    persistence = pool.get("session_persistence")
    made = octavia.create_pool(
        **_given(
            name=request.name,
            listener_id=listener.id,
            protocol=pool.get("protocol", "HTTP"),
            lb_algorithm=pool.get("lb_method", "ROUND_ROBIN"),
            session_persistence=_given(**persistence) if persistence else None,
        )
    )
    settled()
    watched = None
    if monitor:
        names = ("type", "delay", "timeout", "max_retries", "http_method", "url_path", "expected_codes")
        watched = octavia.create_health_monitor(
            pool_id=made.id, **_given(**{key: monitor.get(key) for key in names})
        ).id
        settled()
    address = octavia.get_load_balancer(balancer.id).vip_address
    return LoadBalancer(balancer.id, listener.id, made.id, watched, address)


def _given(**values: Any) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}
