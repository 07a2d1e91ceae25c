"""Hypervisors: the hosts and what they can hold."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from roost.api import schemas
from roost.api.compute import views
from roost.api.compute.views import BOOLEAN_WORD, HOST_NAME, LINKS, PAGE, closed_query, next_page, open_query
from roost.api.permissions import ADMIN, Permission
from roost.api.routes import Call, Reply, Table
from roost.api.schemas import NULLABLE_STRING, STRING, Schema, array, boolean, thing
from roost.api.versions import Version
from roost.compute.inventory import hosts
from roost.compute.inventory.hosts import ComputeHost, HostedServer, HostTotals
from roost.errors import Invalid, NotFound
from roost.store import database
from roost.store.pages import EVERYTHING
from roost.store.uuids import is_uuid

routes = Table(prefix="/v2.1")

_RULE = "os_compute_api:os-hypervisors:"
RULES = (
    Permission(_RULE + "list", ADMIN, "List hypervisors."),
    Permission(_RULE + "list-detail", ADMIN, "List hypervisors with details."),
    Permission(_RULE + "statistics", ADMIN, "Show what all hypervisors hold together."),
    Permission(_RULE + "show", ADMIN, "Show a hypervisor."),
    Permission(_RULE + "uptime", ADMIN, "Show how long a hypervisor has been up."),
    Permission(_RULE + "search", ADMIN, "Search hypervisors by name."),
    Permission(_RULE + "servers", ADMIN, "List the servers on hypervisors found by name."),
)

_CPU = {
    "arch": "x86_64",
    "model": "simulated",
    "vendor": "Roost",
    "features": [],
    "topology": {"cores": 1, "threads": 1, "sockets": 1},
}
_UUIDS = Version(2, 53)
_INTEGER: Schema = {"type": "integer"}
_SERVERS = array(thing({"name": STRING, "uuid": schemas.UUID}))
_WITH_SERVERS = {"with_servers": BOOLEAN_WORD}
_SEARCH = {**PAGE, "hypervisor_hostname_pattern": HOST_NAME, **_WITH_SERVERS}
_AMOUNTS = (
    *("vcpus", "memory_mb", "local_gb", "vcpus_used", "memory_mb_used", "local_gb_used"),
    *("free_ram_mb", "free_disk_gb", "current_workload", "running_vms", "disk_available_least"),
)


def _brief(identifier: Schema = _INTEGER) -> dict[str, Schema]:
    return {
        "id": identifier,
        "hypervisor_hostname": STRING,
        "state": {"enum": ["up", "down"]},
        "status": {"enum": ["enabled", "disabled"]},
    }


def _full(identifier: Schema = _INTEGER, **more: Schema) -> dict[str, Schema]:
    service = thing({"id": identifier, "host": STRING, "disabled_reason": NULLABLE_STRING})
    kind = {"hypervisor_type": STRING, "hypervisor_version": _INTEGER, "host_ip": STRING}
    return {**_brief(identifier), **kind, "service": service, **more}


_AMOUNT_SCHEMAS = dict.fromkeys(_AMOUNTS, _INTEGER)
_FULL_2_1 = _full(**_AMOUNT_SCHEMAS, cpu_info=STRING)
_FULL_2_28 = _full(**_AMOUNT_SCHEMAS, cpu_info={"type": "object"})
_FULL_2_53 = _full(schemas.UUID, **_AMOUNT_SCHEMAS, cpu_info={"type": "object"})
_FULL_2_88 = _full(schemas.UUID, uptime=NULLABLE_STRING)


def _many(properties: dict[str, Schema], *, paged: bool = True, servers: bool = False) -> Schema:
    listed = array(thing(properties, {"servers": _SERVERS} if servers else {}))
    return thing({"hypervisors": listed}, {"hypervisors_links": LINKS} if paged else {})


def _one(properties: dict[str, Schema], *, servers: bool = False) -> Schema:
    return thing({"hypervisor": thing(properties, {"servers": _SERVERS} if servers else {})})


def _view(call: Call, host: ComputeHost, *, detail: bool = False) -> dict[str, Any]:
    by_uuid = call.version >= _UUIDS
    view: dict[str, Any] = {
        "id": host.uuid if by_uuid else host.id,
        "hypervisor_hostname": host.name,
        "state": "down" if host.forced_down else "up",
        "status": "enabled" if host.enabled else "disabled",
    }
    if not detail:
        return view
    service = {"id": host.service_uuid if by_uuid else host.id, "host": host.name}
    view |= {
        "hypervisor_type": "roost",
        "hypervisor_version": 1000,
        "host_ip": host.address,
        "service": {**service, "disabled_reason": host.disabled_reason},
    }
    return view | ({"uptime": None} if call.version >= Version(2, 88) else _amounts(call, host))


def _amounts(call: Call, host: ComputeHost | HostTotals) -> dict[str, Any]:
    free_disk = host.disk_gb - host.disk_gb_used
    return {
        "vcpus": host.vcpus,
        "memory_mb": host.memory_mb,
        "local_gb": host.disk_gb,
        "vcpus_used": host.vcpus_used,
        "memory_mb_used": host.memory_mb_used,
        "local_gb_used": host.disk_gb_used,
        "free_ram_mb": host.memory_mb - host.memory_mb_used,
        "free_disk_gb": free_disk,
        "disk_available_least": free_disk,
        "current_workload": 0,
        "running_vms": host.servers,
        "cpu_info": _CPU if call.version >= Version(2, 28) else json.dumps(_CPU),
    }


def _with_servers(
    call: Call, view: dict[str, Any], host: ComputeHost, servers: Mapping[int, Sequence[HostedServer]]
) -> dict[str, Any]:
    """Before 2.75, a hypervisor without servers had no such key."""
    own = [{"name": server.name, "uuid": server.uuid} for server in servers.get(host.id, ())]
    return {**view, "servers": own} if own or call.version >= Version(2, 75) else view


async def _list(call: Call, *, detail: bool) -> Reply:
    pattern = call.query.get("hypervisor_hostname_pattern") if call.version >= _UUIDS else None
    paged = call.version >= Version(2, 33)
    if pattern is not None and ("limit" in call.query or call.query.get("marker")):
        raise Invalid("Paging over hypervisors with the hypervisor_hostname_pattern query parameter is not supported.")
    async with call.services.database.begin() as connection:
        page = replace(call.page, marker=call.page.marker or None) if paged and pattern is None else EVERYTHING
        found = await hosts.index(connection, containing=pattern, page=page, by_uuid=call.version >= _UUIDS)
        if pattern is not None and not found:
            raise NotFound(f"No hypervisor matching '{pattern}' could be found.")
        listed = [_view(call, host, detail=detail) for host in found]
        if call.version >= _UUIDS and boolean(call.query.get("with_servers", False)):
            servers = await hosts.servers_on(connection, [host.id for host in found])
            listed = [_with_servers(call, view, host, servers) for view, host in zip(listed, found, strict=True)]
    following = next_page(call, listed, "id") if paged and pattern is None else []
    return {"hypervisors": listed, **({"hypervisors_links": following} if following else {})}


async def _by_id(connection: AsyncConnection, text: str, *, by_uuid: bool) -> ComputeHost | None:
    if by_uuid:
        return await hosts.find(connection, uuid=text) if is_uuid(text) else None
    number = views.integer(text)
    return await hosts.find(connection, host_id=number) if number is not None and 0 < number < 2**31 else None


async def _find(call: Call, connection: AsyncConnection) -> ComputeHost:
    text = call.path["hypervisor_id"]
    if call.version >= _UUIDS and not is_uuid(text):
        raise Invalid(f"Invalid uuid {text}")
    host = await _by_id(connection, text, by_uuid=call.version >= _UUIDS)
    if host is None:
        raise NotFound(f"Hypervisor with ID '{text}' could not be found.")
    return host


@routes.get("/os-hypervisors", until="2.32", rule=_RULE + "list", response=_many(_brief(), paged=False))
@routes.get(
    "/os-hypervisors",
    since="2.33",
    until="2.52",
    rule=_RULE + "list",
    query=open_query(**PAGE),
    response=_many(_brief()),
)
@routes.get(
    "/os-hypervisors",
    since="2.53",
    rule=_RULE + "list",
    query=closed_query(**_SEARCH),
    response=_many(_brief(schemas.UUID), servers=True),
)
async def index(call: Call) -> Reply:
    """List hypervisors."""
    return await _list(call, detail=False)


_DETAIL = {"rule": _RULE + "list-detail"}


@routes.get("/os-hypervisors/detail", until="2.27", response=_many(_FULL_2_1, paged=False), **_DETAIL)
@routes.get("/os-hypervisors/detail", since="2.28", until="2.32", response=_many(_FULL_2_28, paged=False), **_DETAIL)
@routes.get(
    "/os-hypervisors/detail",
    since="2.33",
    until="2.52",
    query=open_query(**PAGE),
    response=_many(_FULL_2_28),
    **_DETAIL,
)
@routes.get(
    "/os-hypervisors/detail",
    since="2.53",
    until="2.87",
    query=closed_query(**_SEARCH),
    response=_many(_FULL_2_53, servers=True),
    **_DETAIL,
)
@routes.get(
    "/os-hypervisors/detail",
    since="2.88",
    query=closed_query(**_SEARCH),
    response=_many(_FULL_2_88, servers=True),
    **_DETAIL,
)
async def detail(call: Call) -> Reply:
    """List hypervisors with all that is known of them."""
    return await _list(call, detail=True)


_SHOW = {"rule": _RULE + "show"}


@routes.get("/os-hypervisors/{hypervisor_id}", until="2.27", response=_one(_FULL_2_1), **_SHOW)
@routes.get("/os-hypervisors/{hypervisor_id}", since="2.28", until="2.52", response=_one(_FULL_2_28), **_SHOW)
@routes.get(
    "/os-hypervisors/{hypervisor_id}",
    since="2.53",
    until="2.87",
    query=closed_query(**_WITH_SERVERS),
    response=_one(_FULL_2_53, servers=True),
    **_SHOW,
)
@routes.get(
    "/os-hypervisors/{hypervisor_id}",
    since="2.88",
    query=closed_query(**_WITH_SERVERS),
    response=_one(_FULL_2_88, servers=True),
    **_SHOW,
)
async def show(call: Call) -> Reply:
    """Show one hypervisor."""
    async with call.services.database.begin() as connection:
        host = await _find(call, connection)
        view = _view(call, host, detail=True)
        if call.version >= _UUIDS and boolean(call.query.get("with_servers", False)):
            view = _with_servers(call, view, host, await hosts.servers_on(connection, [host.id]))
    return {"hypervisor": view}


@routes.get(
    "/os-hypervisors/{hypervisor_id}/uptime",
    until="2.52",
    rule=_RULE + "uptime",
    response=_one({**_brief(), "uptime": STRING}),
)
@routes.get(
    "/os-hypervisors/{hypervisor_id}/uptime",
    since="2.53",
    until="2.87",
    rule=_RULE + "uptime",
    response=_one({**_brief(schemas.UUID), "uptime": STRING}),
)
async def uptime(call: Call) -> Reply:
    """Show how long a hypervisor has been up, in the words of the command of that name."""
    async with call.services.database.begin() as connection:
        host = await _find(call, connection)
        now = await database.now(connection)
    if host.forced_down:
        raise Invalid(f"Compute service of {host.name} is unavailable at this time.")
    minutes = int((now - host.created_at).total_seconds()) // 60
    days, hours, minutes = minutes // 1440, minutes // 60 % 24, minutes % 60
    words = f" {now:%H:%M:%S} up {days} days, {hours:2}:{minutes:02},  0 users,  load average: 0.00, 0.00, 0.00"
    return {"hypervisor": {**_view(call, host), "uptime": words}}


async def _search(call: Call, *, servers: bool) -> Reply:
    pattern = call.path["hypervisor_id"]
    async with call.services.database.begin() as connection:
        found = await hosts.index(connection, containing=pattern)
        if not found:
            raise NotFound(f"No hypervisor matching '{pattern}' could be found.")
        on = await hosts.servers_on(connection, [host.id for host in found]) if servers else {}
    return {"hypervisors": [_with_servers(call, _view(call, host), host, on) for host in found]}


@routes.get(
    "/os-hypervisors/{hypervisor_id}/search",
    until="2.52",
    rule=_RULE + "search",
    response=_many(_brief(), paged=False),
)
async def search(call: Call) -> Reply:
    """List the hypervisors with this in their names."""
    return await _search(call, servers=False)


@routes.get(
    "/os-hypervisors/{hypervisor_id}/servers",
    until="2.52",
    rule=_RULE + "servers",
    response=_many(_brief(), paged=False, servers=True),
)
async def servers(call: Call) -> Reply:
    """List the hypervisors with this in their names, each with its servers."""
    return await _search(call, servers=True)


@routes.get(
    "/os-hypervisors/statistics",
    until="2.87",
    rule=_RULE + "statistics",
    response=thing({"hypervisor_statistics": thing({"count": _INTEGER, **_AMOUNT_SCHEMAS})}),
)
async def statistics(call: Call) -> Reply:
    """Show what all enabled hypervisors hold together."""
    async with call.services.database.begin() as connection:
        total = await hosts.statistics(connection)
    amounts = {name: value for name, value in _amounts(call, total).items() if name != "cpu_info"}
    return {"hypervisor_statistics": {"count": total.hosts, **amounts}}
