"""How policies and profiles are listed and shown: alike, but for what each keeps beside its spec."""

from typing import Any

import sqlalchemy as sa

from roost.api.clustering.lists import Listing, text
from roost.api.clustering.moments import moment
from roost.api.schemas import NULL

NOT_KEPT = dict.fromkeys(("id", "created_at", "updated_at"), NULL)
"""What a policy or a profile that was only validated has none of."""


def listing(table: sa.Table) -> Listing:
    """The list of all rows of the table of policies or of that of profiles."""
    return Listing(
        table,
        sorts=("type", "name", "created_at", "updated_at"),
        default_sort="created_at",
        filters={"name": text, "type": text},
    )


def view(row: sa.Row[Any], *, keeps: str) -> dict[str, Any]:
    """A policy or a profile as the API shows it."""
    return {
        "id": row.id,
        "name": row.name,
        "type": row.type,
        "spec": row.spec,
        keeps: row._mapping[keeps],
        "user": row.user_id,
        "project": row.project_id,
        "domain": row.domain_id,
        "created_at": moment(row.created_at),
        "updated_at": moment(row.updated_at),
    }
