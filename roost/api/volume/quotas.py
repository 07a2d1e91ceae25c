"""How many volumes, snapshots and gigabytes a project may have, and has."""

from typing import Any

from roost.api.permissions import ADMIN, ANYONE, READER, Permission
from roost.api.routes import Call, Connection, Reply, Table
from roost.api.schemas import INTEGER, STRING, Schema, thing
from roost.compute.inventory import quotas
from roost.volume import volumes
from roost.volume.volumes import QUOTAS

routes = Table(prefix="/v3")

_SETS, _CLASSES = "volume_extension:quotas:", "volume_extension:quota_classes:"
RULES = (
    Permission(
        "limits_extension:used_limits", ANYONE, "Show the limits of one's own project, and what is used of them."
    ),
    Permission("limits_extension:other_project", ADMIN, "Show the limits of another project."),
    Permission(_SETS + "show", READER, "Show the volume quotas of a project."),
    Permission(_SETS + "update", ADMIN, "Set volume quotas of a project."),
    Permission(_SETS + "delete", ADMIN, "Give a project the default volume quotas again."),
    Permission(_CLASSES + "get", ADMIN, "Show the volume quotas of a quota class."),
    Permission(_CLASSES + "update", ADMIN, "Set volume quotas of a quota class."),
)

_LIMIT: Schema = {"type": "integer", "minimum": -1, "maximum": volumes.LARGEST}
_ASKED = thing({}, dict.fromkeys(QUOTAS, _LIMIT))
_SHOWN: Schema = {"anyOf": [INTEGER, thing(dict.fromkeys(("limit", "in_use", "reserved", "allocated"), INTEGER))]}
_SET = thing({"quota_set": thing(dict.fromkeys(QUOTAS, _SHOWN), {"id": STRING})})
_CLASS = thing({"quota_class_set": thing(dict.fromkeys(QUOTAS, INTEGER), {"id": STRING})})
_USED = {"volumes": "totalVolumesUsed", "snapshots": "totalSnapshotsUsed", "gigabytes": "totalGigabytesUsed"}
_MOST = {"volumes": "maxTotalVolumes", "snapshots": "maxTotalSnapshots", "gigabytes": "maxTotalVolumeGigabytes"}
_NONE = ("maxTotalBackups", "maxTotalBackupGigabytes", "totalBackupsUsed", "totalBackupGigabytesUsed")
_ABSOLUTE = thing(dict.fromkeys((*_USED.values(), *_MOST.values(), *_NONE), INTEGER))


@routes.get(
    "/limits",
    rule="limits_extension:used_limits",
    response=thing({"limits": thing({"rate": {"const": []}, "absolute": _ABSOLUTE})}),
)
async def show_limits(call: Call, connection: Connection) -> Reply:
    """Show the limits of a project, and what is used of them."""
    project_id = call.query.get("project_id") or call.caller.project_id or ""
    if project_id != call.caller.project_id:
        call.permit("limits_extension:other_project")
    most, used = await volumes.limits(connection, project_id), await volumes.used(connection, project_id)
    absolute = {shown: most[name] for name, shown in _MOST.items()} | {
        shown: used[name] for name, shown in _USED.items()
    }
    return {"limits": {"rate": [], "absolute": {**absolute, **dict.fromkeys(_NONE, 0)}}}


@routes.get("/os-quota-sets/{project_id}", rule=_SETS + "show", owned=True, response=_SET)
async def show(call: Call, connection: Connection) -> Reply:
    """The quotas of a project; with `usage`, what it has too."""
    project_id = call.path["project_id"]
    call.permit(_SETS + "show", project_id=project_id)
    most, used = await volumes.limits(connection, project_id), await volumes.used(connection, project_id)
    shown: dict[str, Any] = dict(most)
    if call.flag("usage"):
        shown = {name: {"limit": most[name], "in_use": used[name], "reserved": 0, "allocated": 0} for name in QUOTAS}
    return {"quota_set": {"id": project_id, **shown}}


@routes.get("/os-quota-sets/{project_id}/defaults", rule=_SETS + "show", owned=True, response=_SET)
async def show_defaults(call: Call) -> Reply:
    """The quotas that a project has unless others are set."""
    call.permit(_SETS + "show", project_id=call.path["project_id"])
    return {"quota_set": {"id": call.path["project_id"], **await _class(call, quotas.DEFAULT_CLASS)}}


@routes.put("/os-quota-sets/{project_id}", rule=_SETS + "update", body=thing({"quota_set": _ASKED}), response=_SET)
async def update(call: Call, connection: Connection) -> Reply:
    """Set quotas of a project."""
    project_id = call.path["project_id"]
    await quotas.change(connection, QUOTAS, project_id, call.body["quota_set"], force=True)
    return {"quota_set": await volumes.limits(connection, project_id)}


@routes.delete("/os-quota-sets/{project_id}", rule=_SETS + "delete")
async def delete(call: Call, connection: Connection) -> None:
    """Give a project the default quotas again."""
    await quotas.reset(connection, call.path["project_id"], QUOTAS)


@routes.get("/os-quota-class-sets/{name}", rule=_CLASSES + "get", response=_CLASS)
async def show_class(call: Call) -> Reply:
    """The quotas of a class: only those of `default` have any effect."""
    return {"quota_class_set": {"id": call.path["name"], **await _class(call, call.path["name"])}}


@routes.put(
    "/os-quota-class-sets/{name}", rule=_CLASSES + "update", body=thing({"quota_class_set": _ASKED}), response=_CLASS
)
async def update_class(call: Call) -> Reply:
    """Set quotas of a class."""
    async with call.services.database.begin() as connection:
        await quotas.change_class(connection, call.path["name"][:255], call.body["quota_class_set"])
    return {"quota_class_set": await _class(call, call.path["name"][:255])}


async def _class(call: Call, name: str) -> dict[str, int]:
    async with call.services.database.autocommit() as connection:
        found = await quotas.class_limits(connection, QUOTAS, name)
    return {resource: found[resource] for resource in QUOTAS}
