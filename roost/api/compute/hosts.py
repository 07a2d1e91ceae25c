"""Hosts, in the old words that `openstack host list` still uses."""

from typing import Any

from roost.api.compute.views import open_query
from roost.api.permissions import ADMIN, Permission
from roost.api.routes import Call, Connection, Reply, Table
from roost.api.schemas import STRING, array, thing
from roost.compute.inventory import hosts, zones
from roost.errors import NotFound

routes = Table(prefix="/v2.1")

_RULE = "os_compute_api:os-hosts:"
RULES = (
    Permission(_RULE + "list", ADMIN, "List hosts, in versions up to 2.42."),
    Permission(_RULE + "show", ADMIN, "Show what a host has and uses, in versions up to 2.42."),
)

_HOST = thing({"host_name": STRING, "service": STRING, "zone": STRING})
_AMOUNT = {"type": "integer"}
_RESOURCE = thing({"host": STRING, "project": STRING, "cpu": _AMOUNT, "memory_mb": _AMOUNT, "disk_gb": _AMOUNT})


@routes.get(
    "/os-hosts",
    until="2.42",
    rule=_RULE + "list",
    query=open_query(zone=STRING),
    response=thing({"hosts": array(_HOST)}),
)
async def index(call: Call, connection: Connection) -> Reply:
    """List the enabled hosts, of one zone (`zone`)."""
    found = [host for host in await hosts.index(connection) if host.enabled]
    named = [{"host_name": host.name, "service": "compute", "zone": zones.zone_of(host)} for host in found]
    wanted = call.query.get("zone")
    return {"hosts": [host for host in named if not wanted or host["zone"] == wanted]}


@routes.get(
    "/os-hosts/{host_name}",
    until="2.42",
    rule=_RULE + "show",
    response=thing({"host": array(thing({"resource": _RESOURCE}))}),
)
async def show(call: Call, connection: Connection) -> Reply:
    """Show what a host has, and what is used of it."""
    name = call.path["host_name"]
    host = await hosts.find(connection, name=name)
    if host is None:
        raise NotFound(f"Compute host {name} could not be found.")

    def resource(project: str, cpu: int, memory_mb: int, disk_gb: int) -> dict[str, Any]:
        amounts = {"cpu": cpu, "memory_mb": memory_mb, "disk_gb": disk_gb}
        return {"resource": {"host": name, "project": project, **amounts}}

    used = (host.vcpus_used, host.memory_mb_used, host.disk_gb_used)
    total = resource("(total)", host.vcpus, host.memory_mb, host.disk_gb)
    return {"host": [total, resource("(used_now)", *used), resource("(used_max)", *used)]}
