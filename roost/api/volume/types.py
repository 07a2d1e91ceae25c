"""Volume types: one that every Roost has, and those that admins add, for all projects or for some."""

from typing import Any

from roost.api.fields import FieldTable, always, column
from roost.api.permissions import ADMIN, READER, Permission
from roost.api.routes import Call, Connection, Reply, Table
from roost.api.schemas import NULLABLE_STRING, STRING, TRUTH, UUID, Schema, array, by_name, thing
from roost.errors import Invalid, NotFound
from roost.volume import types, volumes
from roost.volume.volumes import DEFAULT_TYPE, VolumeOwner

routes = Table(prefix="/v3/types")

_MANAGE = "volume_extension:types_manage"
RULES = (
    Permission("volume_extension:type_get", READER, "Show volume types."),
    Permission(_MANAGE, ADMIN, "Create, change and delete volume types, and say who may use them."),
)

_PUBLIC = "os-volume-type-access:is_public"
_NAME: Schema = {"type": "string", "minLength": 1, "maxLength": 255, "format": "name"}
_TEXT: Schema = {"type": ["string", "null"], "maxLength": 255}
_SPECS: Schema = by_name({"type": "string", "maxLength": 255}, maxProperties=50, propertyNames={"maxLength": 255})
_FIELDS = FieldTable[Any](
    column("id", STRING),
    column("name", STRING),
    column("description", NULLABLE_STRING),
    column("is_public", TRUTH),
    column(_PUBLIC, TRUTH, "is_public"),
    column("extra_specs", by_name(STRING)),
    always("qos_specs_id", None),
)
_ONE = _FIELDS.one("volume_type")
_EXTRA = thing({"extra_specs": by_name(STRING)})


def owner(call: Call) -> VolumeOwner:
    """For whom a call finds and makes volumes."""
    return VolumeOwner(call.caller.project_id or "", call.caller.user_id, call.caller.is_admin)


async def _find(call: Call, connection: Connection) -> Any:
    return await volumes.find_type(connection, owner(call), call.path["type_id"])


@routes.get("", rule="volume_extension:type_get", response=_FIELDS.many("volume_types"))
async def index(call: Call, connection: Connection) -> Reply:
    """The types that the caller may use."""
    public = {"true": True, "false": False}.get(call.query.get("is_public", "").lower())
    return {"volume_types": [_FIELDS.show(row) for row in await types.index(connection, owner(call), public)]}


@routes.get("/default", rule="volume_extension:type_get", response=_ONE)
async def show_default(call: Call, connection: Connection) -> Reply:
    """The type of volumes that name none."""
    return {"volume_type": _FIELDS.show(await volumes.find_type(connection, owner(call), DEFAULT_TYPE))}


@routes.get("/{type_id}", rule="volume_extension:type_get", response=_ONE)
async def show(call: Call, connection: Connection) -> Reply:
    """A type that the caller may use."""
    return {"volume_type": _FIELDS.show(await _find(call, connection))}


@routes.post(
    "",
    rule=_MANAGE,
    body=thing({"volume_type": thing({"name": _NAME}, {"description": _TEXT, _PUBLIC: TRUTH, "extra_specs": _SPECS})}),
    response=_ONE,
)
async def create(call: Call, connection: Connection) -> Reply:
    """Add a type."""
    asked = {"is_public" if key == _PUBLIC else key: value for key, value in call.body["volume_type"].items()}
    return {"volume_type": _FIELDS.show(await types.add(connection, asked))}


@routes.put(
    "/{type_id}",
    rule=_MANAGE,
    body=thing({"volume_type": thing({}, {"name": _NAME, "description": _TEXT, "is_public": TRUTH})}),
    response=_ONE,
)
async def update(call: Call, connection: Connection) -> Reply:
    """Change a type."""
    row = await _find(call, connection)
    return {"volume_type": _FIELDS.show(await types.change(connection, row, call.body["volume_type"]))}


@routes.delete("/{type_id}", rule=_MANAGE, status=202)
async def delete(call: Call, connection: Connection) -> None:
    """Delete a type that no volume has."""
    await types.delete(connection, await _find(call, connection))


@routes.get("/{type_id}/extra_specs", rule="volume_extension:type_get", response=_EXTRA)
async def show_specs(call: Call, connection: Connection) -> Reply:
    """The extra specs of a type."""
    return {"extra_specs": (await _find(call, connection)).extra_specs}


@routes.post("/{type_id}/extra_specs", rule=_MANAGE, body=thing({"extra_specs": _SPECS}), response=_EXTRA)
async def add_specs(call: Call, connection: Connection) -> Reply:
    """Set some extra specs of a type."""
    row = await _find(call, connection)
    specs = {**row.extra_specs, **call.body["extra_specs"]}
    if len(specs) > _SPECS["maxProperties"]:
        raise Invalid(f"A volume type has at most {_SPECS['maxProperties']} extra specs.")
    await types.change(connection, row, {"extra_specs": specs})
    return {"extra_specs": call.body["extra_specs"]}


@routes.delete("/{type_id}/extra_specs/{key}", rule=_MANAGE, status=202)
async def delete_spec(call: Call, connection: Connection) -> None:
    """Remove an extra spec of a type."""
    row = await _find(call, connection)
    specs = dict(row.extra_specs)
    if specs.pop(call.path["key"], None) is None:
        raise NotFound(f"Volume Type {row.id} has no extra specs with key {call.path['key']}.")
    await types.change(connection, row, {"extra_specs": specs})


# Who may use a type that is not for all


@routes.get(
    "/{type_id}/os-volume-type-access",
    rule=_MANAGE,
    response=thing({"volume_type_access": array(thing({"volume_type_id": STRING, "project_id": STRING}))}),
)
async def index_access(call: Call, connection: Connection) -> Reply:
    """The projects that may use a private type."""
    row = await _find(call, connection)
    found = await types.projects_of(connection, row)
    return {"volume_type_access": [{"volume_type_id": row.id, "project_id": each} for each in found]}


_PROJECT = thing({"project": UUID})


@routes.post(
    "/{type_id}/action",
    rule=_MANAGE,
    body={
        **thing({}, {"addProjectAccess": _PROJECT, "removeProjectAccess": _PROJECT}),
        "minProperties": 1,
        "maxProperties": 1,
    },
    status=202,
)
async def act(call: Call, connection: Connection) -> None:
    """Let a project use a private type, or no longer."""
    ((action, said),) = call.body.items()
    row = await _find(call, connection)
    if action == "addProjectAccess":
        await types.allow(connection, row, said["project"])
    else:
        await types.disallow(connection, row, said["project"])
