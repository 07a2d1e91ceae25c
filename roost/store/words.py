"""Search by words: the words of a row as an index has them, and the condition that finds them.

A word begins after a dash, an underscore, a slash, a comma or a space, so `web` finds `shop-web-1`; an address or
the first part of an id works too. The index is of PostgreSQL's own full-text kind, without its dictionaries.
"""

import re

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import TSQUERY
from sqlalchemy.ext.asyncio import AsyncConnection

SERVERS = (
    "{table}.name || ' ' || CAST({table}.id AS text) || ' ' || {table}.project_id || ' ' "
    "|| translate(CAST(jsonb_path_query_array({table}.addresses, '$.*[*].addr') AS text), '[]\"', '   ')"
)
GROUPS = "{table}.name || ' ' || CAST({table}.id AS text) || ' ' || {table}.project_id"
HOSTS = (
    "{table}.name || ' ' || CAST({table}.uuid AS text) || ' ' || {table}.address || ' ' || {table}.availability_zone"
)
NAMED = "{table}.name || ' ' || {table}.id || ' ' || {table}.project_id"
"""Clusters and nodes."""

_SEPARATORS = "-_/,"
MOST_WORDS = 8


def expression(text: str) -> str:
    """The words of a text, in SQL."""
    blanks = " " * len(_SEPARATORS)
    return (
        f"array_to_tsvector(array_remove(string_to_array("
        f"translate(lower({text}), '{_SEPARATORS}', '{blanks}'), ' '), ''))"
    )


def split(query: str) -> list[str]:
    """The words that a query asks for, in lower case."""
    return [word for word in re.split(rf"[{re.escape(_SEPARATORS)}\s]+", query.lower()) if word][:MOST_WORDS]


def matching(text: str, table: str, query: str) -> sa.ColumnElement[bool]:
    """Whether every word of the query begins a word of the table's row."""
    quoted = (word.replace("\\", "\\\\").replace("'", "''") for word in split(query))
    asked = sa.cast(sa.literal(" & ".join(f"'{word}':*" for word in quoted)), TSQUERY)
    return sa.literal_column(expression(text.format(table=table))).op("@@", is_comparison=True)(asked)


async def use_index(connection: AsyncConnection) -> None:
    """Have the rest of the transaction look into the index.

    PostgreSQL thinks that the words of a row cost nothing to compute, and where a few rows are wanted would rather
    compute them for every row: half a second for 100,000 servers.
    """
    session = (await connection.get_raw_connection()).driver_connection
    assert session is not None
    assert not session.autocommit, "the setting would end with its statement"
    await connection.execute(sa.text("SET LOCAL enable_seqscan = off"))
