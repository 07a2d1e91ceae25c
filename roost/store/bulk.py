"""Bulk statements: any number of rows in one parameter, `rows`, with columns and types taken from the tables."""

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB


def given(*columns: sa.Column[Any], **more: Any) -> sa.TableValuedAlias:
    """The parameter `rows`, a list of dictionaries, as a table of these columns and of `more` ones by their types."""
    typed = [sa.column(column.name, column.type) for column in columns]
    typed += [sa.column(name, kind) for name, kind in more.items()]
    rows = sa.func.jsonb_to_recordset(sa.bindparam("rows", type_=JSONB))
    return rows.table_valued(*typed).render_derived(name="given", with_types=True)


def insert(table: sa.Table, *columns: sa.Column[Any]) -> sa.Insert:
    """Insert the rows, with these columns or with all of the table's."""
    source = given(*(columns or table.c))
    return table.insert().from_select([column.name for column in source.c], sa.select(source))


def update(table: sa.Table, *columns: sa.Column[Any]) -> sa.Update:
    """Set these columns of the rows that have the same primary key."""
    source = given(*table.primary_key, *columns)
    same = [key == source.c[key.name] for key in table.primary_key]
    return table.update().where(*same).values({column.name: source.c[column.name] for column in columns})
