"""Host aggregates."""

from typing import Any

from roost.api import schemas
from roost.api.compute import views
from roost.api.compute.views import HOST_NAME, closed_query, timestamp
from roost.api.fields import FieldTable, ShownField
from roost.api.permissions import ADMIN, Permission
from roost.api.routes import Call, Connection, Reply, Table
from roost.api.schemas import INTEGER, NAME, NULL, NULLABLE_STRING, STRING, Schema, array, by_name, thing
from roost.api.versions import Version
from roost.compute.inventory import aggregates, images
from roost.compute.inventory.aggregates import Aggregate
from roost.errors import Invalid
from roost.turns import spread

routes = Table(prefix="/v2.1")

_RULE = "os_compute_api:os-aggregates:"
RULES = (
    Permission(_RULE + "index", ADMIN, "List aggregates."),
    Permission(_RULE + "show", ADMIN, "Show an aggregate."),
    Permission(_RULE + "create", ADMIN, "Create an aggregate."),
    Permission(_RULE + "update", ADMIN, "Change the name or the zone of an aggregate."),
    Permission(_RULE + "delete", ADMIN, "Delete an aggregate."),
    Permission(_RULE + "add_host", ADMIN, "Add a host to an aggregate."),
    Permission(_RULE + "remove_host", ADMIN, "Remove a host from an aggregate."),
    Permission(_RULE + "set_metadata", ADMIN, "Change the metadata of an aggregate."),
    Permission("compute:aggregates:images", ADMIN, "Have the hosts of an aggregate cache images."),
)

_ZONE: Schema = {"oneOf": [{**NAME, "pattern": "^[^:]*$"}, {"type": "null"}]}
_METADATA: Schema = {
    "type": "object",
    "patternProperties": {"^[a-zA-Z0-9-_:. ]{1,255}$": {"type": ["string", "null"], "maxLength": 255}},
    "additionalProperties": False,
}
_CREATE = thing({"aggregate": thing({"name": NAME}, {"availability_zone": _ZONE})})
_RENAME: Schema = {"type": "string", "minLength": 1, "maxLength": 255, "pattern": r"\S"}
_EITHER = [{"required": ["name"]}, {"required": ["availability_zone"]}]
_UPDATE = thing({"aggregate": thing({}, {"name": _RENAME, "availability_zone": _ZONE}, anyOf=_EITHER)})
_ACTIONS: Schema = {
    "type": "object",
    "properties": {
        "add_host": thing({"host": HOST_NAME}),
        "remove_host": thing({"host": HOST_NAME}),
        "set_metadata": thing({"metadata": _METADATA}),
    },
}
_IMAGES = thing({"cache": array(thing({"id": schemas.UUID}), minItems=1)})

_CREATED = FieldTable[Aggregate](
    ShownField("id", INTEGER, lambda aggregate: aggregate.id),
    ShownField("name", STRING, lambda aggregate: aggregate.name),
    ShownField("availability_zone", NULLABLE_STRING, lambda aggregate: aggregate.availability_zone),
    ShownField("created_at", STRING, lambda aggregate: timestamp(aggregate.created_at)),
    ShownField("updated_at", NULLABLE_STRING, lambda aggregate: timestamp(aggregate.updated_at)),
    ShownField("deleted", {"const": False}, lambda aggregate: False),
    ShownField("deleted_at", NULL, lambda aggregate: None),
    ShownField("uuid", schemas.UUID, lambda aggregate: aggregate.uuid, since=Version(2, 41)),
)
_SHOWN = FieldTable[Aggregate](
    *_CREATED.fields,
    ShownField("hosts", array(STRING), lambda aggregate: list(aggregate.hosts)),
    ShownField("metadata", by_name(STRING), lambda aggregate: dict(aggregate.metadata)),
)
_MANY = _SHOWN.many("aggregates")
_ONE = _SHOWN.one("aggregate")


