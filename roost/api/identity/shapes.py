"""What answers look like: things with an address, and lists of them on one page."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from roost.api.routes import Call
from roost.api.schemas import NULL, NULLABLE_STRING, STRING, TRUTH, Schema, array, by_name, thing

REFERENCE = thing({"id": STRING, "name": STRING})
PAGE = {"links": thing({"next": NULL, "self": STRING, "previous": NULL})}
"""Where a page of a list is, and that it is the only one."""

NAME: Schema = {"type": "string", "minLength": 1, "maxLength": 255, "pattern": r"[\S]+"}
TAGS: Schema = array({"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[^,/]*$"}, maxItems=80)
OPTIONS: Schema = {"type": "object", "maxProperties": 0}
"""Options change how users and roles are treated; none of them is known here, and none is taken and dropped."""


def linked(**properties: Schema) -> Schema:
    """A thing with an id, an address, and whatever else its maker wanted to be kept."""
    address = thing({"self": STRING})
    return thing({"id": STRING, **properties, "links": address}, additionalProperties=True)


def named(**properties: Schema) -> Schema:
    """A linked thing with a name and options."""
    return linked(name=STRING, **properties, options=by_name({}))


def open_body(singular: str, known: Mapping[str, Schema], required: tuple[str, ...] = ()) -> Schema:
    """A body in which unknown attributes are kept as they are."""
    return thing({singular: {"type": "object", "properties": dict(known), "required": list(required)}})


def split(body: Mapping[str, Any], known: Iterable[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a body says in columns of their own, and what else it wants to be kept."""
    columns = set(known)
    return (
        {key: value for key, value in body.items() if key in columns},
        {key: value for key, value in body.items() if key not in columns and key not in ("id", "links", "options")},
    )


def described(body: Mapping[str, Any], known: Iterable[str]) -> dict[str, Any]:
    """A body in columns, with what else it wants to be kept as `extra`; no description is an empty one."""
    values, extra = split(body, known)
    if "description" in values:
        values["description"] = values["description"] or ""
    return {**values, "extra": extra} if extra else values


def page(call: Call, plural: str, view: Callable[[Call, Any], dict[str, Any]], rows: Iterable[Any]) -> dict[str, Any]:
    """A list of things."""
    return {plural: [view(call, row) for row in rows], "links": {"next": None, "self": call.url, "previous": None}}


def filters(call: Call, *keys: str) -> dict[str, Any]:
    """What a list is asked to be limited to."""
    wanted: dict[str, Any] = {key: call.query[key] for key in keys if key in call.query}
    if "enabled" in wanted:
        wanted["enabled"] = wanted["enabled"].lower() not in ("false", "0")
    return wanted


PROJECT = named(
    domain_id=STRING,
    parent_id=NULLABLE_STRING,
    description=STRING,
    enabled=TRUTH,
    is_domain=TRUTH,
    tags=array(STRING),
)
PROJECTS = thing({"projects": array(PROJECT), **PAGE})
