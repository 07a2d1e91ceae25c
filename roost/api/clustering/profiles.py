"""Profiles: made from a spec, listed, renamed and deleted."""

from functools import partial

from starlette.responses import Response

from roost.api.clustering import fields, shapes, spec_views
from roost.api.clustering.fields import BodyField
from roost.api.clustering.handling import cloud_of
from roost.api.permissions import MEMBER, READER, Permission
from roost.api.routes import Call, Reply, Table
from roost.api.schemas import NULL, array, thing
from roost.clusters import plugins, profile_objects
from roost.clusters.lookup import find
from roost.clusters.spec import InvalidSpec
from roost.store.tables import clusters as tables

RULES = (
    Permission("profiles:index", READER, "List profiles."),
    Permission("profiles:create", MEMBER, "Create a profile."),
    Permission("profiles:validate", MEMBER, "Validate the spec of a profile without creating it."),
    Permission("profiles:get", READER, "Show a profile."),
    Permission("profiles:update", MEMBER, "Change the name or the metadata of a profile."),
    Permission("profiles:delete", MEMBER, "Delete a profile."),
)
routes = Table("/v1/profiles")

_LISTING = spec_views.listing(tables.profiles)
_CREATE = {
    "name": BodyField(fields.as_name, required=True),
    "spec": BodyField(fields.as_map, required=True),
    "metadata": BodyField(fields.as_map),
}
_VALIDATE = {"spec": BodyField(fields.as_map, required=True)}
_UPDATE = {"name": BodyField(fields.as_name), "metadata": BodyField(fields.as_map)}
_view = partial(spec_views.view, keeps="metadata")
_SHAPE = shapes.of(tables.profiles)
_ONE = thing({"profile": thing(_SHAPE)})


@routes.get("", rule="profiles:index", response=thing({"profiles": array(thing(_SHAPE))}))
async def index(call: Call) -> Reply:
    """The profiles of the project."""
    page = _LISTING.read(call)
    async with call.services.database.begin() as connection:
        return {"profiles": [_view(row) for row in await _LISTING.rows(connection, call, page)]}


@routes.post("", rule="profiles:create", status=201, described=fields.enveloped("profile", _CREATE), response=_ONE)
async def create(call: Call) -> Reply:
    """Make a profile from a spec, if the cloud has what it asks for."""
    given = fields.read(_CREATE, fields.envelope(call.body, "profile"))
    try:
        profile = profile_objects.build(plugins.load(call.services.settings), call.caller, **given)
        async with call.services.database.begin() as connection:
            row = await profile_objects.create(connection, profile, cloud_of(call))
    except InvalidSpec as error:
        raise InvalidSpec(f"Failed in creating profile {given['name']}: {error.message}") from None
    return {"profile": _view(row)}


@routes.post(
    "/validate",
    since="1.2",
    rule="profiles:validate",
    described=fields.enveloped("profile", _VALIDATE),
    response=thing({"profile": thing(_SHAPE | spec_views.NOT_KEPT | {"metadata": NULL})}),
)
async def validate(call: Call) -> Reply:
    """Check a spec against its schema."""
    given = fields.read(_VALIDATE, fields.envelope(call.body, "profile"))
    profile = profile_objects.build(plugins.load(call.services.settings), call.caller, "validated_profile", **given)
    return {"profile": {**profile.to_dict(), "id": None, "metadata": None}}


@routes.get("/{profile_id}", rule="profiles:get", response=_ONE)
async def show(call: Call) -> Reply:
    """One profile."""
    async with call.services.database.begin() as connection:
        row = await find(connection, tables.profiles, "profile", call.path["profile_id"], call.caller)
    return {"profile": _view(row)}


@routes.patch(
    "/{profile_id}",
    rule="profiles:update",
    described=fields.enveloped("profile", _UPDATE),
    response=_ONE,
)
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
