"""Images: enough of them to boot a simulated server."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.errors import NotFound
from roost.store import pages
from roost.store.pages import EVERYTHING, PageRequest, SortKey
from roost.store.tables.compute import images
from roost.store.uuids import is_uuid


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
    query = sa.select(images).where(images.c.id == image_id)
    row = (await connection.execute(query)).one_or_none() if is_uuid(image_id) else None
    if row is None:
        raise NotFound(f"No image found with ID {image_id}")
    return row


async def index(
    connection: AsyncConnection,
    *,
    name: str | None = None,
    ids: Sequence[str] | None = None,
    page: PageRequest = EVERYTHING,
) -> Sequence[sa.Row[tuple[object, ...]]]:
    """Images by name, or of these ids, a page at a time."""
    conditions = [] if name is None else [images.c.name == name]
    if ids is not None:
        conditions.append(images.c.id.in_(filter(is_uuid, ids)))
    keys = (SortKey(images.c.name), SortKey(images.c.id))
    return await pages.read(connection, sa.select(images), keys, page, *conditions, named=images.c.id)
