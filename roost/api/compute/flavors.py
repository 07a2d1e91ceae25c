"""Flavors, their extra specs, and the projects that may use private ones."""

from collections.abc import Callable
from typing import Any, NamedTuple

from oslo_utils import strutils

from roost.api.compute import views
from roost.api.compute.views import LINKS, PAGE, closed_query, next_page, open_query
from roost.api.fields import FieldTable, ShownField
from roost.api.permissions import ADMIN, ANYONE, READER, Permission
from roost.api.routes import Call, Connection, Reply, Table
from roost.api.schemas import (
    BOOLEAN,
    INTEGER,
    MOST_DIGITS,
    NAME,
    NULLABLE_STRING,
    STRING,
    TRUTH,
    Schema,
    array,
    boolean,
    by_name,
    thing,
)
from roost.api.versions import Version
from roost.compute.inventory import flavors
from roost.compute.inventory.flavors import Flavor
from roost.errors import Conflict, Invalid, NotFound

routes = Table(prefix="/v2.1")

_MANAGE = "os_compute_api:os-flavor-manage:"
_SPECS = "os_compute_api:os-flavor-extra-specs:"
_ACCESS = "os_compute_api:os-flavor-access"
_READ = "os_compute_api:flavors"
RULES = (
    Permission(_READ, ANYONE, "List and show flavors."),
    Permission(_MANAGE + "create", ADMIN, "Create a flavor."),
    Permission(_MANAGE + "update", ADMIN, "Change the description of a flavor."),
    Permission(_MANAGE + "delete", ADMIN, "Delete a flavor."),
    Permission(_SPECS + "index", READER, "List the extra specs of a flavor, also as part of the flavor."),
    Permission(_SPECS + "show", READER, "Show an extra spec."),
    Permission(_SPECS + "create", ADMIN, "Add extra specs to a flavor."),
    Permission(_SPECS + "update", ADMIN, "Change an extra spec."),
    Permission(_SPECS + "delete", ADMIN, "Delete an extra spec."),
    Permission(_ACCESS, ADMIN, "List the projects that may use a private flavor."),
    Permission(_ACCESS + ":add_tenant_access", ADMIN, "Let a project use a private flavor."),
    Permission(_ACCESS + ":remove_tenant_access", ADMIN, "Let a project no longer use a private flavor."),
)

_MOST = 2**31 - 1
_POSITIVE: Schema = {
    "type": ["integer", "string"],
    "pattern": "^[0-9]+$",
    "minimum": 1,
    "maximum": _MOST,
    "maxLength": MOST_DIGITS,
}
_AMOUNT: Schema = {**_POSITIVE, "minimum": 0}
_FACTOR: Schema = {
    "type": ["number", "string"],
    "pattern": r"^[0-9]+(\.[0-9]+)?$",
    "exclusiveMinimum": 0,
    "maximum": 3.40282e38,
    "maxLength": MOST_DIGITS,
}
_ID: Schema = {
    "type": ["string", "number", "null"],
    "minLength": 1,
    "maxLength": 255,
    "pattern": "^(?! )[a-zA-Z0-9. _-]+(?<! )$",
}
_DESCRIPTION: Schema = {"type": ["string", "null"], "maxLength": 65535, "pattern": r"^[^\x00-\x08\x0b\x0c\x0e-\x1f]*$"}
_NEEDED = {"name": NAME, "ram": _POSITIVE, "vcpus": _POSITIVE, "disk": _AMOUNT}
_OPTIONAL = {"id": _ID, "OS-FLV-EXT-DATA:ephemeral": _AMOUNT, "swap": _AMOUNT, "os-flavor-access:is_public": BOOLEAN}
_SPEC_NAME = "^[a-zA-Z0-9-_:. ]{1,255}$"
_SPEC_VALUES: Schema = {
    "type": "object",
    "patternProperties": {_SPEC_NAME: {"type": ["string", "number"], "maxLength": 255}},
    "additionalProperties": False,
}
_PROJECT: Schema = {"type": "string", "pattern": "^[a-zA-Z0-9-]*$", "minLength": 1, "maxLength": 255}
_ACTIONS: Schema = {
    "type": "object",
    "properties": {"addTenantAccess": thing({"tenant": _PROJECT}), "removeTenantAccess": thing({"tenant": _PROJECT})},
}
_FILTERS = {
    **PAGE,
    "is_public": STRING,
    "minRam": STRING,
    "minDisk": STRING,
    "sort_key": {"type": "string", "enum": sorted(flavors.SORT_KEYS)},
    "sort_dir": {"type": "string", "enum": ["asc", "desc"]},
}


