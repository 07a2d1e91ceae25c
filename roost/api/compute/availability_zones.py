"""Availability zones, as tenants see them and as operators do."""

from collections.abc import Sequence
from typing import Any

from roost.api.compute.views import closed_query, timestamp
from roost.api.permissions import ADMIN, ANYONE, Permission
from roost.api.routes import Call, Reply, Table
from roost.api.schemas import NULLABLE_STRING, STRING, Schema, array, thing
from roost.compute.inventory import zones
from roost.compute.inventory.hosts import ComputeHost

routes = Table(prefix="/v2.1")

_RULE = "os_compute_api:os-availability-zone:"
RULES = (
    Permission(_RULE + "list", ANYONE, "List availability zones."),
    Permission(_RULE + "detail", ADMIN, "List availability zones with their hosts."),
)

_FLAG: Schema = {"type": "boolean"}
_SERVICE = thing({"available": _FLAG, "active": _FLAG, "updated_at": NULLABLE_STRING})
_HOSTS: Schema = {"type": ["object", "null"], "additionalProperties": thing({"nova-compute": _SERVICE})}


def _answer(hosts: Schema) -> Schema:
    zone = thing({"zoneName": STRING, "zoneState": thing({"available": _FLAG}), "hosts": hosts})
    return thing({"availabilityZoneInfo": array(zone)})


def _describe(hosts: Sequence[ComputeHost]) -> dict[str, Any]:
    return {
        host.name: {
            "nova-compute": {
                "available": not host.forced_down,
                "active": True,
                "updated_at": timestamp(host.updated_at or host.created_at),
            }
        }
        for host in hosts
    }


async def _list(call: Call, *, detail: bool) -> Reply:
    """The zones with an enabled host, by name, and after them those without."""
    async with call.services.database.begin() as connection:
        found = await zones.index(connection)
    listed: list[dict[str, Any]] = []
    for name, hosts in found.items():
        enabled = [host for host in hosts if host.enabled]
        shown = _describe(enabled) if detail and enabled else None
        listed.append({"zoneName": name, "zoneState": {"available": bool(enabled)}, "hosts": shown})
    listed.sort(key=lambda zone: not zone["zoneState"]["available"])
    # Where the cloud's own services run; Nova shows it to operators only.
    internal: dict[str, Any] = {"zoneName": "internal", "zoneState": {"available": True}, "hosts": {}}
    return {"availabilityZoneInfo": [internal, *listed] if detail else listed}


@routes.get("/os-availability-zone", until="2.101", rule=_RULE + "list", response=_answer({"type": "null"}))
@routes.get(
    "/os-availability-zone",
    since="2.102",
    rule=_RULE + "list",
    query=closed_query(),
    response=_answer({"type": "null"}),
)
async def index(call: Call) -> Reply:
    """List the zones."""
    return await _list(call, detail=False)


@routes.get("/os-availability-zone/detail", until="2.101", rule=_RULE + "detail", response=_answer(_HOSTS))
@routes.get(
    "/os-availability-zone/detail",
    since="2.102",
    rule=_RULE + "detail",
    query=closed_query(),
    response=_answer(_HOSTS),
)
async def detail(call: Call) -> Reply:
    """List the zones with their enabled hosts."""
    return await _list(call, detail=True)
