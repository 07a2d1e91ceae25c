"""For migrations: change tables without holding up the programs that use them."""

import sqlalchemy as sa
from alembic import op

GIVE_UP_EARLY = sa.text("SET lock_timeout = '2s'")
"""A session that waits for a table makes every later one wait behind it."""


def create_index(name: str, table: str, columns: str, where: str | None = None, using: str = "btree") -> None:
    """Make an index on a table that is in use, without blocking writes to it."""
    condition = f" WHERE {where}" if where else ""
    with op.get_context().autocommit_block():
        # It waits for running transactions without blocking others.
        op.execute("SET lock_timeout = 0")
        # An earlier attempt that was interrupted leaves an invalid index.
        op.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {name}")
        op.execute(f"CREATE INDEX CONCURRENTLY {name} ON {table} USING {using} ({columns}){condition}")
        op.execute(GIVE_UP_EARLY)


def run(script: str) -> None:
    """Execute statements that each end with a semicolon at the end of a line."""
    for statement in script.split(";\n"):
        if statement.strip():
            op.execute(statement)
