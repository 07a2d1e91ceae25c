"""Load balancers of a real OpenStack.

Octavia locks a load balancer for each change, so its parts are made one after the other. It is found again by a tag,
and its parts by what they belong to: a creation that was interrupted is continued, never started again.
"""

import asyncio
import ipaddress
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from openstack import exceptions

from roost.clouds.base import CloudError, CloudRefused, LoadBalancer, LoadBalancerRequest

_POLL_SECONDS = (0.25, 0.25, 0.5, 1.0, 2.0)
_TIMEOUT = 300.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Octavia:
    """The load balancers of one project; `ask` does something with the connection, in a thread."""

    ask: Callable[[Callable[[Any], Any]], Awaitable[Any]]

    async def create(self, request: LoadBalancerRequest) -> LoadBalancer:
        """Make what is missing of a load balancer, and wait until it forwards."""
        vip = await self.ask(lambda connection: _resolved(connection, request.vip))
        balancer = await self._find_or_make(request, vip)
        await self._settled(balancer, request.timeout)
        listener = await self._part(
            balancer,
            request.timeout,
            lambda octavia: octavia.listeners(load_balancer_id=balancer),
            lambda octavia: octavia.create_listener(**_listener(request, balancer)),
        )
        pool = await self._part(
            balancer,
            request.timeout,
            lambda octavia: octavia.pools(loadbalancer_id=balancer),
            lambda octavia: octavia.create_pool(**_pool(request, listener)),
        )
        monitor = None
        if request.health_monitor:
            monitor = await self._part(
                balancer,
                request.timeout,
                lambda octavia: octavia.health_monitors(pool_id=pool),
                lambda octavia: octavia.create_health_monitor(**_monitor(request, pool)),
            )
        shown = await self.ask(lambda connection: connection.load_balancer.get_load_balancer(balancer))
        return LoadBalancer(balancer, listener, pool, monitor, shown.vip_address)

    async def _find_or_make(self, request: LoadBalancerRequest, vip: Mapping[str, Any]) -> str:
        given = _given(
            name=request.name,
            vip_subnet_id=vip.get("subnet"),
            vip_network_id=None if vip.get("subnet") else vip.get("network"),
            vip_address=vip.get("address"),
            availability_zone=request.availability_zone,
            flavor_id=request.flavor,
            tags=[request.token],
        )

        def find_or_make(connection: Any) -> str:
            octavia = connection.load_balancer
            if request.loadbalancer is not None:
                return str(octavia.find_load_balancer(request.loadbalancer, ignore_missing=False).id)
            found = next(iter(octavia.load_balancers(tags=request.token)), None)
            return str((found or octavia.create_load_balancer(**given)).id)

        return str(await self.ask(find_or_make))

    async def _part(self, balancer: str, timeout: float, find: Callable[[Any], Any], make: Callable[[Any], Any]) -> str:
        def find_or_make(connection: Any) -> str:
            octavia = connection.load_balancer
            return str((next(iter(find(octavia)), None) or make(octavia)).id)

        made = str(await self.ask(find_or_make))
        await self._settled(balancer, timeout)
        return made

    async def delete(self, balancer: LoadBalancer) -> None:
        """With all that belongs to it, and wait until it is gone."""

        def delete(connection: Any) -> None:
            connection.load_balancer.delete_load_balancer(balancer.id, cascade=True, ignore_missing=True)

        await self._when_free(balancer.id, delete)
        until = time.monotonic() + _TIMEOUT
        for pause in _pauses():
            shown = await self._shown(balancer.id)
            if shown is None or shown.provisioning_status == "DELETED" or time.monotonic() > until:
                return
            await asyncio.sleep(pause)

    async def add_member(
        self, balancer: LoadBalancer, server_id: str, port: int, subnet: str | None, weight: int
    ) -> str:
        """By the server's address on the subnet, else by its first; a server that is a member already stays the same
        member."""

        def add(connection: Any) -> str:
            found = connection.network.find_subnet(subnet, ignore_missing=False) if subnet else None
            address = _address(connection.compute.get_server(server_id), found)
            octavia = connection.load_balancer
            for member in octavia.members(balancer.pool, address=address, protocol_port=port):
                return str(member.id)
            given = _given(
                name=server_id, address=address, protocol_port=port, weight=weight, subnet_id=found and found.id
            )
            return str(octavia.create_member(balancer.pool, **given).id)

        member = await self._when_free(balancer.id, add)
        await self._settled(balancer.id)
        return member

    async def remove_member(self, balancer: LoadBalancer, member_id: str) -> None:
        """And wait until Octavia has done it."""

        def remove(connection: Any) -> None:
            connection.load_balancer.delete_member(member_id, balancer.pool, ignore_missing=True)

        await self._when_free(balancer.id, remove)
        await self._settled(balancer.id)
        left = await self.ask(lambda connection: connection.load_balancer.find_member(member_id, balancer.pool))
        if left is not None and left.provisioning_status == "ERROR":
            raise CloudRefused(f"The member {member_id} could not be removed from the load balancer {balancer.id}.")

    async def _when_free(self, balancer: str, change: Callable[[Any], T]) -> T:
        """Make a change once no other is being made."""
        until = time.monotonic() + _TIMEOUT
        while True:
            await self._settled(balancer)
            try:
                done: T = await self.ask(lambda connection: _unless_busy(change, connection))
                return done
            except _Busy as busy:
                if time.monotonic() > until:
                    raise CloudError(f"The load balancer is busy: {busy}") from busy

    async def _settled(self, balancer: str, timeout: float = _TIMEOUT) -> None:
        """Wait until nothing is being changed; one that does not exist is not waited for."""
        until = time.monotonic() + timeout
        for pause in _pauses():
            shown = await self._shown(balancer)
            if shown is None or shown.provisioning_status in ("ACTIVE", "DELETED"):
                return
            if shown.provisioning_status == "ERROR":
                raise CloudRefused(f"The load balancer {balancer} is in error.")
            if time.monotonic() > until:
                raise CloudRefused(
                    f"The load balancer {balancer} is {shown.provisioning_status} after {timeout:g} seconds."
                )
            await asyncio.sleep(pause)

    async def _shown(self, balancer: str) -> Any:
        return await self.ask(lambda connection: connection.load_balancer.find_load_balancer(balancer))


