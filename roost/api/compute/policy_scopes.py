"""Policy scopes: what server groups may be spread over or kept within, from 2.1002 on.

Callers who may see them in full (`show:real`, the admin) sees real identifiers; all others see, under `group_id`, the
identifiers that their own project can use, and nothing where a scope allows none.
"""

from collections.abc import Sequence
from typing import Any

from roost.api import schemas
from roost.api.permissions import ADMIN, READER, Permission
from roost.api.routes import Call, Reply, Table
from roost.api.schemas import Schema, array, boolean, thing
from roost.api.versions import Version
from roost.compute.inventory import scopes
from roost.compute.inventory.scopes import Scope, ScopePart
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

_FIRST = "2.1002"
_JOINED = Version(2, 1003)

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
_AGGREGATE = thing(
    {"group_id": schemas.STRING},
    {"aggregate_id": {"type": "integer"}, "name": schemas.STRING, "obfuscated_group_id": schemas.STRING},
)


def _shown_as(flag: Schema) -> Schema:
    return thing(
        {
            "id": schemas.STRING,
            "name": schemas.STRING,
            "allow_identifiers": flag,
            "obfuscate_identifiers": flag,
            "aggregates": array(_AGGREGATE),
        },
        {"obfuscate_namespace_uuid": schemas.NULLABLE_STRING},
    )


_WORDED = ((_FIRST, _FIRST, _shown_as({"enum": ["true", "false"]})), ("2.1003", None, _shown_as({"type": "boolean"})))


def _view(call: Call, scope: Scope, inside: Sequence[ScopePart]) -> dict[str, Any]:
    real = call.may(SHOW_REAL)
    view: dict[str, Any] = {
        "id": scope.uuid,
        "name": scope.name,
        "allow_identifiers": _flag(call, scope.allow_identifiers),
        "obfuscate_identifiers": _flag(call, scope.obfuscate_identifiers),
    }
    # With the namespace, a tenant could find out which aggregate is behind an identifier.
    if real:
        view["obfuscate_namespace_uuid"] = str(scope.namespace) if scope.namespace else None
    shown = inside if real or scope.allow_identifiers else ()
    view["aggregates"] = [_aggregate_view(call, scope, aggregate, real) for aggregate in shown]
    if not real and scope.obfuscate_identifiers:
        # In the order of the real identifiers, every project's first one would be the same aggregate.
        view["aggregates"].sort(key=lambda each: str(each["group_id"]))
    return view


def _aggregate_view(call: Call, scope: Scope, aggregate: ScopePart, real: bool) -> dict[str, Any]:
    if not real:
        return {"group_id": scope.identifier_for(call.caller.project_id or "", aggregate.identifier)}
    view: dict[str, Any] = {"group_id": aggregate.identifier, "name": aggregate.name}
    if scope.id:
        view["aggregate_id"] = int(aggregate.identifier)
    tenant = call.query.get("as_tenant_id")
    if tenant is not None and scope.allow_identifiers:
        view["obfuscated_group_id"] = scope.identifier_for(tenant, aggregate.identifier)
    return view


def _flag(call: Call, value: bool) -> bool | str:
    """A boolean: as a string in the version that follows the proposal's samples."""
    return value if call.version >= _JOINED else str(value).lower()


def _values(body: dict[str, Any]) -> dict[str, Any]:
    """A body in the words of the table."""
    flags: dict[str, Any] = {
        key: boolean(body[key]) for key in ("allow_identifiers", "obfuscate_identifiers") if key in body
    }
    namespace = body.get("obfuscate_namespace_uuid")
    name = {"name": body["name"]} if "name" in body else {}
    return {**name, **flags, **({"namespace_uuid": namespace} if namespace else {})}


_SCOPES = "/os-policy-scopes"
_SCOPE = "/os-policy-scopes/{policy_scope_id}"


async def _check_tenant(call: Call) -> None:
    tenant = call.query.get("as_tenant_id")
    if tenant is None:
        return
    call.permit(SHOW_REAL)
    if not await call.has_project(tenant):
        raise Invalid(f"There is no project with the ID '{tenant}': as_tenant_id takes a project's ID, not its name.")


async def index(call: Call) -> Reply:
    """List policy scopes, the built-in ones first."""
    await _check_tenant(call)
    async with call.services.database.autocommit() as connection:
        found = await scopes.index(connection)
    return {"policy_scopes": [_view(call, scope, inside) for scope, inside in found]}


async def show(call: Call) -> Reply:
    """Show a policy scope, with the identifiers that the project may use (`as_tenant_id`: that one would)."""
    await _check_tenant(call)
    async with call.services.database.autocommit() as connection:
        scope, inside = await scopes.show(connection, call.path["policy_scope_id"])
    return {"policy_scope": _view(call, scope, inside)}


async def create(call: Call) -> Reply:
    """Make a policy scope; without a namespace for obfuscation it gets a random one."""
    async with call.services.database.begin() as connection:
        scope = await scopes.create(connection, _values(call.body["policy_scope"]))
    return {"policy_scope": _view(call, scope, [])}


async def update(call: Call) -> Reply:
    """Change a policy scope; groups keep their targets."""
    async with call.services.database.begin() as connection:
        before = await scopes.find(connection, call.path["policy_scope_id"])
        await scopes.update(connection, call.path["policy_scope_id"], _values(call.body["policy_scope"]))
        scope, inside = await scopes.show(connection, call.path["policy_scope_id"])
        if scope.name != before.name:
            await call.services.groups.set_scope(call.token, [int(each.identifier) for each in inside], scope.name)
    return {"policy_scope": _view(call, scope, inside)}


async def act(call: Call) -> Reply:
    """Add an aggregate to a scope (`add_aggregate`) or remove it (`remove_aggregate`)."""
    ((action, subject),) = call.body.items()
    change, rule = {
        "add_aggregate": (scopes.add_aggregate, ADD_AGGREGATE),
        "remove_aggregate": (scopes.remove_aggregate, REMOVE_AGGREGATE),
    }[action]
    call.permit(rule)
    async with call.services.database.begin() as connection:
        await change(connection, call.path["policy_scope_id"], int(subject["aggregate_id"]))
        scope, inside = await scopes.show(connection, call.path["policy_scope_id"])
        named = scope.name if action == "add_aggregate" else None
        await call.services.groups.set_scope(call.token, [int(subject["aggregate_id"])], named)
    return {"policy_scope": _view(call, scope, inside)}


for since, until, shape in _WORDED:
    version = {"since": since, "until": until}
    one, many = thing({"policy_scope": shape}), thing({"policy_scopes": array(shape)})
    routes.get(_SCOPES, rule=INDEX, query=_QUERY, response=many, **version)(index)
    routes.get(_SCOPE, rule=SHOW, query=_QUERY, response=one, **version)(show)
    routes.post(_SCOPES, rule=CREATE, body=_CREATE, response=one, **version)(create)
    routes.post(_SCOPE, rule=UPDATE, body=_UPDATE, response=one, **version)(update)
    routes.post(_SCOPE + "/action", rule=ADD_AGGREGATE, owned=True, body=_ACTION, response=one, **version)(act)


@routes.delete(_SCOPE, since=_FIRST, rule=DELETE, status=204)
async def delete(call: Call) -> Reply:
    """Delete a policy scope that nothing uses."""
    async with call.services.database.begin() as connection:
        await scopes.delete(connection, call.path["policy_scope_id"])
    return None
