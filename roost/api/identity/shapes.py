"""What answers look like: things with an address, and lists of them on one page."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from roost.api.fields import FieldTable, ShownField, always, column
from roost.api.routes import Call
from roost.api.schemas import NULL, NULLABLE_STRING, STRING, TRUTH, Schema, array, thing

REFERENCE = thing({"id": STRING, "name": STRING})
PAGE = {"links": thing({"next": NULL, "self": STRING, "previous": NULL})}
"""Where a page of a list is, and that it is the only one."""

NAME: Schema = {"type": "string", "minLength": 1, "maxLength": 255, "pattern": r"[\S]+"}
TAGS: Schema = array({"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[^,/]*$"}, maxItems=80)
OPTIONS: Schema = {"type": "object", "maxProperties": 0}
"""Options change how users and roles are treated; none is supported, so all are refused instead of ignored."""


def linked(**properties: Schema) -> Schema:
    """A thing with an id, an address, and any other attributes that it was made with."""
    address = thing({"self": STRING})
    return thing({"id": STRING, **properties, "links": address}, additionalProperties=True)


class IdentityNoun:
    """A noun: its name, and its fields besides its id, its address, and other attributes that it was made with."""

    def __init__(
        self, singular: str, plural: str, *fields: ShownField[Any], path: Callable[[Any], str] = lambda row: ""
    ) -> None:
        self._singular, self._plural, self._path = singular, plural, path
        self._fields = FieldTable(column("id", STRING), *fields)
        shape = self._fields.schema(links=thing({"self": STRING}))
        self.shape = {**shape, "required": [*shape["required"], "links"], "additionalProperties": True}
        self.one = thing({singular: self.shape})
        self.many = thing({plural: array(self.shape), **PAGE})

    def view(self, call: Call, row: Any) -> dict[str, Any]:
        """A row as clients see it."""
        links = {"self": f"{call.base}/v3{self._path(row)}/{self._plural}/{row.id}"}
        return {**getattr(row, "extra", {}), **self._fields.show(row), "links": links}

    def shown(self, call: Call, row: Any) -> dict[str, Any]:
        """The answer with one of them."""
        return {self._singular: self.view(call, row)}

    def listed(self, call: Call, rows: Iterable[Any]) -> dict[str, Any]:
        """The answer with many of them."""
        return page(call, self._plural, self.view, rows)


def open_body(singular: str, known: Mapping[str, Schema], required: tuple[str, ...] = ()) -> Schema:
    """A body in which unknown attributes are kept as they are."""
    return thing({singular: {"type": "object", "properties": dict(known), "required": list(required)}})


def split(body: Mapping[str, Any], known: Iterable[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The attributes of a body that have columns, and the others, which are kept together."""
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
        wanted["enabled"] = call.flag("enabled", unclear=True)
    return wanted


NO_OPTIONS = always("options", {})
PROJECTS = IdentityNoun(
    *("project", "projects"),
    column("name", STRING),
    column("domain_id", STRING),
    ShownField("parent_id", NULLABLE_STRING, lambda row: row.parent_id or row.domain_id),
    column("description", STRING),
    column("enabled", TRUTH),
    always("is_domain", False),
    column("tags", array(STRING)),
    NO_OPTIONS,
)
