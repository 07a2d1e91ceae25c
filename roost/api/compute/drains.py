"""Drains, from 2.1003 on: hosts take no new servers, and the engine moves those that they have elsewhere.

What a drain would come to is asked of `POST /os-server-groups/plan`. It is carried out as a repair is: step by step,
each move under the rules of the server's group when it begins, and by any engine.
"""

from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from roost.api import schemas
from roost.api.compute import repairs as repairs_api
from roost.api.compute.explanations import FIRST
from roost.api.compute.servers import actor
from roost.api.permissions import ADMIN, Permission
from roost.api.routes import Call, Reply, Table
from roost.api.schemas import array, thing
from roost.compute.answers import drains, repairs
from roost.compute.answers.plans import Displace

routes = Table(prefix="/v2.1")

DRAIN = "os_compute_api:os-drains"
RULES = (Permission(DRAIN, ADMIN, "Drain hosts and aggregates, and see, pause or stop that."),)

_REASON = "Being drained."
_SHOWN = thing({**repairs_api.SHOWN, "scope": schemas.STRING, "identifier": schemas.STRING})
_ASKED = thing(
    {"scope": schemas.STRING, "identifier": schemas.STRING},
    {name: repairs_api.BUDGET[name] for name in ("max_parallel", "cooldown")},
)
_ONE = thing({"drain": _SHOWN})


async def _shown(call: Call, connection: AsyncConnection, *stored: repairs.StoredRepair) -> list[dict[str, Any]]:
    views = await repairs_api.views(call, connection, None, list(stored))
    places = [{"scope": each.repair.scope, "identifier": each.repair.identifier} for each in stored]
    return [view | place for view, place in zip(views, places, strict=True)]


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
        (shown,) = await _shown(call, connection, await drains.find(connection, drain_id))
    return {"drain": shown}


@routes.get(
    "/os-drains",
    since=FIRST,
    rule=DRAIN,
    query=thing({}, {"scope": schemas.STRING, "identifier": schemas.STRING}),
    response=thing({"drains": array(_SHOWN)}),
)
async def index(call: Call) -> Reply:
    """List the latest drains, the newest first; of one place, if `scope` and `identifier` are given."""
    async with call.services.database.autocommit() as connection:
        found = await drains.index(connection, call.query.get("scope"), call.query.get("identifier"))
        return {"drains": await _shown(call, connection, *found)}


@routes.get("/os-drains/{drain_id}", since=FIRST, rule=DRAIN, response=_ONE)
async def show(call: Call) -> Reply:
    """Show how far a drain has come."""
    async with call.services.database.autocommit() as connection:
        (shown,) = await _shown(call, connection, await drains.find(connection, call.path["drain_id"]))
    return {"drain": shown}


@routes.put("/os-drains/{drain_id}", since=FIRST, rule=DRAIN, body=thing({"drain": repairs_api.PAUSED}), response=_ONE)
async def pause(call: Call) -> Reply:
    """Begin no further move until the drain is let go on; or let it go on."""
    async with call.services.database.begin() as connection:
        found = await drains.find(connection, call.path["drain_id"])
        await repairs.pause(connection, found.repair, call.body["drain"]["paused"])
        (shown,) = await _shown(call, connection, await drains.find(connection, call.path["drain_id"]))
    return {"drain": shown}


@routes.delete("/os-drains/{drain_id}", since=FIRST, rule=DRAIN, status=204)
async def stop(call: Call) -> Reply:
    """Stop a drain: no further move begins, those under way end. The hosts stay disabled."""
    async with call.services.database.begin() as connection:
        await repairs.stop(connection, (await drains.find(connection, call.path["drain_id"])).repair)
    return None
