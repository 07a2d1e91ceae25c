"""Quotas of projects and of quota classes, and the limits that a project sees.

Nova's old quotas of networks and injected files are shown in the versions that had them, and limit nothing here.
"""

from collections.abc import Mapping
from typing import Any

from roost.api.compute.views import closed_query, open_query
from roost.api.permissions import ADMIN, ANYONE, READER, Permission
from roost.api.routes import Call, Connection, Reply, Table
from roost.api.schemas import BOOLEAN, MOST_DIGITS, STRING, Schema, boolean, thing
from roost.api.versions import Version
from roost.compute.inventory import quotas
from roost.config import QUOTA_DEFAULTS
from roost.errors import Invalid
from roost.identity import projects

routes = Table(prefix="/v2.1")

_SETS = "os_compute_api:os-quota-sets:"
_CLASSES = "os_compute_api:os-quota-class-sets:"
_LIMITS = "os_compute_api:limits"
RULES = (
    Permission(_SETS + "show", READER, "Show the quotas of a project."),
    Permission(_SETS + "detail", READER, "Show the quotas of a project, and what is used of them."),
    Permission(_SETS + "defaults", ANYONE, "Show the quotas that a project has unless others are set."),
    Permission(_SETS + "update", ADMIN, "Set quotas of a project."),
    Permission(_SETS + "delete", ADMIN, "Give a project the default quotas again."),
    Permission(_CLASSES + "show", ADMIN, "Show the quotas of a quota class."),
    Permission(
        _CLASSES + "update", ADMIN, "Set quotas of a quota class; those of the class `default` are the defaults."
    ),
    Permission(_LIMITS, ANYONE, "Show the limits of one's own project, and what is used of them."),
    Permission(_LIMITS + ":other_project", ADMIN, "Show the limits of another project."),
)

_NETWORK = ("fixed_ips", "floating_ips", "security_groups", "security_group_rules")
_FILES = ("injected_files", "injected_file_content_bytes", "injected_file_path_bytes")
_GROUPS = ("server_groups", "server_group_members")
_OLD_LIMITS = {**dict.fromkeys(_NETWORK, -1), **dict(zip(_FILES, (5, 10240, 255), strict=True))}
_ALL = (*QUOTA_DEFAULTS, *_OLD_LIMITS)

_AMOUNT: Schema = {
    "type": ["integer", "string"],
    "pattern": "^-?[0-9]+$",
    "minimum": -1,
    "maximum": 2**31 - 1,
    "maxLength": MOST_DIGITS,
}
_LIMIT: Schema = {"type": "integer", "minimum": -1}
_USAGE = thing({"in_use": _LIMIT, "limit": _LIMIT, "reserved": _LIMIT})

_NAMES: dict[str, dict[str, str]] = {
    "ram": {"limit": "maxTotalRAMSize", "used": "totalRAMUsed"},
    "instances": {"limit": "maxTotalInstances", "used": "totalInstancesUsed"},
    "cores": {"limit": "maxTotalCores", "used": "totalCoresUsed"},
    "key_pairs": {"limit": "maxTotalKeypairs"},
    "metadata_items": {"limit": "maxServerMeta", "image": "maxImageMeta"},
    "server_groups": {"limit": "maxServerGroups", "used": "totalServerGroupsUsed"},
    "server_group_members": {"limit": "maxServerGroupMembers"},
    "floating_ips": {"limit": "maxTotalFloatingIps", "used": "totalFloatingIpsUsed"},
    "security_groups": {"limit": "maxSecurityGroups", "used": "totalSecurityGroupsUsed"},
    "security_group_rules": {"limit": "maxSecurityGroupRules"},
    "injected_files": {"limit": "maxPersonality"},
    "injected_file_content_bytes": {"limit": "maxPersonalitySize"},
}
"""What `limits` calls the resources."""


def _sets(version: Version) -> tuple[str, ...]:
    """The resources that quota sets have in a version."""
    if version >= Version(2, 57):
        return QUOTA_DEFAULTS
    return (*QUOTA_DEFAULTS, *_FILES) if version >= Version(2, 36) else _ALL


