"""What servers are plugged into: ports, made before a server and bound to it in the statement that makes it.

A server that names no network gets an address of the private one from the pool of this process, and its port is made by
the trigger on `servers`. What is named is looked up and reserved first, and given back if the server is not made.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.errors import Conflict, Invalid, NotFound, RoostError
from roost.network import networks, security
from roost.network.addresses import PRIVATE, AddressPool, entry
from roost.store import rows
from roost.store.database import Database
from roost.store.tables import network as tables

PENDING, PLUGGED = "compute:pending", "compute:nova"
_PRIVATE_NAME = "private"

Addresses = dict[str, list[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class ReservedPorts:
    """The addresses of servers to be, each server's by network, and the ports that were reserved for them."""

    addresses: tuple[Addresses, ...]
    port_ids: tuple[str, ...] = ()


async def reserve(
    pool: AddressPool,
    project_id: str,
    wanted: Sequence[Mapping[str, Any]] | str | None,
    groups: Sequence[str] | None,
    count: int,
) -> ReservedPorts:
    """Addresses for so many servers of a project on the networks and with the security groups that were named; raises
    `Invalid` for what does not exist."""
    if wanted == "none":
        return ReservedPorts(({},) * count)
    plain = groups is None or set(groups) <= {"default"}
    if plain and (not wanted or wanted in ("auto", [{"uuid": PRIVATE}])):
        taken = await pool.take(count)
        return ReservedPorts(tuple({_PRIVATE_NAME: [entry(address, _mac(address))]} for address in taken))
    asked = wanted if wanted and not isinstance(wanted, str) else [{"uuid": PRIVATE}]
    async with pool.database.begin() as connection:
        return await _reserve(connection, project_id, asked, groups, count)


async def release(database: Database, reserved: ReservedPorts) -> None:
    """Give back what was reserved for servers that were not made."""
    if not reserved.port_ids:
        return
    ports = tables.ports
    async with database.begin() as connection:
        mine = sa.and_(ports.c.id.in_(reserved.port_ids), ports.c.device_owner == PENDING)
        await connection.execute(ports.delete().where(mine, ports.c.of_server))
        await connection.execute(ports.update().where(mine).values(device_owner=""))


async def forget_pending(connection: AsyncConnection) -> int:
    """Give back what was reserved by processes that ended before they made the server; returns how much there was."""
    ports = tables.ports
    since = sa.func.now() - sa.text("interval '10 minutes'")
    old = sa.and_(ports.c.device_owner == PENDING, ports.c.updated_at < since)
    gone = (await connection.execute(ports.delete().where(old, ports.c.of_server))).rowcount
    return gone + (await connection.execute(ports.update().where(old).values(device_owner=""))).rowcount


def _mac(address: str) -> str:
    """The hardware address of an address from the pool: as unique as that is."""
    return "fa:16:3e:" + ":".join(f"{int(part):02x}" for part in address.split(".")[1:])


async def _reserve(
    connection: AsyncConnection,
    project_id: str,
    wanted: Sequence[Mapping[str, Any]],
    groups: Sequence[str] | None,
    count: int,
) -> ReservedPorts:
    of_server = None if groups is None else await group_ids_of(connection, project_id, groups)
    group_ids = [await _groups_of_port(connection, project_id, asked) or of_server for asked in wanted]
    made: list[Addresses] = []
    port_ids: list[str] = []
    for _ in range(count):
        one: Addresses = {}
        for asked, own_groups in zip(wanted, group_ids, strict=True):
            if count > 1 and (asked.get("port") or asked.get("fixed_ip")):
                raise Invalid("A port or a fixed address can be given to one server only.")
            network, port = await _port(connection, project_id, asked, own_groups)
            port_ids.append(port.id)
            held = (await networks.addresses_of(connection, [port.id])).get(port.id, [])
            one.setdefault(network.name, []).extend(entry(each["ip_address"], port.mac_address) for each in held)
        made.append({name: entries for name, entries in one.items() if entries})
    return ReservedPorts(tuple(made), tuple(port_ids))