class _Busy(Exception):
    """Octavia is still at work on the change before."""


def _unless_busy(change: Callable[[Any], T], connection: Any) -> T:
    try:
        return change(connection)
    except exceptions.ConflictException as error:
        if "immutable" in str(error):
            raise _Busy(str(error)) from error
        raise


def _pauses() -> Any:
    yield from _POLL_SECONDS
    while True:
        yield _POLL_SECONDS[-1]


def _resolved(connection: Any, vip: Mapping[str, Any]) -> dict[str, Any]:
    """The address of the spec, its subnet and network by their ids."""
    resolved = dict(vip)
    if vip.get("subnet"):
        resolved["subnet"] = connection.network.find_subnet(vip["subnet"], ignore_missing=False).id
    if vip.get("network"):
        resolved["network"] = connection.network.find_network(vip["network"], ignore_missing=False).id
    return resolved


def _listener(request: LoadBalancerRequest, balancer: str) -> dict[str, Any]:
    vip = request.vip
    return _given(
        name=request.name,
        load_balancer_id=balancer,
        protocol=vip.get("protocol", "HTTP"),
        protocol_port=vip.get("protocol_port", 80),
        connection_limit=vip.get("connection_limit"),
        is_admin_state_up=vip.get("admin_state_up"),
    )


def _pool(request: LoadBalancerRequest, listener: str) -> dict[str, Any]:
    pool = request.pool
    persistence = pool.get("session_persistence") or {}
    sticky = persistence.get("type") not in (None, "NONE")
    return _given(
        name=request.name,
        listener_id=listener,
        protocol=pool.get("protocol", "HTTP"),
        lb_algorithm=pool.get("lb_method", "ROUND_ROBIN"),
        is_admin_state_up=pool.get("admin_state_up"),
        session_persistence=_given(**persistence) if sticky else None,
    )


def _monitor(request: LoadBalancerRequest, pool: str) -> dict[str, Any]:
    monitor = request.health_monitor or {}
    names = ("type", "delay", "timeout", "max_retries", "http_method", "url_path", "expected_codes")
    given = {name: monitor.get(name) for name in names}
    return _given(pool_id=pool, is_admin_state_up=monitor.get("admin_state_up"), **given)


def _address(server: Any, subnet: Any) -> str:
    addresses = [str(one["addr"]) for net in (server.addresses or {}).values() for one in net]
    if subnet is not None:
        reach = ipaddress.ip_network(subnet.cidr)
        addresses = [address for address in addresses if ipaddress.ip_address(address) in reach]
    if not addresses:
        where = f" on the subnet '{subnet.name}'" if subnet is not None else ""
        raise CloudRefused(f"The server '{server.id}' has no address{where}.")
    return addresses[0]


def _given(**values: Any) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}
