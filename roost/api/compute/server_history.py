"""What happened to servers: instance actions and migrations."""

from typing import Any, NamedTuple

from roost.api.compute.server_view import host_id
from roost.api.compute.servers import owned
from roost.api.compute.views import timestamp
from roost.api.fields import FieldTable, ShownField
from roost.api.permissions import ADMIN, READER, Permission
from roost.api.routes import Call, Connection, Reply, Table
from roost.api.schemas import INTEGER, NULL, NULLABLE_STRING, STRING, Schema, array, thing
from roost.api.versions import Version
from roost.compute.scheduling import deleted, history, servers
from roost.compute.scheduling.history import InstanceAction, ServerMigration
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

_ACTION = FieldTable[InstanceAction](
    ShownField("action", STRING, lambda done: done.action),
    ShownField("instance_uuid", STRING, lambda done: done.server_id),
    ShownField("message", NULLABLE_STRING, lambda done: done.message),
    ShownField("project_id", STRING, lambda done: done.project_id),
    ShownField("request_id", STRING, lambda done: done.request_id),
    ShownField("start_time", STRING, lambda done: timestamp(done.start_time)),
    ShownField("user_id", STRING, lambda done: done.user_id),
    ShownField("updated_at", STRING, lambda done: timestamp(done.finish_time or done.start_time), since=Version(2, 58)),
)


class _Event(NamedTuple):
    """What an answer about an event is made from; each action has one."""

    call: Call
    done: InstanceAction
    server: servers.Server

    @property
    def result(self) -> str | None:
        return None if self.done.finish_time is None else "Error" if self.done.message else "Success"


_EVENT = FieldTable[_Event](
    ShownField("event", STRING, lambda of: f"compute_{of.done.action}"),
    ShownField("start_time", STRING, lambda of: timestamp(of.done.start_time)),
    ShownField("finish_time", NULLABLE_STRING, lambda of: timestamp(of.done.finish_time)),
    ShownField("result", NULLABLE_STRING, lambda of: of.result),
    ShownField("traceback", NULL, lambda of: None, until=Version(2, 50)),
    ShownField("traceback", NULL, lambda of: None, since=Version(2, 51), when=lambda of: of.call.caller.is_admin),
    ShownField("hostId", STRING, lambda of: host_id(of.server), since=Version(2, 62)),
    ShownField(
        "host", STRING, lambda of: of.server.host or "", since=Version(2, 62), when=lambda of: of.call.caller.is_admin
    ),
    ShownField("details", NULL, lambda of: None, since=Version(2, 84)),
)


def _number(flavor_id: str) -> int:
    """Nova shows the row number of a flavor here; where the id is a number it is that, else 0."""
    return int(flavor_id) if flavor_id.isdigit() else 0


_MOVE = FieldTable[ServerMigration](
    ShownField("id", INTEGER, lambda move: move.id),
    ShownField("status", STRING, lambda move: move.status),
    ShownField("source_compute", NULLABLE_STRING, lambda move: move.source),
    ShownField("source_node", NULLABLE_STRING, lambda move: move.source),
    ShownField("dest_compute", NULLABLE_STRING, lambda move: move.destination),
    ShownField("dest_node", NULLABLE_STRING, lambda move: move.destination),
    ShownField("dest_host", NULLABLE_STRING, lambda move: move.destination),
    ShownField("created_at", STRING, lambda move: timestamp(move.created_at)),
    ShownField("updated_at", NULLABLE_STRING, lambda move: timestamp(move.updated_at)),
    ShownField("uuid", STRING, lambda move: move.uuid, since=Version(2, 59)),
    ShownField("user_id", STRING, lambda move: move.user_id, since=Version(2, 80)),
    ShownField("project_id", STRING, lambda move: move.project_id, since=Version(2, 80)),
)
_MIGRATION = FieldTable[ServerMigration](
    *_MOVE.fields,
    ShownField("instance_uuid", STRING, lambda move: move.server_id),
    ShownField("old_instance_type_id", INTEGER, lambda move: _number(move.old_flavor_id)),
    ShownField("new_instance_type_id", INTEGER, lambda move: _number(move.new_flavor_id)),
    ShownField("migration_type", STRING, lambda move: move.type, since=Version(2, 23)),
    ShownField("links", {"const": []}, lambda move: [], since=Version(2, 23)),
)
_BYTES: tuple[ShownField[object], ...] = tuple(
    ShownField(f"{what}_{part}_bytes", NULL, lambda _: None)
    for what in ("memory", "disk")
    for part in ("total", "processed", "remaining")
)
_LIVE = FieldTable[ServerMigration](
    *_MOVE.fields, ShownField("server_uuid", STRING, lambda move: move.server_id), *_BYTES
)


