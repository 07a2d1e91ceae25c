"""Services, endpoints, regions, policies and limits: what the catalogue lists, and what is kept about it for others to
read.

Roost's own services and their endpoints are listed with those that admins add, and cannot be changed here.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from roost.api.identity import catalog
from roost.api.identity.shapes import NAME, PAGE, filters, linked, open_body, page, split
from roost.api.permissions import ADMIN, ANYONE, Permission
from roost.api.routes import Call, Connection, Reply, Table
from roost.api.schemas import NULLABLE_STRING, STRING, TRUTH, Schema, array, thing
from roost.errors import Conflict, Forbidden, Invalid, NotFound
from roost.identity import registry
from roost.identity.registry import Registry

routes = Table(prefix="/v3")

Values = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Kept:
    """A noun whose rows are kept as they are given: its name, its fields, and what it refers to."""

    singular: str
    plural: str
    registry: Registry
    known: dict[str, Schema]
    required: tuple[str, ...]
    filters: tuple[str, ...]
    prepare: Callable[[Call, Connection, Values], Awaitable[None]]
    """Looks at new values, and adds what follows from them."""
    own: Callable[[Call], Sequence[Values]] = field(default=lambda call: ())
    """Roost's own ones, as they are shown."""
    read: str = ADMIN
    in_use: str = "It is in use."

    def rule(self, verb: str) -> str:
        """The permission for a verb."""
        return f"identity:{verb}_{self.plural if verb == 'list' else self.singular}"

    @property
    def shape(self) -> Schema:
        """What one looks like."""
        return linked(**{key: {} for key in self.known if key != "id"})

    def view(self, call: Call, row: Any) -> Values:
        """One of them."""
        if isinstance(row, dict):
            return row
        shown = {key: getattr(row, key) for key in self.registry.columns}
        return {**getattr(row, "extra", {}), **shown, **_more(self, row), "links": self.links(call, row.id)}

    def links(self, call: Call, identifier: str) -> dict[str, str]:
        """Where one is found."""
        return {"self": f"{call.base}/v3/{self.plural}/{identifier}"}

    async def show(self, call: Call, connection: Connection, identifier: str) -> Any:
        """One of them, by id and not by name."""
        own = next((each for each in self.own(call) if each["id"] == identifier), None)
        found = own or await self.registry.find(connection, identifier)
        if found is None:
            raise NotFound(f"Could not find {self.singular.replace('_', ' ')}: {identifier}.")
        return found

    def values(self, body: Values) -> Values:
        """A body, in columns."""
        columns = self.registry.columns
        values, extra = split(body, {*columns, *self.known})
        values = {key: value for key, value in values.items() if key in columns}
        return {**values, "extra": extra} if extra and self.registry.extensible else values


def _more(noun: Kept, row: Any) -> Values:
    return {"region": row.region_id} if noun.plural == "endpoints" else {}


async def _service(call: Call, connection: Connection, service_id: str) -> None:
    """Raise `Invalid` unless there is this service."""
    own = service_id in {service.id for service in catalog.OWN}
    if not own and await registry.SERVICES.find(connection, service_id) is None:
        raise Invalid(f"Could not find service: {service_id}.")


async def _region(call: Call, connection: Connection, region_id: str | None) -> None:
    """Raise `Invalid` unless there is this region."""
    own = region_id in (None, call.services.settings.region)
    if not own and await registry.REGIONS.find(connection, region_id) is None:
        raise Invalid(f"Could not find region: {region_id}.")


async def _as_given(call: Call, connection: Connection, values: Values) -> None:
    return None


async def _prepare_endpoint(call: Call, connection: Connection, values: Values) -> None:
    if "service_id" in values:
        await _service(call, connection, values["service_id"])
    region = call.body["endpoint"].get("region_id", call.body["endpoint"].get("region"))
    if "region" in call.body["endpoint"] and "region_id" not in values:
        values["region_id"] = region
        # An old way to name a region makes it too.
        if region is not None and region != call.services.settings.region:
            await registry.REGIONS.ensure(connection, region)
    await _region(call, connection, values.get("region_id"))