class _Shown(NamedTuple):
    """What an answer about a flavor is made from."""

    call: Call
    flavor: Flavor


_BRIEF = FieldTable[_Shown](
    ShownField("id", STRING, lambda of: of.flavor.id),
    ShownField("name", STRING, lambda of: of.flavor.name),
    ShownField("links", LINKS, lambda of: views.links(of.call, "flavors", of.flavor.id)),
    ShownField("description", NULLABLE_STRING, lambda of: of.flavor.description, since=Version(2, 55)),
)
_FULL = FieldTable[_Shown](
    *_BRIEF.fields,
    ShownField("ram", INTEGER, lambda of: of.flavor.memory_mb),
    ShownField("disk", INTEGER, lambda of: of.flavor.disk_gb),
    ShownField("vcpus", INTEGER, lambda of: of.flavor.vcpus),
    ShownField("swap", {"anyOf": [INTEGER, {"const": ""}]}, lambda of: of.flavor.swap_mb or "", until=Version(2, 74)),
    ShownField("swap", INTEGER, lambda of: of.flavor.swap_mb, since=Version(2, 75)),
    ShownField("OS-FLV-EXT-DATA:ephemeral", INTEGER, lambda of: of.flavor.ephemeral_gb),
    ShownField("os-flavor-access:is_public", TRUTH, lambda of: of.flavor.is_public),
    ShownField("OS-FLV-DISABLED:disabled", {"const": False}, lambda of: False, until=Version(2, 101)),
    ShownField("rxtx_factor", {"type": "number"}, lambda of: of.flavor.rxtx_factor, until=Version(2, 101)),
    ShownField(
        "extra_specs",
        by_name(STRING),
        lambda of: of.flavor.extra_specs,
        since=Version(2, 61),
        when=lambda of: of.call.may(_SPECS + "index"),
    ),
)
_ONE = _FULL.one("flavor")


def _view(call: Call, flavor: Flavor, table: FieldTable[_Shown] = _FULL) -> dict[str, Any]:
    return table.show(_Shown(call, flavor), call.version)


def _own(call: Call) -> str | None:
    """Whose flavors the caller sees; None for the operator, who sees all."""
    return None if call.caller.is_admin else call.caller.project_id or ""


def _number(call: Call, name: str) -> int:
    text = call.query.get(name, "0")
    number = views.integer(text)
    if number is None:
        raise Invalid(f"Invalid {name} filter [{text}]")
    return max(-_MOST, min(number, _MOST))


def _is_public(call: Call) -> bool | None:
    text = call.query.get("is_public")
    if not call.caller.is_admin or text is None:
        return True
    if text.lower() == "none":
        return None
    try:
        return bool(strutils.bool_from_string(text, strict=True))
    except ValueError:
        raise Invalid(f"Invalid is_public filter [{text}]") from None


async def _list(call: Call, table: FieldTable[_Shown]) -> Reply:
    async with call.services.database.autocommit() as connection:
        found = await flavors.index(
            connection,
            project_id=call.caller.project_id or "",
            is_public=_is_public(call),
            min_memory_mb=_number(call, "minRam"),
            min_disk_gb=_number(call, "minDisk"),
            name=call.query.get("name"),
            sort_key=call.query.get("sort_key", "flavorid"),
            descending=call.query.get("sort_dir") == "desc",
            page=call.page,
        )
    listed = [_view(call, flavor, table) for flavor in found]
    following = next_page(call, listed, "id")
    return {"flavors": listed, **({"flavors_links": following} if following else {})}


def _page(table: FieldTable[_Shown]) -> Callable[[Version], Schema]:
    return lambda version: thing({"flavors": array(table.schema(version))}, {"flavors_links": LINKS})


