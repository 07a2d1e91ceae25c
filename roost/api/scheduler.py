"""The scheduler API, for the plug-in of a nova-scheduler and for nobody else: where hosts stand, what binds a group,
and a place for a server, reserved."""

from dataclasses import asdict
from typing import Any

from starlette.responses import JSONResponse

from roost.api import schemas
from roost.api.errors import identity_body
from roost.api.frame import Api
from roost.api.permissions import Permission
from roost.api.routes import Call, Reply, Table
from roost.api.schemas import Schema, array, by_name, thing
from roost.compute.fronting import reservations
from roost.compute.fronting.reservations import Order, Reserved, Snapshot
from roost.errors import NotFound
from roost.placement.fleet import Resources
from roost.placement.rules import MOST_PARTITIONS
from roost.store.uuids import is_uuid

routes = Table()

USE = "roost:scheduler"

RULES = (
    Permission(USE, "role:service or role:admin", "Decide where members of server groups go, as a nova-scheduler."),
)

_WHOLE: Schema = {"type": "integer"}
_NAMES = by_name(schemas.STRING)
_SINCE: Schema = {
    "type": "object",
    "properties": {"since": {"type": "string", "pattern": "^-?[0-9]{1,18}$"}},
    "additionalProperties": False,
}
_TOPOLOGY = thing(
    {
        "generation": _WHOLE,
        "hosts": by_name(_NAMES),
        "complete": {"type": "boolean"},
        "adopted": _NAMES,
    }
)
_GROUP = thing(
    {
        "id": schemas.UUID,
        "version": _WHOLE,
        "rules": array(thing({"policy": schemas.STRING, "rules": {"type": "object"}})),
        "members": by_name(array(schemas.STRING)),
        "building": array(schemas.UUID),
        "partitions": by_name(_WHOLE),
    }
)
_ORDER = thing(
    {
        "instance_id": schemas.UUID,
        "project_id": schemas.STRING,
        "user_id": schemas.STRING,
        "resources": thing({name: {"type": "integer", "minimum": 0} for name in Resources._fields}),
        "host": schemas.NULLABLE_STRING,
        "version": _WHOLE,
        "generation": _WHOLE,
        "record": {"type": "object"},
    },
    {"partition": {"type": ["integer", "null"], "minimum": 1, "maximum": MOST_PARTITIONS}},
)
_RESERVED = thing({"version": _WHOLE, "hosts": array(schemas.STRING)})


@routes.get("/topology", rule=USE, query=_SINCE, response=thing({"topology": _TOPOLOGY}))
async def show_topology(call: Call) -> Reply:
    """Show every host's aggregate in each scope, or only of the hosts that changed `since` a generation."""
    async with call.services.database.begin() as connection:
        found = await reservations.topology(connection, int(call.query.get("since", -1)))
    known = {"hosts": found.hosts, "complete": found.complete, "adopted": found.adopted}
    return {"topology": {"generation": found.generation, **known}}


@routes.get("/groups/{group_id}", rule=USE, response=thing({"group": _GROUP}))
async def show_group(call: Call) -> Reply:
    """Show a group's rules, and the hosts on which its members have a place."""
    group_id = _group_id(call)
    try:
        async with call.services.database.begin() as connection:
            found = await reservations.show(connection, group_id)
    except NotFound:
        if call.services.front is None:
            raise
        await call.services.front.adopt_group(group_id)
        async with call.services.database.begin() as connection:
            found = await reservations.show(connection, group_id)
    return {"group": _group(found)}


@routes.post(
    "/groups/{group_id}/reservations",
    rule=USE,
    body=thing({"reservation": _ORDER}),
    response=thing({"reservation": _RESERVED}),
)
async def reserve(call: Call) -> Reply:
    """Reserve a place for a member, as decided on a version of the group and a generation of the fleet; 409 with the
    group as it is now where that is not so any more."""
    order = Order(**call.body["reservation"])
    if order.host is None and call.services.front is not None:
        await call.services.front.read_group(_group_id(call))
    async with call.services.database.begin() as connection:
        done = await reservations.reserve(connection, call.services.settings, _group_id(call), order)
    if isinstance(done, Reserved):
        return {"reservation": asdict(done)}
    return JSONResponse({"group": _group(done.group), "generation": done.generation}, 409)


def _group_id(call: Call) -> str:
    group_id = call.path["group_id"]
    if not is_uuid(group_id):
        raise NotFound(f"Instance group {group_id} could not be found.")
    return group_id


def _group(group: Snapshot) -> dict[str, Any]:
    return {
        "id": group.id,
        "version": group.version,
        "rules": [{"policy": str(rule), "rules": rule.limits} for rule in group.rules],
        "members": {member: list(hosts) for member, hosts in group.members.items()},
        "building": list(group.building),
        "partitions": dict(group.partitions),
    }


SCHEDULER_API = Api(name="scheduler", prefix="/scheduler", table=routes, error_body=identity_body, rules=RULES)