async def _port(
    connection: AsyncConnection, project_id: str, asked: Mapping[str, Any], group_ids: list[str] | None
) -> tuple[Any, Any]:
    if asked.get("port"):
        return await _given_port(connection, project_id, str(asked["port"]))
    network, subnet_id = await _place(connection, project_id, asked)
    place = {"ip_address": asked.get("fixed_ip"), "subnet_id": subnet_id}
    fixed = [{key: str(value) for key, value in place.items() if value}] if any(place.values()) else None
    values = {"project_id": project_id, "device_owner": PENDING, "of_server": True, "security_groups": group_ids}
    try:
        return network, await networks.add_port(connection, network, values, fixed)
    except NotFound as error:
        raise Invalid(error.message) from None
    except Conflict as error:
        raise Invalid(error.message) from None


async def check(connection: AsyncConnection, project_id: str, asked: Mapping[str, Any]) -> None:
    """Raise `Invalid` for a network that no server of the project can be plugged into in this way."""
    await _groups_of_port(connection, project_id, asked)
    if not asked.get("port"):
        await _place(connection, project_id, asked)


async def _groups_of_port(connection: AsyncConnection, project_id: str, asked: Mapping[str, Any]) -> list[str] | None:
    """The security groups that a port is to have of its own; raises `Invalid` for what a port cannot be."""
    given = [key for key in ("vnic_type", "security_groups", "subnet") if asked.get(key)]
    if asked.get("port") and given:
        raise Invalid(f"A port that exists has its own {given[0]}: leave it out, or name a network instead.")
    if asked.get("vnic_type") not in (None, "normal"):
        raise Invalid(f"The embedded cloud has no ports of vnic_type {asked['vnic_type']}, only normal ones.")
    names = asked.get("security_groups")
    return await group_ids_of(connection, project_id, names) if names else None


async def _place(connection: AsyncConnection, project_id: str, asked: Mapping[str, Any]) -> tuple[Any, str | None]:
    """The network of a port to be, and its subnet if one is named."""
    network = await visible_network(connection, project_id, str(asked.get("uuid") or PRIVATE))
    known = await rows.index(connection, tables.subnets, network_id=network.id)
    if not known:
        raise Invalid(f"Network {network.id} requires a subnet in order to boot instances on.")
    wanted = asked.get("subnet")
    if not wanted:
        return network, None
    found = [subnet.id for subnet in known if wanted in (subnet.id, subnet.name)]
    if not found:
        raise Invalid(f"The specified subnet '{wanted}' could not be found.")
    return network, found[0]


async def _given_port(connection: AsyncConnection, project_id: str, port_id: str) -> tuple[Any, Any]:
    port = await _find(connection, tables.ports, port_id)
    if port is None or port.project_id != project_id:
        raise Invalid(f"Port {port_id} could not be found.")
    locked = await rows.find(connection, tables.ports, lock=True, id=port.id)
    if locked is None or locked.device_id or locked.device_owner:
        raise Conflict(f"Port {port_id} is still in use.")
    port = await rows.change(
        connection, tables.ports, {"device_owner": PENDING, "updated_at": sa.func.now()}, id=port.id
    )
    network = await rows.find(connection, tables.networks, id=locked.network_id)
    return network, port


async def visible_network(connection: AsyncConnection, project_id: str, network_id: str) -> Any:
    """A network that a project may plug its servers into, or `Invalid`."""
    network = await _find(connection, tables.networks, network_id)
    if network is None or not (network.shared or network.project_id == project_id):
        raise Invalid(f"Network {network_id} could not be found.")
    return network


async def named_network(connection: AsyncConnection, project_id: str, name_or_id: str) -> Any | None:
    """A network that a project may use, by its id or its name; None if there is none."""
    table = tables.networks
    seen = sa.or_(table.c.shared, table.c.project_id == project_id)
    which = sa.or_(table.c.name == name_or_id, sa.cast(table.c.id, sa.Text) == name_or_id)
    query = sa.select(table).where(seen, which).order_by(table.c.name == name_or_id, table.c.created_at)
    return (await connection.execute(query)).first()


async def _find(connection: AsyncConnection, table: sa.Table, identifier: str) -> Any | None:
    try:
        return await rows.find(connection, table, id=str(uuid.UUID(identifier)))
    except ValueError:
        return None


