"""The embedded cloud: Roost's own hosts, in the same process and database. A batch of servers is one decision.

Decisions and claims are made here; what takes time (to boot, to stop, to go away) the engine finishes.
"""

import asyncio
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from roost import logs
from roost.clouds.base import (
    CloudGroup,
    CloudRefused,
    CloudResource,
    CloudServer,
    CloudZone,
    Hypervisor,
    LoadBalancer,
    LoadBalancerRequest,
    ServerOutcome,
    ServerRequest,
    port_mark,
)
from roost.clouds.lookups import FoundServer, Lookups, ProjectName, find_servers
from roost.clouds.server_groups import OwnGroups
from roost.compute.inventory import hosts, zones
from roost.compute.moves import operations
from roost.compute.scheduling import servers
from roost.compute.scheduling.request import CreateRequest, NewServer
from roost.compute.scheduling.scheduler import Scheduler
from roost.compute.scheduling.servers import Actor, ServerValues
from roost.config import Settings
from roost.errors import RoostError
from roost.network import attachments, floating
from roost.network.addresses import AddressPool
from roost.network.attachments import ReservedPorts
from roost.placement.rules import Rule
from roost.store.database import Database
from roost.store.tables.balancers import load_balancer_members, load_balancers
from roost.store.tables.compute import keypairs
from roost.store.tables.servers import servers as servers_table
from roost.store.uuids import is_uuid
from roost.volume import block_devices
from roost.volume.block_devices import BlockDevices
from roost.volume.volumes import VolumeOwner

BATCH = 1000

_WAITS = (0.005, 0.01, 0.01, 0.02, 0.02, 0.05)
"""Seconds between looks at servers that the engine is about to finish."""
_STATES = {
    "pause": "pause",
    "unpause": "unpause",
    "suspend": "suspend",
    "resume": "resume",
    "start": "os-start",
    "stop": "os-stop",
    "rebuild": "rebuild",
}
_NOTHING_TO_DO = ("change_password", "rescue", "unrescue")
"""Operations with no visible effect on a simulated server."""


@dataclass(frozen=True, slots=True)
class EmbeddedClouds:
    """The clouds of all projects on Roost's own hosts."""

    database: Database
    settings: Settings
    scheduler: Scheduler
    addresses: AddressPool = field(init=False)
    lookups: Lookups = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "addresses", AddressPool(self.database))
        object.__setattr__(self, "lookups", Lookups(self.database))

    def of(self, project_id: str, user_id: str, *, privileged: bool = False) -> "EmbeddedCloud":
        """The cloud as one project sees it."""
        shared = (self.database, self.settings, self.scheduler, self.addresses, self.lookups)
        return EmbeddedCloud(*shared, project_id, user_id, privileged)


