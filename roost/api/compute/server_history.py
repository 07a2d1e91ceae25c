"""What happened to servers: instance actions and migrations."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.api.compute.server_view import host_id
from roost.api.compute.servers import owned
from roost.api.compute.views import timestamp
from roost.api.permissions import ADMIN, READER, Permission
from roost.api.routes import Call, Reply, Table
from roost.api.schemas import INTEGER, NULL, NULLABLE_STRING, STRING, Schema, array, since, thing
from roost.api.versions import Version
from roost.compute.scheduling import deleted, servers
from roost.errors import NotFound

_ACTIONS = "os_compute_api:os-instance-actions:"
_MIGRATIONS = "os_compute_api:os-migrations:index"

RULES = (
    Permission(_ACTIONS + "list", READER, "List what was done to a server."),
    Permission(_ACTIONS + "show", READER, "Show one thing that was done to a server."),
    Permission(_MIGRATIONS, ADMIN, "List moves of servers."),
    Permission("os_compute_api:servers:migrations:index", ADMIN, "List the live migrations of a server under way."),
    Permission("os_compute_api:servers:migrations:show", ADMIN, "Show a live migration of a server under way."),
)

routes = Table(prefix="/v2.1")

_TEXTS = ("action", "instance_uuid", "project_id", "request_id", "start_time", "user_id")
_MOVED = ("status", "instance_uuid", "created_at", "migration_type", "uuid", "user_id", "project_id")
_WHERE = ("source_compute", "source_node", "dest_compute", "dest_node", "dest_host", "updated_at")
_MIGRATION: dict[str, Schema] = {
    **dict.fromkeys(("id", "old_instance_type_id", "new_instance_type_id"), INTEGER),
    **dict.fromkeys(_MOVED, STRING),
    **dict.fromkeys(_WHERE, NULLABLE_STRING),
    "links": {"const": []},
}


def _action_shape(version: Version, **more: Schema) -> Schema:
    shape = dict.fromkeys(_TEXTS, STRING) | {"message": NULLABLE_STRING} | more
    return thing({**shape, "updated_at": STRING} if version >= Version(2, 58) else shape)


def _listed_shape(version: Version) -> Schema:
    return thing({"instanceActions": array(_action_shape(version))})


def _shown_shape(version: Version) -> Schema:
    event: dict[str, Schema] = {"event": STRING, "start_time": STRING}
    event |= dict.fromkeys(("finish_time", "result"), NULLABLE_STRING)
    operators: dict[str, Schema] = {}
    if version < Version(2, 51):
        event["traceback"] = NULL
    else:
        operators["traceback"] = NULL
    if version >= Version(2, 62):
        event["hostId"] = operators["host"] = STRING
    if version >= Version(2, 84):
        event["details"] = NULL
    return thing({"instanceAction": _action_shape(version, events=array(thing(event, operators)))})


def _migrations_shape(version: Version) -> Schema:
    known = {"migration_type": Version(2, 23), "links": Version(2, 23), "uuid": Version(2, 59)}
    known |= dict.fromkeys(("user_id", "project_id"), Version(2, 80))
    return thing({"migrations": array(since(version, known, _MIGRATION))})


def _action(call: Call, row: sa.Row[Any]) -> dict[str, Any]:
    view = {
        "action": row.action,
        "instance_uuid": row.server_id,
        "message": row.message,
        "project_id": row.project_id,
        "request_id": row.request_id,
        "start_time": timestamp(row.start_time),
        "user_id": row.user_id,
    }
    if call.version >= Version(2, 58):
        view["updated_at"] = timestamp(row.finish_time or row.start_time)
    return view


async def _history(call: Call, connection: AsyncConnection, rule: str) -> tuple[servers.Server, Sequence[Any]]:
    """A server and what was done to it; since 2.21 also one that was deleted."""
    server_id = call.path["server_id"]
    try:
        server = await owned(call, connection, rule)
    except NotFound:
        if call.version < Version(2, 21):
            raise
    else:
        return server, await servers.actions_of(connection, server.id)
    gone, done = await deleted.find(connection, server_id)
    if gone.project_id != call.caller.project_id and not call.caller.is_admin:
        raise NotFound(f"Instance {server_id} could not be found.")
    call.permit(rule, project_id=gone.project_id)
    return gone, done


@routes.get("/servers/{server_id}/os-instance-actions", rule=_ACTIONS + "list", owned=True, response=_listed_shape)
async def index(call: Call) -> Reply:
    """List what was done to a server, the newest first."""
    async with call.services.database.begin() as connection:
        _, rows = await _history(call, connection, _ACTIONS + "list")
    return {"instanceActions": [_action(call, row) for row in rows]}


@routes.get(
    "/servers/{server_id}/os-instance-actions/{request_id}",
    rule=_ACTIONS + "show",
    owned=True,
    response=_shown_shape,
)
async def show(call: Call) -> Reply:
    """Show what one request did to a server, and how it went."""
    async with call.services.database.begin() as connection:
        server, rows = await _history(call, connection, _ACTIONS + "show")
    for row in rows:
        if row.request_id == call.path["request_id"]:
            return {"instanceAction": {**_action(call, row), "events": _events(call, row, server)}}
    raise NotFound(f"Action {call.path['request_id']} for instance {server.id} could not be found.")


def _events(call: Call, row: sa.Row[Any], server: servers.Server) -> list[dict[str, Any]]:
    event: dict[str, Any] = {
        "event": f"compute_{row.action}",
        "start_time": timestamp(row.start_time),
        "finish_time": timestamp(row.finish_time),
        "result": None if row.finish_time is None else "Error" if row.message else "Success",
    }
    if call.caller.is_admin or call.version < Version(2, 51):
        event["traceback"] = None
    if call.version >= Version(2, 62):
        event["hostId"] = host_id(server)
        if call.caller.is_admin:
            event["host"] = server.host or ""
    if call.version >= Version(2, 84):
        event["details"] = None
    return [event]


@routes.get("/os-migrations", rule=_MIGRATIONS, response=_migrations_shape)
async def migrations(call: Call) -> Reply:
    """List moves of servers, the newest first."""
    async with call.services.database.begin() as connection:
        rows = await servers.migrations_of(
            connection,
            server_id=call.query.get("instance_uuid"),
            status=call.query.get("status"),
            host=call.query.get("host"),
            kind=call.query.get("migration_type"),
        )
    return {"migrations": [_migration(call, row) for row in rows]}


_ONGOING = "os_compute_api:servers:migrations:"
_BYTES = tuple(f"{what}_{part}_bytes" for what in ("memory", "disk") for part in ("total", "processed", "remaining"))
_LIVE: dict[str, Schema] = {
    "id": INTEGER,
    **dict.fromkeys(("server_uuid", "status", "created_at", "uuid", "user_id", "project_id"), STRING),
    **dict.fromkeys((*_WHERE, "dest_host"), NULLABLE_STRING),
    **dict.fromkeys(_BYTES, NULL),
}


def _live_shape(version: Version) -> Schema:
    known = {"uuid": Version(2, 59), "user_id": Version(2, 80), "project_id": Version(2, 80)}
    return since(version, known, _LIVE)


@routes.get(
    "/servers/{server_id}/migrations",
    since="2.23",
    rule=_ONGOING + "index",
    owned=True,
    response=lambda version: thing({"migrations": array(_live_shape(version))}),
)
async def index_ongoing(call: Call) -> Reply:
    """The live migrations of a server that are under way."""
    return {"migrations": await _under_way(call, "index")}


@routes.get(
    "/servers/{server_id}/migrations/{migration_id}",
    since="2.23",
    rule=_ONGOING + "show",
    owned=True,
    response=lambda version: thing({"migration": _live_shape(version)}),
)
async def show_ongoing(call: Call) -> Reply:
    """A live migration of a server that is under way."""
    for view in await _under_way(call, "show"):
        if str(view["id"]) == call.path["migration_id"]:
            return {"migration": view}
    raise NotFound(f"Migration {call.path['migration_id']} for server {call.path['server_id']} could not be found.")


async def _under_way(call: Call, verb: str) -> list[dict[str, Any]]:
    async with call.services.database.begin() as connection:
        server = await owned(call, connection, _ONGOING + verb)
        found = await servers.migrations_of(connection, server_id=server.id, status="running", kind="live-migration")
    views = []
    for row in found:
        view = {**_migration(call, row), **dict.fromkeys(_BYTES)}
        view["server_uuid"] = view.pop("instance_uuid")
        for key in ("old_instance_type_id", "new_instance_type_id", "migration_type", "links"):
            view.pop(key, None)
        views.append(view)
    return views


def _migration(call: Call, row: sa.Row[Any]) -> dict[str, Any]:
    view: dict[str, Any] = {
        "id": row.id,
        "status": row.status,
        "instance_uuid": row.server_id,
        "source_compute": row.source,
        "source_node": row.source,
        "dest_compute": row.destination,
        "dest_node": row.destination,
        "dest_host": row.destination,
        "old_instance_type_id": _number(row.old_flavor_id),
        "new_instance_type_id": _number(row.new_flavor_id),
        "created_at": timestamp(row.created_at),
        "updated_at": timestamp(row.updated_at),
    }
    if call.version >= Version(2, 23):
        view["migration_type"] = row.type
        view["links"] = []
    if call.version >= Version(2, 59):
        view["uuid"] = row.uuid
    if call.version >= Version(2, 80):
        view["user_id"], view["project_id"] = row.user_id, row.project_id
    return view


def _number(flavor_id: str) -> int:
    """Nova shows the row number of a flavor here; where the id is a number it is that, else 0."""
    return int(flavor_id) if flavor_id.isdigit() else 0
