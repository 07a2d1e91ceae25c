"""Policy scopes: what server groups may be spread over or kept within, from 2.1002 on.

Callers who may see them in full (`show:real`, the admin) see real identifiers; all others see, under `group_id`, the
identifiers that their own project can use, and nothing where a scope allows none.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple

from roost.api import schemas
from roost.api.fields import FieldTable, ShownField, column, given
from roost.api.permissions import ADMIN, READER, Permission
from roost.api.routes import Call, Connection, Reply, Table
from roost.api.schemas import Schema, array, boolean, thing
from roost.api.versions import Version
from roost.compute.inventory import scopes
from roost.compute.inventory.scopes import Scope, ScopePart, ScopeValues
from roost.errors import Invalid

routes = Table(prefix="/v2.1")

_RULE = "os_compute_api:os-policy-scopes:"
INDEX, SHOW, SHOW_REAL = _RULE + "index", _RULE + "show", _RULE + "show:real"
CREATE, UPDATE, DELETE = _RULE + "create", _RULE + "update", _RULE + "delete"
ADD_AGGREGATE, REMOVE_AGGREGATE = _RULE + "add_aggregate", _RULE + "remove_aggregate"

RULES = (
    Permission(INDEX, READER, "List policy scopes."),
    Permission(SHOW, READER, "Show a policy scope."),
    Permission(SHOW_REAL, ADMIN, "See the real identifiers of policy scopes, and what a project sees instead."),
    Permission(CREATE, ADMIN, "Make a policy scope."),
    Permission(UPDATE, ADMIN, "Change a policy scope."),
    Permission(DELETE, ADMIN, "Delete a policy scope."),
    Permission(ADD_AGGREGATE, ADMIN, "Add an aggregate to a policy scope."),
    Permission(REMOVE_AGGREGATE, ADMIN, "Remove an aggregate from a policy scope."),
)

_FIRST, _JOINED = Version(2, 1002), Version(2, 1003)

_OPTIONAL: dict[str, Schema] = {
    "allow_identifiers": schemas.BOOLEAN,
    "obfuscate_identifiers": schemas.BOOLEAN,
    "obfuscate_namespace_uuid": schemas.UUID,
}
_CREATE = thing({"policy_scope": thing({"name": schemas.NAME}, _OPTIONAL)})
_UPDATE = thing({"policy_scope": thing({}, {"name": schemas.NAME, **_OPTIONAL}, minProperties=1)})
_ACTION: Schema = {
    "type": "object",
    "properties": {
        name: thing({"aggregate_id": schemas.POSITIVE_INTEGER}) for name in ("add_aggregate", "remove_aggregate")
    },
    "additionalProperties": False,
    "minProperties": 1,
    "maxProperties": 1,
}
_QUERY: Schema = {
    "type": "object",
    "properties": {"as_tenant_id": {"type": "string", "minLength": 1}},
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True)
class ScopePartAnswer:
    """An aggregate of a scope, as the caller may see it: in full, or only by the identifier of its own project."""

    group_id: str
    name: str | None = None
    aggregate_id: int | None = None
    obfuscated_group_id: str | None = None


class ScopeAnswer(NamedTuple):
    """A scope and its aggregates, as the caller may see them."""

    scope: Scope
    parts: Sequence[ScopePartAnswer]
    real: bool


_PART = FieldTable[ScopePartAnswer](
    column("group_id", schemas.STRING),
    given("name", schemas.STRING),
    given("aggregate_id", schemas.INTEGER),
    given("obfuscated_group_id", schemas.STRING),
)


def _flag(name: str) -> tuple[ShownField[ScopeAnswer], ...]:
    """A boolean: as a string in the version that follows the proposal's samples."""
    value: Callable[[ScopeAnswer], bool] = attrgetter(f"scope.{name}")
    return (
        ShownField(name, {"enum": ["true", "false"]}, lambda of: str(value(of)).lower(), until=_FIRST),
        ShownField(name, schemas.TRUTH, value, since=_JOINED),
    )


_FIELDS = FieldTable[ScopeAnswer](
    column("id", schemas.STRING, "scope.uuid"),
    column("name", schemas.STRING, "scope.name"),
    *_flag("allow_identifiers"),
    *_flag("obfuscate_identifiers"),
    # With the namespace, a tenant could find out which aggregate is behind an identifier.
    ShownField(
        "obfuscate_namespace_uuid",
        schemas.NULLABLE_STRING,
        lambda of: None if of.scope.namespace is None else str(of.scope.namespace),
        when=lambda of: of.real,
    ),
    ShownField("aggregates", array(_PART.schema()), lambda of: [_PART.show(part) for part in of.parts]),
)
_ONE, _MANY = _FIELDS.one("policy_scope"), _FIELDS.many("policy_scopes")


