"""What answers look like: as the tables that they show, but for what is kept back and what is shown otherwise."""

from collections.abc import Collection
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB

from roost.api.schemas import INTEGER, STRING, TRUTH, UUID, Schema, array, thing

MOMENT: Schema = {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$"}
OBJECT: Schema = {"type": "object"}
IDS = array(UUID)
STARTED = thing({"action": UUID}, {"warnings": array(STRING)})
"""What names the action that will do it."""

_TYPES: tuple[tuple[type[sa.types.TypeEngine[Any]], Schema], ...] = (
    (sa.Text, STRING),
    (sa.Integer, INTEGER),
    (sa.Boolean, TRUTH),
    (sa.DateTime, MOMENT),
    (JSONB, OBJECT),
)
_OWNER = {"user_id": "user", "project_id": "project", "domain_id": "domain"}


def of(table: sa.Table, hides: Collection[str] = (), **more: Schema) -> dict[str, Schema]:
    """The properties of one row of a table, without what the API hides, and with what it shows more or otherwise."""
    columns = [column for column in table.columns if column.name not in hides]
    return {_OWNER.get(column.name, str(column.name)): _column(column) for column in columns} | more


def nullable(schema: Schema) -> Schema:
    """This or nothing."""
    return {**schema, "type": [schema["type"], "null"]}


def _column(column: sa.Column[Any]) -> Schema:
    schema = next(schema for kind, schema in _TYPES if isinstance(column.type, kind))
    return nullable(schema) if column.nullable else schema


_SECRETS = ("admin_pass",)
"""What is written in profiles and asked of nodes, and never shown."""


def without_secrets(value: Any) -> Any:
    """A spec, or the inputs of an action, as readers may see it."""
    if isinstance(value, dict):
        return {key: "******" if key in _SECRETS and each else without_secrets(each) for key, each in value.items()}
    return [without_secrets(each) for each in value] if isinstance(value, list) else value
