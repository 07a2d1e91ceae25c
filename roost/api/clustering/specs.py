"""Policies and profiles: made from a spec, validated, listed, changed and deleted, all in the same way."""

from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from roost.api.clustering import fields, shapes
from roost.api.clustering.fields import BodyField
from roost.api.clustering.handling import cloud_of
from roost.api.clustering.lists import Listing, text
from roost.api.clustering.moments import moment
from roost.api.clustering.shapes import Shape
from roost.api.fields import ShownField
from roost.api.permissions import MEMBER, READER, Permission
from roost.api.routes import Call, Connection, Reply, Table
from roost.api.schemas import NULL, array, thing
from roost.clusters import plugins, specs
from roost.clusters.lookup import find
from roost.clusters.spec import InvalidSpec
from roost.clusters.spec_type import SpecRow, SpecType
from roost.clusters.specs import SpecNoun
from roost.turns import spread

_SPEC = BodyField(fields.as_map, required=True)


def rules(noun: SpecNoun, plural: str) -> tuple[Permission, ...]:
    """Who may do what."""
    return (
        Permission(f"{plural}:index", READER, f"List {plural}."),
        Permission(f"{plural}:create", MEMBER, f"Create a {noun.resource.name}."),
        Permission(f"{plural}:validate", MEMBER, f"Validate the spec of a {noun.resource.name} without creating it."),
        Permission(f"{plural}:get", READER, f"Show a {noun.resource.name}."),
        Permission(f"{plural}:update", MEMBER, f"Change what a {noun.resource.name} is called and labelled with."),
        Permission(f"{plural}:delete", MEMBER, f"Delete a {noun.resource.name}."),
    )


def table(noun: SpecNoun, plural: str, changeable: Mapping[str, BodyField]) -> Table:
    """The routes of policies, or of profiles: `changeable` is what may be changed later."""
    routes, one = Table(f"/v1/{plural}"), noun.resource.name
    listing = Listing(
        noun.resource,
        sorts=("type", "name", "created_at", "updated_at"),
        default_sort="created_at",
        filters={"name": text, "type": text},
    )
    creation = {**changeable, "name": BodyField(fields.as_name, required=True), "spec": _SPEC}
    validation = {"spec": _SPEC}
    shape = Shape(
        SpecRow,
        ShownField("spec", shapes.OBJECT, lambda row: shapes.without_secrets(row.spec)),
        ShownField("created_at", shapes.MOMENT, lambda row: moment(row.created_at)),
        names={**shapes.OWNER, "kept": noun.keeps},
    )
    view, schema = shape.show, shape.schema()
    response = thing({one: schema})
    not_kept = ("id", "created_at", "updated_at", *(["metadata"] if noun is specs.PROFILES else []))

    async def checked(call: Call, given: Mapping[str, Any]) -> SpecType:
        settings = call.services.settings
        made = noun.build(plugins.load(settings), call.caller, **given)
        await specs.check(made, cloud_of(call), settings.clusters)
        return made

    @routes.get("", rule=f"{plural}:index", response=thing({plural: array(schema)}))
    async def index(call: Call, connection: Connection) -> Reply:
        """List those of the project."""
        page = listing.read(call)
        return {plural: await spread(view, await listing.records(connection, call, page))}

    @routes.post("", rule=f"{plural}:create", status=201, described=fields.enveloped(one, creation), response=response)
    async def create(call: Call) -> Reply:
        """Make one from a spec, if the cloud has what it asks for."""
        given = fields.read(creation, fields.envelope(call.body, one))
        try:
            made = await checked(call, given)
        except InvalidSpec as error:
            if noun is specs.PROFILES:
                raise InvalidSpec(f"Failed in creating profile {given['name']}: {error.message}") from None
            raise
        async with call.services.database.begin() as connection:
            return {one: view(await noun.create(connection, made))}

    @routes.post(
        "/validate",
        since="1.2",
        rule=f"{plural}:validate",
        described=fields.enveloped(one, validation),
        response=thing({one: thing(schema["properties"] | dict.fromkeys(not_kept, NULL))}),
    )
    async def validate(call: Call) -> Reply:
        """Check a spec as a creation would, and make nothing."""
        given = fields.read(validation, fields.envelope(call.body, one))
        made = await checked(call, {**given, "name": f"validated_{one}"})
        return {one: {**made.to_dict(), "id": None, **({"metadata": None} if noun.keeps == "metadata" else {})}}

    @routes.get(f"/{{{one}_id}}", rule=f"{plural}:get", response=response)
    async def show(call: Call, connection: Connection) -> Reply:
        """Show one."""
        return {one: view(await find(connection, noun.resource, call.path[f"{one}_id"], call.caller))}

    @routes.patch(
        f"/{{{one}_id}}", rule=f"{plural}:update", described=fields.enveloped(one, changeable), response=response
    )
    async def update(call: Call, connection: Connection) -> Reply:
        """Change what one is called, or what it is labelled with; its spec never changes."""
        changes = fields.read(changeable, fields.envelope(call.body, one, change=True))
        return {one: view(await noun.update(connection, call.caller, call.path[f"{one}_id"], changes))}

    @routes.delete(f"/{{{one}_id}}", rule=f"{plural}:delete", status=204)
    async def delete(call: Call, connection: Connection) -> Reply:
        """Delete one that nothing uses."""
        await noun.delete(connection, call.caller, call.path[f"{one}_id"])
        return Response(status_code=204)

    return routes
