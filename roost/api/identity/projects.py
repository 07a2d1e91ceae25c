"""Projects: read by their users, made and changed by admins."""

from collections.abc import Iterable
from typing import Any

from roost.api import schemas
from roost.api.identity.shapes import PROJECT, PROJECTS
from roost.api.permissions import ADMIN, Permission
from roost.api.routes import Call, Reply, Table
from roost.identity import projects
from roost.identity.projects import DOMAIN_ID

routes = Table(prefix="/v3/projects")

RULES = (
    Permission("identity:list_projects", ADMIN, "List all projects."),
    Permission("identity:get_project", "rule:admin_api or project_id:%(project_id)s", "Show a project."),
    Permission("identity:create_project", ADMIN, "Make a project."),
    Permission("identity:update_project", ADMIN, "Rename, describe, enable or disable a project."),
    Permission("identity:delete_project", ADMIN, "Delete a project."),
)

_NAME: schemas.Schema = {"type": "string", "minLength": 1, "maxLength": 64, "pattern": r"[\S]+"}
_CHANGEABLE = {"name": _NAME, "description": schemas.NULLABLE_STRING, "enabled": {"type": "boolean"}}
# There is one domain, so nothing else can be meant by it.
_DOMAIN: schemas.Schema = {"enum": [DOMAIN_ID, None]}
_CREATE = schemas.thing(
    {
        "project": {
            "type": "object",
            "properties": {**_CHANGEABLE, "domain_id": _DOMAIN, "parent_id": _DOMAIN, "is_domain": {"const": False}},
            "required": ["name"],
        }
    }
)
_UPDATE = schemas.thing({"project": {"type": "object", "properties": {**_CHANGEABLE, "domain_id": _DOMAIN}}})
_ONE = schemas.thing({"project": PROJECT})


@routes.get("", rule="identity:list_projects", response=PROJECTS)
async def index(call: Call) -> Reply:
    """List projects, all or by name."""
    async with call.services.database.begin() as connection:
        return listed(call, await projects.index(connection, **filters(call)))


@routes.get("/{project_id}", rule="identity:get_project", owned=True, response=_ONE)
async def show(call: Call) -> Reply:
    """Show a project; a name is not an id."""
    # Before it is looked up, so that others cannot learn which ids there are.
    call.permit("identity:get_project", project_id=call.path["project_id"])
    async with call.services.database.begin() as connection:
        return {"project": _view(call, await projects.show(connection, call.path["project_id"]))}


@routes.post("", rule="identity:create_project", status=201, body=_CREATE, response=_ONE)
async def create(call: Call) -> Reply:
    """Make a project."""
    wanted = call.body["project"]
    async with call.services.database.begin() as connection:
        row = await projects.create(
            connection, wanted["name"], wanted.get("description") or "", wanted.get("enabled", True)
        )
    return {"project": _view(call, row)}


@routes.patch("/{project_id}", rule="identity:update_project", body=_UPDATE, response=_ONE)
async def update(call: Call) -> Reply:
    """Rename, describe, enable or disable a project."""
    changes = {key: value for key, value in call.body["project"].items() if key in _CHANGEABLE}
    if "description" in changes:
        changes["description"] = changes["description"] or ""
    async with call.services.database.begin() as connection:
        return {"project": _view(call, await projects.update(connection, call.path["project_id"], changes))}


@routes.delete("/{project_id}", rule="identity:delete_project", status=204)
async def delete(call: Call) -> Reply:
    """Delete a project."""
    async with call.services.database.begin() as connection:
        await projects.delete(connection, call.path["project_id"])
    return None


def listed(call: Call, rows: Iterable[Any]) -> dict[str, Any]:
    """A list of projects."""
    return {
        "projects": [_view(call, row) for row in rows],
        "links": {"next": None, "self": call.url, "previous": None},
    }


def filters(call: Call) -> dict[str, Any]:
    """What a list of projects or users is asked to be limited to."""
    wanted: dict[str, Any] = {"name": call.query["name"]} if "name" in call.query else {}
    if "enabled" in call.query:
        wanted["enabled"] = call.query["enabled"].lower() not in ("false", "0")
    return wanted


def _view(call: Call, row: Any) -> dict[str, Any]:
    return {
        "id": row.id,
        "name": row.name,
        "domain_id": DOMAIN_ID,
        "parent_id": DOMAIN_ID,
        "description": row.description,
        "enabled": row.enabled,
        "is_domain": False,
        "tags": [],
        "options": {},
        "links": {"self": f"{call.base}/v3/projects/{row.id}"},
    }
