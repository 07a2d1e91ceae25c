"""Groups of users."""

from typing import Any

from roost.api import schemas
from roost.api.identity import users as user_views
from roost.api.identity.shapes import NAME, PAGE, described, filters, linked, open_body, page
from roost.api.permissions import ADMIN, Permission
from roost.api.routes import Call, Reply, Table
from roost.api.schemas import STRING, array, thing
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
_GROUP = linked(name=STRING, domain_id=STRING, description=STRING)
_ONE = thing({"group": _GROUP})
_LIST = thing({"groups": array(_GROUP), **PAGE})
_MEMBER = "/groups/{group_id}/users/{user_id}"


@routes.get("/groups", rule="identity:list_groups", response=_LIST)
async def index(call: Call) -> Reply:
    """List groups, all or by name or domain."""
    async with call.services.database.autocommit() as connection:
        return page(call, "groups", _view, await groups.index(connection, **filters(call, "name", "domain_id")))


@routes.get("/users/{user_id}/groups", rule="identity:list_groups_for_user", owned=True, response=_LIST)
async def index_of_user(call: Call) -> Reply:
    """The groups that a user is in."""
    call.permit("identity:list_groups_for_user", user_id=call.path["user_id"])
    async with call.services.database.autocommit() as connection:
        await users.show(connection, call.path["user_id"])
        return page(call, "groups", _view, await groups.of_user(connection, call.path["user_id"]))


@routes.get("/groups/{group_id}", rule="identity:get_group", response=_ONE)
async def show(call: Call) -> Reply:
    """Show a group; a name is not an id."""
    async with call.services.database.autocommit() as connection:
        return {"group": _view(call, await groups.show(connection, call.path["group_id"]))}


@routes.post(
    "/groups", rule="identity:create_group", status=201, body=open_body("group", _KNOWN, ("name",)), response=_ONE
)
async def create(call: Call) -> Reply:
    """Make a group."""
    values = described(call.body["group"], _KNOWN)
    values["domain_id"] = values.get("domain_id") or call.caller.domain_id or DOMAIN_ID
    async with call.services.database.begin() as connection:
        return {"group": _view(call, await groups.create(connection, values))}


@routes.patch("/groups/{group_id}", rule="identity:update_group", body=open_body("group", _KNOWN), response=_ONE)
async def update(call: Call) -> Reply:
    """Rename or describe a group."""
    changes = described(call.body["group"], _KNOWN)
    changes.pop("domain_id", None)
    async with call.services.database.begin() as connection:
        return {"group": _view(call, await groups.update(connection, call.path["group_id"], changes))}


@routes.delete("/groups/{group_id}", rule="identity:delete_group", status=204)
async def delete(call: Call) -> Reply:
    """Delete a group."""
    async with call.services.database.begin() as connection:
        await groups.delete(connection, call.path["group_id"])
    return None


@routes.get("/groups/{group_id}/users", rule="identity:list_users_in_group", response=user_views.USERS)
async def index_members(call: Call) -> Reply:
    """The users in a group."""
    async with call.services.database.autocommit() as connection:
        return page(call, "users", user_views.view, await groups.members(connection, call.path["group_id"]))


@routes.get(_MEMBER, rule="identity:check_user_in_group", status=204)
async def check(call: Call) -> Reply:
    """Whether a user is in a group."""
    async with call.services.database.autocommit() as connection:
        await groups.check(connection, call.path["group_id"], call.path["user_id"])
    return None


@routes.put(_MEMBER, rule="identity:add_user_to_group", status=204)
async def put(call: Call) -> Reply:
    """Take a user into a group."""
    async with call.services.database.begin() as connection:
        await groups.put(connection, call.path["group_id"], call.path["user_id"])
    return None


@routes.delete(_MEMBER, rule="identity:remove_user_from_group", status=204)
async def take_out(call: Call) -> Reply:
    """Take a user out of a group."""
    async with call.services.database.begin() as connection:
        await groups.take_out(connection, call.path["group_id"], call.path["user_id"])
    return None


def _view(call: Call, row: Any) -> dict[str, Any]:
    return {
        **row.extra,
        "id": row.id,
        "name": row.name,
        "domain_id": row.domain_id,
        "description": row.description,
        "links": {"self": f"{call.base}/v3/groups/{row.id}"},
    }
