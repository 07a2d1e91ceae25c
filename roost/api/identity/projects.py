"""Projects: read by their users, made and changed by admins."""

from typing import Any

from roost.api import schemas
from roost.api.identity.shapes import OPTIONS, PROJECTS, TAGS, filters, open_body, split
from roost.api.permissions import ADMIN, Permission
from roost.api.routes import Call, Connection, Reply, Table
from roost.api.schemas import STRING, array, thing
from roost.errors import Invalid, NotFound
from roost.identity import projects
from roost.identity.domains import DOMAIN_ID

routes = Table(prefix="/v3/projects")

RULES = (
    Permission("identity:list_projects", ADMIN, "List all projects."),
    Permission("identity:get_project", "rule:admin_api or project_id:%(project_id)s", "Show a project."),
    Permission("identity:create_project", ADMIN, "Make a project."),
    Permission("identity:update_project", ADMIN, "Rename, describe, tag, enable or disable a project."),
    Permission("identity:delete_project", ADMIN, "Delete a project."),
)

_NAME: schemas.Schema = {"type": "string", "minLength": 1, "maxLength": 64, "pattern": r"[\S]+"}
_CHANGEABLE: dict[str, schemas.Schema] = {
    "name": _NAME,
    "description": schemas.NULLABLE_STRING,
    "enabled": {"type": "boolean"},
    "tags": TAGS,
    "options": OPTIONS,
}
_PLACED = {"domain_id": schemas.NULLABLE_STRING, "parent_id": schemas.NULLABLE_STRING, "is_domain": {"const": False}}
_CREATE = open_body("project", {**_CHANGEABLE, **_PLACED}, ("name",))
_UPDATE = open_body("project", {**_CHANGEABLE, "domain_id": schemas.NULLABLE_STRING, "is_domain": {"const": False}})
_TAGGED = thing({"tags": array(STRING)}, additionalProperties=True)
_TAG_FILTERS = ("tags", "tags-any", "not-tags", "not-tags-any")


@routes.get("", rule="identity:list_projects", response=PROJECTS.many)
async def index(call: Call, connection: Connection) -> Reply:
    """List projects, all or by name, state, domain, parent or tags."""
    wanted = filters(call, "name", "enabled", "domain_id", "parent_id", *_TAG_FILTERS)
    wanted |= {key: wanted[key].split(",") for key in _TAG_FILTERS if key in wanted}
    if call.flag("is_domain"):
        return PROJECTS.listed(call, [])
    if "parent_id" in wanted and wanted["parent_id"] == wanted.get("domain_id", DOMAIN_ID):
        wanted["domain_id"], wanted["parent_id"] = wanted["parent_id"], None
    return PROJECTS.listed(call, await projects.index(connection, **wanted))


@routes.get("/{project_id}", rule="identity:get_project", owned=True, response=PROJECTS.one)
async def show(call: Call) -> Reply:
    """Show a project, if asked with the ids of those above and below it; a name is not an id."""
    row = await _owned(call)
    kin: dict[str, Any] = {}
    async with call.services.database.autocommit() as connection:
        if "parents_as_ids" in call.query:
            kin["parents"] = await projects.above(connection, row)
        if "subtree_as_ids" in call.query:
            kin["subtree"] = await projects.below(connection, row)
    return {"project": {**PROJECTS.view(call, row), **kin}}


@routes.post("", rule="identity:create_project", status=201, body=_CREATE, response=PROJECTS.one)
async def create(call: Call, connection: Connection) -> Reply:
    """Make a project, right below its domain or below another project."""
    wanted = call.body["project"]
    values, extra = split(wanted, (*_CHANGEABLE, *_PLACED))
    domain_id = values.pop("domain_id", None) or call.caller.domain_id or DOMAIN_ID
    parent_id = values.pop("parent_id", None)
    values.pop("is_domain", None)
    values.pop("options", None)
    row = {
        **values,
        "description": values.get("description") or "",
        "domain_id": domain_id,
        "parent_id": None if parent_id == domain_id else parent_id,
        "extra": extra,
    }
    return PROJECTS.shown(call, await projects.create(connection, row))


@routes.patch("/{project_id}", rule="identity:update_project", body=_UPDATE, response=PROJECTS.one)
async def update(call: Call, connection: Connection) -> Reply:
    """Rename, describe, tag, enable or disable a project."""
    changes, extra = split(call.body["project"], (*_CHANGEABLE, *_PLACED))
    if "description" in changes:
        changes["description"] = changes["description"] or ""
    before = await projects.show(connection, call.path["project_id"])
    if changes.pop("domain_id", before.domain_id) not in (before.domain_id, None):
        raise Invalid("A project stays in its domain.")
    for key in ("is_domain", "parent_id", "options"):
        changes.pop(key, None)
    if extra:
        changes["extra"] = {**before.extra, **extra}
    return PROJECTS.shown(call, await projects.update(connection, before.id, changes))


@routes.delete("/{project_id}", rule="identity:delete_project", status=204)
async def delete(call: Call, connection: Connection) -> None:
    """Delete a project."""
    await projects.delete(connection, call.path["project_id"])


# Tags


@routes.get("/{project_id}/tags", rule="identity:get_project", owned=True, response=_TAGGED)
async def index_tags(call: Call) -> Reply:
    """The tags of a project."""
    return {"tags": (await _owned(call)).tags}


@routes.put("/{project_id}/tags", rule="identity:update_project", body=thing({"tags": TAGS}), response=_TAGGED)
async def replace_tags(call: Call) -> Reply:
    """Give a project these tags and no others."""
    return {"tags": await _tag(call, call.body["tags"])}


@routes.delete("/{project_id}/tags", rule="identity:update_project", status=204)
async def delete_tags(call: Call) -> None:
    """Take all tags off a project."""
    await _tag(call, [])


@routes.get("/{project_id}/tags/{tag}", rule="identity:get_project", owned=True, status=204)
async def check_tag(call: Call) -> None:
    """Whether a project has this tag."""
    if call.path["tag"] not in (await _owned(call)).tags:
        raise NotFound(f"Could not find project tag: {call.path['tag']}.")


@routes.put("/{project_id}/tags/{tag}", rule="identity:update_project", status=201)
async def add_tag(call: Call) -> None:
    """Give a project one tag more."""
    schemas.Validator(TAGS).check_body([call.path["tag"]], schemas.keystone_sentence)
    await _tag(call, [*(await _owned(call)).tags, call.path["tag"]])


@routes.delete("/{project_id}/tags/{tag}", rule="identity:update_project", status=204)
async def delete_tag(call: Call) -> None:
    """Take a tag off a project."""
    tags = (await _owned(call)).tags
    if call.path["tag"] not in tags:
        raise NotFound(f"Could not find project tag: {call.path['tag']}.")
    await _tag(call, [tag for tag in tags if tag != call.path["tag"]])


async def _tag(call: Call, tags: list[str]) -> list[str]:
    async with call.services.database.begin() as connection:
        changed = {"tags": list(dict.fromkeys(tags))}
        return list((await projects.update(connection, call.path["project_id"], changed)).tags)


async def _owned(call: Call) -> Any:
    # Before it is looked up, so that others cannot learn which ids there are.
    call.permit("identity:get_project", project_id=call.path["project_id"])
    async with call.services.database.begin() as connection:
        return await projects.show(connection, call.path["project_id"])
