"""Roles, which implies which, and who has which where."""

from collections.abc import Callable
from typing import Any

from roost.api.fields import always, column
from roost.api.identity.shapes import NAME, NO_OPTIONS, OPTIONS, PAGE, REFERENCE, IdentityNoun, open_body, split
from roost.api.permissions import ADMIN, Permission
from roost.api.routes import Call, Connection, Reply, Table
from roost.api.schemas import NULL, NULLABLE_STRING, STRING, array, thing
from roost.errors import Invalid, NotFound
from roost.identity import assignments, domains, groups, projects, roles, users
from roost.identity.assignments import Grant

routes = Table(prefix="/v3")

RULES = (
    Permission("identity:list_roles", ADMIN, "List roles."),
    Permission("identity:get_role", ADMIN, "Show a role."),
    Permission("identity:create_role", ADMIN, "Make a role."),
    Permission("identity:update_role", ADMIN, "Rename or describe a role."),
    Permission("identity:delete_role", ADMIN, "Delete a role."),
    Permission("identity:list_implied_roles", ADMIN, "List which roles a role implies."),
    Permission("identity:create_implied_role", ADMIN, "Let a role imply another."),
    Permission("identity:delete_implied_role", ADMIN, "Let a role no longer imply another."),
    Permission("identity:list_grants", ADMIN, "List the roles that a user or a group was given somewhere."),
    Permission("identity:check_grant", ADMIN, "Ask whether a user or a group was given a role somewhere."),
    Permission("identity:create_grant", ADMIN, "Give a user or a group a role somewhere."),
    Permission("identity:revoke_grant", ADMIN, "Take a role from a user or a group."),
    Permission("identity:list_role_assignments", ADMIN, "List who has which role where."),
)

# A role of a domain is only good for implying others there, which nothing here needs.
_KNOWN = {"name": NAME, "description": NULLABLE_STRING, "domain_id": NULL, "options": OPTIONS}
_ROLES = IdentityNoun(
    *("role", "roles"),
    column("name", STRING),
    always("domain_id", None),
    column("description", NULLABLE_STRING),
    NO_OPTIONS,
)


@routes.get("/roles", rule="identity:list_roles", response=_ROLES.many)
async def index(call: Call, connection: Connection) -> Reply:
    """List roles, all or by name."""
    if call.query.get("domain_id"):
        return _ROLES.listed(call, [])
    return _ROLES.listed(call, await roles.index(connection, call.query.get("name")))


@routes.get("/roles/{role_id}", rule="identity:get_role", response=_ROLES.one)
async def show(call: Call, connection: Connection) -> Reply:
    """Show a role; a name is not an id."""
    return _ROLES.shown(call, await roles.show(connection, call.path["role_id"]))


@routes.post(
    "/roles", rule="identity:create_role", status=201, body=open_body("role", _KNOWN, ("name",)), response=_ROLES.one
)
async def create(call: Call, connection: Connection) -> Reply:
    """Make a role."""
    values, extra = split(call.body["role"], ("name", "description", "domain_id"))
    values.pop("domain_id", None)
    return _ROLES.shown(call, await roles.create(connection, {**values, "extra": extra}))


@routes.patch("/roles/{role_id}", rule="identity:update_role", body=open_body("role", _KNOWN), response=_ROLES.one)
async def update(call: Call, connection: Connection) -> Reply:
    """Rename or describe a role."""
    changes, extra = split(call.body["role"], ("name", "description", "domain_id"))
    changes.pop("domain_id", None)
    before = await roles.show(connection, call.path["role_id"])
    changes["extra"] = {**before.extra, **extra}
    return _ROLES.shown(call, await roles.update(connection, before.id, changes))


@routes.delete("/roles/{role_id}", rule="identity:delete_role", status=204)
async def delete(call: Call, connection: Connection) -> None:
    """Delete a role."""
    await roles.delete(connection, call.path["role_id"])


# Which implies which

_IMPLIES = "/roles/{role_id}/implies"
_LINK = thing({"id": STRING, "name": STRING, "links": thing({"self": STRING})})
_INFERENCE = thing({"prior_role": _LINK, "implies": array(_LINK)})
_PAIR = thing({"role_inference": thing({"prior_role": _LINK, "implies": _LINK})}, additionalProperties=True)


@routes.get(
    "/role_inferences",
    rule="identity:list_implied_roles",
    response=thing({"role_inferences": array(_INFERENCE), **PAGE}),
)
async def index_inferences(call: Call, connection: Connection) -> Reply:
    """Every role that implies others, with those."""
    found = await roles.implications(connection)
    view: dict[str, dict[str, Any]] = {}
    for row in found:
        prior = view.setdefault(row.prior, {"prior_role": _linked(call, row.prior_id, row.prior), "implies": []})
        prior["implies"].append(_linked(call, row.implied_id, row.implied))
    return {"role_inferences": list(view.values()), "links": {"next": None, "self": call.url, "previous": None}}


