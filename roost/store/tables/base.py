"""What all tables share: names for constraints, so that an error can be recognised by the constraint it names."""

from typing import Any

import sqlalchemy as sa

metadata = sa.MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
    }
)


def created_at() -> sa.Column[Any]:
    """When the row was made."""
    return sa.Column("created_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now())


def updated_at() -> sa.Column[Any]:
    """When the row was last changed; null until then."""
    return sa.Column("updated_at", sa.DateTime(timezone=True), onupdate=sa.func.now())