async def _history(call: Call, connection: Connection, rule: str) -> tuple[servers.Server, list[InstanceAction]]:
    """A server and what was done to it; since 2.21 also one that was deleted."""
    server_id = call.path["server_id"]
    try:
        server = await owned(call, connection, rule)
    except NotFound:
        if call.version < Version(2, 21):
            raise
    else:
        return server, await history.actions_of(connection, server.id)
    gone, done = await deleted.find(connection, server_id)
    if gone.project_id != call.caller.project_id and not call.caller.is_admin:
        raise NotFound(f"Instance {server_id} could not be found.")
    call.permit(rule, project_id=gone.project_id)
    return gone, done


def _shown(version: Version) -> Schema:
    shown = _ACTION.schema(version)["properties"] | {"events": array(_EVENT.schema(version))}
    return thing({"instanceAction": thing(shown)})


@routes.get(
    "/servers/{server_id}/os-instance-actions",
    rule=_ACTIONS + "list",
    owned=True,
    response=_ACTION.many("instanceActions"),
)
async def index(call: Call, connection: Connection) -> Reply:
    """List what was done to a server, the newest first."""
    _, actions = await _history(call, connection, _ACTIONS + "list")
    return {"instanceActions": [_ACTION.show(done, call.version) for done in actions]}


@routes.get(
    "/servers/{server_id}/os-instance-actions/{request_id}", rule=_ACTIONS + "show", owned=True, response=_shown
)
async def show(call: Call, connection: Connection) -> Reply:
    """Show what one request did to a server, and how it went."""
    server, actions = await _history(call, connection, _ACTIONS + "show")
    for done in actions:
        if done.request_id == call.path["request_id"]:
            event = _EVENT.show(_Event(call, done, server), call.version)
            return {"instanceAction": {**_ACTION.show(done, call.version), "events": [event]}}
    raise NotFound(f"Action {call.path['request_id']} for instance {server.id} could not be found.")


@routes.get("/os-migrations", rule=_MIGRATIONS, response=_MIGRATION.many("migrations"))
async def migrations(call: Call, connection: Connection) -> Reply:
    """List moves of servers, the newest first."""
    found = await history.migrations_of(
        connection,
        server_id=call.query.get("instance_uuid"),
        status=call.query.get("status"),
        host=call.query.get("host"),
        kind=call.query.get("migration_type"),
    )
    return {"migrations": [_MIGRATION.show(move, call.version) for move in found]}


_ONGOING = "os_compute_api:servers:migrations:"


@routes.get(
    "/servers/{server_id}/migrations",
    since="2.23",
    rule=_ONGOING + "index",
    owned=True,
    response=_LIVE.many("migrations"),
)
async def index_ongoing(call: Call) -> Reply:
    """The live migrations of a server that are under way."""
    return {"migrations": await _under_way(call, "index")}


@routes.get(
    "/servers/{server_id}/migrations/{migration_id}",
    since="2.23",
    rule=_ONGOING + "show",
    owned=True,
    response=_LIVE.one("migration"),
)
async def show_ongoing(call: Call) -> Reply:
    """A live migration of a server that is under way."""
    for view in await _under_way(call, "show"):
        if str(view["id"]) == call.path["migration_id"]:
            return {"migration": view}
    raise NotFound(f"Migration {call.path['migration_id']} for server {call.path['server_id']} could not be found.")


async def _under_way(call: Call, verb: str) -> list[dict[str, Any]]:
    async with call.services.database.autocommit() as connection:
        server = await owned(call, connection, _ONGOING + verb)
        found = await history.migrations_of(connection, server_id=server.id, status="running", kind="live-migration")
    return [_LIVE.show(move, call.version) for move in found]
