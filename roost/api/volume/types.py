"""Volume types: one that every Roost has, and those that admins add, for all projects or for some."""

from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.api.permissions import ADMIN, READER, Permission
from roost.api.routes import Call, Reply, Table
from roost.api.schemas import NULLABLE_STRING, STRING, TRUTH, UUID, Schema, array, by_name, thing
from roost.errors import Conflict, Invalid, NotFound
from roost.store import rows
from roost.store.tables.volume import volume_type_projects, volume_types
from roost.volume import volumes
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
_SHAPE = thing(
    {"id": STRING, "name": STRING, "description": NULLABLE_STRING, "is_public": TRUTH, _PUBLIC: TRUTH}
    | {"extra_specs": by_name(STRING), "qos_specs_id": {"type": "null"}}
)
_ONE = thing({"volume_type": _SHAPE})
_EXTRA = thing({"extra_specs": by_name(STRING)})


def owner(call: Call) -> VolumeOwner:
    """For whom a call finds and makes volumes."""
    return VolumeOwner(call.caller.project_id or "", call.caller.user_id, call.caller.is_admin)


def _view(row: Any) -> dict[str, Any]:
    public = {"is_public": row.is_public, _PUBLIC: row.is_public}
    said = {"id": row.id, "name": row.name, "description": row.description, **public}
    return {**said, "extra_specs": row.extra_specs, "qos_specs_id": None}


async def _find(call: Call, connection: AsyncConnection) -> Any:
    return await volumes.find_type(connection, owner(call), call.path["type_id"])


@routes.get("", rule="volume_extension:type_get", response=thing({"volume_types": array(_SHAPE)}))
async def index(call: Call) -> Reply:
    """The types that the caller may use."""
    query = (
        sa.select(volume_types).where(owner(call).sees_type()).order_by(volume_types.c.created_at, volume_types.c.id)
    )
    asked = call.query.get("is_public", "").lower()
    if asked in ("true", "false"):
        query = query.where(volume_types.c.is_public.is_(asked == "true"))
    async with call.services.database.begin() as connection:
        return {"volume_types": [_view(row) for row in await connection.execute(query)]}


@routes.get("/default", rule="volume_extension:type_get", response=_ONE)
async def show_default(call: Call) -> Reply:
    """The type of volumes that name none."""
    async with call.services.database.begin() as connection:
        return {"volume_type": _view(await volumes.find_type(connection, owner(call), DEFAULT_TYPE))}


@routes.get("/{type_id}", rule="volume_extension:type_get", response=_ONE)
async def show(call: Call) -> Reply:
    """A type that the caller may use."""
    async with call.services.database.begin() as connection:
        return {"volume_type": _view(await _find(call, connection))}


@routes.post(
    "",
    rule=_MANAGE,
    body=thing({"volume_type": thing({"name": _NAME}, {"description": _TEXT, _PUBLIC: TRUTH, "extra_specs": _SPECS})}),
    response=_ONE,
)
async def create(call: Call) -> Reply:
    """Add a type."""
    asked = dict(call.body["volume_type"])
    values = {**asked, "is_public": asked.pop(_PUBLIC, True)}
    values.pop(_PUBLIC, None)
    taken = Conflict(f"Volume Type {asked['name']} already exists.")
    async with call.services.database.begin() as connection:
        return {"volume_type": _view(await rows.add(connection, volume_types, values, taken))}


@routes.put(
    "/{type_id}",
    rule=_MANAGE,
    body=thing({"volume_type": thing({}, {"name": _NAME, "description": _TEXT, "is_public": TRUTH})}),
    response=_ONE,
)
async def update(call: Call) -> Reply:
    """Change a type."""
    asked = call.body["volume_type"]
    taken = Conflict(f"Volume Type {asked.get('name')} already exists.")
    async with call.services.database.begin() as connection:
        row = await _find(call, connection)
        if row.name == DEFAULT_TYPE and asked.keys() - {"description"}:
            raise Invalid(f"The type {DEFAULT_TYPE} keeps its name, and is for all projects.")
        return {"volume_type": _view(await rows.change(connection, volume_types, asked, taken, id=row.id))}


@routes.delete("/{type_id}", rule=_MANAGE, status=202)
async def delete(call: Call) -> Reply:
    """Delete a type that no volume has."""
    async with call.services.database.begin() as connection:
        row = await _find(call, connection)
        if row.name == DEFAULT_TYPE:
            raise Invalid(f"The type {DEFAULT_TYPE} is one that every Roost has, and stays.")
        refusal = Invalid("Target volume type is still in use.")
        await rows.remove(connection, volume_types, refusal, id=row.id)
    return None


@routes.get("/{type_id}/extra_specs", rule="volume_extension:type_get", response=_EXTRA)
async def show_specs(call: Call) -> Reply:
    """The extra specs of a type."""
    async with call.services.database.begin() as connection:
        return {"extra_specs": (await _find(call, connection)).extra_specs}


@routes.post("/{type_id}/extra_specs", rule=_MANAGE, body=thing({"extra_specs": _SPECS}), response=_EXTRA)
async def add_specs(call: Call) -> Reply:
    """Set some extra specs of a type."""
    async with call.services.database.begin() as connection:
        row = await _find(call, connection)
        specs = {**row.extra_specs, **call.body["extra_specs"]}
        if len(specs) > _SPECS["maxProperties"]:
            raise Invalid(f"A volume type has at most {_SPECS['maxProperties']} extra specs.")
        await rows.change(connection, volume_types, {"extra_specs": specs}, id=row.id)
    return {"extra_specs": call.body["extra_specs"]}


@routes.delete("/{type_id}/extra_specs/{key}", rule=_MANAGE, status=202)
async def delete_spec(call: Call) -> Reply:
    """Remove an extra spec of a type."""
    async with call.services.database.begin() as connection:
        row = await _find(call, connection)
        specs = dict(row.extra_specs)
        if specs.pop(call.path["key"], None) is None:
            raise NotFound(f"Volume Type {row.id} has no extra specs with key {call.path['key']}.")
        await rows.change(connection, volume_types, {"extra_specs": specs}, id=row.id)
    return None


# Who may use a type that is not for all


@routes.get(
    "/{type_id}/os-volume-type-access",
    rule=_MANAGE,
    response=thing({"volume_type_access": array(thing({"volume_type_id": STRING, "project_id": STRING}))}),
)
async def index_access(call: Call) -> Reply:
    """The projects that may use a private type."""
    async with call.services.database.begin() as connection:
        row = await _find(call, connection)
        if row.is_public:
            raise NotFound("Access list not available for public volume types.")
        found = await rows.index(connection, volume_type_projects, "project_id", volume_type_id=row.id)
    return {"volume_type_access": [dict(each._mapping) for each in found]}


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
async def act(call: Call) -> Reply:
    """Let a project use a private type, or no longer."""
    ((action, said),) = call.body.items()
    async with call.services.database.begin() as connection:
        row = await _find(call, connection)
        if row.is_public:
            raise Invalid("Type access modification is not applicable to public volume type.")
        access = {"volume_type_id": row.id, "project_id": said["project"]}
        if action == "addProjectAccess":
            taken = Conflict(f"Volume type access for {row.id} / {said['project']} combination already exists.")
            await rows.add(connection, volume_type_projects, access, taken)
        elif not await rows.remove(connection, volume_type_projects, **access):
            raise NotFound(f"Volume type access not found for {row.id} / {said['project']} combination.")
    return None
