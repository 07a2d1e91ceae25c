"""The load balancers of the embedded cloud: small TCP forwarders, so that a balanced cluster can be seen to work.

A load balancer listens on its VIP address and port, which the embedded cloud takes from the loopback network unless a
policy asks for another address of this machine. Simulated servers run nothing themselves; what stands for a server is
the address in its metadata, under `roost.address`, in which {index} is the index of its node: with
`roost.address: 127.1.0.{index}:8080` every node of a cluster has an address of its own. A server without that is
reached at its fixed address, and at the port of the pool.

Every engine runs this; whichever binds an address first serves it, and another takes over when that one ends.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from roost.store.database import Database
from roost.store.tables.balancers import load_balancer_members, load_balancers
from roost.store.tables.servers import servers

logger = logging.getLogger(__name__)

ADDRESS = "roost.address"
_LOOK_SECONDS = 1.0
_CONNECT_SECONDS = 3.0
_CHUNK = 1 << 16

Address = tuple[str, int]


@dataclass(slots=True)
class Forwarder:
    """One load balancer: hands every connection on to a member that answers."""

    method: str = "ROUND_ROBIN"
    limit: int = -1
    """How many connections there may be at once; below 0 is any number."""
    members: list[Address] = field(default_factory=list)
    open: Counter[Address] = field(default_factory=Counter)
    served: int = 0

    def order(self, client: str) -> list[Address]:
        """The members in the order in which they are tried for a new connection."""
        if not self.members:
            return []
        if self.method == "LEAST_CONNECTIONS":
            return sorted(self.members, key=lambda member: self.open[member])
        first = sum(client.encode()) if self.method == "SOURCE_IP" else self.served
        start = first % len(self.members)
        return [*self.members[start:], *self.members[:start]]

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until either side ends it."""
        peer = writer.get_extra_info("peername")
        try:
            if 0 <= self.limit <= self.open.total():
                return
            for member in self.order(str(peer[0])):
                self.served += 1
                if await self._join(member, reader, writer):
                    return
        finally:
            writer.close()

    async def _join(self, member: Address, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Hand the connection on to a member; False if that does not answer."""
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                back_reader, back_writer = await asyncio.open_connection(*member)
        except OSError:
            return False
        self.open[member] += 1
        try:
            await asyncio.gather(_pump(reader, back_writer), _pump(back_reader, writer))
        finally:
            self.open[member] -= 1
            back_writer.close()
        return True


async def _pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await source.read(_CHUNK):
            target.write(data)
            await target.drain()
        if target.can_write_eof():
            target.write_eof()


@dataclass(slots=True)
class _Listening:
    forwarder: Forwarder
    server: asyncio.Server


async def run(database: Database) -> None:
    """Keep a forwarder for every load balancer, until cancelled."""
    listening: dict[str, _Listening] = {}
    try:
        while True:
            try:
                await _reconcile(database, listening)
            except SQLAlchemyError:
                logger.warning("could not look for load balancers, trying again", exc_info=True)
            await asyncio.sleep(_LOOK_SECONDS)
    finally:
        for each in listening.values():
            each.server.close()


async def _reconcile(database: Database, listening: dict[str, _Listening]) -> None:
    """Listen for those that are new, stop for those that are gone, and bring the members of all up to date."""
    async with database.begin() as connection:
        rows = (await connection.execute(sa.select(load_balancers))).all()
        members = (await connection.execute(_MEMBERS)).all() if rows else []
    for gone in set(listening) - {row.id for row in rows}:
        listening.pop(gone).server.close()
    for row in rows:
        if row.id not in listening:
            found = await _listen(row)
            if found is None:
                continue
            listening[row.id] = found
        own = [member for member in members if member.load_balancer_id == row.id]
        listening[row.id].forwarder.members = addresses(own)


_MEMBERS = (
    sa.select(load_balancer_members, servers.c.metadata, servers.c.addresses)
    .join(servers, sa.cast(servers.c.id, sa.Text) == load_balancer_members.c.server_id)
    .order_by(load_balancer_members.c.load_balancer_id, load_balancer_members.c.id)
)


async def _listen(row: sa.Row[Any]) -> _Listening | None:
    vip, pool = row.spec.get("vip") or {}, row.spec.get("pool") or {}
    forwarder = Forwarder(pool.get("lb_method") or "ROUND_ROBIN", int(vip.get("connection_limit") or -1))
    try:
        server = await asyncio.start_server(forwarder.handle, row.vip_address, int(vip.get("protocol_port") or 80))
    except OSError as error:
        # Another engine has it, the address is not ours, or the port is not for us.
        logger.debug("cannot listen for a load balancer", extra={"load_balancer": row.id, "error": str(error)})
        return None
    return _Listening(forwarder, server)


def addresses(members: Sequence[Any]) -> list[Address]:
    """Where the members of a pool are reached; those that have no address are left out."""
    found = [_address(member.metadata, member.addresses, member.port) for member in members]
    return [address for address in found if address is not None]


def _address(metadata: Mapping[str, str], networks: Mapping[str, Any], port: int) -> Address | None:
    given = metadata.get(ADDRESS)
    if given is not None:
        host, _, own = given.replace("{index}", metadata.get("cluster_node_index", "0")).partition(":")
        return host, int(own) if own.isdigit() else port
    fixed = [address["addr"] for each in networks.values() for address in each if address.get("addr")]
    return (fixed[0], port) if fixed else None
