"""Plans: what a change to a server group would come to, and the change itself if that still holds.

A request without a `generation` asks for a plan; the same request with the plan's `generation` carries it out. If the
outcome would be another by then, it is refused with 409 and the difference.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from starlette.responses import JSONResponse

from roost import logs
from roost.api import schemas
from roost.api.compute import explanations, server_groups
from roost.api.compute.explanations import EXPLANATION, FIRST
from roost.api.compute.repairs import MOVE, planned_moves
from roost.api.compute.servers import actor
from roost.api.errors import compute_body
from roost.api.fields import FieldTable, ShownField, column
from roost.api.permissions import ADMIN, MEMBER, READER, Permission
from roost.api.routes import Call, Reply, Table
from roost.api.schemas import Schema, array, by_name, thing
from roost.compute.answers import explain, plans
from roost.compute.answers.plans import (
    Change,
    ChangeMembers,
    ChangePolicies,
    Create,
    Displace,
    Essence,
    GroupOutcome,
    GroupPlan,
    PlannedPlace,
    PlanOutcome,
    StoredViolation,
)
from roost.compute.answers.violations import BrokenRule
from roost.compute.groups.groups import Group
from roost.compute.scheduling.request import CreateRequest, NewServer
from roost.errors import Invalid
from roost.placement import rules as placement
from roost.placement.audit import Breach, Violation
from roost.placement.phrases import counted

routes = Table(prefix="/v2.1")

_RULE = "os_compute_api:os-server-groups:"
PLAN, APPLY, DRAIN = _RULE + "plan", _RULE + "plan:apply", _RULE + "plan:drain"
ALL_PROJECTS = _RULE + "plan:all_projects"

RULES = (
    Permission(PLAN, READER, "Ask what a change to a server group would come to."),
    Permission(APPLY, MEMBER, "Apply a plan: boot servers, change policies or members."),
    Permission(DRAIN, ADMIN, "Apply a plan that moves servers."),
    Permission(ALL_PROJECTS, ADMIN, "Ask what the loss of an aggregate would come to for all projects."),
)

_IDS = array(schemas.UUID, minItems=1, maxItems=1000)
_AGGREGATE = thing({"scope": schemas.STRING, "identifier": schemas.STRING})
_SERVERS = thing(
    {"flavorRef": {"type": ["string", "integer"]}, "count": {"type": "integer", "minimum": 1, "maximum": 1000}},
    {
        "availability_zone": schemas.STRING,
        "name": schemas.NAME,
        "imageRef": schemas.STRING,
        "partition": server_groups.PARTITION,
    },
)
_CHANGES: dict[str, Schema] = {
    "create": _SERVERS,
    "policies": server_groups.POLICIES,
    "add_servers": _IDS,
    "remove_servers": _IDS,
    "drain": _AGGREGATE,
    "lose": _AGGREGATE,
}


def _one_of(names: Sequence[str]) -> Schema:
    known = {name: _CHANGES[name] for name in names}
    one = [{"required": [name]} for name in names]
    return thing({"plan": thing({}, {**known, "generation": schemas.STRING}, oneOf=one)})


# What is asked


async def _change(call: Call, connection: Any, group: Group) -> Change:
    asked, port = call.body["plan"], call.services.groups
    if "create" in asked:
        return await _create(call, connection, group, asked["create"])
    if "policies" in asked:
        policies = server_groups.asked_policies(call, asked)
        await port.check_change(group.id, [policy.rule for policy in policies])
        return ChangePolicies(tuple(policies))
    if "add_servers" in asked:
        await port.adopt_servers(connection, call.token, asked["add_servers"])
        return ChangeMembers(add=tuple(asked["add_servers"]))
    if "remove_servers" in asked:
        return ChangeMembers(remove=tuple(asked["remove_servers"]))
    return _displace(call)


def _displace(call: Call) -> Displace:
    asked = call.body["plan"]
    named = asked.get("drain") or asked["lose"]
    return Displace(named["scope"], named["identifier"], "lose" in asked, server_groups.sees_real_names(call))


async def _create(call: Call, connection: Any, group: Group, asked: Mapping[str, Any]) -> Create:
    flavor = await explanations.wanted_flavor(call, connection, asked, group.project_id)
    await explanations.check_quota(call, connection, group.project_id, flavor, asked["count"])
    name, count = asked.get("name", group.name), asked["count"]
    names = await plans.unused_names(connection, group.project_id, name, count)
    boot = CreateRequest(
        project_id=group.project_id,
        user_id=call.caller.user_id,
        request_id=logs.request_id.get(),
        servers=tuple(NewServer(each) for each in names),
        flavor_id=flavor.id,
        least=count,
        image_id=asked.get("imageRef"),
        zone=asked.get("availability_zone"),
        hints={"group": group.id} | ({"partition": asked["partition"]} if "partition" in asked else {}),
        group_id=group.id,
        may_see_all=call.caller.is_admin,
    )
    return Create(boot, flavor, name)


# What is answered


class PlacementAnswer(NamedTuple):
    """Where a new server would be; it has an id once it is made."""

    stored: PlannedPlace
    seen: explain.View
    server_id: str | None = None


_WHERE = FieldTable[PlacementAnswer](
    ShownField("name", schemas.STRING, lambda of: of.stored["name"]),
    ShownField("placements", by_name(schemas.STRING), lambda of: of.seen.where(of.stored).placements),
    ShownField("host", schemas.STRING, lambda of: of.stored["host"], when=lambda of: of.seen.real),
    ShownField("partition", server_groups.PARTITION, lambda of: of.stored["partition"],
               when=lambda of: "partition" in of.stored),
)  # fmt: skip
_PLACEMENT = FieldTable[PlacementAnswer](*_WHERE.fields, column("server_id", schemas.NULLABLE_STRING))


class StrandedAnswer(NamedTuple):
    """A server that finds no other place."""

    server_id: str
    sentence: str


_STRANDED = FieldTable[StrandedAnswer](column("server_id", schemas.STRING), column("sentence", schemas.STRING))


@dataclass(frozen=True, slots=True)
class OutcomeAnswer:
    """What a change comes to, as the caller may see it."""

    outcome: PlanOutcome
    seen: explain.View

    @property
    def stranded(self) -> list[StrandedAnswer]:
        """The servers that find no other place, and why."""
        return [
            StrandedAnswer(each.server_id, self.seen.explanation(each.record).sentence)
            for each in self.outcome.stranded
        ]


@dataclass(frozen=True, slots=True)
class ShownPlan(OutcomeAnswer):
    """A plan for one group."""

    plan: GroupPlan

    @property
    def placements(self) -> list[PlacementAnswer]:
        """Where new servers go."""
        ids = self.plan.server_ids or (None,) * len(self.outcome.placements)
        pairs = zip(self.outcome.placements, ids, strict=True)
        return [PlacementAnswer(stored, self.seen, server_id) for stored, server_id in pairs]


@dataclass(frozen=True, slots=True)
class AffectedAnswer(OutcomeAnswer):
    """What a loss comes to for one group of many."""

    group: GroupOutcome


class AllAffectedAnswer(NamedTuple):
    """What a loss comes to for all groups."""

    sentence: str
    groups: Sequence[AffectedAnswer]


def _moves(of: OutcomeAnswer) -> list[dict[str, Any]]:
    return [MOVE.show(move) for move in planned_moves(of.outcome.moves, of.seen)]


def _violations(of: OutcomeAnswer, kind: str) -> list[dict[str, Any]]:
    shown = of.seen.identifiers

    def broken(stored: StoredViolation) -> BrokenRule:
        rule = shown.shown(placement.Rule.parse(stored["rule"]["policy"], stored["rule"]["rules"]))
        violation = Violation(Breach(stored["breach"]), rule, None, tuple(stored["members"]), stored["excess"])
        aggregate = None if stored["aggregate"] is None else shown.of(rule.scope, stored["aggregate"])
        return BrokenRule("", "", "", violation, aggregate, {})

    return [server_groups.BREACH.show(broken(each)) for each in getattr(of.outcome, kind)]


_BROKEN: tuple[ShownField[OutcomeAnswer], ...] = tuple(
    ShownField(kind, array(server_groups.BREACH.schema()), partial(_violations, kind=kind)) for kind in plans.VIOLATIONS
)
"""What the change breaks, what was broken before, and what it mends."""
_EFFECTS: tuple[ShownField[OutcomeAnswer], ...] = (
    ShownField("moves", array(MOVE.schema()), _moves),
    ShownField("stranded", array(_STRANDED.schema()), lambda of: [_STRANDED.show(each) for each in of.stranded]),
    *_BROKEN,
)
_PLAN = FieldTable[ShownPlan](
    column("generation", schemas.NULLABLE_STRING, "plan.generation"),
    column("applied", schemas.TRUTH, "plan.applied"),
    ShownField("sentence", schemas.STRING, lambda of: _sentence(of.plan)),
    ShownField("placements", array(_PLACEMENT.schema()), lambda of: [_PLACEMENT.show(each) for each in of.placements]),
    column("partitions", server_groups.PARTITIONS, "outcome.partitions"),
    *_EFFECTS,
    ShownField(
        "explanation",
        {"oneOf": [EXPLANATION.schema(), schemas.NULL]},
        lambda of: None if of.outcome.record is None else EXPLANATION.show(of.seen.explanation(of.outcome.record)),
    ),
    column("repair_id", schemas.NULLABLE_STRING, "plan.repair_id"),
)
_AFFECTED = FieldTable[AffectedAnswer](
    column("server_group_id", schemas.NULLABLE_STRING, "group.group_id"),
    column("project_id", schemas.STRING, "group.project_id"),
    column("affected", schemas.INTEGER, "group.affected"),
    *_EFFECTS,
)
_ALL = FieldTable[AllAffectedAnswer](
    column("sentence", schemas.STRING),
    ShownField("groups", array(_AFFECTED.schema()), lambda of: [_AFFECTED.show(each) for each in of.groups]),
)


def _sentence(plan: GroupPlan) -> str:
    outcome = plan.outcome
    if outcome.record is not None and outcome.record["verdict"] != "placed":
        return "There is no place for these servers; see the explanation."
    will = "" if plan.applied else "would "
    parts = [
        (len(outcome.placements), f"{will}be placed" if will else "placed"),
        (len(outcome.moves), f"{will}move" if will else "moving"),
        (len(outcome.stranded), f"{will}find no other place" if will else "without another place"),
    ]
    said = [f"{number} server{'s' * (number != 1)} {what}" for number, what in parts if number]
    broken = len(outcome.violations)
    rules = f"rule{'s' * (broken != 1)}"
    said.append(f"{broken or 'no'} {rules} would be broken" if will else f"{broken} {rules} broken")
    if outcome.broken_before:
        said.append(f"{len(outcome.broken_before)} {'would stay' if will else 'still'} broken")
    if outcome.mended:
        said.append(f"{len(outcome.mended)} {'would be ' if will else ''}mended")
    text = ", ".join(said)
    return f"{text[:1].upper()}{text[1:]}."


def _shown(plan: GroupPlan, seen: explain.View) -> dict[str, Any]:
    return {"plan": _PLAN.show(ShownPlan(plan.outcome, seen, plan))}


@routes.post(
    "/os-server-groups/{server_group_id}/plan",
    since=FIRST,
    rule=PLAN,
    expensive=True,
    owned=True,
    body=_one_of(tuple(_CHANGES)),
    response=_PLAN.one("plan"),
)
async def plan_group(call: Call) -> Reply:
    """Say what a change would come to; with a `generation`, make the change if it would still come to the same."""
    scheduler, generation = call.services.scheduler, call.body["plan"].get("generation")
    async with call.services.database.begin() as connection:
        group = await server_groups.find(call, connection, PLAN)
        change = await _change(call, connection, group)
        seen = await explanations.view(call, connection, group.project_id)
    if generation is None:
        return _shown(await plans.propose(scheduler, group, change, call.caller.project_id or ""), seen)
    call.permit(DRAIN if isinstance(change, Displace) else APPLY, project_id=group.project_id)
    owner = call.caller.project_id or ""
    try:
        if isinstance(change, Create):
            port = call.services.groups
            made = await port.boot_planned(call.token, scheduler, group, change, generation, owner)
        elif isinstance(change, Displace):
            made = await plans.drain_planned(scheduler, group, change, generation, actor(call), owner)
        else:
            async with call.services.database.begin() as connection:
                made = await plans.apply(connection, scheduler, group, change, generation)
    except plans.Changed as changed:
        return _difference(changed, seen)
    return _shown(made, seen)


def _difference(changed: plans.Changed, seen: explain.View) -> JSONResponse:
    """409 in the usual words, with both outcomes where they differ."""
    body = compute_body(409, changed.message, plans.Changed)
    ((_, fault),) = body.items()
    fault["difference"] = {"planned": _compared(changed.before, seen), "now": _compared(changed.now, seen)}
    return JSONResponse(body, 409)


def _compared(essence: Essence, seen: explain.View) -> dict[str, Any]:
    outcome = PlanOutcome()
    for kind in ("placements", "moves", *plans.VIOLATIONS):
        getattr(outcome, kind).extend(essence.get(kind, ()))
    answer = OutcomeAnswer(outcome, seen)
    return {
        "placements": [_WHERE.show(PlacementAnswer(each, seen)) for each in outcome.placements],
        "partitions": essence.get("partitions", {}),
        "moves": _moves(answer),
        "stranded": essence["stranded"],
        **{each.name: each.value(answer) for each in _BROKEN},
    }


@routes.post(
    "/os-server-groups/plan",
    since=FIRST,
    rule=PLAN,
    expensive=True,
    body=_one_of(("drain", "lose")),
    query=thing({}, {"all_projects": {}}),
    response=_ALL.one("plan"),
)
async def plan_all(call: Call) -> Reply:
    """Say what draining or losing an aggregate would come to for all servers of the project, or of all projects."""
    if "generation" in call.body["plan"]:
        raise Invalid("A plan for many groups is a question; apply it group by group.")
    everywhere = "all_projects" in call.query
    if everywhere:
        call.permit(ALL_PROJECTS)
    change, asker = _displace(call), call.caller.project_id or ""
    found = await plans.displace_all(call.services.scheduler, None if everywhere else asker, asker, change)
    async with call.services.database.begin() as connection:
        seen = await explanations.view(call, connection, asker)
    moves, stranded = (sum(len(getattr(each.outcome, kind)) for each in found) for kind in ("moves", "stranded"))
    affected = sum(each.affected for each in found)
    sentence = (
        f"{counted(affected, 'server')} in {counted(len(found), 'group')} would be affected: {moves} would find "
        f"another place, {stranded} would not."
    )
    groups = [AffectedAnswer(each.outcome, seen, each) for each in found]
    return {"plan": _ALL.show(AllAffectedAnswer(sentence, groups))}
