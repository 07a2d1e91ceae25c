"""Policies: made from a spec, listed, renamed and deleted."""

from functools import partial

from starlette.responses import Response

from roost.api.clustering import fields, shapes, spec_views
from roost.api.clustering.fields import BodyField
from roost.api.clustering.handling import cloud_of
from roost.api.permissions import MEMBER, READER, Permission
from roost.api.routes import Call, Reply, Table
from roost.api.schemas import array, thing
from roost.clusters import plugins, policy_objects
from roost.clusters.lookup import find
from roost.store.tables import clusters as tables

RULES = (
    Permission("policies:index", READER, "List policies."),
    Permission("policies:create", MEMBER, "Create a policy."),
    Permission("policies:validate", MEMBER, "Validate the spec of a policy without creating it."),
    Permission("policies:get", READER, "Show a policy."),
    Permission("policies:update", MEMBER, "Rename a policy."),
    Permission("policies:delete", MEMBER, "Delete a policy."),
)
routes = Table("/v1/policies")

_LISTING = spec_views.listing(tables.policies)
_CREATE = {"name": BodyField(fields.as_name, required=True), "spec": BodyField(fields.as_map, required=True)}
_VALIDATE = {"spec": BodyField(fields.as_map, required=True)}
_UPDATE = {"name": BodyField(fields.as_name, required=True)}
_view = partial(spec_views.view, keeps="data")
_SHAPE = shapes.of(tables.policies)
_ONE = thing({"policy": thing(_SHAPE)})


@routes.get("", rule="policies:index", response=thing({"policies": array(thing(_SHAPE))}))
async def index(call: Call) -> Reply:
    """The policies of the project."""
    page = _LISTING.read(call)
    async with call.services.database.begin() as connection:
        return {"policies": [_view(row) for row in await _LISTING.rows(connection, call, page)]}


@routes.post("", rule="policies:create", status=201, described=fields.enveloped("policy", _CREATE), response=_ONE)
async def create(call: Call) -> Reply:
    """Make a policy from a spec."""
    given = fields.read(_CREATE, fields.envelope(call.body, "policy"))
    settings = call.services.settings
    policy = policy_objects.build(plugins.load(settings), call.caller, **given)
    async with call.services.database.begin() as connection:
        row = await policy_objects.create(connection, policy, cloud_of(call), settings.clusters)
    return {"policy": _view(row)}


@routes.post(
    "/validate",
    since="1.2",
    rule="policies:validate",
    described=fields.enveloped("policy", _VALIDATE),
    response=thing({"policy": thing(_SHAPE | spec_views.NOT_KEPT)}),
)
async def validate(call: Call) -> Reply:
    """Check a spec against its schema."""
    given = fields.read(_VALIDATE, fields.envelope(call.body, "policy"))
    policy = policy_objects.build(plugins.load(call.services.settings), call.caller, "validated_policy", **given)
    return {"policy": {**policy.to_dict(), "id": None}}


@routes.get("/{policy_id}", rule="policies:get", response=_ONE)
async def show(call: Call) -> Reply:
    """One policy."""
    async with call.services.database.begin() as connection:
        row = await find(connection, tables.policies, "policy", call.path["policy_id"], call.caller)
    return {"policy": _view(row)}


@routes.patch(
    "/{policy_id}",
    rule="policies:update",
    described=fields.enveloped("policy", _UPDATE),
    response=_ONE,
)
async def update(call: Call) -> Reply:
    """Rename a policy."""
    given = fields.read(_UPDATE, fields.envelope(call.body, "policy", change=True))
    async with call.services.database.begin() as connection:
        row = await policy_objects.rename(connection, call.caller, call.path["policy_id"], given["name"])
    return {"policy": _view(row)}


@routes.delete("/{policy_id}", rule="policies:delete", status=204)
async def delete(call: Call) -> Reply:
    """Delete a policy that is attached to no cluster."""
    async with call.services.database.begin() as connection:
        await policy_objects.delete(connection, call.caller, call.path["policy_id"])
    return Response(status_code=204)