async def index(call: Call) -> Reply:
    """List flavors by id and name."""
    return await _list(call, _BRIEF)


async def detail(call: Call) -> Reply:
    """List flavors in full."""
    return await _list(call, _FULL)


async def create(call: Call, connection: Connection) -> Reply:
    """Create a flavor; without an id, it gets a uuid."""
    asked = call.body["flavor"]
    flavor = Flavor(
        name=asked["name"],
        id="" if asked.get("id") is None else str(asked["id"]),
        vcpus=_within("vcpus", asked["vcpus"], least=1),
        memory_mb=_within("ram", asked["ram"], least=1),
        disk_gb=_within("disk", asked["disk"]),
        ephemeral_gb=_within("ephemeral", asked.get("OS-FLV-EXT-DATA:ephemeral", 0)),
        swap_mb=_within("swap", asked.get("swap", 0)),
        rxtx_factor=float(asked.get("rxtx_factor", 1.0)),
        is_public=boolean(asked.get("os-flavor-access:is_public", True)),
        description=asked.get("description"),
    )
    if flavor.rxtx_factor <= 0:
        raise Invalid("Invalid input received: 'rxtx_factor' argument must be a float between 0 and 3.40282e+38")
    return {"flavor": _view(call, await flavors.create(connection, flavor))}


def _within(name: str, value: int | str, least: int = 0) -> int:
    """Digits in a string escape the schema's bounds."""
    if not least <= int(value) <= _MOST:
        bound = f">= {least}" if int(value) < least else f"<= {_MOST}"
        raise Invalid(f"Invalid input received: {name} must be {bound}")
    return int(value)


async def show(call: Call, connection: Connection) -> Reply:
    """Show one flavor."""
    return {"flavor": _view(call, await flavors.show(connection, call.path["flavor_id"], project_id=_own(call)))}


async def update(call: Call, connection: Connection) -> Reply:
    """Change the description of a flavor."""
    description = call.body["flavor"]["description"]
    return {"flavor": _view(call, await flavors.describe(connection, call.path["flavor_id"], description))}


def _creation(**optional: Schema) -> Schema:
    return thing({"flavor": thing(_NEEDED, {**_OPTIONAL, **optional})})


# Unknown keys are ignored before 2.75; a name may be asked for from 2.102 on, but was heeded before.
_QUERIES: tuple[tuple[str, str | None, Schema], ...] = (
    ("2.1", "2.74", open_query(**_FILTERS)),
    ("2.75", "2.101", closed_query(**_FILTERS)),
    ("2.102", None, closed_query(**_FILTERS, name=STRING)),
)
_CREATIONS: tuple[tuple[str, str | None, Schema], ...] = (
    ("2.1", "2.54", _creation(rxtx_factor=_FACTOR)),
    ("2.55", "2.101", _creation(rxtx_factor=_FACTOR, description=_DESCRIPTION)),
    ("2.102", None, _creation(description=_DESCRIPTION)),
)
for _since, _until, _query in _QUERIES:
    _row: dict[str, Any] = {"since": _since, "until": _until, "rule": _READ, "query": _query}
    routes.get("/flavors", response=_page(_BRIEF), **_row)(index)
    routes.get("/flavors/detail", response=_page(_FULL), **_row)(detail)
for _since, _until, _body in _CREATIONS:
    _row = {"since": _since, "until": _until, "rule": _MANAGE + "create", "body": _body}
    routes.post("/flavors", response=_ONE, **_row)(create)
routes.get("/flavors/{flavor_id}", rule=_READ, response=_ONE)(show)
routes.put(
    "/flavors/{flavor_id}",
    since="2.55",
    rule=_MANAGE + "update",
    body=thing({"flavor": thing({"description": _DESCRIPTION})}),
    response=_ONE,
)(update)


@routes.delete("/flavors/{flavor_id}", rule=_MANAGE + "delete", status=202)
async def delete(call: Call, connection: Connection) -> None:
    """Delete a flavor."""
    await flavors.delete(connection, call.path["flavor_id"])


_SPECS_ANSWER = thing({"extra_specs": {"type": "object", "additionalProperties": {"type": ["string", "number"]}}})


