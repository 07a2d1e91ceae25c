"""Drains, from 2.1003 on: hosts take no new servers, and the engine moves those that they have elsewhere.

What a drain would come to is asked of `POST /os-server-groups/plan`. It is carried out as a repair is: step by step,
each move under the rules of the server's group when it begins, and by any engine.
"""

from typing import Any

from roost.api import schemas
from roost.api.compute import repairs as repairs_api
from roost.api.compute.explanations import FIRST
from roost.api.compute.repairs import ShownRepair
from roost.api.compute.servers import actor
from roost.api.fields import FieldTable, column
from roost.api.permissions import ADMIN, Permission
from roost.api.routes import Call, Connection, Reply, Table
from roost.api.schemas import thing
from roost.compute.answers import drains, repairs
from roost.compute.answers.plans import Displace

routes = Table(prefix="/v2.1")

DRAIN = "os_compute_api:os-drains"
RULES = (Permission(DRAIN, ADMIN, "Drain hosts and aggregates, and see, pause or stop that."),)

_REASON = "Being drained."
_SHOWN = FieldTable[ShownRepair](
    *repairs_api.SHOWN.fields,
    column("scope", schemas.STRING, "stored.scope"),
    column("identifier", schemas.STRING, "stored.identifier"),
)
_ASKED = thing(
    {"scope": schemas.STRING, "identifier": schemas.STRING},
    {name: repairs_api.BUDGET[name] for name in ("max_parallel", "cooldown")},
)
_ONE = _SHOWN.one("drain")


async def _shown(call: Call, connection: Connection, stored: repairs.StoredRepair) -> dict[str, Any]:
    (answer,) = await repairs_api.answers(call, connection, None, [stored])
    return {"drain": _SHOWN.show(answer)}


@routes.post("/os-drains", since=FIRST, rule=DRAIN, body=thing({"drain": _ASKED}), response=_ONE)
async def create(call: Call) -> Reply:
    """Disable the hosts of an aggregate, or one host (`scope` host), and have the engine move their servers."""
    asked, services = call.body["drain"], call.services
    place = Displace(asked["scope"], asked["identifier"], lost=False, real=True)
    leaving = await drains.hosts_of(services.scheduler, place)
    await services.groups.disable_hosts(list(leaving.values()), _REASON)
    drain_id = await drains.begin(
        services.scheduler, place, leaving, _REASON, repairs_api.asked_budget(asked), actor(call)
    )
    async with services.database.begin() as connection:
        return await _shown(call, connection, await drains.find(connection, drain_id))


@routes.get(
    "/os-drains",
    since=FIRST,
    rule=DRAIN,
    query=thing({}, {"scope": schemas.STRING, "identifier": schemas.STRING}),
    response=_SHOWN.many("drains"),
)
async def index(call: Call, connection: Connection) -> Reply:
    """List the latest drains, the newest first; of one place, if `scope` and `identifier` are given."""
    found = await drains.index(connection, call.query.get("scope"), call.query.get("identifier"))
    return {"drains": [_SHOWN.show(each) for each in await repairs_api.answers(call, connection, None, found)]}


@routes.get("/os-drains/{drain_id}", since=FIRST, rule=DRAIN, response=_ONE)
async def show(call: Call, connection: Connection) -> Reply:
    """Show how far a drain has come."""
    return await _shown(call, connection, await drains.find(connection, call.path["drain_id"]))


@routes.put("/os-drains/{drain_id}", since=FIRST, rule=DRAIN, body=thing({"drain": repairs_api.PAUSED}), response=_ONE)
async def pause(call: Call, connection: Connection) -> Reply:
    """Begin no further move until the drain is let go on; or let it go on."""
    found = await drains.find(connection, call.path["drain_id"])
    await repairs.pause(connection, found.repair, call.body["drain"]["paused"])
    return await _shown(call, connection, await drains.find(connection, call.path["drain_id"]))


@routes.delete("/os-drains/{drain_id}", since=FIRST, rule=DRAIN, status=204)
async def stop(call: Call, connection: Connection) -> None:
    """Stop a drain: no further move begins, those under way end. The hosts stay disabled."""
    await repairs.stop(connection, (await drains.find(connection, call.path["drain_id"])).repair)