async def group_ids_of(connection: AsyncConnection, project_id: str, wanted: Sequence[str]) -> list[str]:
    """The security groups with these names or ids, all of them the project's."""
    default = await security.default_group(connection, project_id)
    found: list[str] = []
    own = await rows.index(connection, tables.security_groups, "created_at", project_id=project_id)
    for word in dict.fromkeys(wanted):
        matches = [group.id for group in own if word in (group.id, group.name)] or (
            [default.id] if word == "default" else []
        )
        if not matches:
            raise Invalid(f"Security group {word} not found for project {project_id}.")
        if len(matches) > 1:
            raise Conflict(f"Multiple security groups found matching '{word}'. Use an ID to be more specific.")
        found.append(matches[0])
    return found


# What an existing server is plugged into


async def ports_of(connection: AsyncConnection, server_id: str) -> Sequence[Any]:
    """The ports of a server."""
    return await rows.index(connection, tables.ports, "created_at", "id", device_id=server_id)


async def plug(
    connection: AsyncConnection, server: Any, asked: Mapping[str, Any], fixed: Sequence[Mapping[str, str]] | None
) -> Any:
    """Plug a server into another port: a given one, or a new one on a network."""
    try:
        if asked.get("port"):
            network, port = await _given_port(connection, server.project_id, str(asked["port"]))
        else:
            network = await visible_network(connection, server.project_id, str(asked.get("uuid") or PRIVATE))
            values = {"project_id": server.project_id, "device_owner": PENDING, "of_server": True}
            port = await networks.add_port(connection, network, values, fixed)
    except Conflict:
        raise
    except RoostError as error:
        raise Invalid(error.message) from None
    plugged = {"device_id": server.id, "device_owner": PLUGGED}
    await rows.change(connection, tables.ports, plugged, id=port.id)
    held = (await networks.addresses_of(connection, [port.id])).get(port.id, [])
    addresses = {name: list(entries) for name, entries in server.addresses.items()}
    addresses.setdefault(network.name, []).extend(entry(each["ip_address"], port.mac_address) for each in held)
    await connection.execute(_SET, {"server_id": server.id, "addresses": {k: v for k, v in addresses.items() if v}})
    return port


async def groups_of(connection: AsyncConnection, server: Any) -> Sequence[Any]:
    """The security groups of a server: those of its ports, each once."""
    plugged = await ports_of(connection, server.id)
    if not plugged:
        return ()
    default = await security.default_group(connection, server.project_id)
    held = [[default.id] if port.security_groups is None else port.security_groups for port in plugged]
    ids = {group for each in held for group in each}
    table = tables.security_groups
    return (await connection.execute(sa.select(table).where(table.c.id.in_(ids)).order_by(table.c.name))).all()


async def group_names(connection: AsyncConnection, plugged: Sequence[Any]) -> dict[str, list[str]]:
    """The names of the security groups of servers, by server, for each port once; those without ports have none. Of
    servers that are being built, clients expect the ids, as they asked for them."""
    building = {server.id: server.vm_state == "building" for server in plugged if server.addresses}
    found: dict[str, list[str]] = {}
    for row in await connection.execute(_NAMES, {"ids": list(building)}) if building else ():
        found.setdefault(row.device_id, []).append((row.id if building[row.device_id] else row.name) or "default")
    return found


_NAMES = sa.text("""
    SELECT p.device_id, CAST(g.id AS text) AS id, g.name FROM ports p
    LEFT JOIN LATERAL (
        SELECT id, name FROM security_groups WHERE id = ANY (CAST(p.security_groups AS uuid[]))
    ) g ON true
    WHERE p.device_id = ANY (:ids) AND (p.security_groups IS NULL OR g.name IS NOT NULL)
    ORDER BY p.device_id, p.created_at, p.id, g.name
""")


async def change_groups(connection: AsyncConnection, server: Any, name: str, *, add: bool) -> None:
    """Add a security group to all ports of a server, or remove one."""
    (group_id,) = await group_ids_of(connection, server.project_id, [name])
    default = await security.default_group(connection, server.project_id)
    for port in await ports_of(connection, server.id):
        before = port.security_groups if port.security_groups is not None else [default.id]
        after = [*before, group_id] if add and group_id not in before else before
        if not add:
            if group_id not in before:
                raise NotFound(f"Security group {name} is not associated with the instance {server.id}")
            after = [each for each in before if each != group_id]
        await rows.change(connection, tables.ports, {"security_groups": after}, id=port.id)


_SET = sa.text(
    "UPDATE servers SET addresses = :addresses, updated_at = now() WHERE id = CAST(:server_id AS uuid)"
).bindparams(sa.bindparam("addresses", type_=JSONB))