def _classes(version: Version) -> tuple[str, ...]:
    """The resources that quota classes have in a version."""
    if version >= Version(2, 50):
        return tuple(name for name in _sets(version) if name not in _NETWORK)
    return tuple(name for name in _ALL if name not in _GROUPS)


def _settable(version: Version) -> tuple[str, ...]:
    """The resources of quota classes that can be set, though not all are shown."""
    return _classes(version) if version >= Version(2, 50) else _ALL


def _absolute(version: Version) -> dict[str, str]:
    """The names of the limits in a version, each with what it shows: `limit ram`, `used ram`."""
    hidden = {name for name in _ALL if name not in _sets(version)}
    names: dict[str, str] = {}
    for resource, by_kind in _NAMES.items():
        for kind, name in by_kind.items():
            if resource not in hidden and not (kind == "image" and version >= Version(2, 39)):
                names[name] = f"{'used' if kind == 'used' else 'limit'} {resource}"
    return names


def _configured(call: Call) -> dict[str, int]:
    return {**call.services.settings.quota, **_OLD_LIMITS}


async def _check_project(call: Call, connection: Connection) -> str:
    """The project that the path names. Only our own identity can be asked whether it exists, and only by operators."""
    project_id = call.path["project_id"]
    askable = call.caller.is_admin and call.services.settings.auth_strategy == "roost"
    if askable and await projects.find(connection, project_id=project_id) is None:
        raise Invalid(f"Project ID {project_id} is not a valid project.")
    return project_id


def _asked(body: Mapping[str, Any]) -> dict[str, int]:
    """The limits in a body. A digit string escapes the schema's bounds, so they are checked here."""
    changes = {name: int(value) for name, value in body.items() if name != "force"}
    for name, value in changes.items():
        if not -1 <= value <= _AMOUNT["maximum"]:
            bound = "less than the minimum of -1" if value < -1 else f"greater than the maximum of {_AMOUNT['maximum']}"
            raise Invalid(f"Invalid input for field/attribute {name}. Value: {value}. {value} is {bound}")
    return changes


async def show(call: Call, connection: Connection) -> Reply:
    """Show the quotas of a project, or of a user in it (`user_id`)."""
    call.permit(_SETS + "show", project_id=call.path["project_id"])
    project_id = await _check_project(call, connection)
    limits = await quotas.limits(connection, _configured(call), project_id, call.query.get("user_id", ""))
    return {"quota_set": {"id": project_id, **{name: limits[name] for name in _sets(call.version)}}}


async def detail(call: Call, connection: Connection) -> Reply:
    """Show the quotas of a project, or of a user in it (`user_id`), and what is used of them."""
    call.permit(_SETS + "detail", project_id=call.path["project_id"])
    project_id = await _check_project(call, connection)
    user_id = call.query.get("user_id", "")
    limits = await quotas.limits(connection, _configured(call), project_id, user_id)
    used = await quotas.used(connection, project_id, user_id)
    shown = {name: {"in_use": used.get(name, 0), "limit": limits[name], "reserved": 0} for name in _sets(call.version)}
    return {"quota_set": {"id": project_id, **shown}}


async def defaults(call: Call, connection: Connection) -> Reply:
    """Show the quotas that a project has unless others are set."""
    project_id = await _check_project(call, connection)
    limits = await quotas.class_limits(connection, _configured(call), quotas.DEFAULT_CLASS)
    return {"quota_set": {"id": project_id, **{name: limits[name] for name in _sets(call.version)}}}


async def update(call: Call, connection: Connection) -> Reply:
    """Set quotas of a project, or of a user in it (`user_id`); below what is used only with `force`."""
    asked, user_id = call.body["quota_set"], call.query.get("user_id", "")
    changes, force = _asked(asked), boolean(asked.get("force", False))
    project_id, configured = await _check_project(call, connection), _configured(call)
    await quotas.change(connection, configured, project_id, changes, user_id=user_id, force=force)
    limits = await quotas.limits(connection, configured, project_id, user_id)
    return {"quota_set": {name: limits[name] for name in _sets(call.version)}}


