"""Images: enough of them to boot a simulated server."""

from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.errors import NotFound
from roost.store.tables.compute import images


async def show(connection: AsyncConnection, image_id: str) -> sa.Row[tuple[object, ...]]:
    """One image; a name is not an id, so the clients go on to search."""
    query = sa.select(images).where(sa.cast(images.c.id, sa.Text) == image_id)
    row = (await connection.execute(query)).one_or_none()
    if row is None:
        raise NotFound(f"No image found with ID {image_id}")
    return row


async def index(
    connection: AsyncConnection,
    *,
    name: str | None = None,
    ids: Sequence[str] | None = None,
    marker: str | None = None,
    limit: int = 1000,
) -> Sequence[sa.Row[tuple[object, ...]]]:
    """Images by name, or of these ids, a page at a time."""
    query = sa.select(images).order_by(images.c.name, images.c.id).limit(limit)
    if name is not None:
        query = query.where(images.c.name == name)
    if ids is not None:
        query = query.where(sa.cast(images.c.id, sa.Text).in_(ids))
    if marker is not None:
        last = await show(connection, marker)
        query = query.where(sa.tuple_(images.c.name, images.c.id) > (last.name, last.id))
    return (await connection.execute(query)).all()
