"""Usage: how many hours the servers of a project ran, and how much they held meanwhile."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from roost.api.compute.views import LINKS, PAGE, next_page, open_query, timestamp
from roost.api.permissions import ADMIN, READER, Permission
from roost.api.routes import Call, Reply, Table
from roost.api.schemas import INTEGER, NULLABLE_STRING, STRING, Schema, array, thing
from roost.api.versions import Version
from roost.compute.scheduling import usage
from roost.compute.scheduling.usage import ProjectUse, UsedServer
from roost.errors import Invalid
from roost.store.pages import UnknownMarker
from roost.store.uuids import is_uuid

_RULE = "os_compute_api:os-simple-tenant-usage:"

RULES = (
    Permission(_RULE + "list", ADMIN, "See what all projects have used."),
    Permission(_RULE + "show", READER, "See what one's project has used."),
)

routes = Table(prefix="/v2.1")

_NUMBER: Schema = {"type": "number"}
_SERVER = thing(
    {
        **dict.fromkeys(("flavor", "instance_id", "name", "started_at", "state", "tenant_id"), STRING),
        **dict.fromkeys(("local_gb", "memory_mb", "uptime", "vcpus"), INTEGER),
        "ended_at": NULLABLE_STRING,
        "hours": _NUMBER,
    }
)
_TOTALS = ("total_hours", "total_local_gb_usage", "total_memory_mb_usage", "total_vcpus_usage")
_USAGE = thing(
    {**dict.fromkeys(("tenant_id", "start", "stop"), STRING), **dict.fromkeys(_TOTALS, _NUMBER)},
    {"server_usages": array(_SERVER)},
)
_PERIOD = ("start", "end")
_QUERY = open_query(**PAGE, **dict.fromkeys(_PERIOD, STRING))
_PAGED = Version(2, 40)


@routes.get(
    "/os-simple-tenant-usage",
    rule=_RULE + "list",
    query=_QUERY,
    response=thing({"tenant_usages": array(_USAGE)}, {"tenant_usages_links": LINKS}),
)
async def index(call: Call) -> Reply:
    """What every project used; since 2.40 a page of servers at a time."""
    start, stop = _period(call)
    detailed = call.query.get("detailed") == "1"
    if call.version < _PAGED and not detailed:
        async with call.services.database.autocommit() as connection:
            totals = await usage.totals(connection, start, stop)
        said = _said(start, stop)
        return {"tenant_usages": [{"tenant_id": each.project_id, **said, **_totals(each)} for each in totals]}
    rows = await _servers(call, None)
    by_project: dict[str, list[UsedServer]] = {}
    for row in rows:
        by_project.setdefault(row.project_id, []).append(row)
    views = [_usage(call, project_id, some, detailed) for project_id, some in sorted(by_project.items())]
    return {"tenant_usages": views, **_links(call, "tenant_usages_links", rows)}


@routes.get(
    "/os-simple-tenant-usage/{project_id}",
    rule=_RULE + "show",
    owned=True,
    query=_QUERY,
    response=thing({"tenant_usage": {"anyOf": [_USAGE, thing({})]}}, {"tenant_usage_links": LINKS}),
)
async def show(call: Call) -> Reply:
    """What one project used, server by server."""
    project_id = call.path["project_id"]
    call.permit(_RULE + "show", project_id=project_id)
    rows = await _servers(call, project_id)
    view = _usage(call, project_id, rows, True) if rows else {}
    return {"tenant_usage": view, **_links(call, "tenant_usage_links", rows)}


async def _servers(call: Call, project_id: str | None) -> list[UsedServer]:
    start, stop = _period(call)
    most, marker = call.services.settings.max_limit, None
    limit = most + 1
    if call.version >= _PAGED:
        limit, marker = call.page.limit or most, call.page.marker
        if marker is not None and not is_uuid(marker):
            raise UnknownMarker(marker)
    async with call.services.database.autocommit() as connection:
        rows = await usage.servers_of(connection, start, stop, project_id, limit, marker)
    if call.version < _PAGED and len(rows) > most:
        raise Invalid(f"There were more than {most} servers: ask for them page by page, in version 2.40 or later.")
    return rows


def _links(call: Call, name: str, rows: list[UsedServer]) -> dict[str, Any]:
    links = next_page(call, [{"id": row.id} for row in rows], "id") if call.version >= _PAGED else []
    return {name: links} if links else {}


def _period(call: Call) -> tuple[datetime, datetime]:
    """From `start` to `end`: by default, the last four weeks up to now."""
    now = datetime.now(UTC)
    stop = _moment(call, "end", now)
    start = _moment(call, "start", stop - timedelta(days=28))
    if start > stop:
        raise Invalid("Invalid start time. The start time cannot occur after the end time.")
    return start, min(stop, now)


def _moment(call: Call, name: str, usual: datetime) -> datetime:
    if name not in call.query:
        return usual
    try:
        moment = datetime.fromisoformat(call.query[name])
    except ValueError:
        raise Invalid(f"Datetime is in invalid format: {call.query[name]}") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _said(start: datetime, stop: datetime) -> dict[str, Any]:
    return {"start": timestamp(start), "stop": timestamp(stop)}


def _totals(row: ProjectUse) -> dict[str, float]:
    figures = (row.seconds, row.disk_gb, row.memory_mb, row.vcpus)
    return {name: float(figure) / 3600 for name, figure in zip(_TOTALS, figures, strict=True)}


def _usage(call: Call, project_id: str, rows: Iterable[UsedServer], detailed: bool) -> dict[str, Any]:
    servers = [_server(row) for row in rows]
    totals = {
        "total_hours": sum(each["hours"] for each in servers),
        **{
            f"total_{name}_usage": sum(each["hours"] * each[name] for each in servers)
            for name in ("local_gb", "memory_mb", "vcpus")
        },
    }
    view = {"tenant_id": project_id, **_said(*_period(call)), **totals}
    return {**view, "server_usages": servers} if detailed else view


def _server(row: UsedServer) -> dict[str, Any]:
    return {
        "instance_id": row.id,
        "tenant_id": row.project_id,
        "name": row.name,
        "state": row.state,
        "flavor": row.flavor.name,
        "vcpus": row.flavor.vcpus,
        "memory_mb": row.flavor.memory_mb,
        "local_gb": row.flavor.disk_gb,
        "hours": float(row.seconds) / 3600,
        "uptime": int(((row.ended_at or datetime.now(UTC)) - row.launched_at).total_seconds()),
        "started_at": timestamp(row.launched_at),
        "ended_at": timestamp(row.ended_at),
    }
