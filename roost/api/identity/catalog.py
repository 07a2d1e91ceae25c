"""The catalogue: where each API is, as every client asks for it, and for which projects a user may sign in."""

import uuid
from typing import Any

from roost.api.identity import projects as project_views
from roost.api.identity.shapes import PAGE, PROJECTS
from roost.api.permissions import ANYONE, Permission
from roost.api.routes import Call, Reply, Table
from roost.api.schemas import STRING, array, thing
from roost.errors import Forbidden
from roost.identity import projects
from roost.identity.tokens import Caller

routes = Table(prefix="/v3/auth")

RULES = (
    Permission("identity:get_auth_catalog", ANYONE, "Show the catalogue that one's token has."),
    Permission("identity:get_auth_projects", ANYONE, "List the projects that one may sign in for."),
)

# Clustering is unversioned: its clients add the version themselves.
_SERVICES = (
    ("identity", "keystone", "/identity"),
    ("compute", "nova", "/compute/v2.1"),
    ("clustering", "senlin", "/clustering"),
    ("image", "glance", "/image"),
)
_INTERFACES = ("public", "internal", "admin")

_ENDPOINT = thing(dict.fromkeys(("id", "region", "region_id", "url"), STRING) | {"interface": {"enum": [*_INTERFACES]}})
CATALOG = array(thing({"id": STRING, "type": STRING, "name": STRING, "endpoints": array(_ENDPOINT)}))
"""What a catalogue looks like."""


@routes.get("/catalog", rule="identity:get_auth_catalog", response=thing({"catalog": CATALOG, **PAGE}))
async def show(call: Call) -> Reply:
    """The catalogue of the caller's token."""
    if not has_one(call.caller):
        raise Forbidden("A project-scoped token is required to produce a service catalog.")
    return {"catalog": view(call), "links": {"next": None, "self": call.url, "previous": None}}


@routes.get("/projects", rule="identity:get_auth_projects", response=PROJECTS)
async def index_projects(call: Call) -> Reply:
    """The projects that the caller may sign in for."""
    async with call.services.database.begin() as connection:
        return project_views.listed(call, await projects.of_user(connection, call.caller.user_id))


def has_one(caller: Caller) -> bool:
    """Whether a token for this has a catalogue: an unscoped one is only good for getting another."""
    return caller.system or caller.project_id is not None


def view(call: Call) -> list[dict[str, Any]]:
    """Every API at the address that this request came to."""
    site, region = call.base.removesuffix("/identity"), call.services.settings.region
    return [
        {
            "id": _id(kind),
            "type": kind,
            "name": name,
            "endpoints": [
                {
                    "id": _id(f"{kind} {interface} {region}"),
                    "interface": interface,
                    "region": region,
                    "region_id": region,
                    "url": site + path,
                }
                for interface in _INTERFACES
            ],
        }
        for kind, name, path in _SERVICES
    ]


def _id(name: str) -> str:
    """The same in every process and after every start."""
    return uuid.uuid5(uuid.NAMESPACE_OID, f"roost catalogue {name}").hex
