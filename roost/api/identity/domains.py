"""Domains, which users, groups and projects are in."""

from roost.api import schemas
from roost.api.fields import column
from roost.api.identity.shapes import NAME, NO_OPTIONS, OPTIONS, TAGS, IdentityNoun, described, filters, open_body
from roost.api.permissions import ADMIN, ANYONE, Permission
from roost.api.routes import Call, Connection, Reply, Table
from roost.api.schemas import STRING, TRUTH, array
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
_NEW, _CHANGES = open_body("domain", _KNOWN, ("name",)), open_body("domain", _KNOWN)
_DOMAINS = IdentityNoun(
    *("domain", "domains"),
    column("name", STRING),
    column("description", STRING),
    column("enabled", TRUTH),
    column("tags", array(STRING)),
    NO_OPTIONS,
)
_COLUMNS = ("name", "description", "enabled", "tags")


@routes.get("/domains", rule="identity:list_domains", response=_DOMAINS.many)
async def index(call: Call, connection: Connection) -> Reply:
    """List domains, all or by name or state."""
    return _DOMAINS.listed(call, await domains.index(connection, **filters(call, "name", "enabled")))


@routes.get("/auth/domains", rule="identity:get_auth_domains", response=_DOMAINS.many)
async def index_own(call: Call, connection: Connection) -> Reply:
    """The domains that the caller may sign in for."""
    return _DOMAINS.listed(call, await domains.of_user(connection, call.caller.user_id))


@routes.get("/domains/{domain_id}", rule="identity:get_domain", response=_DOMAINS.one)
async def show(call: Call, connection: Connection) -> Reply:
    """Show a domain; a name is not an id."""
    return _DOMAINS.shown(call, await domains.show(connection, call.path["domain_id"]))


@routes.post("/domains", rule="identity:create_domain", status=201, body=_NEW, response=_DOMAINS.one)
async def create(call: Call, connection: Connection) -> Reply:
    """Make a domain."""
    return _DOMAINS.shown(call, await domains.create(connection, described(call.body["domain"], _COLUMNS)))


@routes.patch("/domains/{domain_id}", rule="identity:update_domain", body=_CHANGES, response=_DOMAINS.one)
async def update(call: Call, connection: Connection) -> Reply:
    """Change a domain."""
    domain_id = call.path["domain_id"]
    before = await domains.show(connection, domain_id)
    changes = described(call.body["domain"], _COLUMNS)
    changes["extra"] = {**before.extra, **changes.get("extra", {})}
    return _DOMAINS.shown(call, await domains.update(connection, domain_id, changes))


@routes.delete("/domains/{domain_id}", rule="identity:delete_domain", status=204)
async def delete(call: Call, connection: Connection) -> None:
    """Delete a domain, which must be disabled."""
    await domains.delete(connection, call.path["domain_id"])


def reference(domain_id: str, name: str) -> dict[str, str]:
    """A domain, as other things name it."""
    return {"id": domain_id, "name": name}
