"""For migrations: change tables without holding up the programs that use them."""

import sqlalchemy as sa
from alembic import op

GIVE_UP_EARLY = sa.text("SET lock_timeout = '2s'")
"""Whoever waits for a table keeps everybody else waiting behind it."""


def create_index(name: str, table: str, columns: str, where: str | None = None, using: str = "btree") -> None:
    """Make an index on a table that is in use, without keeping anybody from writing to it."""
    condition = f" WHERE {where}" if where else ""
    with op.get_context().autocommit_block():
        # It waits for transactions that are under way, and nobody waits for it meanwhile.
        op.execute("SET lock_timeout = 0")
        # One that was cut off is still there, and of no use.
        op.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {name}")
        op.execute(f"CREATE INDEX CONCURRENTLY {name} ON {table} USING {using} ({columns}){condition}")
        op.execute(GIVE_UP_EARLY)


def run(script: str) -> None:
    """Execute statements that each end with a semicolon at the end of a line."""
    for statement in script.split(";\n"):
        if statement.strip():
            op.execute(statement)
