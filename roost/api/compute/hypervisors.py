"""Hypervisors: the hosts and what they can hold."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from roost.api import schemas
from roost.api.compute import views
from roost.api.compute.views import BOOLEAN_WORD, HOST_NAME, LINKS, PAGE, closed_query, next_page, open_query
from roost.api.fields import FieldTable, ShownField
from roost.api.permissions import ADMIN, Permission
from roost.api.routes import Call, Connection, Reply, Table
from roost.api.schemas import INTEGER, NULLABLE_STRING, STRING, Schema, array, boolean, thing
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
_SERVERS = array(thing({"name": STRING, "uuid": schemas.UUID}))
_SEARCH = {**PAGE, "hypervisor_hostname_pattern": HOST_NAME, "with_servers": BOOLEAN_WORD}
_BEFORE_UUIDS, _LAST_AMOUNTS = Version(2, 52), Version(2, 87)

# What may be asked for, from version to version.
_QUERIES: tuple[tuple[str, str | None, Schema | None], ...] = (
    ("2.1", "2.32", None),
    ("2.33", "2.52", open_query(**PAGE)),
    ("2.53", None, closed_query(**_SEARCH)),
)


def _amount(name: str, value: Callable[[ComputeHost | HostTotals], int]) -> ShownField[ComputeHost | HostTotals]:
    return ShownField(name, INTEGER, value, until=_LAST_AMOUNTS)


def _service(identifier: Schema) -> Schema:
    return thing({"id": identifier, "host": STRING, "disabled_reason": NULLABLE_STRING})


def _service_of(host: ComputeHost, identifier: int | str) -> dict[str, Any]:
    return {"id": identifier, "host": host.name, "disabled_reason": host.disabled_reason}


_BRIEF = FieldTable[ComputeHost](
    ShownField("id", INTEGER, lambda host: host.id, until=_BEFORE_UUIDS),
    ShownField("id", schemas.UUID, lambda host: host.uuid, since=_UUIDS),
    ShownField("hypervisor_hostname", STRING, lambda host: host.name),
    ShownField("state", {"enum": ["up", "down"]}, lambda host: "down" if host.forced_down else "up"),
    ShownField("status", {"enum": ["enabled", "disabled"]}, lambda host: "enabled" if host.enabled else "disabled"),
)
_AMOUNTS = FieldTable[ComputeHost | HostTotals](
    _amount("vcpus", lambda host: host.vcpus),
    _amount("memory_mb", lambda host: host.memory_mb),
    _amount("local_gb", lambda host: host.disk_gb),
    _amount("vcpus_used", lambda host: host.vcpus_used),
    _amount("memory_mb_used", lambda host: host.memory_mb_used),
    _amount("local_gb_used", lambda host: host.disk_gb_used),
    _amount("free_ram_mb", lambda host: host.memory_mb - host.memory_mb_used),
    _amount("free_disk_gb", lambda host: host.disk_gb - host.disk_gb_used),
    _amount("disk_available_least", lambda host: host.disk_gb - host.disk_gb_used),
    _amount("current_workload", lambda host: 0),
    _amount("running_vms", lambda host: host.servers),
)
_FULL = FieldTable[ComputeHost](
    *_BRIEF.fields,
    ShownField("hypervisor_type", STRING, lambda host: "roost"),
    ShownField("hypervisor_version", INTEGER, lambda host: 1000),
    ShownField("host_ip", STRING, lambda host: host.address),
    ShownField("service", _service(INTEGER), lambda host: _service_of(host, host.id), until=_BEFORE_UUIDS),
    ShownField("service", _service(schemas.UUID), lambda host: _service_of(host, host.service_uuid), since=_UUIDS),
    *_AMOUNTS.fields,
    ShownField("cpu_info", STRING, lambda host: json.dumps(_CPU), until=Version(2, 27)),
    ShownField("cpu_info", {"type": "object"}, lambda host: _CPU, since=Version(2, 28), until=_LAST_AMOUNTS),
    ShownField("uptime", NULLABLE_STRING, lambda host: None, since=Version(2, 88)),
)


def _listed(table: FieldTable[ComputeHost]) -> Callable[[Version], Schema]:
    """The schema of a list, by version."""

    def schema(version: Version) -> Schema:
        servers = {"servers": _SERVERS} if version >= _UUIDS else {}
        links = {"hypervisors_links": LINKS} if version >= Version(2, 33) else {}
        return thing({"hypervisors": array(table.schema(version, **servers))}, links)

    return schema


def _found(version: Version, **more: Schema) -> Schema:
    return thing({"hypervisors": array(_BRIEF.schema(version, **more))})


def _with_servers(
    call: Call, view: dict[str, Any], host: ComputeHost, servers: Mapping[int, Sequence[HostedServer]]
) -> dict[str, Any]:
    """Before 2.75, a hypervisor without servers had no such key."""
    own = [{"name": server.name, "uuid": server.uuid} for server in servers.get(host.id, ())]
    return {**view, "servers": own} if own or call.version >= Version(2, 75) else view


async def _list(call: Call, table: FieldTable[ComputeHost]) -> Reply:
    pattern = call.query.get("hypervisor_hostname_pattern") if call.version >= _UUIDS else None
    paged = call.version >= Version(2, 33)
    if pattern is not None and ("limit" in call.query or call.query.get("marker")):
        raise Invalid("Paging over hypervisors with the hypervisor_hostname_pattern query parameter is not supported.")
    async with call.services.database.autocommit() as connection:
        page = replace(call.page, marker=call.page.marker or None) if paged and pattern is None else EVERYTHING
        found = await hosts.index(connection, containing=pattern, page=page, by_uuid=call.version >= _UUIDS)
        if pattern is not None and not found:
            raise NotFound(f"No hypervisor matching '{pattern}' could be found.")
        listed = [table.show(host, call.version) for host in found]
        if call.version >= _UUIDS and boolean(call.query.get("with_servers", False)):
            servers = await hosts.servers_on(connection, [host.id for host in found])
            listed = [_with_servers(call, view, host, servers) for view, host in zip(listed, found, strict=True)]
    following = next_page(call, listed, "id") if paged and pattern is None else []
    return {"hypervisors": listed, **({"hypervisors_links": following} if following else {})}


async def _by_id(connection: Connection, text: str, *, by_uuid: bool) -> ComputeHost | None:
    if by_uuid:
        return await hosts.find(connection, uuid=text) if is_uuid(text) else None
    number = views.integer(text)
    return await hosts.find(connection, host_id=number) if number is not None and 0 < number < 2**31 else None


async def _find(call: Call, connection: Connection) -> ComputeHost:
    text = call.path["hypervisor_id"]
    if call.version >= _UUIDS and not is_uuid(text):
        raise Invalid(f"Invalid uuid {text}")
    host = await _by_id(connection, text, by_uuid=call.version >= _UUIDS)
    if host is None:
        raise NotFound(f"Hypervisor with ID '{text}' could not be found.")
    return host


async def index(call: Call) -> Reply:
    """List hypervisors."""
    return await _list(call, _BRIEF)


async def detail(call: Call) -> Reply:
    """List hypervisors with all that is known of them."""
    return await _list(call, _FULL)


for _since, _until, _query in _QUERIES:
    _row: dict[str, Any] = {"since": _since, "until": _until, "query": _query}
    routes.get("/os-hypervisors", rule=_RULE + "list", response=_listed(_BRIEF), **_row)(index)
    routes.get("/os-hypervisors/detail", rule=_RULE + "list-detail", response=_listed(_FULL), **_row)(detail)


def _one(version: Version) -> Schema:
    return thing({"hypervisor": _FULL.schema(version, **({"servers": _SERVERS} if version >= _UUIDS else {}))})


@routes.get("/os-hypervisors/{hypervisor_id}", until="2.52", rule=_RULE + "show", response=_one)
@routes.get(
    "/os-hypervisors/{hypervisor_id}",
    since="2.53",
    rule=_RULE + "show",
    query=closed_query(with_servers=BOOLEAN_WORD),
    response=_one,
)
async def show(call: Call, connection: Connection) -> Reply:
    """Show one hypervisor."""
    host = await _find(call, connection)
    view = _FULL.show(host, call.version)
    if call.version >= _UUIDS and boolean(call.query.get("with_servers", False)):
        view = _with_servers(call, view, host, await hosts.servers_on(connection, [host.id]))
    return {"hypervisor": view}


@routes.get(
    "/os-hypervisors/{hypervisor_id}/uptime",
    until="2.87",
    rule=_RULE + "uptime",
    response=lambda version: thing({"hypervisor": thing(_BRIEF.schema(version)["properties"] | {"uptime": STRING})}),
)
async def uptime(call: Call, connection: Connection) -> Reply:
    """Show how long a hypervisor has been up, in the words of the command of that name."""
    host = await _find(call, connection)
    now = await database.now(connection)
    if host.forced_down:
        raise Invalid(f"Compute service of {host.name} is unavailable at this time.")
    minutes = int((now - host.created_at).total_seconds()) // 60
    days, hours, minutes = minutes // 1440, minutes // 60 % 24, minutes % 60
    words = f" {now:%H:%M:%S} up {days} days, {hours:2}:{minutes:02},  0 users,  load average: 0.00, 0.00, 0.00"
    return {"hypervisor": {**_BRIEF.show(host, call.version), "uptime": words}}


async def _search(call: Call, *, servers: bool) -> Reply:
    pattern = call.path["hypervisor_id"]
    async with call.services.database.autocommit() as connection:
        found = await hosts.index(connection, containing=pattern)
        if not found:
            raise NotFound(f"No hypervisor matching '{pattern}' could be found.")
        on = await hosts.servers_on(connection, [host.id for host in found]) if servers else {}
    return {"hypervisors": [_with_servers(call, _BRIEF.show(host, call.version), host, on) for host in found]}


@routes.get("/os-hypervisors/{hypervisor_id}/search", until="2.52", rule=_RULE + "search", response=_found)
async def search(call: Call) -> Reply:
    """List the hypervisors with this in their names."""
    return await _search(call, servers=False)


@routes.get(
    "/os-hypervisors/{hypervisor_id}/servers",
    until="2.52",
    rule=_RULE + "servers",
    response=lambda version: _found(version, servers=_SERVERS),
)
async def servers(call: Call) -> Reply:
    """List the hypervisors with this in their names, each with its servers."""
    return await _search(call, servers=True)


@routes.get(
    "/os-hypervisors/statistics",
    until="2.87",
    rule=_RULE + "statistics",
    response=thing({"hypervisor_statistics": thing({"count": INTEGER, **_AMOUNTS.schema()["properties"]})}),
)
async def statistics(call: Call, connection: Connection) -> Reply:
    """Show what all enabled hypervisors hold together."""
    total = await hosts.statistics(connection)
    return {"hypervisor_statistics": {"count": total.hosts, **_AMOUNTS.show(total)}}
