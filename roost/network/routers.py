"""Routers: what clients make between networks. All networks of this cloud reach each other anyway, so a router only
records what it was given: its gateway, its interfaces and its routes, with ports that hold their addresses."""

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.errors import Conflict, Invalid, NotFound
from roost.network import networks
from roost.network.addresses import ROUTER
from roost.store import rows
from roost.store.tables.network import ports, routers

GATEWAY, INTERFACE = "network:router_gateway", ROUTER


async def set_gateway(
    connection: AsyncConnection, router: Any, network: Any | None, fixed: Any = None, *, snat: bool = True
) -> None:
    """Set the gateway of a router to an external network, or to none."""
    if network is not None and not network.external:
        raise Invalid(f"Network {network.id} is not an external network")
    await rows.remove(connection, ports, device_id=router.id, device_owner=GATEWAY)
    await rows.change(
        connection, routers, {"gateway_network_id": network and network.id, "enable_snat": snat}, id=router.id
    )
    if network is not None:
        of = {"project_id": "", "device_id": router.id, "device_owner": GATEWAY}
        await networks.add_port(connection, network, of, fixed)


async def add_interface(connection: AsyncConnection, router: Any, subnet: Any, network: Any) -> Any:
    """Connect a router to a subnet, at the address of its gateway; the port that it has there."""
    if subnet.gateway_ip is None:
        raise Invalid("Subnet for router interface must have a gateway IP")
    fixed = [{"subnet_id": subnet.id, "ip_address": subnet.gateway_ip}]
    of = {"project_id": router.project_id, "device_id": router.id, "device_owner": INTERFACE}
    return await networks.add_port(connection, network, of, fixed)


async def add_port(connection: AsyncConnection, router: Any, port: Any) -> Any:
    """Connect a router by a port that is plugged into nothing."""
    locked = await rows.find(connection, ports, lock=True, id=port.id)
    if locked is None or locked.device_id or locked.device_owner:
        raise Conflict(f"Port {port.id} is still in use.")
    return await rows.change(connection, ports, {"device_id": router.id, "device_owner": INTERFACE}, id=port.id)


async def remove_interface(connection: AsyncConnection, router: Any, which: Mapping[str, str]) -> tuple[Any, str]:
    """Disconnect a router from the subnet or port that is named; returns the port that it had, and its subnet."""
    for port in await rows.index(connection, ports, "created_at", device_id=router.id, device_owner=INTERFACE):
        for held in (await networks.addresses_of(connection, [port.id])).get(port.id, ()):
            if port.id == which.get("port_id") or held["subnet_id"] == which.get("subnet_id"):
                await rows.remove(connection, ports, id=port.id)
                return port, held["subnet_id"]
    raise NotFound(f"Router {router.id} does not have an interface with that subnet or port.")


async def delete(connection: AsyncConnection, router: Any) -> None:
    """Forget a router that is connected to no subnet."""
    if await rows.index(connection, ports, device_id=router.id, device_owner=INTERFACE):
        raise Conflict(f"Router {router.id} still has ports")
    await rows.remove(connection, ports, device_id=router.id, device_owner=GATEWAY)
    await rows.remove(connection, routers, id=router.id)


async def gateways(connection: AsyncConnection, router_ids: list[str]) -> dict[str, list[dict[str, str]]]:
    """The addresses of routers on their external networks, by router."""
    found = (
        await connection.execute(
            sa.select(ports.c.id, ports.c.device_id).where(
                ports.c.device_id.in_(router_ids), ports.c.device_owner == GATEWAY
            )
        )
    ).all()
    held = await networks.addresses_of(connection, [port.id for port in found])
    return {port.device_id: held.get(port.id, []) for port in found}
