"""Repairs: mend a server group with the fewest live migrations, and watch it being mended."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from roost.api import schemas
from roost.api.compute import explanations, server_groups
from roost.api.compute.explanations import FIRST
from roost.api.compute.servers import actor
from roost.api.compute.views import timestamp
from roost.api.permissions import ADMIN, READER, Permission
from roost.api.routes import Call, Reply, Table
from roost.api.schemas import Schema, array, thing
from roost.compute.answers import explain, repairs
from roost.compute.answers.repairs import Budget, ProposedRepair, StoredRepair
from roost.compute.groups import groups
from roost.placement.phrases import counted

routes = Table(prefix="/v2.1")

_RULE = "os_compute_api:os-server-groups:"
REPAIR, WATCH = _RULE + "repair", _RULE + "repair:show"

RULES = (
    Permission(REPAIR, ADMIN, "Mend a server group by moving servers, or pause or stop that."),
    Permission(WATCH, READER, "See which moves would mend a server group, and how far its repairs have come."),
)

_NUMBER: Schema = {"type": "integer", "minimum": 1}
BUDGET: dict[str, Schema] = {
    "max_moves": {"type": ["integer", "null"], "minimum": 1},
    "max_parallel": _NUMBER,
    "cooldown": {"type": "integer", "minimum": 0, "maximum": 86_400},
}
_PLACE = {"type": "object", "additionalProperties": schemas.STRING}
SHOWN: dict[str, Schema] = {
    "id": schemas.NULLABLE_STRING,
    "status": {"enum": ["planned", "running", "stopping", "stopped", "done", "failed"]},
    "paused": {"type": "boolean"},
    "reason": schemas.NULLABLE_STRING,
    "sentence": schemas.STRING,
    "moves": array(
        thing(
            {
                "server_id": schemas.STRING,
                "source": _PLACE,
                "target": _PLACE,
                "state": schemas.STRING,
                "reason": schemas.NULLABLE_STRING,
            }
        )
    ),
    "fewest": {"type": "boolean"},
    "repairs_all": {"type": "boolean"},
    "budget": thing(BUDGET),
    "created_at": schemas.NULLABLE_STRING,
    "updated_at": schemas.NULLABLE_STRING,
}
_SHOWN = thing(SHOWN)
_MODE = thing({"repair": thing({"continuous": {"type": "boolean"}, **BUDGET})})
PAUSED = thing({"paused": {"type": "boolean"}})

_GROUP = "/os-server-groups/{server_group_id}"


def asked_budget(asked: Mapping[str, Any]) -> Budget:
    """How much a request lets move."""
    return Budget(**{name: asked[name] for name in BUDGET if name in asked})


def _budget_view(budget: Any) -> dict[str, Any]:
    return {name: getattr(budget, name) for name in BUDGET}


class _View:
    """Moves as the caller may see them."""

    def __init__(self, seen: explain.View) -> None:
        self.place = seen.place

    def planned(self, planned: ProposedRepair, budget: Budget) -> dict[str, Any]:
        moves = [
            {
                "server_id": each["server_id"],
                "source": self.place(each["source"]),
                "target": self.place(each["target"]),
                "state": "waiting",
                "reason": None,
            }
            for each in planned.moves
        ]
        return {
            "id": None,
            "status": "planned",
            "paused": False,
            "reason": None,
            "sentence": _planned_sentence(planned),
            "moves": moves,
            "fewest": planned.fewest,
            "repairs_all": planned.repairs_all,
            "budget": _budget_view(budget),
            "created_at": None,
            "updated_at": None,
        }

    def stored(self, stored: StoredRepair, places: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
        row = stored.repair
        moves = [
            {
                "server_id": step.server_id,
                "source": self.place(places[step.source_id]),
                "target": self.place(places[step.target_id]),
                "state": step.state,
                "reason": step.reason,
            }
            for step in stored.moves
        ]
        done = sum(step.state == "done" for step in stored.moves)
        return {
            "id": row.id,
            "status": row.status,
            "paused": row.paused,
            "reason": row.reason,
            "sentence": row.reason or f"{done} of {counted(len(stored.moves), 'move')} done.",
            "moves": moves,
            "fewest": row.fewest,
            "repairs_all": row.repairs_all,
            "budget": _budget_view(row),
            "created_at": timestamp(row.created_at),
            "updated_at": timestamp(row.updated_at),
        }


def _planned_sentence(planned: ProposedRepair) -> str:
    number = len(planned.moves)
    if not number and planned.repairs_all:
        return "There is nothing to repair."
    if not number:
        return "No live migrations that the rules allow would repair this group."
    moves = "1 live migration" if number == 1 else f"{number} live migrations"
    repaired = "would repair everything" if planned.repairs_all else "would repair a part"
    return f"{moves} {repaired}{'; fewer cannot' if planned.fewest and planned.repairs_all else ''}."


async def _place_names(
    call: Call, connection: AsyncConnection, scopes: Sequence[str], found: list[StoredRepair]
) -> dict[int, Any]:
    """Where the hosts of the moves are; a host that is gone has no places."""
    live = call.services.scheduler.live
    await live.sync(connection)
    ids = {host for each in found for step in each.moves for host in (step.source_id, step.target_id)}
    indexes = {host: live.index(host) for host in ids}
    nowhere = {"host": "", "places": {}}
    return {
        host: nowhere if index is None else explain.where(live.fleet, index, scopes) for host, index in indexes.items()
    }


async def views(
    call: Call, connection: AsyncConnection, group: groups.Group | None, found: list[StoredRepair]
) -> list[dict[str, Any]]:
    """Repairs of a group, or drains, as the caller may see them."""
    rules = () if group is None else (await groups.rules_of(connection, [group.id]))[group.id]
    owner = (call.caller.project_id or "") if group is None else group.project_id
    view = _View(await explanations.view(call, connection, owner))
    places = await _place_names(call, connection, [rule.scope for rule in rules], found)
    return [view.stored(each, places) for each in found]


@routes.post(
    _GROUP + "/repairs",
    since=FIRST,
    rule=WATCH,
    expensive=True,
    owned=True,
    body=thing({"repair": thing({}, {"dry_run": {"type": "boolean"}, **BUDGET})}),
    response=thing({"repair": _SHOWN}),
)
async def create(call: Call) -> Reply:
    """Mend a group with the fewest live migrations, within a budget; with `dry_run`, only say which these are."""
    asked = call.body["repair"]
    budget, dry = asked_budget(asked), asked.get("dry_run", False)
    async with call.services.database.begin() as connection:
        group = await server_groups.find(call, connection, WATCH)
        if not dry:
            call.permit(REPAIR, project_id=group.project_id)
        view = _View(await explanations.view(call, connection, group.project_id))
    planned = await repairs.plan(call.services.scheduler, group.id, budget, call.caller.project_id or "")
    if dry:
        return {"repair": view.planned(planned, budget)}
    async with call.services.database.begin() as connection:
        repair_id = await repairs.begin_planned(connection, group.id, planned, budget, actor(call))
        (shown,) = await views(call, connection, group, [await repairs.find(connection, group.id, repair_id)])
    return {"repair": shown}


@routes.get(_GROUP + "/repairs", since=FIRST, rule=WATCH, owned=True, response=thing({"repairs": array(_SHOWN)}))
async def index(call: Call) -> Reply:
    """List the repairs of a group, the newest first."""
    async with call.services.database.autocommit() as connection:
        group = await server_groups.find(call, connection, WATCH)
        found = await repairs.index(connection, group.id)
        return {"repairs": await views(call, connection, group, found)}


@routes.get(_GROUP + "/repairs/{repair_id}", since=FIRST, rule=WATCH, owned=True, response=thing({"repair": _SHOWN}))
async def show(call: Call) -> Reply:
    """Show how far a repair has come."""
    async with call.services.database.autocommit() as connection:
        group = await server_groups.find(call, connection, WATCH)
        found = await repairs.find(connection, group.id, call.path["repair_id"])
        (shown,) = await views(call, connection, group, [found])
    return {"repair": shown}


@routes.delete(_GROUP + "/repairs/{repair_id}", since=FIRST, rule=REPAIR, owned=True, status=204)
async def stop(call: Call) -> Reply:
    """Stop a repair cleanly: no further move begins, those under way end."""
    async with call.services.database.begin() as connection:
        group = await server_groups.find(call, connection, REPAIR)
        await repairs.stop(connection, (await repairs.find(connection, group.id, call.path["repair_id"])).repair)
    return None


@routes.put(
    _GROUP + "/repairs/{repair_id}",
    since=FIRST,
    rule=REPAIR,
    owned=True,
    body=thing({"repair": PAUSED}),
    response=thing({"repair": _SHOWN}),
)
async def pause(call: Call) -> Reply:
    """Begin no further move until the repair is to go on (`paused`); those under way end."""
    async with call.services.database.begin() as connection:
        group = await server_groups.find(call, connection, REPAIR)
        found = await repairs.find(connection, group.id, call.path["repair_id"])
        await repairs.pause(connection, found.repair, call.body["repair"]["paused"])
        found = await repairs.find(connection, group.id, call.path["repair_id"])
        (shown,) = await views(call, connection, group, [found])
    return {"repair": shown}


async def _mode(connection: AsyncConnection, group_id: str) -> dict[str, Any]:
    budget = await repairs.mode(connection, group_id)
    return {"repair": {"continuous": budget is not None, **_budget_view(budget or Budget())}}


@routes.get(_GROUP + "/repair", since=FIRST, rule=WATCH, owned=True, response=_MODE)
async def show_mode(call: Call) -> Reply:
    """Show whether a group is mended whenever an audit finds it broken."""
    async with call.services.database.autocommit() as connection:
        return await _mode(connection, (await server_groups.find(call, connection, WATCH)).id)


@routes.put(
    _GROUP + "/repair",
    since=FIRST,
    rule=REPAIR,
    owned=True,
    body=thing({"repair": thing({"continuous": {"type": "boolean"}}, BUDGET)}),
    response=_MODE,
)
async def set_mode(call: Call) -> Reply:
    """Mend a group whenever an audit finds it broken, or no longer; off unless asked for."""
    asked = call.body["repair"]
    async with call.services.database.begin() as connection:
        group = await server_groups.find(call, connection, REPAIR)
        await repairs.keep_repaired(connection, group.id, asked["continuous"], asked_budget(asked), actor(call))
        return await _mode(connection, group.id)
