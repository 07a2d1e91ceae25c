"""Explanations: why a server is where it is, or nowhere; and what would become of a request that is not made."""

from collections.abc import Mapping
from typing import Any

from roost.api import schemas
from roost.api.compute import server_groups, servers
from roost.api.fields import FieldTable, ShownField, column, given
from roost.api.permissions import READER, Permission
from roost.api.routes import Call, Connection, Reply, Table
from roost.api.schemas import Schema, array, by_name, thing
from roost.compute.answers import explain, what_if
from roost.compute.answers.explain import ShownDecision, ShownHost, ShownRemedy
from roost.compute.groups import groups
from roost.compute.inventory import claims, quotas
from roost.compute.inventory.claims import Usage
from roost.compute.inventory.flavors import FlavorSize, resources_of
from roost.compute.moves import operations
from roost.errors import Invalid, NotFound, OverQuota
from roost.placement.decision import RefusalCount, Request
from roost.placement.fleet import Resources
from roost.placement.ranking import SoftRuleShare

routes = Table(prefix="/v2.1")

SERVER = "os_compute_api:servers:explain"
GROUP = "os_compute_api:os-server-groups:explain"

RULES = (
    Permission(
        SERVER, READER, "Ask why a server is where it is, or nowhere, and where it would be with another flavor."
    ),
    Permission(GROUP, READER, "Ask where new members of a server group would go, and why."),
)

FIRST = "2.1003"

_COUNT: Schema = {"type": "integer", "minimum": 0}
_SHARE = FieldTable[SoftRuleShare](
    ShownField("policy", schemas.STRING, lambda share: str(share.rule)),
    column("value", {"type": ["integer", "null"]}),
    ShownField("sentence", schemas.STRING, explain.share_sentence),
)
_STANDING = FieldTable[ShownHost](
    column("placements", by_name(schemas.STRING), "place.placements"),
    column("host", schemas.STRING, "place.host", when=lambda of: of.place.host is not None),
    given("partition", server_groups.PARTITION),
    ShownField("shares", array(_SHARE.schema()), lambda of: [_SHARE.show(share) for share in of.shares]),
    given("headroom", _COUNT),
)
_REFUSED = FieldTable[RefusalCount](
    column("reason", schemas.STRING),
    column("hosts", _COUNT),
    ShownField("policy", schemas.NULLABLE_STRING, lambda of: None if of.rule is None else str(of.rule)),
    ShownField("rules", {"type": "object"}, lambda of: {} if of.rule is None else of.rule.limits),
    column("scope", schemas.NULLABLE_STRING),
    ShownField("sentence", schemas.STRING, str),
)
_HELP = FieldTable[ShownRemedy](
    column("change", schemas.STRING),
    column("amount", {"type": "integer"}),
    column("policy", schemas.NULLABLE_STRING),
    column("by", {"enum": ["tenant", "operator"]}),
    column("sentence", schemas.STRING),
)
EXPLANATION = FieldTable[ShownDecision](
    column("verdict", {"enum": ["placed", "refused", "undecided"]}),
    column("sentence", schemas.STRING),
    column("hosts", _COUNT),
    column("candidates", {**_COUNT, "type": ["integer", "null"]}),
    ShownField("refused", array(_REFUSED.schema()), lambda of: [_REFUSED.show(each) for each in of.refused]),
    ShownField("chosen", array(_STANDING.schema()), lambda of: [_STANDING.show(each) for each in of.chosen]),
    ShownField("runners_up", array(_STANDING.schema()), lambda of: [_STANDING.show(each) for each in of.runners_up]),
    ShownField("help", array(_HELP.schema()), lambda of: [_HELP.show(each) for each in of.help]),
    column("advice", schemas.NULLABLE_STRING),
)
_FLAVOR: dict[str, Schema] = {"flavorRef": {"type": ["string", "integer"]}}
_MANY: dict[str, Schema] = {
    "count": {"type": "integer", "minimum": 1, "maximum": 1000},
    "availability_zone": schemas.STRING,
}
_QUESTION = thing({"explain": thing(_FLAVOR, {**_MANY, "partition": server_groups.PARTITION})})
_RESIZE = thing({"explain": thing(_FLAVOR)})
_COMPOSED = thing({"explain": thing({**_FLAVOR, "policies": server_groups.POLICIES}, _MANY)})


async def view(call: Call, connection: Connection, project_id: str) -> explain.View:
    """What the caller may see of a project's servers."""
    return explain.View(await server_groups.identifiers(call, connection, project_id))


