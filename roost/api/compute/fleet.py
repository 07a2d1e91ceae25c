"""The map of the fleet, from 2.1003 on: aggregates with counts, hosts where they are opened, and a feed of changes.

Callers who may see all (`all`, the admin) see every host; others see the servers of their own project, in aggregates
that are named as each scope allows.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Collection
from typing import Any

from starlette.responses import StreamingResponse

from roost.api import metrics, schemas
from roost.api.compute import server_groups
from roost.api.fields import FieldTable, ShownField, given
from roost.api.permissions import ADMIN, READER, Permission
from roost.api.routes import Call, Connection, Reply, Table
from roost.api.schemas import Schema, array, thing
from roost.compute.answers import fleet_map
from roost.compute.answers.fleet_map import MapAggregate, MapHost
from roost.compute.answers.violations import BrokenRule
from roost.compute.groups.identifiers import Identifiers
from roost.compute.inventory.scopes import Scope, load_scopes
from roost.errors import NotFound, Unauthorized
from roost.store import watch

routes = Table(prefix="/v2.1")

INDEX = "os_compute_api:os-fleet:index"
ALL = "os_compute_api:os-fleet:all"

RULES = (
    Permission(INDEX, READER, "See where the project's servers are, by aggregates, and follow changes."),
    Permission(
        ALL,
        ADMIN,
        "See all hosts, aggregates, servers and violations on the map. As these are named, it also takes "
        f"{server_groups.REAL}.",
    ),
)

_FIRST = "2.1003"
_ZONE = "availability_zone"
_EVERY = "all"
_MOST_VIOLATIONS = 200
_PATIENCE = 15.0
_PAUSE = 0.2
"""Changes that come within so many seconds are sent together."""

_COUNT: Schema = {"type": "integer", "minimum": 0}
_USE = array({"type": "integer"}, minItems=2, maxItems=2)
_SERVER = thing(
    {
        "id": schemas.STRING,
        "name": schemas.STRING,
        "server_group_id": schemas.NULLABLE_STRING,
        "state": schemas.STRING,
        "project_id": schemas.STRING,
        "violates": {"type": "boolean"},
    }
)
_HOST = thing(
    {"name": schemas.STRING, "enabled": {"type": "boolean"}, "servers": array(_SERVER)},
    {"vcpus": _USE, "memory_mb": _USE, "reason": schemas.NULLABLE_STRING},
)


def _host_view(host: MapHost) -> dict[str, Any]:
    marks = [
        {
            "id": server.id,
            "name": server.name,
            "server_group_id": server.group_id,
            "state": server.status,
            "project_id": server.project_id,
            "violates": server.broken,
        }
        for server in host.servers
    ]
    view: dict[str, Any] = {"name": host.name, "enabled": host.enabled, "servers": marks}
    if host.vcpus is not None and host.memory_mb is not None:
        view |= {"vcpus": list(host.vcpus), "memory_mb": list(host.memory_mb), "reason": host.reason}
    return view


def _opened(tile: MapAggregate) -> list[dict[str, Any]] | None:
    return None if tile.opened is None else [_host_view(host) for host in tile.opened]


_AGGREGATE = FieldTable[MapAggregate](
    ShownField("id", schemas.STRING, lambda tile: tile.id),
    ShownField("name", schemas.NULLABLE_STRING, lambda tile: tile.name),
    ShownField("zone", schemas.STRING, lambda tile: tile.zone),
    ShownField("servers", _COUNT, lambda tile: tile.servers),
    ShownField("violations", _COUNT, lambda tile: tile.violations),
    ShownField("hosts", {"oneOf": [array(_HOST), schemas.NULL]}, _opened),
    ShownField("host_count", _COUNT, lambda tile: tile.hosts, when=lambda tile: tile.hosts is not None),
    given("disabled", _COUNT),
    given("load", {"type": "number"}),
    given("members", _COUNT),
)
_VIOLATION = FieldTable[BrokenRule](
    *server_groups.BREACH.fields,
    ShownField("server_group_id", schemas.STRING, lambda broken: broken.group_id),
    ShownField("server_group_name", schemas.STRING, lambda broken: broken.group_name),
    ShownField("project_id", schemas.STRING, lambda broken: broken.project_id),
)
_FLEET = thing(
    {
        "scope": schemas.STRING,
        # Whether the caller may use a scope's identifiers elsewhere; else they were made up for this one answer.
        "scopes": array(thing({"name": schemas.STRING, "named": {"type": "boolean"}})),
        "all": {"type": "boolean"},
        "aggregates": array(_AGGREGATE.schema()),
        "groups": array(thing({"id": schemas.STRING, "name": schemas.STRING, "project_id": schemas.STRING})),
        "violations": array(_VIOLATION.schema()),
        "violation_count": _COUNT,
        "violating": array(thing({"zone": schemas.STRING, "id": schemas.STRING, "violations": _COUNT})),
    }
)
_TEXT: Schema = {"type": "string", "maxLength": 255}
_SCOPE: dict[str, Schema] = {"scope": _TEXT}
_QUERY: Schema = {
    "type": "object",
    "properties": {**_SCOPE, "open": _TEXT, "only": _TEXT, "group": _TEXT, "members": {"enum": ["1"]}},
    "additionalProperties": False,
}
_EVENTS_QUERY: Schema = {"type": "object", "properties": _SCOPE, "additionalProperties": False}


def sees_all(call: Call) -> bool:
    """Whether the caller sees the whole cloud, by its real names."""
    return call.may(ALL) and server_groups.sees_real_names(call)


def _asked(call: Call, name: str) -> list[str]:
    return [value for key, value in call.queries if key == name]


async def _scopes(call: Call, connection: Connection) -> tuple[dict[str, Scope], Scope]:
    """All scopes, and the one asked for: the zones, if none is."""
    known = await load_scopes(connection)
    name = call.query.get("scope", _ZONE)
    if name not in known or not fleet_map.divides(known[name]):
        raise NotFound(f"There is no map by the policy scope {name}.")
    return known, known[name]


@routes.get("/os-fleet", since=_FIRST, rule=INDEX, query=_QUERY, response=thing({"fleet": _FLEET}))
async def index(call: Call, connection: Connection) -> Reply:
    """Show the fleet by the aggregates of a `scope`: those that are to `open` with their hosts, `only` some if asked,
    and how many `members` of a `group` each holds, or those alone that hold any."""
    everything = sees_all(call)
    group_id = call.query.get("group")
    known, scope = await _scopes(call, connection)
    broken = await call.services.violations.now(connection)
    real = server_groups.sees_real_names(call)
    identifiers = Identifiers(known, call.caller.project_id or "", real=real)
    if everything:
        opened = _asked(call, "open")
        found = await fleet_map.of_all(
            connection,
            call.services.scheduler.live,
            scope,
            broken,
            only=_asked(call, "only") or None,
            opened=None if _EVERY in opened else opened,
            group_id=group_id,
            members="members" in call.query,
        )
    else:
        project_id = call.caller.project_id or ""
        broken = [each for each in broken if each.project_id == project_id]
        found = await fleet_map.of_project(connection, scope, identifiers, project_id, broken, group_id=group_id)
    listed = broken[:_MOST_VIOLATIONS]
    shown = [_VIOLATION.show(each.shown(identifiers)) for each in listed]
    return {
        "fleet": {
            "scope": scope.name,
            "scopes": [
                {"name": name, "named": identifiers.real or each.allow_identifiers}
                for name, each in known.items()
                if fleet_map.divides(each)
            ],
            "all": everything,
            "aggregates": [_AGGREGATE.show(each) for each in found.aggregates],
            "groups": [
                {"id": group, "name": name, "project_id": project}
                for group, (name, project) in sorted(found.groups.items())
            ],
            "violations": shown,
            "violation_count": len(broken),
            "violating": [
                {"zone": zone, "id": aggregate, "violations": number}
                for (zone, aggregate), number in sorted(found.violating.items())
            ],
        }
    }


# The feed


@routes.get("/os-fleet/events", since=_FIRST, rule=INDEX, query=_EVENTS_QUERY)
async def follow(call: Call, connection: Connection) -> Reply:
    """Follow changes as server-sent events: which aggregates of the `scope`, groups and clusters to look at again."""
    _, scope = await _scopes(call, connection)
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(_events(call, scope), media_type=metrics.ENDLESS, headers=headers)


async def _events(call: Call, scope: Scope) -> AsyncIterator[str]:
    everything = sees_all(call)

    def concerns(change: watch.WatchedChange) -> bool:
        return everything or change.kind == watch.HOSTS or change.project_id == call.caller.project_id

    async with call.services.watch.look(concerns) as watcher:
        yield _event("hello", {})
        while True:
            changes = await watcher.take(_PATIENCE)
            if changes is None or not await _still(call):
                yield _event("bye", {})
                return
            if not changes:
                yield _event("beat", {})
                continue
            news = await _news(call, scope, changes, everything)
            if news:
                yield _event("change", news)
            await asyncio.sleep(_PAUSE)


async def _still(call: Call) -> bool:
    """Whether the token still speaks for the same caller, with the same roles."""
    try:
        return await call.identify() == call.caller
    except Unauthorized:
        return False


async def _news(call: Call, scope: Scope, changes: watch.Changes, everything: bool) -> dict[str, Any]:
    """What to look at again; null is all of it. A project, which sees no real identifiers, looks at all tiles."""
    news: dict[str, Any] = {
        kind: None if ids is None else sorted(ids)
        for kind, ids in changes.items()
        if kind in (watch.GROUPS, watch.CLUSTERS)
    }
    touched = [changes[kind] for kind in (watch.SERVERS, watch.HOSTS) if kind in changes]
    if touched:
        hosts = None if None in touched else {int(each) for ids in touched for each in ids or ()}
        # A host may have left an aggregate, and which one is no longer known: then all of them.
        if hosts is None or (everything and watch.HOSTS in changes):
            news["aggregates"] = None
        elif everything:
            news["aggregates"] = await _aggregates(call, scope, hosts)
        elif watch.SERVERS in changes or await _carry(call, hosts):
            news["aggregates"] = None
    return news


async def _aggregates(call: Call, scope: Scope, hosts: Collection[int]) -> list[str]:
    async with call.services.database.autocommit() as connection:
        return await fleet_map.aggregates_of(connection, scope, hosts)


async def _carry(call: Call, hosts: Collection[int]) -> bool:
    """Whether any of these hosts carries a server of the caller's project."""
    async with call.services.database.autocommit() as connection:
        return await fleet_map.has_servers_on(connection, call.caller.project_id or "", hosts)


def _event(name: str, data: dict[str, Any]) -> str:
    return f"event: {name}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n"
