"""What answers look like: a record's fields, except those that are hidden or shown differently."""

import types
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields
from datetime import datetime
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_origin, get_type_hints

from roost.api.clustering.moments import moment
from roost.api.fields import OLDEST, FieldTable, ShownField
from roost.api.schemas import INTEGER, STRING, TRUTH, UUID, Schema, array, thing
from roost.api.versions import Version

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

R = TypeVar("R", bound="DataclassInstance")

MOMENT: Schema = {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$"}
OBJECT: Schema = {"type": "object"}
STARTED = thing({"action": UUID}, {"warnings": array(STRING)})
"""The field that names the action."""

_SCHEMAS: Mapping[Any, Schema] = {str: STRING, int: INTEGER, bool: TRUTH, datetime: MOMENT, list: array(UUID)}
OWNER = {"user_id": "user", "project_id": "project", "domain_id": "domain"}


class Shape(FieldTable[R]):
    """The fields of a record, each with the schema of its type. `other` adds to them, or replaces those of the same
    name."""

    def __init__(
        self,
        record: type[R],
        *other: ShownField[R],
        hides: Collection[str] = (),
        names: Mapping[str, str] = OWNER,
        since: Mapping[str, Version] | None = None,
    ) -> None:
        hints, later = get_type_hints(record), since or {}
        own: dict[str, ShownField[R]] = {
            name: ShownField(
                name, _schema(hints[each.name]), _value(each.name, hints[each.name]), later.get(name, OLDEST)
            )
            for each in fields(record)
            if each.name not in hides
            for name in [names.get(each.name, each.name)]
        }
        super().__init__(*(own | {each.name: each for each in other}).values())


def _value(name: str, hint: Any) -> Callable[[Any], Any]:
    read = attrgetter(name)
    return (lambda record: moment(read(record))) if datetime in (hint, *get_args(hint)) else read


def _schema(hint: Any) -> Schema:
    if isinstance(hint, types.UnionType):
        schema = _schema(get_args(hint)[0])
        return {**schema, "type": [schema["type"], "null"]}
    return _SCHEMAS.get(get_origin(hint) or hint, OBJECT)


_SECRETS = ("admin_pass",)
"""What profiles and operations may contain, and no answer shows."""


def without_secrets(value: Any) -> Any:
    """A spec, or the inputs of an action, as readers may see it."""
    if isinstance(value, dict):
        return {key: "******" if key in _SECRETS and each else without_secrets(each) for key, each in value.items()}
    return [without_secrets(each) for each in value] if isinstance(value, list) else value