def _view(call: Call, scope: Scope, inside: Sequence[ScopePart]) -> dict[str, Any]:
    real = call.may(SHOW_REAL)
    shown = inside if real or scope.allow_identifiers else ()
    parts = [_part(call, scope, aggregate, real) for aggregate in shown]
    if not real and scope.obfuscate_identifiers:
        # In the order of the real identifiers, every project's first one would be the same aggregate.
        parts.sort(key=lambda each: each.group_id)
    return _FIELDS.show(ScopeAnswer(scope, parts, real), call.version)


def _part(call: Call, scope: Scope, aggregate: ScopePart, real: bool) -> ScopePartAnswer:
    if not real:
        return ScopePartAnswer(scope.identifier_for(call.caller.project_id or "", aggregate.identifier))
    tenant = call.query.get("as_tenant_id")
    theirs = scope.identifier_for(tenant, aggregate.identifier) if tenant and scope.allow_identifiers else None
    return ScopePartAnswer(
        aggregate.identifier, aggregate.name, int(aggregate.identifier) if scope.id else None, theirs
    )


def _values(body: dict[str, Any]) -> ScopeValues:
    """A body as columns of the table."""
    values: ScopeValues = {}
    if "name" in body:
        values["name"] = body["name"]
    if "allow_identifiers" in body:
        values["allow_identifiers"] = boolean(body["allow_identifiers"])
    if "obfuscate_identifiers" in body:
        values["obfuscate_identifiers"] = boolean(body["obfuscate_identifiers"])
    if body.get("obfuscate_namespace_uuid"):
        values["namespace_uuid"] = body["obfuscate_namespace_uuid"]
    return values


_SCOPES = "/os-policy-scopes"
_SCOPE = "/os-policy-scopes/{policy_scope_id}"


async def _check_tenant(call: Call) -> None:
    tenant = call.query.get("as_tenant_id")
    if tenant is None:
        return
    call.permit(SHOW_REAL)
    if not await call.has_project(tenant):
        raise Invalid(f"There is no project with the ID '{tenant}': as_tenant_id takes a project's ID, not its name.")


@routes.get(_SCOPES, since="2.1002", rule=INDEX, query=_QUERY, response=_MANY)
async def index(call: Call) -> Reply:
    """List policy scopes, the built-in ones first."""
    await _check_tenant(call)
    async with call.services.database.autocommit() as connection:
        found = await scopes.index(connection)
    return {"policy_scopes": [_view(call, scope, inside) for scope, inside in found]}


@routes.get(_SCOPE, since="2.1002", rule=SHOW, query=_QUERY, response=_ONE)
async def show(call: Call) -> Reply:
    """Show a policy scope, with the identifiers that the project may use (`as_tenant_id`: that one would)."""
    await _check_tenant(call)
    async with call.services.database.autocommit() as connection:
        scope, inside = await scopes.show(connection, call.path["policy_scope_id"])
    return {"policy_scope": _view(call, scope, inside)}


@routes.post(_SCOPES, since="2.1002", rule=CREATE, body=_CREATE, response=_ONE)
async def create(call: Call, connection: Connection) -> Reply:
    """Make a policy scope; without a namespace for obfuscation it gets a random one."""
    scope = await scopes.create(connection, _values(call.body["policy_scope"]))
    return {"policy_scope": _view(call, scope, [])}


@routes.post(_SCOPE, since="2.1002", rule=UPDATE, body=_UPDATE, response=_ONE)
async def update(call: Call, connection: Connection) -> Reply:
    """Change a policy scope; groups keep their targets."""
    before = await scopes.find(connection, call.path["policy_scope_id"])
    await scopes.update(connection, call.path["policy_scope_id"], _values(call.body["policy_scope"]))
    scope, inside = await scopes.show(connection, call.path["policy_scope_id"])
    if scope.name != before.name:
        await call.services.groups.set_scope(call.token, [int(each.identifier) for each in inside], scope.name)
    return {"policy_scope": _view(call, scope, inside)}


@routes.post(_SCOPE + "/action", since="2.1002", rule=ADD_AGGREGATE, owned=True, body=_ACTION, response=_ONE)
async def act(call: Call, connection: Connection) -> Reply:
    """Add an aggregate to a scope (`add_aggregate`) or remove it (`remove_aggregate`)."""
    ((action, subject),) = call.body.items()
    change, rule = {
        "add_aggregate": (scopes.add_aggregate, ADD_AGGREGATE),
        "remove_aggregate": (scopes.remove_aggregate, REMOVE_AGGREGATE),
    }[action]
    call.permit(rule)
    await change(connection, call.path["policy_scope_id"], int(subject["aggregate_id"]))
    scope, inside = await scopes.show(connection, call.path["policy_scope_id"])
    named = scope.name if action == "add_aggregate" else None
    await call.services.groups.set_scope(call.token, [int(subject["aggregate_id"])], named)
    return {"policy_scope": _view(call, scope, inside)}


@routes.delete(_SCOPE, since="2.1002", rule=DELETE, status=204)
async def delete(call: Call, connection: Connection) -> None:
    """Delete a policy scope that nothing uses."""
    await scopes.delete(connection, call.path["policy_scope_id"])
