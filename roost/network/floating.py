"""Floating addresses: addresses of an external network that a project puts in front of its own ports.

Each has its own port on the external network, so that its address is unique there as all others are. Every network
of this cloud reaches every external one: there are no routers to be made first.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.errors import Conflict, Invalid
from roost.network import addresses, networks
from roost.store import rows
from roost.store.tables import network as tables
from roost.store.tables.network import floating_ips, ports

OWNER = "network:floatingip"


async def create(connection: AsyncConnection, network: Any, values: Mapping[str, Any]) -> Any:
    """Take an address of an external network: a given one, or the first that is free."""
    if not network.external:
        raise Invalid(f"Network {network.id} is not a valid external network.")
    wanted = values.get("floating_ip_address")
    made = await rows.add(connection, floating_ips, {**values, "floating_ip_address": ""})
    of = {"project_id": "", "device_id": made.id, "device_owner": OWNER}
    port = await networks.add_port(connection, network, of, [{"ip_address": wanted}] if wanted else None)
    held = (await networks.addresses_of(connection, [port.id])).get(port.id)
    if not held:
        raise Invalid(f"Network {network.id} does not contain any IPv4 subnet")
    return await rows.change(connection, floating_ips, {"floating_ip_address": held[0]["ip_address"]}, id=made.id)


async def point(connection: AsyncConnection, floating: Any, port: Any | None, fixed: str | None = None) -> None:
    """Associate a floating address with a port's address (a given one, or its first), or with none."""
    before = floating.port_id
    address = None
    if port is not None:
        held = [each["ip_address"] for each in (await networks.addresses_of(connection, [port.id])).get(port.id, ())]
        address = fixed or next((each for each in held if ":" not in each), None)
        if address is None or address not in held:
            raise Invalid(f"Port {port.id} does not have the fixed IPv4 address {address or 'that this needs'}.")
    elif fixed is not None:
        raise Invalid("fixed_ip_address cannot be specified without a port_id")
    taken = Conflict(
        f"Cannot associate floating IP {floating.floating_ip_address} with port {port and port.id} using fixed IP "
        f"{address}, as that fixed IP already has a floating IP."
    )
    values = {"port_id": port and port.id, "fixed_ip_address": address, "updated_at": sa.func.now()}
    await rows.change(connection, floating_ips, values, taken, id=floating.id)
    for port_id in {before, port and port.id} - {None}:
        await _show(connection, str(port_id))


async def delete(connection: AsyncConnection, floating: Any) -> None:
    """Give a floating address back."""
    if floating.port_id is not None:
        await point(connection, floating, None)
    await rows.remove(connection, ports, device_id=floating.id, device_owner=OWNER)
    await rows.remove(connection, floating_ips, id=floating.id)


# In front of servers


def wished(wanted: Mapping[str, Any]) -> bool:
    """Whether a network of a server asks for a floating address."""
    return bool(wanted.get("floating_network") or wanted.get("floating_ip"))


async def check(connection: AsyncConnection, project_id: str, wanted: Mapping[str, Any]) -> None:
    """Raise `Invalid` for a floating address that the project cannot have."""
    if wanted.get("floating_ip"):
        await _given(connection, project_id, wanted["floating_ip"])
    elif wanted.get("floating_network"):
        await _outside(connection, wanted["floating_network"])


async def expose(
    connection: AsyncConnection, project_id: str, server_id: str, wanted: Mapping[str, Any], mark: str
) -> None:
    """Put a floating address in front of a server, on a network or a port that it is plugged into: one that the project
    has, or a new one, which is described by its mark and made once."""
    on = {"id": wanted["port"]} if wanted.get("port") else {"network_id": wanted["uuid"]}
    port = next(iter(await rows.index(connection, ports, "created_at", "id", device_id=server_id, **on)), None)
    if port is None:
        raise Invalid(f"Instance {server_id} has no port that a floating IP address could stand in front of.")
    if wanted.get("floating_ip"):
        address = await _given(connection, project_id, wanted["floating_ip"])
        if address.port_id not in (None, port.id):
            raise Conflict(f"The floating IP address {address.floating_ip_address} is in use.")
        await point(connection, address, port)
        return
    outside = await _outside(connection, wanted["floating_network"])
    if not await rows.index(connection, floating_ips, project_id=project_id, description=mark):
        await networks.keep_within(connection, project_id, "floatingip")
        values = {"project_id": project_id, "floating_network_id": outside.id, "description": mark}
        await point(connection, await create(connection, outside, values), port)


async def release(connection: AsyncConnection, project_id: str, marks: Sequence[str]) -> None:
    """Give back the floating addresses whose descriptions begin like this."""
    begins = sa.any_(sa.cast([f"{mark}%" for mark in marks], sa.ARRAY(sa.Text)))
    mine = floating_ips.c.project_id == project_id, floating_ips.c.description.like(begins)
    for row in (await connection.execute(sa.select(floating_ips).where(*mine))).all():
        await delete(connection, row)


async def _given(connection: AsyncConnection, project_id: str, address: str) -> Any:
    missing = Invalid(f"The project has no floating IP address {address}: allocate it first.")
    named = {"project_id": project_id, "floating_ip_address": address}
    return await rows.show(connection, floating_ips, missing, lock=True, **named)


async def _outside(connection: AsyncConnection, name_or_id: str) -> Any:
    """An external network; every project may use it."""
    table = tables.networks
    which = sa.or_(table.c.name == name_or_id, sa.cast(table.c.id, sa.Text) == name_or_id)
    found = (await connection.execute(sa.select(table).where(table.c.external, which))).first()
    if found is None:
        raise Invalid(f"The specified floating network '{name_or_id}' could not be found.")
    return found


async def _show(connection: AsyncConnection, port_id: str) -> None:
    """Have the server of a port, if it has one, show the floating addresses in front of it beside the port's own."""
    port = await rows.find(connection, ports, id=port_id)
    if port is None or not port.device_owner.startswith("compute:"):
        return
    pointing = await rows.index(connection, floating_ips, "created_at", port_id=port_id)
    shown = [
        {**addresses.entry(each.floating_ip_address, port.mac_address), "OS-EXT-IPS:type": "floating"}
        for each in pointing
    ]
    await connection.execute(_SHOW, {"server_id": port.device_id, "mac": port.mac_address, "floating": shown})


_SHOW = sa.text("""
    UPDATE servers SET updated_at = now(), addresses = (
        SELECT coalesce(jsonb_object_agg(network, CASE
            WHEN entries @> jsonb_build_array(jsonb_build_object('OS-EXT-IPS-MAC:mac_addr', CAST(:mac AS text)))
            THEN (SELECT jsonb_agg(entry) FROM jsonb_array_elements(entries) AS entry
                  WHERE NOT (entry ->> 'OS-EXT-IPS-MAC:mac_addr' = :mac AND entry ->> 'OS-EXT-IPS:type' = 'floating'))
                 || :floating
            ELSE entries END), '{}')
        FROM jsonb_each(addresses) AS n (network, entries))
    WHERE id = CAST(:server_id AS uuid)
""").bindparams(sa.bindparam("floating", type_=JSONB))
