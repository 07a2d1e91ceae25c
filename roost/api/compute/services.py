"""Compute services: one on each host, which an operator enables, disables, or declares down."""

from datetime import UTC, datetime
from typing import Any

from roost.api import schemas
from roost.api.compute import views
from roost.api.compute.views import HOST_NAME, closed_query, open_query, timestamp
from roost.api.fields import FieldTable, ShownField
from roost.api.permissions import ADMIN, Permission
from roost.api.routes import Call, Connection, Reply, Table
from roost.api.schemas import BOOLEAN, INTEGER, NULLABLE_STRING, STRING, TRUTH, Schema, boolean, thing
from roost.api.versions import Version
from roost.compute.inventory import hosts, zones
from roost.compute.inventory.hosts import ComputeHost, HostValues
from roost.errors import Invalid, NotFound
from roost.store.uuids import is_uuid
from roost.turns import spread

routes = Table(prefix="/v2.1")

_RULE = "os_compute_api:os-services:"
RULES = (
    Permission(_RULE + "list", ADMIN, "List compute services."),
    Permission(_RULE + "update", ADMIN, "Enable or disable a compute service, or declare it down or up."),
    Permission(_RULE + "delete", ADMIN, "Delete a compute service and its host."),
)

BINARY = "nova-compute"

_UUIDS = Version(2, 53)
_TEXT: Schema = {"type": "string", "minLength": 1, "maxLength": 255}
_FILTERS = {"host": STRING, "binary": STRING}
_NAMED = {"host": HOST_NAME, "binary": _TEXT}
_STATUS: Schema = {"type": "string", "enum": ["enabled", "disabled"]}
_BRIEF = thing(
    {"host": STRING, "binary": STRING},
    {"status": _STATUS, "disabled_reason": STRING, "forced_down": {"type": "boolean"}},
)


def _heard(host: ComputeHost) -> datetime:
    """A simulated host reports at every moment, unless it is declared down."""
    return host.updated_at or host.created_at if host.forced_down else datetime.now(UTC)


_FIELDS = FieldTable[ComputeHost](
    ShownField("id", INTEGER, lambda host: host.id, until=Version(2, 52)),
    ShownField("id", schemas.UUID, lambda host: host.service_uuid, since=_UUIDS),
    ShownField("binary", STRING, lambda host: BINARY),
    ShownField("host", STRING, lambda host: host.name),
    ShownField("zone", STRING, zones.zone_of),
    ShownField("status", _STATUS, lambda host: "enabled" if host.enabled else "disabled"),
    ShownField("state", {"enum": ["up", "down"]}, lambda host: "down" if host.forced_down else "up"),
    ShownField("updated_at", NULLABLE_STRING, lambda host: timestamp(_heard(host))),
    ShownField("disabled_reason", NULLABLE_STRING, lambda host: host.disabled_reason),
    ShownField("forced_down", TRUTH, lambda host: host.forced_down, since=Version(2, 11)),
)
_MANY = _FIELDS.many("services")


@routes.get("/os-services", until="2.74", query=open_query(**_FILTERS), rule=_RULE + "list", response=_MANY)
@routes.get("/os-services", since="2.75", query=closed_query(**_FILTERS), rule=_RULE + "list", response=_MANY)
async def index(call: Call) -> Reply:
    """List services, of one host (`host`) or one kind (`binary`)."""
    if call.query.get("binary", BINARY) not in ("", BINARY):
        return {"services": []}
    # Many rows take a while: no transaction is kept open for that.
    async with call.services.database.autocommit() as connection:
        found = await hosts.index(connection, name=call.query.get("host") or None)
    return {"services": await spread(lambda host: _FIELDS.show(host, call.version), found)}


_BY_NAME = {"rule": _RULE + "update", "response": thing({"service": _BRIEF})}