@routes.get("/flavors/{flavor_id}/os-extra_specs", rule=_SPECS + "index", response=_SPECS_ANSWER)
async def list_extra_specs(call: Call, connection: Connection) -> Reply:
    """List the extra specs of a flavor."""
    flavor = await flavors.show(connection, call.path["flavor_id"], project_id=_own(call))
    return {"extra_specs": flavor.extra_specs}


@routes.post(
    "/flavors/{flavor_id}/os-extra_specs",
    rule=_SPECS + "create",
    body=thing({"extra_specs": _SPEC_VALUES}),
    response=_SPECS_ANSWER,
)
async def create_extra_specs(call: Call) -> Reply:
    """Add extra specs to a flavor, or change them."""
    await _set_specs(call, call.body["extra_specs"])
    return dict(call.body)


async def _set_specs(call: Call, specs: dict[str, Any]) -> None:
    async with call.services.database.begin() as connection:
        values = {key: str(value) for key, value in specs.items()}
        await flavors.set_extra_specs(connection, call.path["flavor_id"], values)


_ONE_SPEC: Schema = {"type": "object", "additionalProperties": {"type": ["string", "number"]}}


@routes.get("/flavors/{flavor_id}/os-extra_specs/{key}", rule=_SPECS + "show", response=_ONE_SPEC)
async def show_extra_spec(call: Call, connection: Connection) -> Reply:
    """Show one extra spec."""
    flavor_id, key = call.path["flavor_id"], call.path["key"]
    await flavors.show(connection, flavor_id, project_id=_own(call))
    return {key: await flavors.extra_spec(connection, flavor_id, key)}


@routes.put(
    "/flavors/{flavor_id}/os-extra_specs/{key}",
    rule=_SPECS + "update",
    body={**_SPEC_VALUES, "minProperties": 1, "maxProperties": 1},
    response=_ONE_SPEC,
)
async def update_extra_spec(call: Call) -> Reply:
    """Change one extra spec."""
    if call.path["key"] not in call.body:
        raise Invalid("Request body and URI mismatch")
    await _set_specs(call, call.body)
    return dict(call.body)


@routes.delete("/flavors/{flavor_id}/os-extra_specs/{key}", rule=_SPECS + "delete")
async def delete_extra_spec(call: Call, connection: Connection) -> None:
    """Delete one extra spec."""
    await flavors.delete_extra_spec(connection, call.path["flavor_id"], call.path["key"])


_ACCESS_ANSWER = thing({"flavor_access": array(thing({"flavor_id": STRING, "tenant_id": STRING}))})


async def _access(connection: Connection, flavor_id: str) -> dict[str, Any]:
    projects = await flavors.projects(connection, flavor_id)
    return {"flavor_access": [{"flavor_id": flavor_id, "tenant_id": project} for project in projects]}


@routes.get("/flavors/{flavor_id}/os-flavor-access", rule=_ACCESS, response=_ACCESS_ANSWER)
async def list_access(call: Call, connection: Connection) -> Reply:
    """List the projects that may use a private flavor."""
    flavor = await flavors.show(connection, call.path["flavor_id"])
    if flavor.is_public:
        raise NotFound("Access list not available for public flavors.")
    return await _access(connection, flavor.id)


@routes.post(
    "/flavors/{flavor_id}/action",
    rule=_ACCESS + ":add_tenant_access",
    owned=True,
    body=_ACTIONS,
    response=_ACCESS_ANSWER,
)
async def act(call: Call, connection: Connection) -> Reply:
    """Let a project use a private flavor (`addTenantAccess`), or no longer (`removeTenantAccess`)."""
    name = views.action(call.body, _ACTIONS["properties"])
    adding, project_id = name == "addTenantAccess", call.body[name]["tenant"]
    call.permit(f"{_ACCESS}:{'add' if adding else 'remove'}_tenant_access")
    flavor = await flavors.show(connection, call.path["flavor_id"], lock=True)
    if not adding:
        await flavors.disallow(connection, flavor.id, project_id)
    elif flavor.is_public and call.version >= Version(2, 7):
        raise Conflict("Can not add access to a public flavor.")
    else:
        await flavors.allow(connection, flavor.id, project_id)
    return await _access(connection, flavor.id)
