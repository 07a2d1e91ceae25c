"""Policies: made from a spec, listed, renamed and deleted."""

from typing import Any

import sqlalchemy as sa
from starlette.responses import Response

from roost.api.clustering import fields
from roost.api.clustering.asking import cloud_of
from roost.api.clustering.fields import Field
from roost.api.clustering.lists import Listing, text
from roost.api.clustering.moments import moment
from roost.api.permissions import MEMBER, READER, Rule
from roost.api.routes import Call, Reply, Table
from roost.clusters import plugins, policy_objects
from roost.clusters.lookup import find
from roost.store.tables import clusters as tables

RULES = (
    Rule("policies:index", READER, "List policies."),
    Rule("policies:create", MEMBER, "Create a policy."),
    Rule("policies:validate", MEMBER, "Validate the spec of a policy without creating it."),
    Rule("policies:get", READER, "Show a policy."),
    Rule("policies:update", MEMBER, "Rename a policy."),
    Rule("policies:delete", MEMBER, "Delete a policy."),
)
routes = Table("/v1/policies")

_LISTING = Listing(
    tables.policies,
    sorts=("type", "name", "created_at", "updated_at"),
    default_sort="created_at",
    filters={"name": text, "type": text},
)
_CREATE = {"name": Field(fields.as_name, required=True), "spec": Field(fields.as_map, required=True)}
_VALIDATE = {"spec": Field(fields.as_map, required=True)}
_UPDATE = {"name": Field(fields.as_name, required=True)}


def _view(row: sa.Row[Any]) -> dict[str, Any]:
    return {
        "id": row.id,
        "name": row.name,
        "type": row.type,
        "spec": row.spec,
        "data": row.data,
        "user": row.user_id,
        "project": row.project_id,
        "domain": row.domain_id,
        "created_at": moment(row.created_at),
        "updated_at": moment(row.updated_at),
    }


@routes.get("", rule="policies:index")
async def index(call: Call) -> Reply:
    """The policies of the project."""
    page = _LISTING.read(call)
    async with call.services.database.begin() as connection:
        return {"policies": [_view(row) for row in await _LISTING.rows(connection, call, page)]}


@routes.post("", rule="policies:create", status=201, described=fields.enveloped("policy", _CREATE))
async def create(call: Call) -> Reply:
    """Make a policy from a spec."""
    given = fields.read(_CREATE, fields.envelope(call.body, "policy"))
    settings = call.services.settings
    policy = policy_objects.build(plugins.load(settings), given["name"], given["spec"])
    cloud = cloud_of(call)
    async with call.services.database.begin() as connection:
        row = await policy_objects.create(connection, call.caller, given["name"], policy, cloud, settings.clusters)
    return {"policy": _view(row)}


@routes.post("/validate", since="1.2", rule="policies:validate", described=fields.enveloped("policy", _VALIDATE))
async def validate(call: Call) -> Reply:
    """Check a spec against its schema."""
    given = fields.read(_VALIDATE, fields.envelope(call.body, "policy"))
    policy = policy_objects.build(plugins.load(call.services.settings), "validated_policy", given["spec"])
    own = {"user": call.caller.user_id, "project": call.caller.project_id, "domain": "default"}
    return {"policy": {**policy.to_dict(), **own, "id": None}}


@routes.get("/{policy_id}", rule="policies:get")
async def show(call: Call) -> Reply:
    """One policy."""
    async with call.services.database.begin() as connection:
        row = await find(connection, tables.policies, "policy", call.path["policy_id"], call.caller)
    return {"policy": _view(row)}


@routes.patch("/{policy_id}", rule="policies:update", described=fields.enveloped("policy", _UPDATE))
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