@routes.put(
    "/os-services/{service_id}",
    since="2.11",
    until="2.52",
    body=thing(_NAMED, {"disabled_reason": _TEXT, "forced_down": BOOLEAN}),
    **_BY_NAME,
)
@routes.put("/os-services/{service_id}", until="2.10", body=thing(_NAMED, {"disabled_reason": _TEXT}), **_BY_NAME)
async def update_by_name(call: Call, connection: Connection) -> Reply:
    """Change the service of a host; the path says how: enable, disable, disable-log-reason or force-down."""
    answer, values = _old_change(call)
    if call.body["binary"] != BINARY:
        raise Invalid(
            f"Updating a {call.body['binary']} service is not supported. Only nova-compute services can be updated."
        )
    host = await hosts.find(connection, name=call.body["host"], lock=True)
    if host is None:
        raise NotFound(f"Host '{call.body['host']}' is not mapped to any cell")
    await hosts.change(connection, host.id, **values)
    return {"service": {"host": call.body["host"], "binary": BINARY, **answer}}


def _old_change(call: Call) -> tuple[dict[str, Any], HostValues]:
    """What the path asks for: how it is answered, and what it changes."""
    reason = call.body.get("disabled_reason")
    match call.path["service_id"]:
        case "enable":
            return {"status": "enabled"}, {"enabled": True, "disabled_reason": None}
        case "disable":
            return {"status": "disabled"}, {"enabled": False, "disabled_reason": None}
        case "disable-log-reason":
            if reason is None:
                raise Invalid("Missing disabled reason field")
            return {"status": "disabled", "disabled_reason": reason}, {"enabled": False, "disabled_reason": reason}
        case "force-down" if call.version >= Version(2, 11):
            if "forced_down" not in call.body:
                raise Invalid("Missing forced_down field")
            down = boolean(call.body["forced_down"])
            return {"forced_down": down}, {"forced_down": down}
        case _:
            raise NotFound("Unknown action")


@routes.put(
    "/os-services/{service_id}",
    since="2.53",
    rule=_RULE + "update",
    body=thing({}, {"status": _STATUS, "disabled_reason": _TEXT, "forced_down": BOOLEAN}),
    response=_FIELDS.one("service"),
)
async def update(call: Call, connection: Connection) -> Reply:
    """Enable or disable a service, or declare it down or up."""
    values = _change(call.body)
    host = await hosts.find(connection, service_uuid=_uuid(call), lock=True)
    if host is None:
        raise NotFound(f"Service {call.path['service_id']} could not be found.")
    return {"service": _FIELDS.show(await hosts.change(connection, host.id, **values), call.version)}


def _change(body: dict[str, Any]) -> HostValues:
    values: HostValues = {}
    if body.get("status") == "enabled" and "disabled_reason" in body:
        raise Invalid("Specifying 'disabled_reason' with status 'enabled' is invalid.")
    if "status" in body:
        values |= {"enabled": body["status"] == "enabled", "disabled_reason": body.get("disabled_reason")}
    if "forced_down" in body:
        values["forced_down"] = boolean(body["forced_down"])
    if not values:
        raise Invalid("No updates were requested. Fields 'status' or 'forced_down' should be specified.")
    return values


def _uuid(call: Call) -> str:
    text = call.path["service_id"]
    if not is_uuid(text):
        raise Invalid(f"Invalid uuid {text}")
    return text


@routes.delete("/os-services/{service_id}", rule=_RULE + "delete", status=204)
async def delete(call: Call, connection: Connection) -> None:
    """Delete a service, and its host with it."""
    text = call.path["service_id"]
    if call.version >= _UUIDS:
        named: dict[str, Any] = {"service_uuid": _uuid(call)}
    else:
        number = views.integer(text)
        if number is None:
            raise Invalid("Invalid input received: id must be an integer")
        if not 0 < number < 2**31:
            raise NotFound(f"Service {text} not found.")
        named = {"host_id": number}
    await hosts.delete(connection, **named)
