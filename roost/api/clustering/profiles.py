"""Profiles: made from a spec, listed, renamed and deleted."""

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
from roost.clusters import plugins, profile_objects
from roost.clusters.lookup import find
from roost.clusters.spec import InvalidSpec
from roost.store.tables import clusters as tables

RULES = (
    Rule("profiles:index", READER, "List profiles."),
    Rule("profiles:create", MEMBER, "Create a profile."),
    Rule("profiles:validate", MEMBER, "Validate the spec of a profile without creating it."),
    Rule("profiles:get", READER, "Show a profile."),
    Rule("profiles:update", MEMBER, "Change the name or the metadata of a profile."),
    Rule("profiles:delete", MEMBER, "Delete a profile."),
)
routes = Table("/v1/profiles")

_LISTING = Listing(
    tables.profiles,
    sorts=("type", "name", "created_at", "updated_at"),
    default_sort="created_at",
    filters={"name": text, "type": text},
)
_CREATE = {
    "name": Field(fields.as_name, required=True),
    "spec": Field(fields.as_map, required=True),
    "metadata": Field(fields.as_map),
}
_VALIDATE = {"spec": Field(fields.as_map, required=True)}
_UPDATE = {"name": Field(fields.as_name), "metadata": Field(fields.as_map)}


def _view(row: sa.Row[Any]) -> dict[str, Any]:
    return {
        "id": row.id,
        "name": row.name,
        "type": row.type,
        "spec": row.spec,
        "metadata": row.metadata,
        "user": row.user_id,
        "project": row.project_id,
        "domain": row.domain_id,
        "created_at": moment(row.created_at),
        "updated_at": moment(row.updated_at),
    }


@routes.get("", rule="profiles:index")
async def index(call: Call) -> Reply:
    """The profiles of the project."""
    page = _LISTING.read(call)
    async with call.services.database.begin() as connection:
        return {"profiles": [_view(row) for row in await _LISTING.rows(connection, call, page)]}


@routes.post("", rule="profiles:create", status=201, described=fields.enveloped("profile", _CREATE))
async def create(call: Call) -> Reply:
    """Make a profile from a spec, if the cloud has what it asks for."""
    given = fields.read(_CREATE, fields.envelope(call.body, "profile"))
    name, metadata = given["name"], given.get("metadata") or {}
    cloud = cloud_of(call)
    try:
        profile = profile_objects.build(plugins.load(call.services.settings), name, given["spec"])
        async with call.services.database.begin() as connection:
            row = await profile_objects.create(connection, call.caller, name, profile, metadata, cloud)
    except InvalidSpec as error:
        raise InvalidSpec(f"Failed in creating profile {name}: {error.message}") from None
    return {"profile": _view(row)}


@routes.post("/validate", since="1.2", rule="profiles:validate", described=fields.enveloped("profile", _VALIDATE))
async def validate(call: Call) -> Reply:
    """Check a spec against its schema."""
    given = fields.read(_VALIDATE, fields.envelope(call.body, "profile"))
    profile = profile_objects.build(plugins.load(call.services.settings), "validated_profile", given["spec"])
    own = {"user": call.caller.user_id, "project": call.caller.project_id, "domain": "default"}
    return {"profile": {**profile.to_dict(), **own, "id": None, "metadata": None}}


@routes.get("/{profile_id}", rule="profiles:get")
async def show(call: Call) -> Reply:
    """One profile."""
    async with call.services.database.begin() as connection:
        row = await find(connection, tables.profiles, "profile", call.path["profile_id"], call.caller)
    return {"profile": _view(row)}


@routes.patch("/{profile_id}", rule="profiles:update", described=fields.enveloped("profile", _UPDATE))
async def update(call: Call) -> Reply:
    """Change the name or the metadata of a profile."""
    changes = fields.read(_UPDATE, fields.envelope(call.body, "profile", change=True))
    async with call.services.database.begin() as connection:
        row = await profile_objects.update(connection, call.caller, call.path["profile_id"], changes)
    return {"profile": _view(row)}


@routes.delete("/{profile_id}", rule="profiles:delete", status=204)
async def delete(call: Call) -> Reply:
    """Delete a profile that no cluster and no node refers to."""
    async with call.services.database.begin() as connection:
        await profile_objects.delete(connection, call.caller, call.path["profile_id"])
    return Response(status_code=204)
