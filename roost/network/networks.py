"""Networks, subnets and ports: made, changed and deleted, within what a project may have."""

import ipaddress
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.errors import Conflict, Forbidden, Invalid, NotFound, OverQuota
from roost.network import addresses, security
from roost.network.addresses import PRIVATE, PUBLIC
from roost.store import rows
from roost.store.locks import hold
from roost.store.tables.network import (
    floating_ips,
    network_quotas,
    networks,
    port_addresses,
    ports,
    routers,
    security_groups,
    subnets,
)
from roost.store.uuids import is_uuid

QUOTAS: Mapping[str, int] = {
    "network": 100,
    "subnet": 100,
    "port": 500,
    "security_group": 100,
    "security_group_rule": 1000,
    "floatingip": 50,
    "router": 10,
    # Not served, so no project may have any.
    "subnetpool": 0,
    "rbac_policy": 0,
    "trunk": 0,
}
"""What a project may have of each, unless an administrator set another limit."""


class UsableNetwork(NamedTuple):
    """A network that a project can use, with its first subnet, if it has one."""

    id: str
    name: str
    cidr: str | None
    gateway_ip: str | None


async def usable(
    connection: AsyncConnection, project_id: str | None, limit: int, network_id: str | None = None
) -> list[UsableNetwork]:
    """The networks that a project can use, oldest first; or the one with this id."""
    first = (
        sa.select(subnets.c.cidr, subnets.c.gateway_ip)
        .where(subnets.c.network_id == networks.c.id)
        .order_by(subnets.c.created_at)
        .limit(1)
        .lateral()
    )
    query = (
        sa.select(networks.c.id, networks.c.name, first.c.cidr, first.c.gateway_ip)
        .join(first, sa.true(), isouter=True)
        .where(sa.or_(networks.c.shared, networks.c.project_id == project_id))
        .order_by(networks.c.created_at, networks.c.id)
        .limit(limit)
    )
    if network_id is not None:
        query = query.where(networks.c.id == network_id if is_uuid(network_id) else sa.false())
    return [UsableNetwork._make(row) for row in await connection.execute(query)]


async def limits(connection: AsyncConnection, project_id: str) -> dict[str, int]:
    """What a project may have."""
    own = {row.resource: row.limit for row in await rows.index(connection, network_quotas, project_id=project_id)}
    return {**QUOTAS, **own}


async def all_limits(connection: AsyncConnection) -> dict[str, dict[str, int]]:
    """What each project may have, for those with quotas of their own."""
    found: dict[str, dict[str, int]] = {}
    for row in await rows.index(connection, network_quotas, "project_id"):
        found.setdefault(row.project_id, dict(QUOTAS))[row.resource] = row.limit
    return found


async def set_limit(connection: AsyncConnection, project_id: str, resource: str, limit: int) -> None:
    """Set how many of a resource a project may have."""
    await rows.remove(connection, network_quotas, project_id=project_id, resource=resource)
    await rows.add(connection, network_quotas, {"project_id": project_id, "resource": resource, "limit": limit})


async def reset_limits(connection: AsyncConnection, project_id: str) -> None:
    """Give a project the default quotas again."""
    await rows.remove(connection, network_quotas, project_id=project_id)


async def used(connection: AsyncConnection, project_id: str) -> dict[str, int]:
    """What a project has; ports that are made with servers are not counted, as the quota of servers bounds them."""
    found = dict.fromkeys(QUOTAS, 0)
    for resource, table in security.COUNTED.items() | _COUNTED.items():
        query = sa.select(sa.func.count()).select_from(table).where(table.c.project_id == project_id)
        if table is ports:
            query = query.where(~ports.c.of_server)
        found[resource] = await connection.scalar(query) or 0
    return found


_COUNTED: Mapping[str, sa.Table] = {
    "network": networks,
    "subnet": subnets,
    "port": ports,
    "floatingip": floating_ips,
    "router": routers,
}


async def keep_within(connection: AsyncConnection, project_id: str, resource: str) -> None:
    """Raise `OverQuota` if a project has as many as it may; others who make one wait."""
    await hold(connection, f"{resource} of {project_id}")
    limit = (await limits(connection, project_id))[resource]
    if 0 <= limit <= (await used(connection, project_id))[resource]:
        raise OverQuota(f"Quota exceeded for resources: ['{resource}'].")


