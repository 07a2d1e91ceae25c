"""Repairs: mend a server group with the fewest live migrations, and watch it being mended."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from roost.api import schemas
from roost.api.compute import explanations, server_groups
from roost.api.compute.explanations import FIRST
from roost.api.compute.servers import actor
from roost.api.compute.views import timestamp
from roost.api.fields import FieldTable, ShownField, column
from roost.api.permissions import ADMIN, READER, Permission
from roost.api.routes import Call, Connection, Reply, Table
from roost.api.schemas import Schema, array, by_name, thing
from roost.compute.answers import explain, repairs
from roost.compute.answers.repairs import Budget, PlannedMove, ProposedRepair, StoredRepair
from roost.compute.groups import groups
from roost.compute.moves.repair_steps import Repair
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
_BUDGET = FieldTable[Budget | Repair](*(column(name, schema) for name, schema in BUDGET.items()))
_PLACE = by_name(schemas.STRING)


@dataclass(frozen=True, slots=True)
class MoveAnswer:
    """A live migration, from and to a place as the caller may see it."""

    server_id: str
    source: Mapping[str, str]
    target: Mapping[str, str]
    state: str = "waiting"
    reason: str | None = None


MOVE = FieldTable[MoveAnswer](column("server_id", schemas.STRING), column("source", _PLACE), column("target", _PLACE))
_STEP = FieldTable[MoveAnswer](*MOVE.fields, column("state", schemas.STRING), column("reason", schemas.NULLABLE_STRING))


@dataclass(frozen=True, slots=True)
class ShownRepair:
    """A repair that is only proposed, or one that is stored."""

    sentence: str
    moves: Sequence[MoveAnswer]
    plan: ProposedRepair | Repair
    budget: Budget | Repair
    stored: Repair | None = None


def _stored(name: str, schema: Schema, read: Callable[[Repair], Any], planned: Any = None) -> ShownField[ShownRepair]:
    """A field of stored repairs, for which a proposed one shows something else."""
    return ShownField(name, schema, lambda of: planned if of.stored is None else read(of.stored))


def _kept(name: str, kept: Budget | None) -> int | None:
    """A part of the budget for continuous repairs: the default where there are none."""
    value: int | None = getattr(kept or Budget(), name)
    return value


_STATUS: Schema = {"enum": ["planned", "running", "stopping", "stopped", "done", "failed"]}
SHOWN = FieldTable[ShownRepair](
    _stored("id", schemas.NULLABLE_STRING, lambda repair: repair.id),
    _stored("status", _STATUS, lambda repair: repair.status, "planned"),
    _stored("paused", schemas.TRUTH, lambda repair: repair.paused, False),
    _stored("reason", schemas.NULLABLE_STRING, lambda repair: repair.reason),
    ShownField("sentence", schemas.STRING, lambda of: of.sentence),
    ShownField("moves", array(_STEP.schema()), lambda of: [_STEP.show(move) for move in of.moves]),
    ShownField("fewest", schemas.TRUTH, lambda of: of.plan.fewest),
    ShownField("repairs_all", schemas.TRUTH, lambda of: of.plan.repairs_all),
    ShownField("budget", _BUDGET.schema(), lambda of: _BUDGET.show(of.budget)),
    _stored("created_at", schemas.NULLABLE_STRING, lambda repair: timestamp(repair.created_at)),
    _stored("updated_at", schemas.NULLABLE_STRING, lambda repair: timestamp(repair.updated_at)),
)
_ONE = SHOWN.one("repair")
_MODE = FieldTable[Budget | None](
    ShownField("continuous", schemas.TRUTH, lambda kept: kept is not None),
    *(ShownField(each.name, each.schema, partial(_kept, each.name)) for each in _BUDGET.fields),
)
PAUSED = thing({"paused": {"type": "boolean"}})

_GROUP = "/os-server-groups/{server_group_id}"


def asked_budget(asked: Mapping[str, Any]) -> Budget:
    """How much a request lets move."""
    return Budget(**{name: asked[name] for name in BUDGET if name in asked})


def _planned(planned: ProposedRepair, budget: Budget, seen: explain.View) -> dict[str, Any]:
    return SHOWN.show(ShownRepair(_planned_sentence(planned), planned_moves(planned.moves, seen), planned, budget))


def planned_moves(planned: Sequence[PlannedMove], seen: explain.View) -> list[MoveAnswer]:
    """Moves that are not made yet, as the caller may see them."""
    return [MoveAnswer(each["server_id"], seen.place(each["source"]), seen.place(each["target"])) for each in planned]


def _planned_sentence(planned: ProposedRepair) -> str:
    number = len(planned.moves)
    if not number and planned.repairs_all:
        return "There is nothing to repair."
    if not number:
        return "No live migrations that the rules allow would repair this group."
    moves = "1 live migration" if number == 1 else f"{number} live migrations"
    repaired = "would repair everything" if planned.repairs_all else "would repair a part"
    return f"{moves} {repaired}{'; fewer cannot' if planned.fewest and planned.repairs_all else ''}."


async def answers(
    call: Call, connection: Connection, group: groups.Group | None, found: list[StoredRepair]
) -> list[ShownRepair]:
    """Repairs of a group, or drains, as the caller may see them."""
    rules = () if group is None else (await groups.rules_of(connection, [group.id]))[group.id]
    owner = (call.caller.project_id or "") if group is None else group.project_id
    scopes = [rule.scope for rule in rules]
    seen, live = await explanations.view(call, connection, owner), call.services.scheduler.live
    await live.sync(connection)

    @cache
    def place(host: int) -> dict[str, str]:
        """Where a host is; one that is gone has no places."""
        index = live.index(host)
        return seen.place({"host": "", "places": {}} if index is None else explain.where(live.fleet, index, scopes))

    def answer(stored: StoredRepair) -> ShownRepair:
        steps = [
            MoveAnswer(step.server_id, place(step.source_id), place(step.target_id), step.state, step.reason)
            for step in stored.moves
        ]
        done = sum(step.state == "done" for step in steps)
        repair = stored.repair
        sentence = repair.reason or f"{done} of {counted(len(steps), 'move')} done."
        return ShownRepair(sentence, steps, repair, repair, repair)

    return [answer(each) for each in found]


async def _shown(call: Call, connection: Connection, group: groups.Group, found: StoredRepair) -> dict[str, Any]:
    (answer,) = await answers(call, connection, group, [found])
    return {"repair": SHOWN.show(answer)}


@routes.post(
    _GROUP + "/repairs",
    since=FIRST,
    rule=WATCH,
    expensive=True,
    owned=True,
    body=thing({"repair": thing({}, {"dry_run": {"type": "boolean"}, **BUDGET})}),
    response=_ONE,
)
async def create(call: Call) -> Reply:
    """Mend a group with the fewest live migrations, within a budget; with `dry_run`, only say which these are."""
    asked = call.body["repair"]
    budget, dry = asked_budget(asked), asked.get("dry_run", False)
    async with call.services.database.begin() as connection:
        group = await server_groups.find(call, connection, WATCH)
        if not dry:
            call.permit(REPAIR, project_id=group.project_id)
        seen = await explanations.view(call, connection, group.project_id)
    planned = await repairs.plan(call.services.scheduler, group.id, budget, call.caller.project_id or "")
    if dry:
        return {"repair": _planned(planned, budget, seen)}
    async with call.services.database.begin() as connection:
        repair_id = await repairs.begin_planned(connection, group.id, planned, budget, actor(call))
        return await _shown(call, connection, group, await repairs.find(connection, group.id, repair_id))


@routes.get(_GROUP + "/repairs", since=FIRST, rule=WATCH, owned=True, response=SHOWN.many("repairs"))
async def index(call: Call, connection: Connection) -> Reply:
    """List the repairs of a group, the newest first."""
    group = await server_groups.find(call, connection, WATCH)
    found = await repairs.index(connection, group.id)
    return {"repairs": [SHOWN.show(each) for each in await answers(call, connection, group, found)]}


@routes.get(_GROUP + "/repairs/{repair_id}", since=FIRST, rule=WATCH, owned=True, response=_ONE)
async def show(call: Call, connection: Connection) -> Reply:
    """Show how far a repair has come."""
    group = await server_groups.find(call, connection, WATCH)
    return await _shown(call, connection, group, await repairs.find(connection, group.id, call.path["repair_id"]))


@routes.delete(_GROUP + "/repairs/{repair_id}", since=FIRST, rule=REPAIR, owned=True, status=204)
async def stop(call: Call, connection: Connection) -> None:
    """Stop a repair cleanly: no further move begins, those under way end."""
    group = await server_groups.find(call, connection, REPAIR)
    await repairs.stop(connection, (await repairs.find(connection, group.id, call.path["repair_id"])).repair)


@routes.put(
    _GROUP + "/repairs/{repair_id}", since=FIRST, rule=REPAIR, owned=True, body=thing({"repair": PAUSED}), response=_ONE
)
async def pause(call: Call, connection: Connection) -> Reply:
    """Begin no further move until the repair is to go on (`paused`); those under way end."""
    group = await server_groups.find(call, connection, REPAIR)
    found = await repairs.find(connection, group.id, call.path["repair_id"])
    await repairs.pause(connection, found.repair, call.body["repair"]["paused"])
    return await _shown(call, connection, group, await repairs.find(connection, group.id, call.path["repair_id"]))


async def _mode(connection: Connection, group_id: str) -> dict[str, Any]:
    return {"repair": _MODE.show(await repairs.mode(connection, group_id))}


@routes.get(_GROUP + "/repair", since=FIRST, rule=WATCH, owned=True, response=_MODE.one("repair"))
async def show_mode(call: Call, connection: Connection) -> Reply:
    """Show whether a group is mended whenever an audit finds it broken."""
    return await _mode(connection, (await server_groups.find(call, connection, WATCH)).id)


@routes.put(
    _GROUP + "/repair",
    since=FIRST,
    rule=REPAIR,
    owned=True,
    body=thing({"repair": thing({"continuous": {"type": "boolean"}}, BUDGET)}),
    response=_MODE.one("repair"),
)
async def set_mode(call: Call, connection: Connection) -> Reply:
    """Mend a group whenever an audit finds it broken, or no longer; off unless asked for."""
    asked = call.body["repair"]
    group = await server_groups.find(call, connection, REPAIR)
    await repairs.keep_repaired(connection, group.id, asked["continuous"], asked_budget(asked), actor(call))
    return await _mode(connection, group.id)