@routes.get(_IMPLIES, rule="identity:list_implied_roles", response=thing({"role_inference": _INFERENCE}, {"links": {}}))
async def index_implied(call: Call, connection: Connection) -> Reply:
    """What a role implies."""
    prior = await roles.show(connection, call.path["role_id"])
    found = await roles.implications(connection, prior.name)
    implied = [_linked(call, row.implied_id, row.implied) for row in found]
    return {"role_inference": {"prior_role": _linked(call, prior.id, prior.name), "implies": implied}}


async def _pair(call: Call, connection: Connection) -> tuple[Any, Any]:
    return (
        await roles.show(connection, call.path["role_id"]),
        await roles.show(connection, call.path["implied_id"]),
    )


def _inference(call: Call, prior: Any, implied: Any) -> dict[str, Any]:
    pair = {"prior_role": _linked(call, prior.id, prior.name), "implies": _linked(call, implied.id, implied.name)}
    return {"role_inference": pair, "links": {"self": call.url}}


@routes.get(_IMPLIES + "/{implied_id}", rule="identity:list_implied_roles", response=_PAIR)
async def show_implied(call: Call, connection: Connection) -> Reply:
    """Whether a role implies another."""
    prior, implied = await _pair(call, connection)
    if implied.name not in {row.implied for row in await roles.implications(connection, prior.name)}:
        raise NotFound(f"{prior.id} does not imply {implied.id}.")
    return _inference(call, prior, implied)


@routes.put(_IMPLIES + "/{implied_id}", rule="identity:create_implied_role", status=201, response=_PAIR)
async def imply(call: Call, connection: Connection) -> Reply:
    """Let a role imply another."""
    prior, implied = await _pair(call, connection)
    await roles.imply(connection, prior, implied)
    return _inference(call, prior, implied)


@routes.delete(_IMPLIES + "/{implied_id}", rule="identity:delete_implied_role", status=204)
async def imply_no_more(call: Call, connection: Connection) -> None:
    """Let a role no longer imply another."""
    await roles.imply_no_more(connection, *await _pair(call, connection))


# Who has which: for users and groups, in projects, on domains and on the system, inherited by projects or not

_PLACES = ("/projects/{project_id}", "/domains/{domain_id}", "/system")
_ACTORS = ("/users/{user_id}", "/groups/{group_id}")


def _declare_grants() -> None:
    for place in _PLACES:
        for actor in _ACTORS:
            _declare(f"{place}{actor}/roles", "", inherited=False)
            if place != "/system":
                _declare(f"/OS-INHERIT{place}{actor}/roles", "/inherited_to_projects", inherited=True)


def _declare(path: str, ending: str, *, inherited: bool) -> None:
    one = f"{path}/{{role_id}}{ending}"
    handlers: tuple[tuple[Callable[..., Any], str, str, str], ...] = (
        (routes.get, path + ending, "list_grants", "index"),
        (routes.get, one, "check_grant", "check"),
        (routes.put, one, "create_grant", "grant"),
        (routes.delete, one, "revoke_grant", "withdraw"),
    )
    for declare, where, rule, verb in handlers:
        answer = {"response": _ROLES.many} if verb == "index" else {"status": 204}
        declare(where, rule=f"identity:{rule}", **answer)(_handler(verb, inherited))


def _handler(verb: str, inherited: bool) -> Callable[[Call], Any]:
    async def handle(call: Call) -> Reply:
        async with call.services.database.begin() as connection:
            place = await _place(call, connection, inherited)
            if verb == "index":
                return _ROLES.listed(call, await assignments.given_to(connection, place))
            role = await roles.show(connection, call.path["role_id"])
            given = Grant(role.name, place.user_id, place.group_id, place.project_id, place.domain_id, inherited)
            if verb == "grant":
                await assignments.grant(connection, given)
            elif not await (assignments.withdraw if verb == "withdraw" else assignments.is_given)(connection, given):
                raise given.missing(role.id)
        return None

    handle.__doc__ = {
        "index": "The roles that a user or a group was given there.",
        "check": "Whether a user or a group was given a role there.",
        "grant": "Give a user or a group a role there.",
        "withdraw": "Take a role there from a user or a group.",
    }[verb]
    return handle


async def _place(call: Call, connection: Connection, inherited: bool) -> Grant:
    """For whom and where, which must exist; the role is not said yet."""
    known: tuple[tuple[str, Any], ...] = (
        ("user_id", users),
        ("group_id", groups),
        ("project_id", projects),
        ("domain_id", domains),
    )
    for key, noun in known:
        if key in call.path:
            await noun.show(connection, call.path[key])
    named_ids = {key: call.path.get(key) for key, _ in known}
    return Grant(role="", inherited=inherited, **named_ids)


