"""How many networks, ports and security groups a project may have."""

from roost.api.permissions import ADMIN, READER, Permission
from roost.api.routes import Call, Connection, Reply, Table
from roost.api.schemas import INTEGER, TRUTH, Schema, array, by_name, thing
from roost.errors import Invalid
from roost.network import networks

routes = Table(prefix="/v2.0/quotas")

RULES = (
    Permission("get_quota", READER, "Show the quotas of a project."),
    Permission("update_quota", ADMIN, "Set the quotas of a project."),
    Permission("delete_quota", ADMIN, "Let a project have the usual quotas again."),
)

_LIMIT: Schema = {"type": "integer", "minimum": -1, "maximum": 2147483647}
_IGNORED: dict[str, Schema] = {"tenant_id": {}, "project_id": {}, "force": {}}
_QUOTA = thing({"quota": by_name(INTEGER)})
_DETAILS = thing({"quota": by_name(thing({"limit": INTEGER, "used": INTEGER, "reserved": INTEGER}))})


@routes.get("", rule="update_quota", response=thing({"quotas": array({"type": "object"})}))
async def index(call: Call, connection: Connection) -> Reply:
    """The projects whose quotas were set."""
    owners = await networks.all_limits(connection)
    views = [{**limits, "project_id": owner, "tenant_id": owner} for owner, limits in owners.items()]
    return {"quotas": views}


@routes.get("/{project_id}", rule="get_quota", owned=True, response=_QUOTA)
async def show(call: Call, connection: Connection) -> Reply:
    """The quotas of a project."""
    call.permit("get_quota", project_id=call.path["project_id"])
    return {"quota": await networks.limits(connection, call.path["project_id"])}


@routes.get("/{project_id}/default", rule="get_quota", owned=True, response=_QUOTA)
async def show_default(call: Call) -> Reply:
    """The default quotas."""
    call.permit("get_quota", project_id=call.path["project_id"])
    return {"quota": dict(networks.QUOTAS)}


@routes.get("/{project_id}/details", rule="get_quota", owned=True, response=_DETAILS)
@routes.get("/{project_id}/details.json", rule="get_quota", owned=True, response=_DETAILS)
async def show_details(call: Call, connection: Connection) -> Reply:
    """The quotas of a project, and what it has."""
    project_id = call.path["project_id"]
    call.permit("get_quota", project_id=project_id)
    limits, used = await networks.limits(connection, project_id), await networks.used(connection, project_id)
    return {"quota": {key: {"limit": limits[key], "used": used[key], "reserved": 0} for key in limits}}


@routes.put(
    "/{project_id}",
    rule="update_quota",
    body=thing({"quota": thing({}, {**dict.fromkeys(networks.QUOTAS, _LIMIT), "check_limit": TRUTH, **_IGNORED})}),
    response=_QUOTA,
)
async def update(call: Call, connection: Connection) -> Reply:
    """Set quotas of a project; with `check_limit`, none below what it has."""
    project_id = call.path["project_id"]
    used = await networks.used(connection, project_id) if call.body["quota"].get("check_limit") else {}
    for resource in networks.QUOTAS:
        if resource in call.body["quota"]:
            if 0 <= call.body["quota"][resource] < used.get(resource, 0):
                raise Invalid(f"Quota limit of {resource} is below the {used[resource]} that the project has.")
            await networks.set_limit(connection, project_id, resource, call.body["quota"][resource])
    return {"quota": await networks.limits(connection, project_id)}


@routes.delete("/{project_id}", rule="delete_quota", status=204)
async def delete(call: Call, connection: Connection) -> None:
    """Let a project have the usual quotas again."""
    await networks.reset_limits(connection, call.path["project_id"])
