"""The load balancers of the embedded cloud, which really forward TCP, so that a balanced cluster can be seen to work.

HAProxy serves them where it is installed, and small forwarders in this process where it is not.

A load balancer listens on its VIP address and port, which the embedded cloud takes from the loopback network unless a
policy asks for another address of this machine. Simulated servers run nothing themselves; what stands for a server is
the address in its metadata, under `roost.address`, in which {index} is the index of its node: with
`roost.address: 127.1.0.{index}:8080` every node of a cluster has its own address. A server without that is
reached at its fixed address, and at the port of the pool.

Every engine runs this; whichever binds an address first serves it, and another takes over when that one ends.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, Protocol

import sqlalchemy as sa

from roost.clouds.haproxy import Address, Haproxy, usable
from roost.store.database import Database
from roost.store.rounds import Rounds
from roost.store.tables.balancers import load_balancer_members, load_balancers
from roost.store.tables.servers import servers

logger = logging.getLogger(__name__)

ADDRESS = "roost.address"
_LOOK_SECONDS = 1.0
_CONNECT_SECONDS = 3.0
_CHUNK = 1 << 16


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


class Listening(Protocol):
    """A load balancer that is being served."""

    async def serve(self, members: Sequence[Address], /) -> None:
        """Hand connections on to these members from now on."""

    async def close(self) -> None:
        """Stop serving."""


@dataclass(slots=True)
class _Forwarding:
    forwarder: Forwarder
    server: asyncio.Server

    async def serve(self, members: Sequence[Address]) -> None:
        self.forwarder.members = list(members)

    async def close(self) -> None:
        self.server.close()


class _LoadBalancer(NamedTuple):
    id: str
    vip_address: str
    spec: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Service:
    database: Database
    haproxy: str | None
    folder: Path
    listening: dict[str, Listening] = field(default_factory=dict)


async def run(database: Database, haproxy: str | None, rounds: Rounds) -> None:
    """Serve every load balancer, by HAProxy if there is a path to it, until cancelled."""
    with TemporaryDirectory(prefix="roost-balancers-", ignore_cleanup_errors=True) as folder:
        service = _Service(database, haproxy, Path(folder))
        try:
            await rounds.every(_LOOK_SECONDS, partial(_reconcile, service))
        finally:
            await asyncio.gather(*(each.close() for each in service.listening.values()))


async def _reconcile(service: _Service) -> None:
    """Listen for those that are new, stop for those that are gone, and bring the members of all up to date."""
    async with service.database.begin() as connection:
        balancers = [_LoadBalancer(*row) for row in await connection.execute(_BALANCERS)]
        members = (await connection.execute(_MEMBERS)).all() if balancers else []
    listening = service.listening
    for gone in set(listening) - {each.id for each in balancers}:
        await listening.pop(gone).close()
    for each in balancers:
        if each.id not in listening:
            found = await _listen(service, each)
            if found is None:
                continue
            listening[each.id] = found
        own = [member for member in members if member.load_balancer_id == each.id]
        await listening[each.id].serve(addresses(own))


_BALANCERS = sa.select(*(load_balancers.c[name] for name in _LoadBalancer._fields))
_MEMBERS = (
    sa.select(load_balancer_members, servers.c.metadata, servers.c.addresses)
    .join(servers, sa.cast(servers.c.id, sa.Text) == load_balancer_members.c.server_id)
    .order_by(load_balancer_members.c.load_balancer_id, load_balancer_members.c.id)
)


async def _listen(service: _Service, balancer: _LoadBalancer) -> Listening | None:
    vip, pool = balancer.spec.get("vip") or {}, balancer.spec.get("pool") or {}
    method, limit = pool.get("lb_method") or "ROUND_ROBIN", int(vip.get("connection_limit") or -1)
    address = (balancer.vip_address, int(vip.get("protocol_port") or 80))
    if service.haproxy is not None and usable(address):
        own = service.folder / balancer.id
        own.mkdir(exist_ok=True)
        return Haproxy(service.haproxy, own, address, method, limit)
    forwarder = Forwarder(method, limit)
    try:
        server = await asyncio.start_server(forwarder.handle, *address)
    except OSError as error:
        # Another engine has it, the address is not ours, or the port is not for us.
        logger.debug("cannot listen for a load balancer", extra={"load_balancer": balancer.id, "error": str(error)})
        return None
    return _Forwarding(forwarder, server)


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
