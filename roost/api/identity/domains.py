"""Domains, which users, groups and projects are in."""

from typing import Any

from roost.api import schemas
from roost.api.identity.shapes import NAME, OPTIONS, PAGE, TAGS, described, filters, named, open_body, page
from roost.api.permissions import ADMIN, ANYONE, Permission
from roost.api.routes import Call, Reply, Table
from roost.api.schemas import STRING, TRUTH, array, thing
from roost.identity import domains

routes = Table(prefix="/v3")

RULES = (
    Permission("identity:list_domains", ADMIN, "List domains."),
    Permission("identity:get_domain", ANYONE, "Show a domain."),
    Permission("identity:create_domain", ADMIN, "Make a domain."),
    Permission("identity:update_domain", ADMIN, "Rename, describe, enable or disable a domain."),
    Permission("identity:delete_domain", ADMIN, "Delete a domain with all that is in it."),
    Permission("identity:get_auth_domains", ANYONE, "List the domains that one may sign in for."),
    Permission("identity:get_auth_system", ANYONE, "See whether one may sign in for the whole system."),
)

DOMAIN_REFERENCE: schemas.Schema = {
    "type": "object",
    "properties": {"id": schemas.STRING, "name": schemas.STRING},
    "anyOf": [{"required": ["id"]}, {"required": ["name"]}],
}
_KNOWN = {"name": NAME, "description": schemas.NULLABLE_STRING, "enabled": TRUTH, "tags": TAGS, "options": OPTIONS}
_DOMAIN = named(description=STRING, enabled=TRUTH, tags=array(STRING))
_ONE = thing({"domain": _DOMAIN})
_LIST = thing({"domains": array(_DOMAIN), **PAGE})
_COLUMNS = ("name", "description", "enabled", "tags")


@routes.get("/domains", rule="identity:list_domains", response=_LIST)
async def index(call: Call) -> Reply:
    """List domains, all or by name or state."""
    async with call.services.database.autocommit() as connection:
        return page(call, "domains", _view, await domains.index(connection, **filters(call, "name", "enabled")))


@routes.get("/auth/domains", rule="identity:get_auth_domains", response=_LIST)
async def index_own(call: Call) -> Reply:
    """The domains that the caller may sign in for."""
    async with call.services.database.autocommit() as connection:
        return page(call, "domains", _view, await domains.of_user(connection, call.caller.user_id))


@routes.get("/domains/{domain_id}", rule="identity:get_domain", response=_ONE)
async def show(call: Call) -> Reply:
    """Show a domain; a name is not an id."""
    async with call.services.database.autocommit() as connection:
        return {"domain": _view(call, await domains.show(connection, call.path["domain_id"]))}


@routes.post(
    "/domains",
    rule="identity:create_domain",
    status=201,
    body=open_body("domain", _KNOWN, ("name",)),
    response=_ONE,
)
async def create(call: Call) -> Reply:
    """Make a domain."""
    async with call.services.database.begin() as connection:
        made = await domains.create(connection, described(call.body["domain"], _COLUMNS))
    return {"domain": _view(call, made)}


@routes.patch("/domains/{domain_id}", rule="identity:update_domain", body=open_body("domain", _KNOWN), response=_ONE)
async def update(call: Call) -> Reply:
    """Change a domain."""
    domain_id = call.path["domain_id"]
    async with call.services.database.begin() as connection:
        before = await domains.show(connection, domain_id)
        changes = described(call.body["domain"], _COLUMNS)
        changes["extra"] = {**before.extra, **changes.get("extra", {})}
        return {"domain": _view(call, await domains.update(connection, domain_id, changes))}


@routes.delete("/domains/{domain_id}", rule="identity:delete_domain", status=204)
async def delete(call: Call) -> Reply:
    """Delete a domain, which must be disabled."""
    async with call.services.database.begin() as connection:
        await domains.delete(connection, call.path["domain_id"])
    return None


def reference(domain_id: str, name: str) -> dict[str, str]:
    """A domain, as other things name it."""
    return {"id": domain_id, "name": name}


def _view(call: Call, row: Any) -> dict[str, Any]:
    return {
        **row.extra,
        "id": row.id,
        "name": row.name,
        "description": row.description,
        "enabled": row.enabled,
        "tags": row.tags,
        "options": {},
        "links": {"self": f"{call.base}/v3/domains/{row.id}"},
    }
