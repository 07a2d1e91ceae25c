"""Groups of users."""

from roost.api import schemas
from roost.api.fields import column
from roost.api.identity.shapes import NAME, IdentityNoun, described, filters, open_body
from roost.api.identity.users import USERS
from roost.api.permissions import ADMIN, Permission
from roost.api.routes import Call, Connection, Reply, Table
from roost.api.schemas import STRING
from roost.identity import groups, users
from roost.identity.domains import DOMAIN_ID

routes = Table(prefix="/v3")

_OWN_OR_ADMIN = "rule:admin_api or user_id:%(user_id)s"
RULES = (
    Permission("identity:list_groups", ADMIN, "List groups."),
    Permission("identity:get_group", ADMIN, "Show a group."),
    Permission("identity:create_group", ADMIN, "Make a group."),
    Permission("identity:update_group", ADMIN, "Rename or describe a group."),
    Permission("identity:delete_group", ADMIN, "Delete a group."),
    Permission("identity:list_users_in_group", ADMIN, "List the users in a group."),
    Permission("identity:list_groups_for_user", _OWN_OR_ADMIN, "List the groups that a user is in."),
    Permission("identity:check_user_in_group", ADMIN, "Ask whether a user is in a group."),
    Permission("identity:add_user_to_group", ADMIN, "Take a user into a group."),
    Permission("identity:remove_user_from_group", ADMIN, "Take a user out of a group."),
)

_KNOWN = {"name": NAME, "description": schemas.NULLABLE_STRING, "domain_id": schemas.NULLABLE_STRING}
_NEW, _CHANGES = open_body("group", _KNOWN, ("name",)), open_body("group", _KNOWN)
_GROUPS = IdentityNoun(
    "group", "groups", column("name", STRING), column("domain_id", STRING), column("description", STRING)
)
_MEMBER = "/groups/{group_id}/users/{user_id}"


@routes.get("/groups", rule="identity:list_groups", response=_GROUPS.many)
async def index(call: Call, connection: Connection) -> Reply:
    """List groups, all or by name or domain."""
    return _GROUPS.listed(call, await groups.index(connection, **filters(call, "name", "domain_id")))


@routes.get("/users/{user_id}/groups", rule="identity:list_groups_for_user", owned=True, response=_GROUPS.many)
async def index_of_user(call: Call, connection: Connection) -> Reply:
    """The groups that a user is in."""
    call.permit("identity:list_groups_for_user", user_id=call.path["user_id"])
    await users.show(connection, call.path["user_id"])
    return _GROUPS.listed(call, await groups.of_user(connection, call.path["user_id"]))


@routes.get("/groups/{group_id}", rule="identity:get_group", response=_GROUPS.one)
async def show(call: Call, connection: Connection) -> Reply:
    """Show a group; a name is not an id."""
    return _GROUPS.shown(call, await groups.show(connection, call.path["group_id"]))


@routes.post("/groups", rule="identity:create_group", status=201, body=_NEW, response=_GROUPS.one)
async def create(call: Call, connection: Connection) -> Reply:
    """Make a group."""
    values = described(call.body["group"], _KNOWN)
    values["domain_id"] = values.get("domain_id") or call.caller.domain_id or DOMAIN_ID
    return _GROUPS.shown(call, await groups.create(connection, values))


@routes.patch("/groups/{group_id}", rule="identity:update_group", body=_CHANGES, response=_GROUPS.one)
async def update(call: Call, connection: Connection) -> Reply:
    """Rename or describe a group."""
    changes = described(call.body["group"], _KNOWN)
    changes.pop("domain_id", None)
    return _GROUPS.shown(call, await groups.update(connection, call.path["group_id"], changes))


@routes.delete("/groups/{group_id}", rule="identity:delete_group", status=204)
async def delete(call: Call, connection: Connection) -> None:
    """Delete a group."""
    await groups.delete(connection, call.path["group_id"])


@routes.get("/groups/{group_id}/users", rule="identity:list_users_in_group", response=USERS.many)
async def index_members(call: Call, connection: Connection) -> Reply:
    """The users in a group."""
    return USERS.listed(call, await groups.members(connection, call.path["group_id"]))


@routes.get(_MEMBER, rule="identity:check_user_in_group", status=204)
async def check(call: Call, connection: Connection) -> None:
    """Whether a user is in a group."""
    await groups.check(connection, call.path["group_id"], call.path["user_id"])


@routes.put(_MEMBER, rule="identity:add_user_to_group", status=204)
async def put(call: Call, connection: Connection) -> None:
    """Take a user into a group."""
    await groups.put(connection, call.path["group_id"], call.path["user_id"])


@routes.delete(_MEMBER, rule="identity:remove_user_from_group", status=204)
async def take_out(call: Call, connection: Connection) -> None:
    """Take a user out of a group."""
    await groups.take_out(connection, call.path["group_id"], call.path["user_id"])
