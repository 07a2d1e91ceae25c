"""Host aggregates."""

from collections.abc import Callable, Mapping
from typing import Any

from roost.api import schemas
from roost.api.compute import views
from roost.api.compute.views import HOST_NAME, closed_query, timestamp
from roost.api.permissions import ADMIN, Permission
from roost.api.routes import Call, Handler, Reply, Table
from roost.api.schemas import NAME, NULLABLE_STRING, STRING, Schema, array, thing
from roost.api.versions import Version
from roost.compute.inventory import aggregates, images
from roost.compute.inventory.aggregates import Aggregate
from roost.errors import Invalid

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

_CREATED = {
    "id": {"type": "integer"},
    "name": STRING,
    "availability_zone": NULLABLE_STRING,
    "created_at": STRING,
    "updated_at": NULLABLE_STRING,
    "deleted": {"const": False},
    "deleted_at": {"type": "null"},
}
_SHOWN = {**_CREATED, "hosts": array(STRING), "metadata": {"type": "object", "additionalProperties": STRING}}
_UUID = {"uuid": schemas.UUID}


def _view(call: Call, aggregate: Aggregate) -> dict[str, Any]:
    view = {
        "id": aggregate.id,
        "name": aggregate.name,
        "availability_zone": aggregate.availability_zone,
        "hosts": list(aggregate.hosts),
        "metadata": dict(aggregate.metadata),
        "created_at": timestamp(aggregate.created_at),
        "updated_at": timestamp(aggregate.updated_at),
        "deleted": False,
        "deleted_at": None,
    }
    return {**view, "uuid": aggregate.uuid} if call.version >= Version(2, 41) else view


def _id(call: Call) -> int:
    number = views.integer(call.path["aggregate_id"])
    if number is None:
        raise Invalid("Invalid input received: id must be an integer")
    return number


def _versions(method: str, path: str, shown: Mapping[str, Schema], **row: Any) -> Callable[[Handler], Handler]:
    """Declare a handler whose answer shows the uuid from 2.41 on."""

    def declare(handler: Handler) -> Handler:
        before, after = thing({"aggregate": thing(shown)}), thing({"aggregate": thing({**shown, **_UUID})})
        routes.add(method, path, until="2.40", response=before, **row)(handler)
        return routes.add(method, path, since="2.41", response=after, **row)(handler)

    return declare


_INDEX = {"rule": _RULE + "index"}


@routes.get("/os-aggregates", until="2.40", response=thing({"aggregates": array(thing(_SHOWN))}), **_INDEX)
@routes.get(
    "/os-aggregates",
    since="2.41",
    until="2.101",
    response=thing({"aggregates": array(thing({**_SHOWN, **_UUID}))}),
    **_INDEX,
)
@routes.get(
    "/os-aggregates",
    since="2.102",
    query=closed_query(),
    response=thing({"aggregates": array(thing({**_SHOWN, **_UUID}))}),
    **_INDEX,
)
async def index(call: Call) -> Reply:
    """List all aggregates, with their hosts and metadata."""
    async with call.services.database.begin() as connection:
        return {"aggregates": [_view(call, aggregate) for aggregate in await aggregates.index(connection)]}


@_versions("POST", "/os-aggregates", _CREATED, rule=_RULE + "create", body=_CREATE)
async def create(call: Call) -> Reply:
    """Create an aggregate, which may name an availability zone."""
    wanted = call.body["aggregate"]
    async with call.services.database.begin() as connection:
        aggregate = await aggregates.create(connection, wanted["name"], wanted.get("availability_zone"))
    view = _view(call, aggregate)
    return {"aggregate": {key: value for key, value in view.items() if key not in ("hosts", "metadata")}}


@_versions("GET", "/os-aggregates/{aggregate_id}", _SHOWN, rule=_RULE + "show")
async def show(call: Call) -> Reply:
    """Show one aggregate."""
    aggregate_id = _id(call)
    async with call.services.database.begin() as connection:
        return {"aggregate": _view(call, await aggregates.show(connection, aggregate_id))}


@_versions("PUT", "/os-aggregates/{aggregate_id}", _SHOWN, rule=_RULE + "update", body=_UPDATE)
async def update(call: Call) -> Reply:
    """Change the name or the zone of an aggregate."""
    aggregate_id, changes = _id(call), dict(call.body["aggregate"])
    if "name" in changes:
        changes["name"] = changes["name"].strip()
    async with call.services.database.begin() as connection:
        return {"aggregate": _view(call, await aggregates.update(connection, aggregate_id, changes))}


@routes.delete("/os-aggregates/{aggregate_id}", rule=_RULE + "delete")
async def delete(call: Call) -> Reply:
    """Delete an aggregate that has no hosts."""
    aggregate_id = _id(call)
    async with call.services.database.begin() as connection:
        await aggregates.delete(connection, aggregate_id)
    return None


@_versions("POST", "/os-aggregates/{aggregate_id}/action", _SHOWN, rule=_RULE + "add_host", owned=True, body=_ACTIONS)
async def act(call: Call) -> Reply:
    """Add a host (`add_host`), remove one (`remove_host`), or change metadata (`set_metadata`)."""
    name = views.action(call.body, _ACTIONS["properties"])
    call.permit(_RULE + name)
    aggregate_id, asked = _id(call), call.body[name]
    async with call.services.database.begin() as connection:
        if name == "add_host":
            aggregate = await aggregates.add_host(connection, aggregate_id, asked["host"])
        elif name == "remove_host":
            aggregate = await aggregates.remove_host(connection, aggregate_id, asked["host"])
        else:
            aggregate = await aggregates.set_metadata(connection, aggregate_id, asked["metadata"])
    return {"aggregate": _view(call, aggregate)}


@routes.post(
    "/os-aggregates/{aggregate_id}/images", since="2.81", rule="compute:aggregates:images", body=_IMAGES, status=202
)
async def cache_images(call: Call) -> Reply:
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
    return None
