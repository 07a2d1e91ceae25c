"""What versions and extensions of the network API there are."""

from typing import Any

from roost.api.permissions import ANYONE, Permission
from roost.api.routes import Call, Reply, Table
from roost.api.schemas import STRING, array, thing, version_document
from roost.errors import NotFound

routes = Table()

RULES = (
    Permission("get_extension", ANYONE, "List extensions of the network API."),
    Permission("get_service_provider", ANYONE, "List who provides services of networks."),
)

_EXTENSIONS = {
    "security-group": "Security groups",
    "quotas": "Quotas, for admins to set",
    "quota_details": "What of a quota is used",
    "quota-check-limit": "Quotas that are not set below what is used",
    "external-net": "Neutron external network",
    "router": "Neutron L3 Router",
    "extraroute": "Neutron Extra Route",
    "ext-gw-mode": "Neutron L3 Configurable external gateway mode",
    "net-mtu": "How large a packet may be",
    "standard-attr-description": "Descriptions",
    "standard-attr-tag": "Tags",
    "standard-attr-timestamp": "When things were made and changed",
    "project-id": "project_id beside tenant_id",
    "port-security": "Ports that check what is sent",
    "allowed-address-pairs": "Further addresses of a port",
    "extra_dhcp_opt": "DHCP options of a port",
    "subnet-service-types": "What a subnet is for",
    "service-type": "Who provides services of networks",
}
_EXTENSION = thing({**dict.fromkeys(("alias", "name", "description", "updated"), STRING), "links": array({})})


@routes.get("/", public=True, response=thing({"versions": array(version_document())}))
async def index(call: Call) -> Reply:
    """The one version."""
    return {"versions": [_document(call)]}


@routes.get("/v2.0", public=True, response=thing({"resources": array({"type": "object"})}))
async def show(call: Call) -> Reply:
    """What the one version has."""
    names = (
        *("networks", "subnets", "ports", "security-groups", "security-group-rules", "floatingips", "routers"),
        *("quotas", "extensions"),
    )
    return {
        "resources": [
            {
                "name": name.rstrip("s"),
                "collection": name,
                "links": [{"rel": "self", "href": f"{call.base}/v2.0/{name}"}],
            }
            for name in names
        ]
    }


@routes.get("/v2.0/extensions", rule="get_extension", response=thing({"extensions": array(_EXTENSION)}))
async def index_extensions(call: Call) -> Reply:
    """What is there beyond the first Neutron."""
    return {"extensions": [_extension(alias) for alias in _EXTENSIONS]}


@routes.get("/v2.0/extensions/{alias}", rule="get_extension", response=thing({"extension": _EXTENSION}))
async def show_extension(call: Call) -> Reply:
    """One extension."""
    if call.path["alias"] not in _EXTENSIONS:
        raise NotFound(f"Extension with alias {call.path['alias']} does not exist")
    return {"extension": _extension(call.path["alias"])}


@routes.get("/v2.0/service-providers", rule="get_service_provider", response=thing({"service_providers": array({})}))
async def index_service_providers(call: Call) -> Reply:
    """None: there are no VPNs or firewalls. The cleanup of openstacksdk asks for them before it looks at networks."""
    return {"service_providers": []}


def _document(call: Call) -> dict[str, Any]:
    return {"id": "v2.0", "status": "CURRENT", "links": [{"rel": "self", "href": f"{call.base}/v2.0/"}]}


def _extension(alias: str) -> dict[str, Any]:
    said = _EXTENSIONS[alias]
    return {"alias": alias, "name": said, "description": said, "updated": "2026-11-16T00:00:00-00:00", "links": []}
