"""The catalogue: where each API is, as every client asks for it, and for which projects a user may sign in.

Roost's own services are always in it, at the address that a request came to; services and endpoints that admins add
stand beside them.
"""

import uuid
from dataclasses import dataclass
from typing import Any

from roost.api.identity.shapes import PAGE, PROJECTS
from roost.api.permissions import ANYONE, Permission
from roost.api.routes import Call, Connection, Reply, Table
from roost.api.schemas import NULLABLE_STRING, STRING, array, thing
from roost.errors import Forbidden
from roost.identity import assignments, projects, registry
from roost.identity.tokens import Caller

routes = Table(prefix="/v3/auth")

RULES = (
    Permission("identity:get_auth_catalog", ANYONE, "Show the catalogue that one's token has."),
    Permission("identity:get_auth_projects", ANYONE, "List the projects that one may sign in for."),
)


@dataclass(frozen=True, slots=True)
class OwnService:
    """A service that Roost itself is."""

    type: str
    name: str
    path: str

    @property
    def id(self) -> str:
        """The same in every process and after every start."""
        return _id(self.type)

    def endpoint_id(self, interface: str, region: str) -> str:
        """The id of one of its endpoints."""
        return _id(f"{self.type} {interface} {region}")


# Clustering is unversioned: its clients add the version themselves.
OWN = (
    OwnService("identity", "keystone", "/identity"),
    OwnService("compute", "nova", "/compute/v2.1"),
    OwnService("clustering", "senlin", "/clustering"),
    OwnService("image", "glance", "/image"),
    OwnService("network", "neutron", "/network"),
    OwnService("block-storage", "cinder", "/volume/v3"),
    OwnService("volumev3", "cinderv3", "/volume/v3"),
)
INTERFACES = ("public", "internal", "admin")

_ENDPOINT = thing(
    {"id": STRING, "url": STRING, "region": NULLABLE_STRING, "region_id": NULLABLE_STRING}
    | {"interface": {"enum": [*INTERFACES]}}
)
CATALOG = array(thing({"id": STRING, "type": STRING, "name": STRING, "endpoints": array(_ENDPOINT)}))
"""What a catalogue looks like."""


@routes.get("/catalog", rule="identity:get_auth_catalog", response=thing({"catalog": CATALOG, **PAGE}))
async def show(call: Call, connection: Connection) -> Reply:
    """The catalogue of the caller's token."""
    if not has_one(call.caller):
        raise Forbidden("A project-scoped token is required to produce a service catalog.")
    found = await view(call, connection)
    return {"catalog": found, "links": {"next": None, "self": call.url, "previous": None}}


@routes.get("/projects", rule="identity:get_auth_projects", response=PROJECTS.many)
async def index_projects(call: Call, connection: Connection) -> Reply:
    """The projects that the caller may sign in for."""
    return PROJECTS.listed(call, await projects.of_user(connection, call.caller.user_id))


_SYSTEM = thing({"system": array(thing({"all": {"const": True}}))}, {"links": {}})


@routes.get("/system", rule="identity:get_auth_system", response=_SYSTEM)
async def show_system(call: Call, connection: Connection) -> Reply:
    """Whether the caller may sign in for the whole system."""
    may = await assignments.on_system(connection, call.caller.user_id)
    return {"system": [{"all": True}] if may else [], "links": {"self": call.url}}


def has_one(caller: Caller) -> bool:
    """Whether a token for this has a catalogue: an unscoped one is only good for getting another."""
    return caller.system or caller.project_id is not None or caller.domain_id is not None


async def view(call: Call, connection: Connection) -> list[dict[str, Any]]:
    """Every service that is enabled, with its endpoints."""
    added: dict[str, list[dict[str, Any]]] = {}
    for row in await registry.ENDPOINTS.index(connection, enabled=True):
        added.setdefault(row.service_id, []).append(_entry(row.id, row.interface, row.region_id, row.url))
    own = [
        {
            "id": service.id,
            "type": service.type,
            "name": service.name,
            "endpoints": [*own_endpoints(call, service), *added.get(service.id, ())],
        }
        for service in OWN
    ]
    stored = await registry.SERVICES.index(connection, enabled=True)
    return own + [
        {"id": row.id, "type": row.type, "name": row.name or "", "endpoints": added.get(row.id, [])} for row in stored
    ]


def own_endpoints(call: Call, service: OwnService) -> list[dict[str, Any]]:
    """Where one of Roost's own services is, at the address that this request came to."""
    site, region = call.base.removesuffix("/identity"), call.services.settings.region
    return [
        _entry(service.endpoint_id(interface, region), interface, region, site + service.path)
        for interface in INTERFACES
    ]


def _entry(endpoint_id: str, interface: str, region: str | None, url: str) -> dict[str, Any]:
    return {"id": endpoint_id, "interface": interface, "region": region, "region_id": region, "url": url}


def _id(name: str) -> str:
    return uuid.uuid5(uuid.NAMESPACE_OID, f"roost catalogue {name}").hex
