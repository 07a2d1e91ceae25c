"""Users: read by themselves, made and changed by admins."""

from typing import Any

from roost.api import schemas
from roost.api.auth import REFUSAL
from roost.api.identity import projects as project_views
from roost.api.identity.shapes import PAGE, PROJECTS, linked
from roost.api.identity.tokens import limit
from roost.api.permissions import ADMIN, Permission
from roost.api.routes import Call, Reply, Table
from roost.api.schemas import NULL, TRUTH
from roost.errors import Unauthorized
from roost.identity import projects, sign_ins, users
from roost.identity.projects import DOMAIN_ID

routes = Table(prefix="/v3/users")

_SELF_OR_ADMIN = "rule:admin_api or user_id:%(user_id)s"
RULES = (
    Permission("identity:list_users", ADMIN, "List all users."),
    Permission("identity:get_user", _SELF_OR_ADMIN, "Show a user."),
    Permission("identity:list_user_projects", _SELF_OR_ADMIN, "List the projects in which a user has a role."),
    Permission("identity:create_user", ADMIN, "Make a user."),
    Permission("identity:update_user", ADMIN, "Rename, enable or disable a user, or set its password."),
    Permission("identity:delete_user", ADMIN, "Delete a user."),
)

_NAME: schemas.Schema = {"type": "string", "minLength": 1, "maxLength": 255, "pattern": r"[\S]+"}
_DOMAIN: schemas.Schema = {"enum": [DOMAIN_ID, None]}
_CREATE = schemas.thing(
    {
        "user": {
            "type": "object",
            "properties": {
                "name": _NAME,
                "password": schemas.NULLABLE_STRING,
                "enabled": TRUTH,
                "domain_id": _DOMAIN,
            },
            "required": ["name"],
        }
    }
)
_CHANGEABLE = {"name": _NAME, "password": schemas.STRING, "enabled": TRUTH}
_UPDATE = schemas.thing({"user": {"type": "object", "properties": {**_CHANGEABLE, "domain_id": _DOMAIN}}})
_PASSWORD = schemas.thing(
    {"user": schemas.thing({"original_password": schemas.STRING, "password": schemas.STRING})},
)
_USER = linked(domain_id=schemas.STRING, enabled=TRUTH, password_expires_at=NULL)
_ONE = schemas.thing({"user": _USER})


@routes.get("", rule="identity:list_users", response=schemas.thing({"users": schemas.array(_USER), **PAGE}))
async def index(call: Call) -> Reply:
    """List users, all or by name."""
    async with call.services.database.begin() as connection:
        rows = await users.index(connection, **project_views.filters(call))
    return {
        "users": [_view(call, row) for row in rows],
        "links": {"next": None, "self": call.url, "previous": None},
    }


@routes.get("/{user_id}", rule="identity:get_user", owned=True, response=_ONE)
async def show(call: Call) -> Reply:
    """Show a user; a name is not an id."""
    call.permit("identity:get_user", user_id=call.path["user_id"])
    async with call.services.database.begin() as connection:
        return {"user": _view(call, await users.show(connection, call.path["user_id"]))}


@routes.get("/{user_id}/projects", rule="identity:list_user_projects", owned=True, response=PROJECTS)
async def index_projects(call: Call) -> Reply:
    """The projects in which a user has a role."""
    call.permit("identity:list_user_projects", user_id=call.path["user_id"])
    async with call.services.database.begin() as connection:
        await users.show(connection, call.path["user_id"])
        return project_views.listed(call, await projects.of_user(connection, call.path["user_id"]))


@routes.post("", rule="identity:create_user", status=201, body=_CREATE, response=_ONE)
async def create(call: Call) -> Reply:
    """Make a user; of what Keystone also keeps (email, description, a default project) nothing is kept here."""
    wanted = call.body["user"]
    async with call.services.database.begin() as connection:
        row = await users.create(connection, wanted["name"], wanted.get("password"), wanted.get("enabled", True))
    return {"user": _view(call, row)}


@routes.patch("/{user_id}", rule="identity:update_user", body=_UPDATE, response=_ONE)
async def update(call: Call) -> Reply:
    """Rename, enable or disable a user, or set its password; the last two end all its tokens."""
    changes = {key: value for key, value in call.body["user"].items() if key in _CHANGEABLE}
    async with call.services.database.begin() as connection:
        user = await users.update(connection, call.path["user_id"], changes)
        if "password" in changes:
            await sign_ins.forget(connection, user.id)
        return {"user": _view(call, user)}


@routes.post("/{user_id}/password", public=True, status=204, body=_PASSWORD)
async def change_password(call: Call) -> Reply:
    """Change one's own password: who knows it needs no token. All tokens of the user end."""
    wanted = call.body["user"]
    database, user_id = call.services.database, call.path["user_id"]
    proof = await sign_ins.prove(database, limit(call), wanted["original_password"], user_id=user_id)
    if proof is None:
        raise Unauthorized(REFUSAL)
    async with database.begin() as connection:
        if not await sign_ins.hold(connection, limit(call), proof):
            raise Unauthorized(REFUSAL)
        await users.update(connection, user_id, {"password": wanted["password"]})
    return None


@routes.delete("/{user_id}", rule="identity:delete_user", status=204)
async def delete(call: Call) -> Reply:
    """Delete a user."""
    async with call.services.database.begin() as connection:
        await users.delete(connection, call.path["user_id"])
    return None


def _view(call: Call, row: Any) -> dict[str, Any]:
    return {
        "id": row.id,
        "name": row.name,
        "domain_id": DOMAIN_ID,
        "enabled": row.enabled,
        "password_expires_at": None,
        "options": {},
        "links": {"self": f"{call.base}/v3/users/{row.id}"},
    }