async def _prepare_region(call: Call, connection: Connection, values: Values) -> None:
    parent = values.get("parent_region_id")
    if parent is not None and await registry.REGIONS.find(connection, parent) is None:
        raise NotFound(f"Could not find region: {parent}.")
    if values.get("id") == call.services.settings.region:
        raise Conflict(f"Conflict occurred attempting to store region - Duplicate ID, {values['id']}.")


async def _prepare_registered_limit(call: Call, connection: Connection, values: Values) -> None:
    if "service_id" in values:
        await _service(call, connection, values["service_id"])
    await _region(call, connection, values.get("region_id"))
    if {"service_id", "resource_name"} <= values.keys():
        twin = {key: values.get(key) for key in ("service_id", "region_id", "resource_name")}
        if await registry.REGISTERED_LIMITS.index(connection, **twin):
            raise Conflict("Conflict occurred attempting to store registered_limit - Duplicate entry.")


_OWN_DESCRIPTION = "Part of Roost"


def _own_services(call: Call) -> list[Values]:
    return [
        {
            "id": own.id,
            "type": own.type,
            "name": own.name,
            "description": _OWN_DESCRIPTION,
            "enabled": True,
            "links": SERVICES.links(call, own.id),
        }
        for own in catalog.OWN
    ]


def _own_endpoints(call: Call) -> list[Values]:
    return [
        {**each, "service_id": own.id, "enabled": True, "links": ENDPOINTS.links(call, each["id"])}
        for own in catalog.OWN
        for each in catalog.own_endpoints(call, own)
    ]


def _own_regions(call: Call) -> list[Values]:
    region = call.services.settings.region
    links = {"self": f"{call.base}/v3/regions/{region}"}
    return [{"id": region, "description": _OWN_DESCRIPTION, "parent_region_id": None, "links": links}]


SERVICES = Kept(
    "service",
    "services",
    registry.SERVICES,
    {"type": NAME, "name": NULLABLE_STRING, "description": NULLABLE_STRING, "enabled": TRUTH},
    ("type",),
    ("type", "name"),
    _as_given,
    _own_services,
)
ENDPOINTS = Kept(
    "endpoint",
    "endpoints",
    registry.ENDPOINTS,
    {
        "service_id": STRING,
        "interface": {"enum": [*catalog.INTERFACES]},
        "url": {"type": "string", "minLength": 1},
        "region": NULLABLE_STRING,
        "region_id": NULLABLE_STRING,
        "enabled": TRUTH,
    },
    ("service_id", "interface", "url"),
    ("service_id", "interface", "region_id"),
    _prepare_endpoint,
    _own_endpoints,
)
REGIONS = Kept(
    "region",
    "regions",
    registry.REGIONS,
    {"id": {**NAME, "pattern": "^[^/]+$"}, "description": NULLABLE_STRING, "parent_region_id": NULLABLE_STRING},
    (),
    ("parent_region_id",),
    _prepare_region,
    _own_regions,
    ANYONE,
    "Unable to delete region: there are regions below it.",
)
POLICIES = Kept(
    "policy",
    "policies",
    registry.POLICIES,
    {"type": NAME, "blob": STRING},
    ("type", "blob"),
    ("type",),
    _as_given,
)
"""Kept for other services to read: Roost itself is governed by its own file of rules."""
REGISTERED_LIMITS = Kept(
    "registered_limit",
    "registered_limits",
    registry.REGISTERED_LIMITS,
    {
        "service_id": STRING,
        "region_id": NULLABLE_STRING,
        "resource_name": NAME,
        "default_limit": {"type": "integer", "minimum": -1, "maximum": 2147483647},
        "description": NULLABLE_STRING,
    },
    ("service_id", "resource_name", "default_limit"),
    ("service_id", "region_id", "resource_name"),
    _prepare_registered_limit,
    read=ANYONE,
    in_use="Unable to delete the registered limit: there are limits of it.",
)
_ALL = (SERVICES, ENDPOINTS, REGIONS, POLICIES)

