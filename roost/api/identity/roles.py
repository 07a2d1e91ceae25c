"""Roles, and who has which in which project."""

from typing import Any

from roost.api.identity.shapes import PAGE, linked
from roost.api.permissions import ADMIN, Permission
from roost.api.routes import Call, Reply, Table
from roost.api.schemas import NULL, array, thing
from roost.identity import assignments, projects, roles, users
from roost.identity.roles import ROLES, Role

routes = Table(prefix="/v3")

RULES = (
    Permission("identity:list_roles", ADMIN, "List roles."),
    Permission("identity:get_role", ADMIN, "Show a role."),
    Permission("identity:list_grants", ADMIN, "List the roles that a user was given in a project."),
    Permission("identity:check_grant", ADMIN, "Ask whether a user was given a role in a project."),
    Permission("identity:create_grant", ADMIN, "Give a user a role in a project."),
    Permission("identity:revoke_grant", ADMIN, "Take a role in a project from a user."),
)

_GRANT = "/projects/{project_id}/users/{user_id}/roles/{role_id}"
_ROLE = linked(domain_id=NULL, description=NULL)
_ROLES = thing({"roles": array(_ROLE), **PAGE})


@routes.get("/roles", rule="identity:list_roles", response=_ROLES)
async def index(call: Call) -> Reply:
    """List roles, all or by name."""
    name = call.query.get("name")
    return _listed(call, [role for role in ROLES if name in (None, role.name)])


@routes.get("/roles/{role_id}", rule="identity:get_role", response=thing({"role": _ROLE}))
async def show(call: Call) -> Reply:
    """Show a role; a name is not an id."""
    return {"role": _view(call, roles.show(call.path["role_id"]))}


@routes.get("/projects/{project_id}/users/{user_id}/roles", rule="identity:list_grants", response=_ROLES)
async def index_grants(call: Call) -> Reply:
    """The roles that a user was given in a project."""
    user_id, project_id = call.path["user_id"], call.path["project_id"]
    async with call.services.database.begin() as connection:
        await projects.show(connection, project_id)
        await users.show(connection, user_id)
        return _listed(call, await assignments.granted(connection, user_id, project_id))


@routes.get(_GRANT, rule="identity:check_grant", status=204)
async def check(call: Call) -> Reply:
    """Whether a user was given a role in a project."""
    async with call.services.database.begin() as connection:
        await assignments.check(connection, **_grant(call))
    return None


@routes.put(_GRANT, rule="identity:create_grant", status=204)
async def grant(call: Call) -> Reply:
    """Give a user a role in a project."""
    async with call.services.database.begin() as connection:
        await assignments.grant(connection, **_grant(call))
    return None


@routes.delete(_GRANT, rule="identity:revoke_grant", status=204)
async def withdraw(call: Call) -> Reply:
    """Take a role in a project from a user."""
    async with call.services.database.begin() as connection:
        await assignments.withdraw(connection, **_grant(call))
    return None


def _grant(call: Call) -> dict[str, Any]:
    role = roles.show(call.path["role_id"])
    return {"user_id": call.path["user_id"], "project_id": call.path["project_id"], "role": role}


def _listed(call: Call, found: list[Role]) -> dict[str, Any]:
    return {
        "roles": [_view(call, role) for role in found],
        "links": {"next": None, "self": call.url, "previous": None},
    }


def _view(call: Call, role: Role) -> dict[str, Any]:
    return {
        "id": role.id,
        "name": role.name,
        "domain_id": None,
        "description": None,
        "options": {},
        "links": {"self": f"{call.base}/v3/roles/{role.id}"},
    }