# Subnets


def subnet_values(body: Mapping[str, Any]) -> dict[str, Any]:
    """A requested subnet, with what follows from its range."""
    try:
        network = ipaddress.ip_network(body["cidr"], strict=False)
    except ValueError:
        raise Invalid(f"Invalid input for cidr. Reason: '{body['cidr']}' is not a valid IP subnet.") from None
    if network.version != body["ip_version"]:
        raise Invalid("The IP version does not match that of the cidr.")
    first = network.network_address + (1 if network.num_addresses > 2 else 0)
    last = network.broadcast_address - (1 if network.version == 4 and network.num_addresses > 2 else 0)
    gateway = body.get("gateway_ip", str(first)) or None
    if gateway is not None and addresses.parse(gateway) not in network:
        raise Invalid(f"Gateway {gateway} is not in the subnet {network}.")
    pools = body.get("allocation_pools") or _pools(int(first), int(last), gateway, network.version)
    for pool in pools:
        start, end = addresses.parse(pool["start"]), addresses.parse(pool["end"])
        if start not in network or end not in network or int(start) > int(end):
            raise Invalid(f"The allocation pool {pool['start']}-{pool['end']} is not valid.")
    return {**body, "cidr": str(network), "gateway_ip": gateway, "allocation_pools": pools}


def _pools(first: int, last: int, gateway: str | None, version: int) -> list[dict[str, str]]:
    kind = ipaddress.IPv6Address if version == 6 else ipaddress.IPv4Address
    edges = [(first, last)]
    if gateway is not None and first <= (skipped := int(addresses.parse(gateway))) <= last:
        edges = [(first, skipped - 1), (skipped + 1, last)]
    return [{"start": str(kind(low)), "end": str(kind(high))} for low, high in edges if low <= high]


async def add_subnet(connection: AsyncConnection, network: Any, values: Mapping[str, Any]) -> Any:
    """Make a subnet, whose range must not overlap with others of the network."""
    await connection.execute(sa.select(networks.c.id).where(networks.c.id == network.id).with_for_update())
    wanted = ipaddress.ip_network(values["cidr"])
    for other in await rows.index(connection, subnets, network_id=network.id):
        theirs = ipaddress.ip_network(other.cidr)
        if theirs.version == wanted.version and theirs.overlaps(wanted):
            raise Invalid(
                f"Invalid input for operation: Requested subnet with cidr: {wanted} for network: {network.id} overlaps "
                "with another subnet."
            )
    return await rows.add(connection, subnets, values)


async def delete_subnet(connection: AsyncConnection, subnet: Any) -> None:
    """Forget a subnet of which no port has an address."""
    _check_own(subnet.network_id, "subnet")
    refusal = Conflict(
        f"Unable to complete operation on subnet {subnet.id}: One or more ports have an IP allocation from this subnet."
    )
    await rows.remove(connection, subnets, refusal, id=subnet.id)


async def delete_network(connection: AsyncConnection, network: Any) -> None:
    """Forget a network on which there is no port, and its subnets."""
    _check_own(network.id, "network")
    refusal = Conflict(
        f"Unable to complete operation on network {network.id}. There are one or more ports still in use on the "
        "network."
    )
    await rows.remove(connection, networks, refusal, id=network.id)


def _check_own(network_id: str, kind: str) -> None:
    if network_id in (PRIVATE, PUBLIC):
        raise Conflict(f"This {kind} is one that every Roost has, and stays.")


# Ports


async def add_port(
    connection: AsyncConnection, network: Any, values: Mapping[str, Any], fixed: Sequence[Mapping[str, str]] | None
) -> Any:
    """Make a port with the addresses that are asked for: by default one, if the network has a subnet."""
    if values.get("security_groups") is not None:
        await _check_groups(connection, values["project_id"], values["security_groups"])
    mac = values.get("mac_address") or addresses.new_mac()
    taken = Conflict(f"Unable to complete operation for network {network.id}. The mac address {mac} is in use.")
    row = await rows.add(connection, ports, {**values, "mac_address": mac, "network_id": network.id}, taken)
    await place(connection, row, fixed)
    return row