def _view(call: Call, aggregate: Aggregate) -> dict[str, Any]:
    return {"aggregate": _SHOWN.show(aggregate, call.version)}


def _id(call: Call) -> int:
    number = views.integer(call.path["aggregate_id"])
    if number is None:
        raise Invalid("Invalid input received: id must be an integer")
    return number


@routes.get("/os-aggregates", until="2.101", rule=_RULE + "index", response=_MANY)
@routes.get("/os-aggregates", since="2.102", rule=_RULE + "index", query=closed_query(), response=_MANY)
async def index(call: Call) -> Reply:
    """List all aggregates, with their hosts and metadata."""
    async with call.services.database.autocommit() as connection:
        found = await aggregates.index(connection)
    return {"aggregates": await spread(lambda each: _SHOWN.show(each, call.version), found)}


@routes.post("/os-aggregates", rule=_RULE + "create", body=_CREATE, response=_CREATED.one("aggregate"))
async def create(call: Call, connection: Connection) -> Reply:
    """Create an aggregate, which may name an availability zone."""
    wanted = call.body["aggregate"]
    aggregate = await aggregates.create(connection, wanted["name"], wanted.get("availability_zone"))
    return {"aggregate": _CREATED.show(aggregate, call.version)}


@routes.get("/os-aggregates/{aggregate_id}", rule=_RULE + "show", response=_ONE)
async def show(call: Call, connection: Connection) -> Reply:
    """Show one aggregate."""
    aggregate_id = _id(call)
    return _view(call, await aggregates.show(connection, aggregate_id))


@routes.put("/os-aggregates/{aggregate_id}", rule=_RULE + "update", body=_UPDATE, response=_ONE)
async def update(call: Call, connection: Connection) -> Reply:
    """Change the name or the zone of an aggregate."""
    aggregate_id, changes = _id(call), dict(call.body["aggregate"])
    if "name" in changes:
        changes["name"] = changes["name"].strip()
    return _view(call, await aggregates.update(connection, aggregate_id, changes))


@routes.delete("/os-aggregates/{aggregate_id}", rule=_RULE + "delete")
async def delete(call: Call, connection: Connection) -> None:
    """Delete an aggregate that has no hosts."""
    aggregate_id = _id(call)
    await aggregates.delete(connection, aggregate_id)


@routes.post("/os-aggregates/{aggregate_id}/action", rule=_RULE + "add_host", owned=True, body=_ACTIONS, response=_ONE)
async def act(call: Call, connection: Connection) -> Reply:
    """Add a host (`add_host`), remove one (`remove_host`), or change metadata (`set_metadata`)."""
    name = views.action(call.body, _ACTIONS["properties"])
    call.permit(_RULE + name)
    aggregate_id, asked = _id(call), call.body[name]
    if name == "add_host":
        aggregate = await aggregates.add_host(connection, aggregate_id, asked["host"])
    elif name == "remove_host":
        aggregate = await aggregates.remove_host(connection, aggregate_id, asked["host"])
    else:
        aggregate = await aggregates.set_metadata(connection, aggregate_id, asked["metadata"])
    return _view(call, aggregate)


@routes.post(
    "/os-aggregates/{aggregate_id}/images", since="2.81", rule="compute:aggregates:images", body=_IMAGES, status=202
)
async def cache_images(call: Call) -> None:
    """Have the hosts of an aggregate cache images; simulated hosts have every image already."""
    aggregate_id, wanted = _id(call), [image["id"] for image in call.body["cache"]]
    if len(set(wanted)) < len(wanted):
        raise Invalid("Duplicate images in request")
    async with call.services.database.begin() as connection:
        await aggregates.show(connection, aggregate_id)
        everything = images.Viewer(call.caller.project_id, is_admin=True)
        known = {image.id for image in await images.by_id(connection, everything, wanted)}
    for image_id in wanted:
        if image_id not in known:
            raise Invalid(f"Image {image_id} could not be found.")