RULES = (
    *tuple(
        Permission(noun.rule(verb), noun.read if verb in ("list", "get") else ADMIN, f"{word} {noun.plural}.")
        for noun in (*_ALL, REGISTERED_LIMITS)
        for verb, word in (
            *(("list", "List"), ("get", "Show")),
            *(("create", "Make"), ("update", "Change"), ("delete", "Delete")),
        )
    ),
    Permission("identity:list_limits", ANYONE, "List limits: one's own, or with admin rights all."),
    Permission("identity:get_limit", ANYONE, "Show a limit."),
    Permission("identity:create_limits", ADMIN, "Make limits."),
    Permission("identity:update_limit", ADMIN, "Change a limit."),
    Permission("identity:delete_limit", ADMIN, "Delete a limit."),
)


def _read(noun: Kept) -> None:
    @routes.get(f"/{noun.plural}", rule=noun.rule("list"), response=thing({noun.plural: array(noun.shape), **PAGE}))
    async def index(call: Call, connection: Connection) -> Reply:
        """List all, or those with the values asked for."""
        wanted = filters(call, *noun.filters)
        stored = await noun.registry.index(connection, **wanted)
        own = [each for each in noun.own(call) if all(each.get(key) == value for key, value in wanted.items())]
        return page(call, noun.plural, noun.view, [*own, *stored])

    @routes.get(
        f"/{noun.plural}/{{{noun.singular}_id}}", rule=noun.rule("get"), response=thing({noun.singular: noun.shape})
    )
    async def show(call: Call, connection: Connection) -> Reply:
        """Show one."""
        found = await noun.show(call, connection, call.path[f"{noun.singular}_id"])
        return {noun.singular: noun.view(call, found)}


def _changed(noun: Kept) -> None:
    path = f"/{noun.plural}/{{{noun.singular}_id}}"

    @routes.patch(
        path,
        rule=noun.rule("update"),
        body=open_body(noun.singular, noun.known),
        response=thing({noun.singular: noun.shape}),
    )
    async def update(call: Call, connection: Connection) -> Reply:
        """Change one that is not Roost's own."""
        changes = noun.values(call.body[noun.singular])
        changes.pop("id", None)
        before = await _stored(noun, call, connection)
        await noun.prepare(call, connection, changes)
        if "extra" in changes:
            changes["extra"] = {**before.extra, **changes["extra"]}
        row = await noun.registry.change(connection, before.id, changes)
        return {noun.singular: noun.view(call, row)}

    @routes.delete(path, rule=noun.rule("delete"), status=204)
    async def delete(call: Call, connection: Connection) -> None:
        """Delete one that is not Roost's own."""
        row = await _stored(noun, call, connection)
        await noun.registry.remove(connection, row.id, Forbidden(noun.in_use))


async def _stored(noun: Kept, call: Call, connection: Connection) -> Any:
    found = await noun.show(call, connection, call.path[f"{noun.singular}_id"])
    if isinstance(found, dict):
        raise Forbidden(f"This {noun.singular} is Roost's own, and cannot be changed.")
    return found


def _made(noun: Kept) -> None:
    @routes.post(
        f"/{noun.plural}",
        rule=noun.rule("create"),
        status=201,
        body=open_body(noun.singular, noun.known, noun.required),
        response=thing({noun.singular: noun.shape}),
    )
    async def create(call: Call, connection: Connection) -> Reply:
        """Make one."""
        row = await _insert(noun, call, connection, call.body[noun.singular])
        return {noun.singular: noun.view(call, row)}


async def _insert(noun: Kept, call: Call, connection: Connection, body: Values) -> Any:
    values = noun.values(body)
    if values.get("description", "") is None and noun.registry.described:
        values["description"] = ""
    await noun.prepare(call, connection, values)
    duplicate = f"Conflict occurred attempting to store {noun.singular} - Duplicate ID, {values.get('id')}."
    return await noun.registry.add(connection, values, Conflict(duplicate))


for _noun in _ALL:
    _read(_noun)
    _made(_noun)
    _changed(_noun)
_read(REGISTERED_LIMITS)
_changed(REGISTERED_LIMITS)


