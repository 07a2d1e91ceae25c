"""Events: what happened, listed and shown."""

from typing import Any

import sqlalchemy as sa

from roost.api.clustering import shapes
from roost.api.clustering.lists import Listing, one_of, text
from roost.api.clustering.moments import moment
from roost.api.permissions import READER, Permission
from roost.api.routes import Call, Reply, Table
from roost.api.schemas import NULL, array, thing
from roost.clusters import lookup
from roost.clusters.errors import BadRequest
from roost.clusters.events import Severity
from roost.clusters.states import ActionName
from roost.store.tables.clusters import events
from roost.turns import spread

RULES = (Permission("events:index", READER, "List events."), Permission("events:get", READER, "Show an event."))
routes = Table("/v1/events")


def _level(value: str) -> int:
    if value in Severity.__members__:
        return Severity[value]
    if value in {str(int(level)) for level in Severity}:
        return Severity(int(value))
    raise BadRequest(f"Field value {value} is invalid")


_LISTING = Listing(
    events,
    sorts=("timestamp", "level", "otype", "oname", "action", "status", "oid", "cluster_id"),
    default_sort="timestamp",
    filters={
        "oid": text,
        "oname": text,
        "otype": text,
        "cluster_id": text,
        "action": one_of(ActionName),
        "level": _level,
    },
)


def _view(row: sa.Row[Any]) -> dict[str, Any]:
    return {
        "id": row.id,
        "timestamp": moment(row.timestamp),
        "oid": row.oid,
        "oname": row.oname,
        "otype": row.otype,
        "cluster_id": row.cluster_id,
        "cluster": None,
        "level": str(row.level),
        "user": row.user_id,
        "project": row.project_id,
        "action": row.action,
        "status": row.status,
        "status_reason": row.status_reason,
        "meta_data": row.meta_data,
    }


_LEVEL = {"enum": [str(int(level)) for level in Severity]}
_EVENT = thing(shapes.of(events, hides=("domain_id",), cluster=NULL, level=_LEVEL))


@routes.get("", rule="events:index", response=thing({"events": array(_EVENT)}))
async def index(call: Call) -> Reply:
    """The events of the project."""
    page = _LISTING.read(call)
    async with call.services.database.begin() as connection:
        return {"events": await spread(_view, await _LISTING.rows(connection, call, page))}


@routes.get("/{event_id}", rule="events:get", response=thing({"event": _EVENT}))
async def show(call: Call) -> Reply:
    """One event."""
    async with call.services.database.begin() as connection:
        row = await lookup.find(connection, events, "event", call.path["event_id"], call.caller)
    return {"event": _view(row)}
