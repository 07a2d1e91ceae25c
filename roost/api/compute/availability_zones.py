"""Availability zones, as tenants see them and as operators do."""

from collections.abc import Mapping
from typing import Any

from roost.api.compute.views import closed_query, timestamp
from roost.api.permissions import ADMIN, ANYONE, Permission
from roost.api.routes import Call, Connection, Reply, Table
from roost.api.schemas import NULLABLE_STRING, STRING, Schema, array, thing
from roost.compute.inventory import hosts, zones
from roost.compute.inventory.hosts import ComputeHost
from roost.turns import spread

routes = Table(prefix="/v2.1")

_RULE = "os_compute_api:os-availability-zone:"
RULES = (
    Permission(_RULE + "list", ANYONE, "List availability zones."),
    Permission(_RULE + "detail", ADMIN, "List availability zones with their hosts."),
)

_FLAG: Schema = {"type": "boolean"}
_SERVICE = thing({"available": _FLAG, "active": _FLAG, "updated_at": NULLABLE_STRING})
_HOSTS: Schema = {"type": ["object", "null"], "additionalProperties": thing({"nova-compute": _SERVICE})}


def _answer(shown: Schema) -> Schema:
    zone = thing({"zoneName": STRING, "zoneState": thing({"available": _FLAG}), "hosts": shown})
    return thing({"availabilityZoneInfo": array(zone)})


def _view(found: Mapping[str, bool], shown: Mapping[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """The zones with an enabled host, by name, and after them those without."""
    return [
        {"zoneName": name, "zoneState": {"available": enabled}, "hosts": shown.get(name)}
        for name, enabled in sorted(found.items(), key=lambda zone: (not zone[1], zone[0]))
    ]


@routes.get("/os-availability-zone", until="2.101", rule=_RULE + "list", response=_answer({"type": "null"}))
@routes.get(
    "/os-availability-zone",
    since="2.102",
    rule=_RULE + "list",
    query=closed_query(),
    response=_answer({"type": "null"}),
)
async def index(call: Call, connection: Connection) -> Reply:
    """List the zones."""
    found = {zone.name: zone.enabled for zone in await zones.index(connection)}
    return {"availabilityZoneInfo": _view(found, {})}


@routes.get("/os-availability-zone/detail", until="2.101", rule=_RULE + "detail", response=_answer(_HOSTS))
@routes.get(
    "/os-availability-zone/detail", since="2.102", rule=_RULE + "detail", query=closed_query(), response=_answer(_HOSTS)
)
async def detail(call: Call) -> Reply:
    """List the zones with their enabled hosts."""
    found: dict[str, bool] = {}
    shown: dict[str, dict[str, Any]] = {}

    def show(host: ComputeHost) -> None:
        zone = zones.zone_of(host)
        found[zone] = found.get(zone, False) or host.enabled
        if host.enabled:
            heard = timestamp(host.updated_at or host.created_at)
            service = {"available": not host.forced_down, "active": True, "updated_at": heard}
            shown.setdefault(zone, {})[host.name] = {"nova-compute": service}

    # Many rows take their time: no transaction waits for that.
    async with call.services.database.autocommit() as connection:
        listed = await hosts.index(connection)
    await spread(show, listed)
    # Where the cloud's own services run; Nova shows it to operators only.
    internal: dict[str, Any] = {"zoneName": "internal", "zoneState": {"available": True}, "hosts": {}}
    return {"availabilityZoneInfo": [internal, *_view(found, shown)]}