_declare_grants()

_WHO = thing({"id": STRING}, {"name": STRING, "domain": REFERENCE})
_ASSIGNMENT = thing(
    {"role": _WHO, "scope": {"type": "object"}, "links": thing({"assignment": STRING})}, {"user": _WHO, "group": _WHO}
)


@routes.get(
    "/role_assignments",
    rule="identity:list_role_assignments",
    response=thing({"role_assignments": array(_ASSIGNMENT), **PAGE}),
)
async def index_assignments(call: Call, connection: Connection) -> Reply:
    """Who has which role where: as given, or with `effective` as it comes to."""
    effective = call.flag("effective", unclear=True)
    if effective and "group.id" in call.query:
        raise Invalid("Combining effective and group filter will always result in an empty list.")
    names = call.flag("include_names", unclear=True)
    known = _Known(
        {role.name: role for role in await roles.index(connection)},
        {row.id: row for row in await users.index(connection)},
        {row.id: row for row in await groups.index(connection)},
        {row.id: row for row in await projects.index(connection)},
        {row.id: row for row in await domains.index(connection)},
    )
    found = await assignments.index(connection, effective=effective)
    matches = _matcher(call, known)
    listed = [known.view(call, each, names) for each in found if matches(each)]
    return {"role_assignments": listed, "links": {"next": None, "self": call.url, "previous": None}}


class _Known:
    """Everything that an assignment may name."""

    def __init__(self, *kinds: dict[str, Any]) -> None:
        self.roles, self.users, self.groups, self.projects, self.domains = kinds

    def view(self, call: Call, given: Grant, names: bool) -> dict[str, Any]:
        """One assignment."""
        role = self.roles[given.role]
        actor, kind = (given.user_id, "user") if given.user_id else (given.group_id, "group")
        people = self.users if kind == "user" else self.groups
        place, where = self._scope(given, names)
        ending = "/inherited_to_projects" if given.inherited else ""
        start = f"{call.base}/v3{'/OS-INHERIT' if given.inherited else ''}"
        return {
            "role": {"id": role.id, **({"name": role.name} if names else {})},
            kind: self._named(people[actor or ""], names),
            "scope": where,
            "links": {"assignment": f"{start}{place}/{kind}s/{actor}/roles/{role.id}{ending}"},
        }

    def _scope(self, given: Grant, names: bool) -> tuple[str, dict[str, Any]]:
        inherited = {"OS-INHERIT:inherited_to": "projects"} if given.inherited else {}
        if given.project_id:
            where = {"project": self._named(self.projects[given.project_id], names), **inherited}
            return f"/projects/{given.project_id}", where
        if given.domain_id:
            domain = self.domains[given.domain_id]
            view = {"id": domain.id, **({"name": domain.name} if names else {})}
            return f"/domains/{given.domain_id}", {"domain": view, **inherited}
        return "/system", {"system": {"all": True}}

    def _named(self, row: Any, names: bool) -> dict[str, Any]:
        if not names:
            return {"id": row.id}
        domain = self.domains[row.domain_id]
        return {"id": row.id, "name": row.name, "domain": {"id": domain.id, "name": domain.name}}


def _matcher(call: Call, known: _Known) -> Callable[[Grant], bool]:
    query = call.query
    wanted = {
        "user_id": query.get("user.id"),
        "group_id": query.get("group.id"),
        "project_id": query.get("scope.project.id"),
        "domain_id": query.get("scope.domain.id"),
    }
    role_id = query.get("role.id")
    within = _below(known, wanted.pop("project_id")) if call.flag("include_subtree", unclear=True) else None

    def matches(given: Grant) -> bool:
        return (
            all(value is None or getattr(given, key) == value for key, value in wanted.items())
            and (within is None or given.project_id in within)
            and (role_id is None or known.roles[given.role].id == role_id)
            and ("scope.system" not in query or not (given.project_id or given.domain_id))
            and ("scope.OS-INHERIT:inherited_to" not in query or given.inherited)
        )

    return matches


def _below(known: _Known, project_id: str | None) -> set[str]:
    if project_id is None:
        raise Invalid("scope.project.id must be specified if include_subtree is also specified")
    found = {project_id}
    while more := {row.id for row in known.projects.values() if row.parent_id in found} - found:
        found |= more
    return found


def _linked(call: Call, role_id: str, name: str) -> dict[str, Any]:
    return {"id": role_id, "name": name, "links": {"self": f"{call.base}/v3/roles/{role_id}"}}