async def delete(call: Call, connection: Connection) -> None:
    """Give a project, or a user in it (`user_id`), the default quotas again."""
    await quotas.reset(connection, call.path["project_id"], _ALL, call.query.get("user_id", ""))


async def show_class(call: Call, connection: Connection) -> Reply:
    """Show the quotas of a quota class."""
    name = call.path["name"]
    limits = await quotas.class_limits(connection, _configured(call), name)
    return {"quota_class_set": {"id": name, **{resource: limits[resource] for resource in _classes(call.version)}}}


async def update_class(call: Call, connection: Connection) -> Reply:
    """Set quotas of a quota class."""
    name, changes = call.path["name"], _asked(call.body["quota_class_set"])
    if len(name) > 255:
        raise Invalid("Invalid input received: quota_class_name has more than 255 characters.")
    await quotas.change_class(connection, name, changes)
    limits = await quotas.class_limits(connection, _configured(call), name)
    return {"quota_class_set": {resource: limits[resource] for resource in _classes(call.version)}}


async def show_limits(call: Call, connection: Connection) -> Reply:
    """Show the limits of a project, and what is used of them."""
    project_id = call.query.get("tenant_id") or call.caller.project_id or ""
    if "tenant_id" in call.query:
        call.permit(_LIMITS + ":other_project")
    limits = await quotas.limits(connection, _configured(call), project_id)
    used = await quotas.used(connection, project_id)
    absolute = {}
    for name, meaning in _absolute(call.version).items():
        kind, _, resource = meaning.partition(" ")
        absolute[name] = used.get(resource, 0) if kind == "used" else limits[resource]
    return {"limits": {"rate": [], "absolute": absolute}}


def _declare() -> None:
    """One row for each stretch of versions in which bodies, queries and answers stay the same."""
    stretches = (
        ("2.1", "2.35"),
        ("2.36", "2.38"),
        ("2.39", "2.49"),
        ("2.50", "2.56"),
        ("2.57", "2.74"),
        ("2.75", None),
    )
    for since, until in stretches:
        version = Version.parse(since)
        row: dict[str, Any] = {"since": since, "until": until}
        query = closed_query if since == "2.75" else open_query
        of_user: dict[str, Any] = {**row, "query": query(user_id=STRING)}
        limits = dict.fromkeys(_sets(version), _LIMIT)
        asked = dict.fromkeys(_sets(version), _AMOUNT)
        one = thing({"quota_set": thing({"id": STRING, **limits})})
        details = thing({"quota_set": thing({"id": STRING, **dict.fromkeys(_sets(version), _USAGE)})})
        body, answer = thing({"quota_set": thing({}, {**asked, "force": BOOLEAN})}), thing({"quota_set": thing(limits)})

        path = "/os-quota-sets/{project_id}"
        routes.get(path, rule=_SETS + "show", owned=True, response=one, **of_user)(show)
        routes.get(path + "/detail", rule=_SETS + "detail", owned=True, response=details, **of_user)(detail)
        routes.get(path + "/defaults", rule=_SETS + "defaults", response=one, **row)(defaults)
        routes.put(path, rule=_SETS + "update", body=body, response=answer, **of_user)(update)
        routes.delete(path, rule=_SETS + "delete", status=202, **of_user)(delete)

        path = "/os-quota-class-sets/{name}"
        limits = dict.fromkeys(_classes(version), _LIMIT)
        asked = dict.fromkeys(_settable(version), _AMOUNT)
        one = thing({"quota_class_set": thing({"id": STRING, **limits})})
        body, answer = thing({"quota_class_set": thing({}, asked)}), thing({"quota_class_set": thing(limits)})
        routes.get(path, rule=_CLASSES + "show", response=one, **row)(show_class)
        routes.put(path, rule=_CLASSES + "update", body=body, response=answer, **row)(update_class)

        absolute = thing(dict.fromkeys(_absolute(version), _LIMIT))
        answer = thing({"limits": thing({"rate": {"const": []}, "absolute": absolute})})
        routes.get("/limits", rule=_LIMITS, query=query(tenant_id=STRING), response=answer, **row)(show_limits)


_declare()
