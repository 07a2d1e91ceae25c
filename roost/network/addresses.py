"""Addresses: of the network that servers get when they name none, taken in blocks, and of any subnet, one by one.

A block is taken with one query and given out from memory, so that creating servers needs no look at the network.
"""

import ipaddress
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.errors import Conflict, Invalid
from roost.store.database import Database
from roost.store.tables.network import port_addresses, subnets

ROUTER = "network:router_interface"
"""The owner of a port by which a router is connected to a subnet."""
PRIVATE, PUBLIC = "5b7d9ca4-8a11-4f0c-9d43-3f6f6f0d5a01", "5b7d9ca4-8a11-4f0c-9d43-3f6f6f0d5a02"
"""The networks that always exist."""
PRIVATE_SUBNET, PUBLIC_SUBNET = "5b7d9ca4-8a11-4f0c-9d43-3f6f6f0d5b01", "5b7d9ca4-8a11-4f0c-9d43-3f6f6f0d5b02"

_BLOCK = 64
_FIRST = int(ipaddress.IPv4Address("10.128.0.0"))
"""The upper half of the private subnet is given out in blocks; the lower one is for ports that ask for an address."""

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class NoAddress(Conflict):
    """Every address of the subnet is taken."""


class AddressTaken(Conflict):
    """Another port has this address."""


@dataclass(slots=True)
class AddressPool:
    """Addresses of the private subnet that this process has taken and not given out yet."""

    database: Database
    _free: list[str] = field(default_factory=list)

    async def take(self, count: int) -> list[str]:
        """So many addresses that no other process uses or will be given."""
        while len(self._free) < count:
            async with self.database.begin() as connection:
                block = await _block(connection)
            # Others have taken some meanwhile: add to what is left now, not to what was left before.
            self._free.extend(block)
        taken, self._free = self._free[:count], self._free[count:]
        return taken


async def _block(connection: AsyncConnection) -> list[str]:
    number = await connection.scalar(sa.text("SELECT nextval('address_blocks')"))
    start = _FIRST + int(number or 0) * _BLOCK
    addresses = [str(ipaddress.IPv4Address(start + offset)) for offset in range(_BLOCK)]
    used = sa.select(sa.func.host(port_addresses.c.address)).where(
        port_addresses.c.subnet_id == PRIVATE_SUBNET, port_addresses.c.address.in_(addresses)
    )
    return [address for address in addresses if address not in set((await connection.scalars(used)).all())]


def new_mac() -> str:
    """A hardware address as Neutron makes them."""
    first, *others = secrets.token_bytes(3)
    # The upper half belongs to the addresses that are given out in blocks.
    return "fa:16:3e:" + ":".join(f"{byte:02x}" for byte in (first & 0x7F, *others))


def entry(address: str, mac: str) -> dict[str, Any]:
    """An address as servers show it."""
    return {
        "addr": address,
        "version": ipaddress.ip_address(address).version,
        "OS-EXT-IPS:type": "fixed",
        "OS-EXT-IPS-MAC:mac_addr": mac,
    }


async def assign(connection: AsyncConnection, port: Any, subnet: Any, wanted: str | None) -> str:
    """Give a port the address that it asks for, or the first that is free; that of the gateway is for routers."""
    # Other transactions that look for a free address here wait, and then find this one taken.
    await connection.execute(sa.select(subnets.c.id).where(subnets.c.id == subnet.id).with_for_update())
    address = str(parse(wanted)) if wanted is not None else await _first_free(connection, subnet)
    if ipaddress.ip_address(address) not in ipaddress.ip_network(subnet.cidr):
        raise Invalid(f"IP address {address} is not a valid IP for the specified subnet.")
    row = {"subnet_id": subnet.id, "address": address, "port_id": port.id}
    free = sa.select(port_addresses.c.port_id).where(
        port_addresses.c.subnet_id == subnet.id, port_addresses.c.address == address
    )
    if await connection.scalar(free) is not None or (address == subnet.gateway_ip and port.device_owner != ROUTER):
        raise AddressTaken(f"IP address {address} already allocated in subnet {subnet.id}")
    await connection.execute(port_addresses.insert().values(**row))
    return address


async def _first_free(connection: AsyncConnection, subnet: Any) -> str:
    used = sa.select(sa.func.host(port_addresses.c.address)).where(port_addresses.c.subnet_id == subnet.id)
    if subnet.id == PRIVATE_SUBNET:
        used = used.where(port_addresses.c.address < str(ipaddress.IPv4Address(_FIRST)))
    taken = {int(parse(address)) for address in await connection.scalars(used)}
    for address in _candidates(subnet.allocation_pools):
        if address not in taken:
            kind = ipaddress.IPv6Address if subnet.ip_version == 6 else ipaddress.IPv4Address
            return str(kind(address))
    raise NoAddress(f"No more IP addresses available on network {subnet.network_id}.")


def _candidates(pools: Sequence[dict[str, str]]) -> Iterator[int]:
    for pool in pools:
        yield from range(int(parse(pool["start"])), int(parse(pool["end"])) + 1)


def parse(text: str) -> Address:
    """An address, or `Invalid`."""
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        raise Invalid(f"'{text}' is not a valid IP address") from None