@dataclass(frozen=True, slots=True)
class EmbeddedCloud:
    """Roost's own hosts, for one project."""

    database: Database
    settings: Settings
    scheduler: Scheduler
    addresses: AddressPool
    lookups: Lookups
    project_id: str
    user_id: str
    privileged: bool = False

    @property
    def batch_size(self) -> int:
        """One decision takes many."""
        return BATCH

    @property
    def _actor(self) -> Actor:
        return Actor(self.user_id, self.project_id, logs.request_id.get() or f"req-{uuid.uuid4()}", is_admin=True)

    # Servers

    async def create_servers(self, requests: Sequence[ServerRequest]) -> list[ServerOutcome]:
        """One decision for all that are alike; the node's id names the server across attempts."""
        alike: dict[Any, list[ServerRequest]] = {}
        for request in requests:
            alike.setdefault(_kind(request), []).append(request)
        refused: dict[str, str] = {}
        kinds: list[list[ServerRequest]] = []
        prepared: list[tuple[CreateRequest, ReservedPorts, list[str]]] = []
        for kind in alike.values():
            try:
                prepared.append(await self._prepare(kind))
                kinds.append(kind)
            except RoostError as error:
                refused |= {request.node_id: error.message for request in kind}
        try:
            answers = await self.scheduler.create_all([boot for boot, _, _ in prepared])
        finally:
            for _, plugs, bound in prepared:
                await attachments.release(self.database, plugs)
                await block_devices.release(self.database, bound)
        for kind, answer in zip(kinds, answers, strict=True):
            if isinstance(answer, RoostError):
                refused |= {request.node_id: answer.message for request in kind}
            elif isinstance(answer, BaseException):
                raise answer
            elif len(answer.server_ids) < len(kind):
                refused |= await self._reasons(kind)
        found = await self._settled([request.node_id for request in requests if request.node_id not in refused])
        unexposed = await self._expose([request for request in requests if request.node_id in found], found)
        return [_outcome(request.node_id, found.get(request.node_id), refused, unexposed) for request in requests]

    async def _expose(self, requests: Sequence[ServerRequest], found: Mapping[str, CloudServer]) -> dict[str, str]:
        """Put floating addresses in front of the servers that ask for them; why not, by node."""
        reasons: dict[str, str] = {}
        for request in requests:
            wanted = [(place, each) for place, each in enumerate(request.networks) if floating.wished(each)]
            try:
                for place, each in wanted:
                    async with self.database.begin() as connection:
                        mark = port_mark(request.node_id, place)
                        await floating.expose(connection, self.project_id, found[request.node_id].id, each, mark)
            except RoostError as error:
                reasons[request.node_id] = error.message
        return reasons

    async def _prepare(self, kind: Sequence[ServerRequest]) -> tuple[CreateRequest, ReservedPorts, list[str]]:
        """The request for servers that are alike, the ports that are reserved for them, and the ids under which their
        volumes are."""
        first = kind[0]
        devices = BlockDevices(first.image, ())
        if first.block_devices:
            devices = BlockDevices.read(first.image, first.block_devices)
        reserved = await self._reserve(kind)
        boot = self._boot(kind, reserved, devices.image_id)
        bound = [new.id for new in boot.servers] if devices.volumes else []
        try:
            owner = VolumeOwner(self.project_id, self.user_id)
            await block_devices.reserve(self.database, owner, devices.volumes, bound)
        except BaseException:
            await attachments.release(self.database, reserved)
            raise
        return boot, reserved, bound

    async def _reserve(self, kind: Sequence[ServerRequest]) -> ReservedPorts:
        """Addresses on the networks that the servers name; a node that names none has none."""
        first = kind[0]
        if not first.networks and not first.security_groups:
            return ReservedPorts(({},) * len(kind))
        networks, groups = [dict(each) for each in first.networks], list(first.security_groups) or None
        return await attachments.reserve(self.addresses, self.project_id, networks, groups, len(kind))

    def _boot(self, kind: Sequence[ServerRequest], reserved: ReservedPorts, image_id: str | None) -> CreateRequest:
        first = kind[0]
        zone, _, host = (first.availability_zone or "").partition(":")
        hints = dict(first.scheduler_hints)
        return CreateRequest(
            project_id=self.project_id,
            user_id=self.user_id,
            request_id=self._actor.request_id,
            servers=tuple(
                NewServer(each.name, dict(each.metadata), addresses, token=each.node_id)
                for each, addresses in zip(kind, reserved.addresses, strict=True)
            ),
            flavor_id=first.flavor,
            image_id=image_id,
            key_name=first.key_name,
            user_data=first.user_data,
            config_drive=bool(first.config_drive),
            zone=zone or None,
            target=host or None,
            hints=hints,
            group_id=first.server_group,
            same_host=_ids(hints.get("same_host")),
            different_host=_ids(hints.get("different_host")) or (),
        )

    async def _reasons(self, kind: Sequence[ServerRequest]) -> dict[str, str]:
        """Why the servers that were not made found no place: one that is requested alone is made in ERROR, with the
        reason."""
        there = await self.find_servers([request.node_id for request in kind])
        missing = [request for request in kind if request.node_id not in there]
        if not missing:
            return {}
        if missing[0].block_devices:
            return {request.node_id: "No valid host was found." for request in missing}
        try:
            await self.scheduler.create(self._boot(missing[:1], ReservedPorts(({},)), missing[0].image))
        except RoostError as error:
            return {request.node_id: error.message for request in missing}
        probe = (await self._settled([missing[0].node_id])).get(missing[0].node_id)
        reason = (probe.fault if probe is not None else None) or "No valid host was found."
        if probe is not None and probe.status == "ERROR":
            await self.delete_servers([probe.id], force=True)
            return {request.node_id: reason for request in missing}
        return {request.node_id: "No valid host was found." for request in missing[1:]}

    async def _settled(self, node_ids: Sequence[str]) -> dict[str, CloudServer]:
        """The servers of these nodes, once none of them is being built any more."""
        for attempt in range(1_000_000):
            found = await self.lookups.servers(node_ids)
            if not any(each.changes and each.project_id == self.project_id for each in found):
                break
            await asyncio.sleep(_WAITS[min(attempt, len(_WAITS) - 1)])
        return self._by_node(found)

    async def delete_servers(self, server_ids: Sequence[str], *, force: bool = False) -> dict[str, str]:
        """All at once; a locked server is only deleted by force."""
        ids = [server_id for server_id in server_ids if is_uuid(server_id)]
        mine = (
            servers_table.c.id == sa.any_(sa.cast(sa.bindparam("ids", ids), sa.ARRAY(servers_table.c.id.type))),
            servers_table.c.project_id == self.project_id,
        )
        # The other flavor of a server that is being resized counts until it is gone.
        other = servers_table.c.step["flavor"]
        step = sa.func.jsonb_build_object(sa.text("'delete'"), sa.true(), sa.text("'flavor'"), other)
        async with self.database.begin() as connection:
            unlocked = sa.true() if force else sa.not_(servers_table.c.locked)
            await connection.execute(
                servers_table.update()
                .where(*mine, unlocked)
                .values(task_state="deleting", step=step, due_at=sa.func.now(), updated_at=sa.func.now())
            )
            locked = list((await connection.execute(sa.select(servers_table.c.id).where(*mine, ~unlocked))).scalars())
        for attempt in range(1_000_000):
            async with self.database.begin() as connection:
                left = sa.select(servers_table.c.id).where(*mine, servers_table.c.task_state == "deleting").limit(1)
                if await connection.scalar(left) is None:
                    break
            await asyncio.sleep(_WAITS[min(attempt, len(_WAITS) - 1)])
        return {server_id: f"Instance {server_id} is locked" for server_id in locked}

    async def show_servers(self, server_ids: Sequence[str]) -> dict[str, CloudServer]:
        """By id."""
        ids = [server_id for server_id in server_ids if is_uuid(server_id)]
        among = servers_table.c.id == sa.any_(sa.cast(sa.bindparam("ids", ids), sa.ARRAY(servers_table.c.id.type)))
        return {server.id: server for server in await self._servers(among)}

    async def find_port_problem(self, wanted: Mapping[str, Any]) -> str | None:
        """Look up all that it names."""
        try:
            async with self.database.begin() as connection:
                await attachments.check(connection, self.project_id, wanted)
                await floating.check(connection, self.project_id, wanted)
        except RoostError as error:
            return error.message
        return None

    async def release_ports(self, node_ids: Sequence[str], others: Sequence[str] = ()) -> None:
        """Floating addresses by their description; ports go with their servers."""
        async with self.database.begin() as connection:
            await floating.release(connection, self.project_id, [port_mark(node_id, "") for node_id in node_ids])

    async def find_servers(self, node_ids: Sequence[str]) -> dict[str, CloudServer]:
        """By the node's id, which a server keeps from its first request on."""
        return self._by_node(await self.lookups.servers(node_ids))

    def _by_node(self, found: Sequence[FoundServer]) -> dict[str, CloudServer]:
        return {each.token: each.server for each in found if each.project_id == self.project_id}

    async def _servers(self, among: sa.ColumnElement[bool]) -> list[CloudServer]:
        mine = servers_table.c.project_id == self.project_id
        async with self.database.begin() as connection:
            return [each.server for each in await find_servers(connection, among, mine)]

    async def update_server(
        self, server_id: str, *, name: str | None = None, metadata: Mapping[str, str | None] | None = None
    ) -> str | None:
        """In place."""
        try:
            async with self.database.begin() as connection:
                server = await servers.find(connection, server_id, project_id=self.project_id, lock=True)
                changes: ServerValues = {"name": name} if name is not None else {}
                if metadata is not None:
                    kept = {**server.metadata, **metadata}
                    changes["metadata"] = {key: value for key, value in kept.items() if value is not None}
                await servers.update(connection, server.id, changes)
        except RoostError as error:
            return error.message
        return None

    async def operate(self, server_id: str, operation: str, params: Mapping[str, Any]) -> str | None:
        """Begin it, and wait until the server is at rest again; what an earlier attempt began is finished first."""
        try:
            await self._confirmed(server_id)
            await self._begin(server_id, operation, params)
            await self._confirmed(server_id)
        except RoostError as error:
            return error.message
        return None

    async def _confirmed(self, server_id: str) -> None:
        """Wait until the server is at rest, and keep it as it was moved or resized."""
        await self._at_rest(server_id)
        async with self.database.begin() as connection:
            server = await servers.find(connection, server_id, project_id=self.project_id, lock=True)
            if server.vm_state != "resized":
                return
            await operations.confirm(connection, server, self._actor)
        await self._at_rest(server_id)

    async def _begin(self, server_id: str, operation: str, params: Mapping[str, Any]) -> None:
        async with self.database.begin() as connection:
            server = await servers.find(connection, server_id, project_id=self.project_id, lock=True)
            if operation in _NOTHING_TO_DO:
                await servers.record(connection, server.id, operation, self._actor, done=True)
            elif operation in ("lock", "unlock"):
                await servers.update(connection, server.id, {"locked": operation == "lock"})
            elif operation == "resize":
                if str(params["flavor"]) != str(server.flavor.id):
                    await operations.resize(connection, self.scheduler, server, self._actor, str(params["flavor"]))
            elif operation == "migrate":
                await operations.migrate(connection, self.scheduler, server, self._actor, params.get("host"))
            elif operation == "evacuate":
                host = params.get("host")
                await operations.evacuate(connection, self.scheduler, server, self._actor, host, stopped=False)
            else:
                kind = str(params.get("type") or "HARD").upper() if operation == "reboot" else _STATES[operation]
                if operation == "rebuild" and params.get("image"):
                    await servers.update(connection, server.id, {"image_id": params["image"]})
                await servers.change_state(connection, server, kind, self._actor)

    async def _at_rest(self, server_id: str) -> None:
        for attempt in range(1_000_000):
            async with self.database.begin() as connection:
                server = await servers.find(connection, server_id, project_id=self.project_id)
            if server.due_at is None:
                return
            await asyncio.sleep(_WAITS[min(attempt, len(_WAITS) - 1)])

    # Server groups

    @property
    def _groups(self) -> OwnGroups:
        return OwnGroups(self.database, self.settings, self.project_id, self.user_id)

    async def find_server_group(self, name_or_id: str) -> CloudGroup | None:
        """By id, else by name."""
        return await self._groups.find(name_or_id)

    async def create_server_group(self, name: str, rules: Sequence[Rule]) -> CloudGroup:
        """In Roost's tables."""
        return await self._groups.create(name, rules)

    async def delete_server_group(self, group_id: str) -> None:
        """Its members stay."""
        await self._groups.delete(group_id)

    # What there is

    async def availability_zones(self) -> list[CloudZone]:
        """A zone can take servers while one of its hosts is up and enabled."""
        async with self.database.begin() as connection:
            return [CloudZone(zone.name, zone.up) for zone in await zones.index(connection)]

    async def hypervisors(self) -> list[Hypervisor]:
        """Every host is its own hypervisor."""
        async with self.database.begin() as connection:
            found = await hosts.index(connection)
        return [
            Hypervisor(host.name, host.name, zones.zone_of(host), host.enabled and not host.forced_down)
            for host in found
        ]

    async def regions(self) -> list[str]:
        """The one that the catalogue names."""
        return [self.settings.region]

    async def find_flavor(self, name_or_id: str) -> CloudResource | None:
        """A public one, or one that the project has been given."""
        return await self.lookups.flavors(ProjectName(self.project_id, name_or_id))

    async def find_image(self, name_or_id: str) -> CloudResource | None:
        """One that the project's servers can be made from."""
        return await self.lookups.images(ProjectName(self.project_id, name_or_id))

    async def find_network(self, name_or_id: str) -> CloudResource | None:
        """One that the project may use: the same that the compute API takes."""
        async with self.database.begin() as connection:
            found = await attachments.named_network(connection, self.project_id, name_or_id)
        return None if found is None else CloudResource(found.id, found.name)

    async def find_keypair(self, name: str) -> CloudResource | None:
        """One of the owner's."""
        query = sa.select(keypairs.c.name).where(keypairs.c.user_id == self.user_id, keypairs.c.name == name)
        async with self.database.begin() as connection:
            found = await connection.scalar(query)
        return None if found is None else CloudResource(found, found)

    # Load balancers

    async def create_load_balancer(self, request: LoadBalancerRequest) -> LoadBalancer:
        """Written down, with its own address."""
        if request.loadbalancer is not None:
            existing = await self._balancer(request.loadbalancer)
            if existing is not None:
                return existing
        parts = {"id": request.token, **{part: str(uuid.uuid4()) for part in ("listener", "pool")}}
        monitor = str(uuid.uuid4()) if request.health_monitor else None
        address = request.vip.get("address") or f"127.254.{uuid.uuid4().int % 256}.{uuid.uuid4().int % 254 + 1}"
        balancer = LoadBalancer(**parts, health_monitor=monitor, vip_address=str(address))
        row = {
            "id": balancer.id,
            "project_id": self.project_id,
            "name": request.name,
            "listener": balancer.listener,
            "pool": balancer.pool,
            "health_monitor": monitor,
            "vip_address": balancer.vip_address,
            "spec": {"vip": dict(request.vip), "pool": dict(request.pool)},
        }
        async with self.database.begin() as connection:
            made = await connection.execute(insert(load_balancers).values(**row).on_conflict_do_nothing())
        return balancer if made.rowcount else await self._balancer(request.token) or balancer

    async def _balancer(self, name_or_id: str) -> LoadBalancer | None:
        query = sa.select(load_balancers).where(
            load_balancers.c.project_id == self.project_id,
            sa.or_(load_balancers.c.id == name_or_id, load_balancers.c.name == name_or_id),
        )
        async with self.database.begin() as connection:
            row = (await connection.execute(query.limit(1))).one_or_none()
        if row is None:
            return None
        return LoadBalancer(row.id, row.listener, row.pool, row.health_monitor, row.vip_address)

    async def delete_load_balancer(self, balancer: LoadBalancer) -> None:
        """With its members."""
        async with self.database.begin() as connection:
            await connection.execute(load_balancers.delete().where(load_balancers.c.id == balancer.id))

    async def add_member(
        self, balancer: LoadBalancer, server_id: str, port: int, subnet: str | None = None, weight: int = 1
    ) -> str:
        """A server that is a member already stays the one it is."""
        row = {"id": str(uuid.uuid4()), "load_balancer_id": balancer.id, "server_id": server_id, "port": port,
               "weight": weight}  # fmt: skip
        once = insert(load_balancer_members).values(**row)
        once = once.on_conflict_do_update(
            index_elements=["load_balancer_id", "server_id", "port"], set_={"weight": weight}
        )
        async with self.database.begin() as connection:
            return str((await connection.execute(once.returning(load_balancer_members.c.id))).scalar_one())

    async def remove_member(self, balancer: LoadBalancer, member_id: str) -> None:
        """By its id."""
        async with self.database.begin() as connection:
            await connection.execute(load_balancer_members.delete().where(load_balancer_members.c.id == member_id))

    # Messages

    async def post_message(self, queue: str, body: Mapping[str, Any]) -> None:
        """There are no queues here; an event with the same content has been written."""
        raise CloudRefused("The embedded cloud has no queues: use a hook of type webhook, or read the node's events.")


def _kind(request: ServerRequest) -> tuple[Any, ...]:
    """What servers must share to be placed in one decision."""
    hints = tuple(sorted((key, str(value)) for key, value in request.scheduler_hints.items()))
    return (
        request.flavor,
        request.image,
        request.availability_zone,
        request.server_group,
        request.key_name,
        request.user_data,
        request.config_drive,
        hints,
        str(request.networks),
        request.security_groups,
        str(request.block_devices),
    )


def _ids(value: Any) -> tuple[str, ...] | None:
    if value is None:
        return None
    return (value,) if isinstance(value, str) else tuple(value)


def _outcome(
    node_id: str, server: CloudServer | None, refused: Mapping[str, str], unexposed: Mapping[str, str]
) -> ServerOutcome:
    if server is None:
        return ServerOutcome(node_id, None, refused.get(node_id, "The server was not made."))
    if server.status == "ERROR":
        return ServerOutcome(node_id, server.id, server.fault or "The server is in error.")
    if node_id in unexposed:
        return ServerOutcome(node_id, server.id, unexposed[node_id])
    return ServerOutcome(node_id, server.id, None, server.zone)
