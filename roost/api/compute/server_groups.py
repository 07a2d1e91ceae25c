"""Server groups, in Nova's words up to 2.104 and in the words of the two proposals from 2.1001 on.

| version | a group's policies                                                           |
|---------|------------------------------------------------------------------------------|
| 2.1     | `policies`: one of the two hard types                                        |
| 2.15    | ... or of the two soft ones                                                  |
| 2.64    | `policy` and `rules`; the rules may also name a `scope` and an `identifier`  |
| 2.1001  | `policy`: an object of `name` and `rules`                                    |
| 2.1002  | `policies`: any number of TYPE[:SCOPE[:IDENTIFIER]]                          |
| 2.1003  | `policies`: any number of objects of `name`, `scope`, `identifier`, `rules`; |
|         | `partitions`: the number of each member of a group that is divided           |
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

from roost.api import schemas
from roost.api.budgets import RouteKind
from roost.api.compute.views import timestamp
from roost.api.fields import FieldTable, ShownField
from roost.api.permissions import ADMIN, MEMBER, READER, Permission
from roost.api.routes import Call, Connection, Reply, Table
from roost.api.schemas import Schema, array, thing
from roost.api.versions import Version
from roost.compute.answers import audit
from roost.compute.answers.violations import BrokenRule
from roost.compute.groups import groups, members
from roost.compute.groups.groups import Group, GroupPolicy
from roost.compute.groups.identifiers import Identifiers
from roost.compute.inventory.scopes import load_scopes
from roost.errors import Forbidden, Invalid
from roost.placement import rules as placement
from roost.turns import spread

routes = Table(prefix="/v2.1")

_RULE = "os_compute_api:os-server-groups:"
INDEX, ALL_PROJECTS, SHOW = _RULE + "index", _RULE + "index:all_projects", _RULE + "show"
CREATE, UPDATE, DELETE = _RULE + "create", _RULE + "update", _RULE + "delete"
ADD_INSTANCE, REMOVE_INSTANCE, AUDIT = _RULE + "add_instance", _RULE + "remove_instance", _RULE + "audit"
USE_POLICY = _RULE + "use_policy"
REAL = _RULE + "explain:real"

RULES = (
    Permission(INDEX, READER, "List server groups."),
    Permission(ALL_PROJECTS, ADMIN, "List the server groups of all projects."),
    Permission(SHOW, READER, "Show a server group."),
    Permission(CREATE, MEMBER, "Make a server group."),
    Permission(UPDATE, MEMBER, "Rename a server group or change its policies."),
    Permission(DELETE, MEMBER, "Delete a server group."),
    Permission(ADD_INSTANCE, MEMBER, "Make an existing server a member of a server group."),
    Permission(REMOVE_INSTANCE, MEMBER, "Take a server out of a server group."),
    Permission(AUDIT, READER, "See where the members of a server group are."),
    Permission(
        USE_POLICY,
        MEMBER,
        "Give a server group a policy, directly or by the affinity policy of a cluster; asked for each one. The check "
        "can compare %(scope)s, %(type)s (such as soft-affinity), %(targeted)s (True where an identifier is named) and "
        "%(policies)s (how many the group gets). To keep the scope rack and all targeting for the role gold: "
        "\"role:gold or (not 'rack':%(scope)s and 'False':%(targeted)s)\".",
    ),
    Permission(REAL, ADMIN, "See hosts and real identifiers in audits, the map, explanations, plans and repairs."),
)

_FLAT = Version(2, 64)
_NESTED = Version(2, 1001)
_SCOPED = Version(2, 1002)
_JOINED = Version(2, 1003)

_HARD_TYPES = ["anti-affinity", "affinity"]
_TYPES = [*_HARD_TYPES, "soft-anti-affinity", "soft-affinity"]
_MOST_POLICIES = 16


_OBJECT: Schema = {"type": "object"}
_STRINGS = array(schemas.STRING)
_POLICY = thing(
    {"name": schemas.STRING, "scope": schemas.STRING, "identifier": schemas.NULLABLE_STRING, "rules": _OBJECT}
)


def _asked_for(optional: dict[str, Schema] | None = None, **required: Schema) -> Schema:
    return thing({"server_group": thing({"name": schemas.NAME, **required}, optional)})


def _one_of(types: list[str]) -> Schema:
    one: Schema = {"type": "array", "minItems": 1, "uniqueItems": True, "maxItems": 1, "items": {"enum": types}}
    return _asked_for(policies=one)


_LIMIT: Schema = {**schemas.POSITIVE_INTEGER, "maximum": 10**schemas.MOST_DIGITS}
_LIMITS: dict[str, Schema] = dict.fromkeys(map(str, placement.Limit), _LIMIT)
_PLACE: dict[str, Schema] = {"scope": schemas.STRING, "identifier": schemas.STRING}
_AS_LIMITS = {schemas.NOUN: "limit"}
_NESTED_POLICY = thing(
    {"name": {"type": "string", "enum": _TYPES}}, {"rules": thing({}, {"max_server_per_host": _LIMIT}, **_AS_LIMITS)}
)
_SCOPED_POLICIES = array(
    {"type": "string", "minLength": 1, "maxLength": 1024}, minItems=1, uniqueItems=True, maxItems=_MOST_POLICIES
)
POLICIES = array(
    thing(
        {"name": {"type": "string", "enum": _TYPES}},
        {"scope": schemas.STRING, "identifier": schemas.NULLABLE_STRING, "rules": thing({}, _LIMITS, **_AS_LIMITS)},
    ),
    minItems=1,
    maxItems=_MOST_POLICIES,
)

PARTITIONS: Schema = {"type": "object", "additionalProperties": {"type": ["integer", "null"]}}
_FLAT_REQUEST = _asked_for({"rules": thing({}, {**_LIMITS, **_PLACE})}, policy={"type": "string", "enum": _TYPES})

# The first and the last version, and what a new group is asked for with.
_WORDS = (
    ("2.1", "2.14", _one_of(_HARD_TYPES)),
    ("2.15", "2.63", _one_of(_TYPES)),
    ("2.64", "2.74", _FLAT_REQUEST),
    ("2.75", "2.101", _FLAT_REQUEST),
    ("2.102", "2.104", _FLAT_REQUEST),
    ("2.1001", "2.1001", _asked_for(policy=_NESTED_POLICY)),
    ("2.1002", "2.1002", _asked_for(policies=_SCOPED_POLICIES)),
    ("2.1003", "2.1003", _asked_for(policies=POLICIES)),
)

# Long enough for any page, short enough for any integer.
_DIGITS = {**schemas.DIGITS, "maxLength": 18}
_PAGE: dict[str, Schema] = {"limit": _DIGITS, "offset": _DIGITS, "marker": schemas.STRING, "all_projects": {}}


def _query(parameters: dict[str, Schema], *, strict: bool) -> Schema:
    return {"type": "object", "properties": parameters, "additionalProperties": not strict}


def _change(policies: Schema) -> Schema:
    return thing({"server_group": thing({}, {"name": schemas.NAME, "policies": policies}, minProperties=1)})


PARTITION: Schema = {"type": "integer", "minimum": 1}


def _action(add: dict[str, Schema] | None = None) -> Schema:
    """Add a member, with what may be said of it, or take one out."""
    one = {"instance_id": schemas.UUID}
    known = {"add_instance": thing(one, add), "remove_instance": thing(one)}
    return thing({}, known, minProperties=1, maxProperties=1)


_PLACEMENTS: Schema = {"type": "object", "additionalProperties": schemas.NULLABLE_STRING}
_PLACED: dict[str, Schema] = {"instance_id": schemas.STRING, "placements": _PLACEMENTS}


def _audited(member: Schema, **more: Schema) -> Schema:
    body = thing({"server_group_id": schemas.STRING, "members": array(member), **more})
    return thing({"server_group_policy_audit": body})


# What groups look like


def rule_view(rule: placement.Rule) -> dict[str, Any]:
    """A policy in the words of 2.1003."""
    name = GroupPolicy(rule).name
    return {"name": name, "scope": rule.scope, "identifier": rule.identifier, "rules": dict(rule.limits)}


def _names(group: Group) -> list[str]:
    return list(dict.fromkeys(each.name for each in group.policies))


def _nested(group: Group) -> dict[str, Any]:
    return {"name": group.policies[0].name, "rules": group.policies[0].flat_rules}


_BEFORE_FLAT, _BEFORE_NESTED, _OWNED = Version(2, 63), Version(2, 104), Version(2, 13)


def _owner(since: Version, until: Version | None = None) -> tuple[ShownField[Group], ...]:
    return (
        ShownField("project_id", schemas.STRING, lambda group: group.project_id, since, until),
        ShownField("user_id", schemas.STRING, lambda group: group.user_id, since, until),
    )


# What a version has no words for is left out: all but the first policy, scopes, or limits.
_SHOWN = FieldTable[Group](
    ShownField("id", schemas.STRING, lambda group: group.id),
    ShownField("name", schemas.STRING, lambda group: group.name),
    ShownField(
        "policies",
        _STRINGS,
        lambda group: list(dict.fromkeys(each.name for each in group.policies)),
        until=_BEFORE_FLAT,
    ),
    ShownField("policy", schemas.STRING, lambda group: group.policies[0].name, _FLAT, _BEFORE_NESTED),
    ShownField("rules", _OBJECT, lambda group: group.policies[0].flat_rules, _FLAT, _BEFORE_NESTED),
    ShownField("policy", thing({"name": schemas.STRING, "rules": _OBJECT}), _nested, _NESTED, _NESTED),
    ShownField("policies", _STRINGS, lambda group: [str(each) for each in group.policies], _SCOPED, _SCOPED),
    ShownField("policies", array(_POLICY), lambda group: [rule_view(each.rule) for each in group.policies], _JOINED),
    ShownField("members", _STRINGS, lambda group: list(group.members)),
    ShownField("metadata", _OBJECT, lambda group: {}, until=_BEFORE_FLAT),
    ShownField("metadata", _OBJECT, lambda group: {}, _SCOPED, _SCOPED),
    *_owner(_OWNED, _BEFORE_NESTED),
    *_owner(_JOINED),
    ShownField("partitions", PARTITIONS, lambda group: dict(group.partitions), _JOINED),
)
_ONE = _SHOWN.one("server_group")
# The samples of both proposals have the owner in lists only.
_LISTED = FieldTable[Group](*_SHOWN.fields, *_owner(_NESTED, _SCOPED))
_MANY = _LISTED.many("server_groups")
BREACH = FieldTable[BrokenRule](
    ShownField("breach", schemas.STRING, lambda broken: broken.violation.breach),
    ShownField("policy", _POLICY, lambda broken: rule_view(broken.violation.rule)),
    ShownField("aggregate", schemas.NULLABLE_STRING, lambda broken: broken.aggregate),
    ShownField("members", _STRINGS, lambda broken: list(broken.violation.members)),
    ShownField("excess", schemas.INTEGER, lambda broken: broken.violation.excess),
    ShownField("message", schemas.STRING, lambda broken: str(broken.violation)),
)
"""What is broken, where, by which members and by how much, in the words of 2.1003."""
VIOLATION = BREACH.schema(since=schemas.NULLABLE_STRING)


def _view(group: Group, version: Version) -> dict[str, Any]:
    return {"server_group": _SHOWN.show(group, version)}


# What is asked for


def asked_policies(call: Call, body: Mapping[str, Any]) -> list[GroupPolicy]:
    """The policies that a body asks for, in the words of its version; all of them such as the caller may use."""
    policies = written_policies(body, call.version)
    permit_rules(call, [policy.rule for policy in policies])
    return policies


def permit_rules(call: Call, rules: Sequence[placement.Rule]) -> None:
    """Raise `Forbidden` unless the caller may give one group these rules."""
    for each in rules:
        target = {"scope": each.scope, "type": GroupPolicy(each).name, "targeted": str(each.identifier is not None)}
        if not call.may(USE_POLICY, **target, policies=str(len(rules))):
            raise Forbidden(
                f"Policy doesn't allow {USE_POLICY} to be performed: '{each}', as one of {len(rules)} policies, "
                "cannot be used in this project. Leave it out, or ask the operator of this cloud."
            )


def written_policies(body: Mapping[str, Any], version: Version) -> list[GroupPolicy]:
    """The policies that a body writes in the words of its version, permitted or not."""
    if version < _FLAT:
        return [_policy(name) for name in body["policies"]]
    if version < _NESTED:
        return [_flat(body["policy"], body.get("rules", {}))]
    if version < _SCOPED:
        if "rules" in body["policy"] and body["policy"]["name"] != "anti-affinity":
            raise Invalid(_ONLY_ANTI_AFFINITY)
        return [_policy(body["policy"]["name"], limits=body["policy"].get("rules", {}))]
    if version < _JOINED:
        return [_written(text) for text in body["policies"]]
    return [_object(policy) for policy in body["policies"]]


_ONLY_ANTI_AFFINITY = "Only anti-affinity policy supports rules."


def _flat(name: str, rules: Mapping[str, Any]) -> GroupPolicy:
    limits = {key: value for key, value in rules.items() if key not in _PLACE}
    if limits and name != "anti-affinity":
        raise Invalid(_ONLY_ANTI_AFFINITY)
    return _policy(name, rules.get("scope"), rules.get("identifier"), limits)


def _written(text: str) -> GroupPolicy:
    name, *place = text.split(":", 2)
    scope, identifier = (*place, None, None)[:2]
    return _policy(name, scope, identifier)


def _object(policy: Mapping[str, Any]) -> GroupPolicy:
    # The scope is always shown, so it need not be stored that it was written out.
    scope = policy.get("scope", placement.HOST)
    written = None if scope == placement.HOST else scope
    return _policy(policy["name"], written, policy.get("identifier"), policy.get("rules", {}))


def _policy(
    name: str, scope: str | None = None, identifier: str | None = None, limits: Mapping[str, Any] | None = None
) -> GroupPolicy:
    place = placement.HOST if scope is None and identifier is not None else scope
    text = ":".join(part for part in (name, place, identifier) if part is not None)
    if not text.isprintable():
        raise Invalid("A policy has characters that cannot be printed.")
    try:
        rule = placement.Rule.parse(text, limits)
    except placement.RuleError as error:
        raise Invalid(f"The policy '{text}' cannot be used: {error}.") from None
    return GroupPolicy(rule, spelled_out=scope == placement.HOST)


async def find(call: Call, connection: Connection, rule: str) -> Group:
    """The group that the path names, if the caller may do this to it; else it does not exist for the caller."""
    group = await groups.find(connection, call.path["server_group_id"])
    if not call.may(rule, project_id=group.project_id):
        raise groups.missing(group.id)
    return group


def sees_real_names(call: Call) -> bool:
    """Whether the caller is shown hosts and real identifiers, in whatever answer; at 2.1002, as proposed, none is."""
    return call.version >= _JOINED and call.may(REAL)


async def identifiers(call: Call, connection: Connection, project_id: str) -> Identifiers:
    """The identifiers that the caller is shown in an answer about a project."""
    return Identifiers(await load_scopes(connection), project_id, real=sees_real_names(call))


# The routes

_GROUPS = "/os-server-groups"
_GROUP = "/os-server-groups/{server_group_id}"


async def index(call: Call) -> Reply:
    """List the server groups of the project, or of all projects."""
    everywhere = "all_projects" in call.query and call.may(ALL_PROJECTS)
    limit = call.page.limit or call.services.settings.max_limit
    page = replace(call.page, limit=limit, offset=int(call.query.get("offset") or 0))
    async with call.services.database.autocommit() as connection:
        found = await groups.index(
            connection, project_id=None if everywhere else call.caller.project_id or "", page=page
        )
    return {"server_groups": await spread(lambda group: _LISTED.show(group, call.version), found)}


async def create(call: Call) -> Reply:
    """Make a server group."""
    body = call.body["server_group"]
    owner = {"project_id": call.caller.project_id or "", "user_id": call.caller.user_id}
    policies = asked_policies(call, body)
    group = await call.services.groups.create(call.token, name=body["name"], policies=policies, **owner)
    return _view(group, call.version)


async def show(call: Call, connection: Connection) -> Reply:
    """Show a server group."""
    return _view(await find(call, connection, SHOW), call.version)


for first, last, asked in _WORDS:
    version = {"since": first, "until": last}
    # Early versions ignored unknown keys.
    page = _query(_PAGE, strict=Version.parse(first) >= Version(2, 75))
    nothing = _query({}, strict=Version.parse(first) >= Version(2, 102))
    routes.get(_GROUPS, rule=INDEX, query=page, response=_MANY, **version)(index)
    routes.post(_GROUPS, rule=CREATE, body=asked, response=_ONE, **version)(create)
    routes.get(_GROUP, rule=SHOW, query=nothing, response=_ONE, **version)(show)


@routes.delete(_GROUP, rule=DELETE, status=204)
async def delete(call: Call) -> None:
    """Delete a server group; its members stay."""
    await call.services.groups.delete(call.token, partial(find, call, rule=DELETE))


async def update(call: Call, connection: Connection) -> Reply:
    """Rename a server group, or give it other policies; members that break them are left alone."""
    body = call.body["server_group"]
    policies = asked_policies(call, body) if "policies" in body else None
    group = await find(call, connection, UPDATE)
    if policies is not None:
        await call.services.groups.check_change(group.id, [policy.rule for policy in policies])
    group = await groups.update(connection, call.services.settings, group, name=body.get("name"), policies=policies)
    return _view(group, call.version)


async def act(call: Call, connection: Connection) -> Reply:
    """Add an existing server to a group (`add_instance`) or take it out (`remove_instance`); nothing moves."""
    ((action, subject),) = call.body.items()
    change, rule = {"add_instance": (members.add, ADD_INSTANCE), "remove_instance": (members.remove, REMOVE_INSTANCE)}[
        action
    ]
    call.permit(rule)
    more = {"partition": subject["partition"]} if "partition" in subject else {}
    group = await find(call, connection, rule)
    if action == "add_instance":
        await call.services.groups.adopt_servers(connection, call.token, [subject["instance_id"]])
    group = await change(connection, call.services.settings, group, subject["instance_id"], **more)
    return _view(group, call.version)


for first, wanted, action_taken in (
    ("2.1002", _SCOPED_POLICIES, _action()),
    ("2.1003", POLICIES, _action({"partition": PARTITION})),
):
    version = {"since": first, "until": first}
    routes.post(_GROUP, rule=UPDATE, body=_change(wanted), response=_ONE, **version)(update)
    routes.post(
        _GROUP + "/action",
        rule=ADD_INSTANCE,
        owned=True,
        body=action_taken,
        response=_ONE,
        **version,
    )(act)


_FULL_AUDIT = _audited(thing(_PLACED, {"partition": {"type": ["integer", "null"]}}), violations=array(VIOLATION))


@routes.get(
    _GROUP + "/audit",
    since="2.1002",
    until="2.1002",
    rule=AUDIT,
    kind=RouteKind.ANSWER,
    response=_audited(thing(_PLACED)),
)
@routes.get(_GROUP + "/audit", since="2.1003", rule=AUDIT, kind=RouteKind.ANSWER, response=_FULL_AUDIT)
async def show_audit(call: Call, connection: Connection) -> Reply:
    """Show where each member is in each scope of the policies; from 2.1003 on, also which policies are broken."""
    group = await find(call, connection, AUDIT)
    shown = await identifiers(call, connection, group.project_id)
    found = await audit.audit_group(connection, group, shown, call.services.scheduler.live)
    placed: list[dict[str, Any]] = [
        {"instance_id": member, "placements": dict(places)} for member, places in found.placements.items()
    ]
    view: dict[str, Any] = {"server_group_id": group.id, "members": placed}
    if call.version >= _JOINED:
        for each in placed:
            if each["instance_id"] in found.partitions:
                each["partition"] = found.partitions[each["instance_id"]]
        view["violations"] = [violation_view(*each) for each in found.violations]
    return {"server_group_policy_audit": view}


def violation_view(broken: BrokenRule, since: datetime | None) -> dict[str, Any]:
    """A broken rule in the words of 2.1003, and since when it is known."""
    return {**BREACH.show(broken), "since": timestamp(since)}
