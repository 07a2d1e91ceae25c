"""Images: enough of them to boot a simulated server."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.errors import NotFound
from roost.store.tables.compute import images


@dataclass(frozen=True, slots=True)
class Image:
    """An image to be. Its id follows from its name, so that it is the same in every Roost."""

    name: str
    size: int

    @property
    def id(self) -> str:
        """The image's id."""
        return str(uuid.uuid5(uuid.NAMESPACE_URL, f"roost:image:{self.name}"))


USUAL = (Image("cirros-0.6.2-x86_64-disk", 21_430_272), Image("cirros-0.5.2-x86_64-disk", 16_300_544))


async def add(connection: AsyncConnection, *new: Image) -> None:
    """Add images."""
    rows = [{"id": image.id, "name": image.name, "size": image.size} for image in new]
    await connection.execute(images.insert(), rows)


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
