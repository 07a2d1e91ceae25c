"""Events: what happened, listed and shown."""

from roost.api.clustering.lists import Listing, one_of, text
from roost.api.clustering.shapes import Shape
from roost.api.fields import ShownField
from roost.api.permissions import READER, Permission
from roost.api.routes import Call, Connection, Reply, Table
from roost.api.schemas import NULL, array, thing
from roost.clusters import lookup
from roost.clusters.errors import BadRequest
from roost.clusters.events import Severity
from roost.clusters.records import EVENTS, EventRecord
from roost.clusters.states import ActionName
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
    EVENTS,
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


_SHAPE = Shape(
    EventRecord,
    ShownField("cluster", NULL, lambda event: None),
    ShownField("level", {"enum": [str(int(level)) for level in Severity]}, lambda event: str(event.level)),
)
_EVENT = _SHAPE.schema()


@routes.get("", rule="events:index", response=thing({"events": array(_EVENT)}))
async def index(call: Call, connection: Connection) -> Reply:
    """The events of the project."""
    page = _LISTING.read(call)
    return {"events": await spread(_SHAPE.show, await _LISTING.records(connection, call, page))}


@routes.get("/{event_id}", rule="events:get", response=thing({"event": _EVENT}))
async def show(call: Call, connection: Connection) -> Reply:
    """One event."""
    event = await lookup.find(connection, EVENTS, call.path["event_id"], call.caller)
    return {"event": _SHAPE.show(event)}
