"""Domains: there is one, in which all users and projects are."""

from typing import Any

from roost.api import schemas
from roost.api.identity.shapes import PAGE, linked
from roost.api.permissions import ADMIN, ANYONE, Permission
from roost.api.routes import Call, Reply, Table
from roost.api.schemas import STRING, TRUTH, array, thing
from roost.errors import NotFound
from roost.identity.projects import DOMAIN_ID, DOMAIN_NAME

routes = Table(prefix="/v3/domains")

RULES = (
    Permission("identity:list_domains", ADMIN, "List domains."),
    Permission("identity:get_domain", ANYONE, "Show a domain."),
)

DOMAIN_REFERENCE: schemas.Schema = {
    "type": "object",
    "properties": {"id": schemas.STRING, "name": schemas.STRING},
    "anyOf": [{"required": ["id"]}, {"required": ["name"]}],
}
_DOMAIN = linked(description=STRING, enabled=TRUTH, tags=array(STRING))


@routes.get("", rule="identity:list_domains", response=thing({"domains": array(_DOMAIN), **PAGE}))
async def index(call: Call) -> Reply:
    """The one domain, unless another is asked for."""
    asked_for = call.query.get("name", DOMAIN_NAME) == DOMAIN_NAME
    return {"domains": [_view(call)] if asked_for else [], "links": {"next": None, "self": call.url, "previous": None}}


@routes.get("/{domain_id}", rule="identity:get_domain", response=thing({"domain": _DOMAIN}))
async def show(call: Call) -> Reply:
    """Show the domain."""
    if call.path["domain_id"] != DOMAIN_ID:
        raise NotFound(f"Could not find domain: {call.path['domain_id']}.")
    return {"domain": _view(call)}


def is_default(wanted: dict[str, Any]) -> bool:
    """Whether a reference is to the one domain that there is."""
    return bool(wanted["id"] == DOMAIN_ID if "id" in wanted else wanted["name"] == DOMAIN_NAME)


def reference() -> dict[str, str]:
    """The domain, as other things name it."""
    return {"id": DOMAIN_ID, "name": DOMAIN_NAME}


def _view(call: Call) -> dict[str, Any]:
    return {
        "id": DOMAIN_ID,
        "name": DOMAIN_NAME,
        "description": "The default domain",
        "enabled": True,
        "tags": [],
        "options": {},
        "links": {"self": f"{call.base}/v3/domains/{DOMAIN_ID}"},
    }