@routes.post(
    "/registered_limits",
    rule="identity:create_registered_limit",
    status=201,
    body=thing(
        {
            "registered_limits": array(
                thing(
                    {key: REGISTERED_LIMITS.known[key] for key in REGISTERED_LIMITS.required}, REGISTERED_LIMITS.known
                ),
                minItems=1,
            )
        }
    ),
    response=thing({"registered_limits": array(REGISTERED_LIMITS.shape)}, {"links": {}}),
)
async def create_registered_limits(call: Call, connection: Connection) -> Reply:
    """Say how much of something every project may have by default, for several things at once."""
    made = [await _insert(REGISTERED_LIMITS, call, connection, one) for one in call.body["registered_limits"]]
    return page(call, "registered_limits", REGISTERED_LIMITS.view, made)


# Limits: what one project or domain may have of what is registered

_LIMIT = linked(**{key: {} for key in ("service_id", "resource_name", "resource_limit", "description")})
_AMOUNT: Schema = REGISTERED_LIMITS.known["default_limit"]
_NEW_LIMIT = thing(
    {"service_id": STRING, "resource_name": STRING, "resource_limit": _AMOUNT},
    {"project_id": NULLABLE_STRING, "domain_id": NULLABLE_STRING, "region_id": NULLABLE_STRING}
    | {"description": NULLABLE_STRING},
)


def _limit_view(call: Call, row: Any) -> Values:
    keys = ("id", "project_id", "domain_id", "service_id", "region_id", "resource_name", "resource_limit")
    shown = {key: getattr(row, key) for key in (*keys, "description")}
    return {**shown, "links": {"self": f"{call.base}/v3/limits/{row.id}"}}


@routes.get("/limits", rule="identity:list_limits", response=thing({"limits": array(_LIMIT), **PAGE}))
async def index_limits(call: Call, connection: Connection) -> Reply:
    """List limits: those of one's own project, or with admin rights all."""
    wanted = filters(call, "service_id", "region_id", "resource_name", "project_id", "domain_id")
    if not call.caller.is_admin:
        wanted["project_id"] = call.caller.project_id or ""
    return page(call, "limits", _limit_view, await registry.limits(connection, **wanted))


@routes.get("/limits/{limit_id}", rule="identity:get_limit", response=thing({"limit": _LIMIT}))
async def show_limit(call: Call, connection: Connection) -> Reply:
    """Show a limit."""
    return {"limit": _limit_view(call, await _limit(call, connection))}


@routes.post(
    "/limits",
    rule="identity:create_limits",
    status=201,
    body=thing({"limits": array(_NEW_LIMIT, minItems=1)}),
    response=thing({"limits": array(_LIMIT)}, {"links": {}}),
)
async def create_limits(call: Call, connection: Connection) -> Reply:
    """Say how much of something a project or a domain may have, for several at once."""
    made = [await registry.add_limit(connection, one) for one in call.body["limits"]]
    return page(call, "limits", _limit_view, made)


@routes.patch(
    "/limits/{limit_id}",
    rule="identity:update_limit",
    body=thing({"limit": thing({}, {"resource_limit": _AMOUNT, "description": NULLABLE_STRING})}),
    response=thing({"limit": _LIMIT}),
)
async def update_limit(call: Call, connection: Connection) -> Reply:
    """Change a limit."""
    await _limit(call, connection)
    await registry.change_limit(connection, call.path["limit_id"], call.body["limit"])
    return {"limit": _limit_view(call, await _limit(call, connection))}


@routes.delete("/limits/{limit_id}", rule="identity:delete_limit", status=204)
async def delete_limit(call: Call, connection: Connection) -> None:
    """Delete a limit."""
    await _limit(call, connection)
    await registry.remove_limit(connection, call.path["limit_id"])


async def _limit(call: Call, connection: Connection) -> Any:
    limit_id = call.path["limit_id"]
    for row in await registry.limits(connection, id=limit_id):
        if call.caller.is_admin or row.project_id == call.caller.project_id:
            return row
    raise NotFound(f"Could not find limit: {limit_id}.")


@routes.get(
    "/limits/model",
    rule="identity:list_limits",
    response=thing({"model": thing({"name": STRING, "description": STRING})}, {"links": {}}),
)
async def show_model(call: Call) -> Reply:
    """How limits of projects in a tree affect each other: not at all."""
    return {"model": {"name": "flat", "description": "Limits of projects do not bear on those below them."}}