@routes.get(
    "/servers/{server_id}/explanation",
    since=FIRST,
    rule=SERVER,
    expensive=True,
    owned=True,
    response=thing({"explanation": {"oneOf": [EXPLANATION.schema(), schemas.NULL]}}),
)
async def show(call: Call) -> Reply:
    """Why a server was placed where it was, and which hosts came next. `candidates` is null, and `refused` empty, where
    the hosts were not counted. For one that found no host, what each check removed and what would help now."""
    async with call.services.database.autocommit() as connection:
        server = await servers.owned(call, connection, SERVER)
        if server.explanation is None:
            return {"explanation": None}
        seen = await view(call, connection, server.project_id)
        if server.explanation["verdict"] == "placed":
            return {"explanation": EXPLANATION.show(seen.explanation(server.explanation))}
        again = await what_if.same_again(connection, call.services.scheduler, server, server.explanation["servers"])
    trial = await what_if.decide(call.services.scheduler, again, call.caller.project_id or "", helping=True)
    return {"explanation": EXPLANATION.show(seen.explanation(server.explanation, trial.help))}


@routes.post(
    "/servers/{server_id}/explain",
    since=FIRST,
    rule=SERVER,
    expensive=True,
    owned=True,
    body=_RESIZE,
    response=EXPLANATION.one("explanation"),
)
async def ask_resize(call: Call) -> Reply:
    """Where a server would be with another flavor, and why there or why nowhere; refused as the resize is. Nothing
    is changed."""
    flavor_id = str(call.body["explain"]["flavorRef"]).rpartition("/")[2]
    scheduler = call.services.scheduler
    async with call.services.database.begin() as connection:
        server = await servers.owned(call, connection, SERVER)
        flavor, _ = await operations.check_resize(connection, scheduler, server, servers.actor(call), flavor_id)
        wanted = await what_if.resized(connection, scheduler, server, flavor.size)
        seen = await view(call, connection, server.project_id)
    return await _answer(call, wanted, seen)


@routes.post(
    "/os-server-groups/{server_group_id}/explain",
    since=FIRST,
    rule=GROUP,
    expensive=True,
    owned=True,
    body=_QUESTION,
    response=EXPLANATION.one("explanation"),
)
async def ask(call: Call) -> Reply:
    """Where new members of a group would go, and why there or why nowhere. Nothing is made."""
    asked = call.body["explain"]
    async with call.services.database.begin() as connection:
        group = await server_groups.find(call, connection, GROUP)
        resources = await _affordable(call, connection, asked, group.project_id)
        wanted = await what_if.new_members(
            connection,
            call.services.scheduler,
            group.id,
            resources,
            asked.get("count", 1),
            zone=asked.get("availability_zone"),
            partition=asked.get("partition"),
        )
        seen = await view(call, connection, group.project_id)
    return await _answer(call, wanted, seen)


@routes.post(
    "/os-server-groups/explain",
    since=FIRST,
    rule=GROUP,
    expensive=True,
    body=_COMPOSED,
    response=EXPLANATION.one("explanation"),
)
async def ask_composed(call: Call) -> Reply:
    """Where the first members of a group would go under these `policies`, and why there or why nowhere. Nothing is
    made."""
    asked, project_id = call.body["explain"], call.caller.project_id or ""
    policies = server_groups.asked_policies(call, asked)
    async with call.services.database.begin() as connection:
        rules = await groups.check_policies(connection, policies, project_id)
        resources = await _affordable(call, connection, asked, project_id)
        seen = await view(call, connection, project_id)
    return await _answer(
        call, Request(resources, asked.get("count", 1), rules, zone=asked.get("availability_zone")), seen
    )


async def _answer(call: Call, wanted: Request, seen: explain.View) -> Reply:
    trial = await what_if.decide(call.services.scheduler, wanted, call.caller.project_id or "", helping=True)
    return {"explanation": EXPLANATION.show(seen.explanation(trial.record, trial.help))}


async def _affordable(call: Call, connection: Connection, asked: Mapping[str, Any], project_id: str) -> Resources:
    """What each server takes, if the project's quota allows them; operators may ask beyond it."""
    flavor = await wanted_flavor(call, connection, asked, project_id)
    if not server_groups.sees_real_names(call):
        await check_quota(call, connection, project_id, flavor, asked.get("count", 1))
    return resources_of(flavor)


async def check_quota(call: Call, connection: Connection, project_id: str, flavor: FlavorSize, count: int) -> None:
    """Refuse what the project's quota does not allow it to make: the answer would be of no use to it, and would reveal
    how much room other projects leave."""
    limits = await quotas.limits(connection, call.services.settings.quota, project_id)
    used = await claims.usage(connection, project_id)
    over = quotas.excess(used, Usage(count, flavor.vcpus * count, flavor.memory_mb * count), limits)
    if over is not None:
        raise OverQuota(over)


async def wanted_flavor(call: Call, connection: Connection, asked: Mapping[str, Any], project_id: str) -> FlavorSize:
    """The flavor that a body names, if the project may use it; a Nova's where Roost stands in front of one."""
    flavor_id = str(asked["flavorRef"]).rpartition("/")[2]
    try:
        return await call.services.groups.flavor(connection, call.token, flavor_id, project_id)
    except NotFound as error:
        raise Invalid(error.message) from None
