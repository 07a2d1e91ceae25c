"""Users: read by themselves, made and changed by admins."""

from roost.api import schemas
from roost.api.auth import REFUSAL
from roost.api.fields import always, column, given
from roost.api.identity.shapes import NAME, NO_OPTIONS, OPTIONS, PROJECTS, IdentityNoun, filters, open_body, split
from roost.api.identity.tokens import limit
from roost.api.permissions import ADMIN, Permission
from roost.api.routes import Call, Connection, Reply, Table
from roost.api.schemas import TRUTH
from roost.errors import Invalid, Unauthorized
from roost.identity import projects, sign_ins, users
from roost.identity.domains import DOMAIN_ID

routes = Table(prefix="/v3/users")

_SELF_OR_ADMIN = "rule:admin_api or user_id:%(user_id)s"
RULES = (
    Permission("identity:list_users", ADMIN, "List all users."),
    Permission("identity:get_user", _SELF_OR_ADMIN, "Show a user."),
    Permission("identity:list_user_projects", _SELF_OR_ADMIN, "List the projects in which a user has a role."),
    Permission("identity:create_user", ADMIN, "Make a user."),
    Permission("identity:update_user", ADMIN, "Change a user, or set its password."),
    Permission("identity:delete_user", ADMIN, "Delete a user."),
)

_OWN: dict[str, schemas.Schema] = {
    "name": NAME,
    "password": schemas.NULLABLE_STRING,
    "enabled": TRUTH,
    "description": schemas.NULLABLE_STRING,
    "default_project_id": schemas.NULLABLE_STRING,
    "domain_id": schemas.NULLABLE_STRING,
    "options": OPTIONS,
}
_CREATE = open_body("user", _OWN, ("name",))
_UPDATE = open_body("user", {**_OWN, "password": schemas.STRING})
_PASSWORD = schemas.thing(
    {"user": schemas.thing({"original_password": schemas.STRING, "password": schemas.STRING})},
)


USERS = IdentityNoun(
    *("user", "users"),
    column("name", schemas.STRING),
    column("domain_id", schemas.STRING),
    column("enabled", TRUTH),
    always("password_expires_at", None),
    given("description", schemas.STRING),
    given("default_project_id", schemas.STRING),
    NO_OPTIONS,
)


@routes.get("", rule="identity:list_users", response=USERS.many)
async def index(call: Call, connection: Connection) -> Reply:
    """List users, all or by name, state or domain."""
    return USERS.listed(call, await users.index(connection, **filters(call, "name", "enabled", "domain_id")))


@routes.get("/{user_id}", rule="identity:get_user", owned=True, response=USERS.one)
async def show(call: Call, connection: Connection) -> Reply:
    """Show a user; a name is not an id."""
    call.permit("identity:get_user", user_id=call.path["user_id"])
    return USERS.shown(call, await users.show(connection, call.path["user_id"]))


@routes.get("/{user_id}/projects", rule="identity:list_user_projects", owned=True, response=PROJECTS.many)
async def index_projects(call: Call, connection: Connection) -> Reply:
    """The projects in which a user has a role."""
    call.permit("identity:list_user_projects", user_id=call.path["user_id"])
    await users.show(connection, call.path["user_id"])
    return PROJECTS.listed(call, await projects.of_user(connection, call.path["user_id"]))


@routes.post("", rule="identity:create_user", status=201, body=_CREATE, response=USERS.one)
async def create(call: Call) -> Reply:
    """Make a user; without a password it cannot sign in until it is given one."""
    values, extra = split(call.body["user"], _OWN)
    name, password = values.pop("name"), values.pop("password", None)
    values.pop("options", None)
    values["domain_id"] = values.get("domain_id") or call.caller.domain_id or DOMAIN_ID
    password_hash = await users.hashed(password)
    async with call.services.database.begin() as connection:
        return USERS.shown(call, await users.create(connection, name, password_hash, **values, extra=extra))


@routes.patch("/{user_id}", rule="identity:update_user", body=_UPDATE, response=USERS.one)
async def update(call: Call) -> Reply:
    """Change a user; a new password or state ends all its tokens."""
    changes, extra = split(call.body["user"], _OWN)
    changes.pop("options", None)
    if "password" in changes:
        changes["password_hash"] = await users.hashed(changes.pop("password"))
    async with call.services.database.begin() as connection:
        before = await users.show(connection, call.path["user_id"])
        if changes.pop("domain_id", None) not in (before.domain_id, None):
            raise Invalid("A user stays in its domain.")
        if extra:
            changes["extra"] = {**before.extra, **extra}
        user = await users.update(connection, before.id, changes)
        if "password_hash" in changes:
            await sign_ins.forget(connection, user.id)
        return USERS.shown(call, user)


@routes.post("/{user_id}/password", public=True, status=204, body=_PASSWORD)
async def change_password(call: Call) -> None:
    """Change one's own password: who knows it needs no token. All tokens of the user end."""
    wanted = call.body["user"]
    database, user_id = call.services.database, call.path["user_id"]
    async with sign_ins.addresses.turn(call.address):
        proof = await sign_ins.prove(database, limit(call), wanted["original_password"], user_id=user_id)
        if proof is None:
            raise Unauthorized(REFUSAL)
        password_hash = await users.hashed(wanted["password"])
    async with database.begin() as connection:
        if not await sign_ins.hold(connection, limit(call), proof):
            raise Unauthorized(REFUSAL)
        await users.update(connection, user_id, {"password_hash": password_hash})


@routes.delete("/{user_id}", rule="identity:delete_user", status=204)
async def delete(call: Call, connection: Connection) -> None:
    """Delete a user."""
    await users.delete(connection, call.path["user_id"])
