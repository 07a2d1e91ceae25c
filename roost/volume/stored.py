"""What volumes and snapshots have in common: lists with filters, and changes of name, description and metadata."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.store import pages, rows
from roost.store.pages import PageRequest, SortKey
from roost.store.tables import volume as tables
from roost.volume import volumes
from roost.volume.volumes import ZONE, VolumeOwner

SORTS = ("id", "name", "size", "created_at", "updated_at", "bootable")


@dataclass(frozen=True, slots=True)
class StoredKind:
    """Volumes or snapshots, as they are kept."""

    table: sa.Table
    select: sa.Select[Any]
    find: Callable[[AsyncConnection, VolumeOwner, str], Awaitable[Any]]
    filters: Mapping[str, Callable[[Any], sa.ColumnElement[bool]]]

    async def index(
        self,
        connection: AsyncConnection,
        project_id: str | None,
        asked: Mapping[str, Any],
        sorts: Sequence[tuple[str, bool]],
        page: PageRequest,
    ) -> Sequence[Any]:
        """Those of a project (None: of all) that have what is asked for; what is asked and not known limits nothing."""
        columns = self.table.c
        visible = self.select if project_id is None else self.select.where(columns.project_id == project_id)
        conditions = [test(asked[key]) for key, test in self.filters.items() if key in asked]
        conditions += [columns[key] == asked[key] for key in ("name", "user_id") if key in asked]
        if "metadata" in asked:
            conditions.append(columns.metadata.contains(asked["metadata"]))
        order = [SortKey(columns[key], descends) for key, descends in sorts or [("created_at", True)]]
        order.append(SortKey(columns.id, True))
        return await pages.read(connection, visible, order, page, *conditions, named=columns.id)

    async def change(self, connection: AsyncConnection, row: Any, values: Mapping[str, Any]) -> None:
        """Change the name or description of one."""
        await rows.change(connection, self.table, values, id=row.id)

    async def edit_metadata(
        self, connection: AsyncConnection, row: Any, edit: Callable[[dict[str, str]], dict[str, str]]
    ) -> dict[str, str]:
        """Change the metadata of one; concurrent changes do not undo each other."""
        locked = await rows.find(connection, self.table, lock=True, id=row.id)
        edited = edit(dict(locked.metadata if locked is not None else {}))
        await self.change(connection, row, {"metadata": edited})
        return edited


def _in_state(text: str) -> sa.ColumnElement[bool]:
    states = {"available": tables.volumes.c.server_id.is_(None), "in-use": tables.volumes.c.server_id.is_not(None)}
    return states.get(text, sa.false())


VOLUMES = StoredKind(
    tables.volumes,
    volumes.WITH_TYPE,
    volumes.find,
    {
        "status": _in_state,
        "bootable": lambda text: tables.volumes.c.bootable.is_(text.lower() == "true"),
        "availability_zone": lambda text: sa.true() if text == ZONE else sa.false(),
        "volume_type": lambda text: tables.volume_types.c.name == text,
    },
)
SNAPSHOTS = StoredKind(
    tables.volume_snapshots,
    sa.select(tables.volume_snapshots),
    volumes.find_snapshot,
    {
        "status": lambda text: sa.true() if text == "available" else sa.false(),
        "volume_id": lambda text: sa.cast(tables.volume_snapshots.c.volume_id, sa.Text) == text,
    },
)
