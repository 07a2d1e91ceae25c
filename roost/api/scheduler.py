"""The scheduler API, for the plug-in of a nova-scheduler alone: a place for a server, chosen and reserved."""

from typing import Any

from roost.api import schemas
from roost.api.errors import identity_body
from roost.api.frame import Api
from roost.api.permissions import Permission
from roost.api.routes import Call, Connection, Reply, Table
from roost.api.schemas import Schema, array, thing
from roost.compute.fronting import reservations
from roost.compute.fronting.choice import COLUMNS, GroupChooser, Offered, Wanted
from roost.errors import NotFound
from roost.placement.fleet import Resources
from roost.placement.rules import MOST_PARTITIONS
from roost.store.uuids import is_uuid

routes = Table()

USE = "roost:scheduler"

RULES = (
    Permission(USE, "role:service or role:admin", "Decide where members of server groups go, as a nova-scheduler."),
)

# There are as many as the cloud has hosts; the numbers are checked when they are read, all at once.
_COLUMN: Schema = {"type": "array"}
_OFFERED = thing({"names": array(schemas.STRING), **dict.fromkeys(COLUMNS, _COLUMN)})
_WANTED = thing(
    {
        "instance_id": schemas.UUID,
        "project_id": schemas.STRING,
        "user_id": schemas.STRING,
        "resources": thing(
            {name: {"type": "integer", "minimum": 0, "maximum": 2**31 - 1} for name in Resources._fields}
        ),
        "hosts": _OFFERED,
    },
    {
        "group_id": schemas.NULLABLE_STRING,
        "count": {"type": "integer", "minimum": 1, "maximum": 100_000},
        "partition": {"type": ["integer", "null"], "minimum": 0, "maximum": 10**9},
        "token": schemas.STRING,
    },
)
_CHOICE = thing({"hosts": array(schemas.STRING), "weights": array({"type": "number"})})


@routes.get("/adopted", rule=USE, response=thing({"adopted": array(schemas.UUID)}))
async def index_adopted(call: Call, connection: Connection) -> Reply:
    """List the servers that are members of groups without Nova's knowing it."""
    return {"adopted": await reservations.adopted(connection)}


@routes.post("/choices", rule=USE, body=thing({"choice": _WANTED}), response=thing({"choice": _CHOICE}))
async def choose(call: Call) -> Reply:
    """Choose hosts for a member of a group among those offered, and reserve a place; no hosts where the rules leave
    none, 404 where no group binds the server."""
    asked = call.body["choice"]
    names: list[str] = asked["hosts"]["names"]
    offered = Offered.read(names, asked["hosts"])
    wanted = _wanted(asked)
    chooser = _chooser(call)
    try:
        choice = await chooser.choose(wanted, offered)
    except NotFound:
        if wanted.group_id is None:
            raise
        await call.services.groups.adopt_group(wanted.group_id)
        choice = await chooser.choose(wanted, offered)
    return {"choice": {"hosts": choice.hosts, "weights": choice.weights}}


def _chooser(call: Call) -> GroupChooser:
    services = call.services
    return GroupChooser(services.database, services.settings, services.scheduler.live, services.groups.read_group)


def _wanted(asked: dict[str, Any]) -> Wanted:
    group_id = asked.get("group_id")
    if group_id is not None and not is_uuid(group_id):
        raise NotFound(f"Instance group {group_id} could not be found.")
    partition = asked.get("partition")
    return Wanted(
        asked["instance_id"],
        group_id,
        asked["project_id"],
        asked["user_id"],
        Resources(**asked["resources"]),
        asked.get("count", 1),
        # No group has so many partitions, so a larger number matches none.
        None if partition is None else min(partition, MOST_PARTITIONS + 1),
        asked.get("token"),
    )


SCHEDULER_API = Api(name="scheduler", prefix="/scheduler", table=routes, error_body=identity_body, rules=RULES)