async def place(connection: AsyncConnection, port: Any, fixed: Sequence[Mapping[str, str]] | None) -> None:
    """Give a port these addresses and no others."""
    known = await rows.index(connection, subnets, "created_at", network_id=port.network_id)
    if fixed is None:
        fixed = [{"subnet_id": known[0].id}] if known else []
    held = (await addresses_of(connection, [port.id])).get(port.id, [])
    before = {(each["subnet_id"], each["ip_address"]) for each in held}
    kept = {(one.get("subnet_id"), one.get("ip_address")) for one in fixed}
    for subnet_id, address in before - kept:
        await rows.remove(connection, port_addresses, subnet_id=subnet_id, address=address)
    for one in fixed:
        if (one.get("subnet_id"), one.get("ip_address")) not in before:
            await addresses.assign(connection, port, _subnet_of(one, known), one.get("ip_address"))


def _subnet_of(wanted: Mapping[str, str], known: Sequence[Any]) -> Any:
    if "subnet_id" in wanted:
        found = [each for each in known if each.id == wanted["subnet_id"]]
        if not found:
            raise Invalid(f"Subnet {wanted['subnet_id']} is not of this network.")
        return found[0]
    address = addresses.parse(wanted.get("ip_address", ""))
    for each in known:
        if address in ipaddress.ip_network(each.cidr):
            return each
    raise Invalid(f"IP address {address} is not a valid IP for any of the subnets on the specified network.")


async def _check_groups(connection: AsyncConnection, project_id: str, wanted: Sequence[str]) -> None:
    await security.default_group(connection, project_id)
    found = await connection.scalars(
        sa.select(sa.cast(security_groups.c.id, sa.Text)).where(
            sa.cast(security_groups.c.id, sa.Text).in_(wanted), security_groups.c.project_id == project_id
        )
    )
    missing = sorted(set(wanted) - set(found))
    if missing:
        raise NotFound(f"Security group {missing[0]} does not exist")


async def check_groups(connection: AsyncConnection, project_id: str, wanted: Sequence[str]) -> None:
    """Raise `NotFound` unless all of these security groups are the project's."""
    await _check_groups(connection, project_id, wanted)


async def delete_port(connection: AsyncConnection, port: Any) -> None:
    """Forget a port and give its addresses back."""
    if port.device_owner.startswith("network:"):
        raise Conflict(f"Port {port.id} cannot be deleted directly via the port API: it is in use.")
    if port.device_id and port.device_owner.startswith("compute:"):
        await _unplug(connection, port)
    await rows.remove(connection, ports, id=port.id)


async def addresses_of(connection: AsyncConnection, port_ids: Sequence[str]) -> dict[str, list[dict[str, str]]]:
    """The addresses of ports, by port."""
    query = (
        sa.select(port_addresses.c.port_id, port_addresses.c.subnet_id)
        .add_columns(sa.func.host(port_addresses.c.address).label("ip"))
        .where(port_addresses.c.port_id.in_(port_ids))
        .order_by(port_addresses.c.address)
    )
    found: dict[str, list[dict[str, str]]] = {}
    for row in await connection.execute(query):
        found.setdefault(row.port_id, []).append({"subnet_id": row.subnet_id, "ip_address": row.ip})
    return found


_UNPLUG = sa.text("""
    UPDATE servers SET updated_at = now(), addresses = (
        SELECT coalesce(jsonb_object_agg(network, kept), '{}') FROM (
            SELECT network, jsonb_agg(entry) AS kept
            FROM jsonb_each(addresses) AS n (network, entries), jsonb_array_elements(entries) AS entry
            WHERE entry ->> 'OS-EXT-IPS-MAC:mac_addr' <> :mac GROUP BY network) AS rest)
    WHERE id = CAST(:server_id AS uuid)
""")


async def _unplug(connection: AsyncConnection, port: Any) -> None:
    await connection.execute(_UNPLUG, {"server_id": port.device_id, "mac": port.mac_address})


async def unplug(connection: AsyncConnection, port: Any) -> None:
    """Unplug a port from its server; one that was made for the server is deleted."""
    await _unplug(connection, port)
    if port.of_server:
        await rows.remove(connection, ports, id=port.id)
    else:
        await rows.change(connection, ports, {"device_id": "", "device_owner": ""}, id=port.id)


def refuse_shared(values: Mapping[str, Any], is_admin: bool) -> None:
    """Only administrators make networks that all projects share."""
    if not is_admin and (values.get("shared") or values.get("external")):
        raise Forbidden("Only administrators make networks that all projects use.")
