"""Plans: what a change to a server group would come to, and the change itself if that still holds.

The same request without and with a `generation` is a question and an order: what was answered to the question is what
the order does, or it is refused with 409 and what has become different.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from starlette.responses import JSONResponse

from roost import logs
from roost.api import schemas
from roost.api.compute import explanations, server_groups
from roost.api.compute.explanations import EXPLANATION, FIRST
from roost.api.compute.servers import actor
from roost.api.errors import compute_body
from roost.api.permissions import ADMIN, MEMBER, READER, Permission
from roost.api.routes import Call, Reply, Table
from roost.api.schemas import Schema, array, thing
from roost.compute.answers import explain, plans
from roost.compute.answers.plans import Change, ChangeMembers, ChangePolicies, Create, Displace, GroupPlan, PlanOutcome
from roost.compute.groups.groups import Group
from roost.compute.scheduling.request import CreateRequest, NewServer
from roost.errors import Invalid
from roost.placement import rules as placement
from roost.placement.audit import Breach, sentence
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


_PLACE = {"type": "object", "additionalProperties": schemas.STRING}
_MOVES = array(thing({"server_id": schemas.STRING, "source": _PLACE, "target": _PLACE}))
_STRANDED = array(thing({"server_id": schemas.STRING, "sentence": schemas.STRING}))
_VIOLATIONS = dict.fromkeys(plans.VIOLATIONS, array(server_groups.VIOLATION))
_SHOWN = thing(
    {
        "generation": schemas.NULLABLE_STRING,
        "applied": {"type": "boolean"},
        "sentence": schemas.STRING,
        "placements": array(
            thing(
                {"name": schemas.STRING, "placements": _PLACE, "server_id": schemas.NULLABLE_STRING},
                {"host": schemas.STRING, "partition": server_groups.PARTITION},
            )
        ),
        "partitions": server_groups.PARTITIONS,
        "moves": _MOVES,
        "stranded": _STRANDED,
        **_VIOLATIONS,
        "explanation": {"oneOf": [EXPLANATION, {"type": "null"}]},
        "repair_id": schemas.NULLABLE_STRING,
    }
)
_SHOWN_ALL = thing(
    {
        "sentence": schemas.STRING,
        "groups": array(
            thing(
                {
                    "server_group_id": schemas.NULLABLE_STRING,
                    "project_id": schemas.STRING,
                    "affected": {"type": "integer"},
                    "moves": _MOVES,
                    "stranded": _STRANDED,
                    **_VIOLATIONS,
                }
            )
        ),
    }
)


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


class _View:
    """An outcome as the caller may see it."""

    def __init__(self, seen: explain.View) -> None:
        self.seen = seen

    def placement(self, stored: Mapping[str, Any]) -> dict[str, Any]:
        partition = {"partition": stored["partition"]} if "partition" in stored else {}
        return {"name": stored["name"], **partition, **self.seen.where(stored)}

    def moves(self, outcome: PlanOutcome) -> list[dict[str, Any]]:
        return [
            {
                "server_id": each["server_id"],
                "source": self.seen.place(each["source"]),
                "target": self.seen.place(each["target"]),
            }
            for each in outcome.moves
        ]

    def stranded(self, outcome: PlanOutcome) -> list[dict[str, Any]]:
        return [
            {"server_id": each["server_id"], "sentence": self.seen.explanation(each["record"])["sentence"]}
            for each in outcome.stranded
        ]

    def violations(self, outcome: PlanOutcome) -> dict[str, list[dict[str, Any]]]:
        """What the change breaks, what was broken before, and what it mends."""
        return {kind: [self._violation(each) for each in getattr(outcome, kind)] for kind in plans.VIOLATIONS}

    def _violation(self, stored: Mapping[str, Any]) -> dict[str, Any]:
        shown = self.seen.identifiers
        rule = shown.shown(placement.Rule.parse(stored["rule"]["policy"], stored["rule"]["rules"]))
        aggregate = None if stored["aggregate"] is None else shown.of(rule.scope, stored["aggregate"])
        return {
            "breach": stored["breach"],
            "policy": server_groups.rule_view(rule),
            "aggregate": aggregate,
            "members": stored["members"],
            "excess": stored["excess"],
            "message": sentence(Breach(stored["breach"]), rule, len(stored["members"]), stored["excess"]),
        }


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
    outcome, view = plan.outcome, _View(seen)
    ids = plan.server_ids or (None,) * len(outcome.placements)
    return {
        "generation": plan.generation,
        "applied": plan.applied,
        "sentence": _sentence(plan),
        "placements": [
            {"server_id": server_id, **view.placement(each)}
            for each, server_id in zip(outcome.placements, ids, strict=True)
        ],
        "partitions": outcome.partitions,
        "moves": view.moves(outcome),
        "stranded": view.stranded(outcome),
        **view.violations(outcome),
        "explanation": None if outcome.record is None else seen.explanation(outcome.record),
        "repair_id": plan.repair_id,
    }


@routes.post(
    "/os-server-groups/{server_group_id}/plan",
    since=FIRST,
    rule=PLAN,
    expensive=True,
    owned=True,
    body=_one_of(tuple(_CHANGES)),
    response=thing({"plan": _SHOWN}),
)
async def plan_group(call: Call) -> Reply:
    """Say what a change would come to; with a `generation`, make the change if it would still come to the same."""
    scheduler, generation = call.services.scheduler, call.body["plan"].get("generation")
    async with call.services.database.begin() as connection:
        group = await server_groups.find(call, connection, PLAN)
        change = await _change(call, connection, group)
        seen = await explanations.view(call, connection, group.project_id)
    if generation is None:
        return {"plan": _shown(await plans.propose(scheduler, group, change, call.caller.project_id or ""), seen)}
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
        return _difference(changed, _View(seen))
    return {"plan": _shown(made, seen)}


def _difference(changed: plans.Changed, view: _View) -> JSONResponse:
    """409 in the usual words, with both outcomes where they differ."""
    body = compute_body(409, changed.message, plans.Changed)
    ((_, fault),) = body.items()
    fault["difference"] = {"planned": _compared(changed.before, view), "now": _compared(changed.now, view)}
    return JSONResponse(body, 409)


def _compared(essence: Mapping[str, Any], view: _View) -> dict[str, Any]:
    outcome = PlanOutcome()
    for kind in ("placements", "moves", *plans.VIOLATIONS):
        getattr(outcome, kind).extend(essence.get(kind, ()))
    return {
        "placements": [view.placement(each) for each in outcome.placements],
        "partitions": essence.get("partitions", {}),
        "moves": view.moves(outcome),
        "stranded": essence["stranded"],
        **view.violations(outcome),
    }


@routes.post(
    "/os-server-groups/plan",
    since=FIRST,
    rule=PLAN,
    expensive=True,
    body=_one_of(("drain", "lose")),
    query=thing({}, {"all_projects": {}}),
    response=thing({"plan": _SHOWN_ALL}),
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
    view = _View(seen)
    moves, stranded = (sum(len(getattr(each.outcome, kind)) for each in found) for kind in ("moves", "stranded"))
    affected = sum(each.affected for each in found)
    sentence = (
        f"{counted(affected, 'server')} in {counted(len(found), 'group')} would be affected: {moves} would find "
        f"another place, {stranded} would not."
    )
    shown = [
        {
            "server_group_id": each.group_id,
            "project_id": each.project_id,
            "affected": each.affected,
            "moves": view.moves(each.outcome),
            "stranded": view.stranded(each.outcome),
            **view.violations(each.outcome),
        }
        for each in found
    ]
    return {"plan": {"sentence": sentence, "groups": shown}}
