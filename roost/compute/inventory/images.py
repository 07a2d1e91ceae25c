"""Images: who sees which, what may be changed about them, and the usual ones that every simulated host has."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypedDict

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.compute.inventory.image_files import ReceivedData
from roost.errors import Conflict, Forbidden, NotFound, OverQuota, TooLarge
from roost.store import pages, rows
from roost.store.locks import hold
from roost.store.pages import EVERYTHING, PageRequest, SortKey
from roost.store.tables.compute import image_members, images
from roost.store.uuids import is_uuid

MOST = 128
"""Tags, properties and members that one image can have."""
STATUSES = ("pending", "accepted", "rejected")
"""What a member can answer when an image is shared with it."""


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


@dataclass(frozen=True, slots=True)
class StoredImage:
    """An image as it is stored."""

    id: str
    name: str
    size: int
    min_disk_gb: int
    min_memory_mb: int
    project_id: str | None
    status: str
    visibility: str
    container_format: str | None
    disk_format: str | None
    protected: bool
    hidden: bool
    tags: list[str]
    properties: Mapping[str, str]
    checksum: str | None
    sha512: str | None
    stored: bool
    created_at: datetime
    updated_at: datetime | None


class ImageValues(TypedDict, total=False):
    """What can be set when an image is made or changed; what is left out stays as it is."""

    id: str
    name: str
    size: int
    min_disk_gb: int
    min_memory_mb: int
    project_id: str | None
    status: str
    visibility: str
    container_format: str | None
    disk_format: str | None
    protected: bool
    hidden: bool
    tags: list[str]
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ImageMember:
    """A project that an image is shared with."""

    image_id: str
    member_id: str
    status: str
    created_at: datetime
    updated_at: datetime | None


async def add(connection: AsyncConnection, *new: Image) -> None:
    """Add images that all projects may use."""
    await connection.execute(
        images.insert(), [{"id": image.id, "name": image.name, "size": image.size} for image in new]
    )


@dataclass(frozen=True, slots=True)
class Viewer:
    """Who looks at images: a project (or each project of a column), or an admin, who sees those of all projects."""

    project_id: str | sa.ColumnElement[str] | None
    is_admin: bool = False

    def sees(self, statuses: Sequence[str] = STATUSES) -> sa.ColumnElement[bool]:
        """Which images exist for this viewer: of the shared ones, those whose sharing has one of these statuses."""
        if self.is_admin:
            return sa.true()
        member = sa.exists().where(
            image_members.c.image_id == images.c.id,
            image_members.c.member_id == self.project_id,
            image_members.c.status.in_(statuses),
        )
        return sa.or_(
            images.c.visibility.in_(("public", "community")),
            images.c.project_id == self.project_id,
            sa.and_(images.c.visibility == "shared", member),
        )

    def owns(self, image: StoredImage) -> bool:
        """Whether the image is the viewer's to change."""
        return self.is_admin or (image.project_id is not None and image.project_id == self.project_id)


async def find(connection: AsyncConnection, viewer: Viewer, image_id: str, *, lock: bool = False) -> StoredImage:
    """One image that the viewer sees; a name is not an id, so the clients go on to search."""
    query = sa.select(images).where(images.c.id == image_id, viewer.sees())
    if lock:
        query = query.with_for_update()
    row = (await connection.execute(query)).one_or_none() if is_uuid(image_id) else None
    if row is None:
        raise NotFound(f"No image found with ID {image_id}")
    return StoredImage(**row._mapping)


async def usable(connection: AsyncConnection, viewer: Viewer, image_id: str) -> StoredImage | None:
    """An image that the viewer's servers can be made from; None if there is no such image."""
    try:
        image = await find(connection, viewer, image_id)
    except NotFound:
        return None
    return image if image.status == "active" else None


async def index(
    connection: AsyncConnection,
    viewer: Viewer,
    *conditions: sa.ColumnElement[bool],
    statuses: Sequence[str] = ("accepted",),
    keys: Sequence[SortKey] = (),
    page: PageRequest = EVERYTHING,
) -> list[StoredImage]:
    """The images that the viewer sees and that meet the conditions, a page at a time."""
    visible = sa.select(images).where(viewer.sees(statuses))
    order = [*keys, SortKey(images.c.id)]
    found = await pages.read(connection, visible, order, page, *conditions, named=images.c.id)
    return [StoredImage(**row._mapping) for row in found]


async def by_id(connection: AsyncConnection, viewer: Viewer, wanted: Sequence[str]) -> list[StoredImage]:
    """Those of these images that the viewer sees."""
    return await index(connection, viewer, images.c.id.in_(filter(is_uuid, wanted)))


async def create(connection: AsyncConnection, values: ImageValues, most: int) -> StoredImage:
    """Add an image of a project that has fewer than `most`."""
    await hold(connection, f"images of {values['project_id']}")
    mine = sa.select(sa.func.count()).where(images.c.project_id == values["project_id"])
    if (await connection.scalar(mine) or 0) >= most:
        raise OverQuota(f"Quota exceeded: the project already has {most} images.")
    taken = Conflict(f"Image ID {values['id']} already exists!")
    return StoredImage(**(await rows.add(connection, images, {"size": 0, **values}, taken))._mapping)


async def change(connection: AsyncConnection, image: StoredImage, values: ImageValues) -> StoredImage:
    """Change the description of an image, which the caller has locked."""
    changed = images.update().where(images.c.id == image.id).values(**values, updated_at=sa.func.now())
    return StoredImage(**(await connection.execute(changed.returning(images))).one()._mapping)


async def complete(connection: AsyncConnection, image: StoredImage, data: ReceivedData, most: int) -> None:
    """Activate an image that waits for its data. The images of a project take up `most` bytes at most."""
    await hold(connection, f"images of {image.project_id}")
    if data.size > await room(connection, image.project_id, most):
        raise TooLarge(f"The images of a project may take up {most} bytes altogether.")
    said = {"size": data.size, "checksum": data.checksum, "sha512": data.sha512}
    changed = {**said, "status": "active", "stored": True, "updated_at": sa.func.now()}
    if await rows.change(connection, images, changed, id=image.id, status="queued") is None:
        raise Conflict(f"Image {image.id} already has data.")


async def room(connection: AsyncConnection, project_id: str | None, most: int) -> int:
    """How many bytes the project has left of `most`."""
    used = sa.select(sa.func.sum(images.c.size)).where(images.c.project_id == project_id, images.c.stored)
    return most - int(await connection.scalar(used) or 0)


async def delete(connection: AsyncConnection, image: StoredImage) -> None:
    """Forget an image that is not protected."""
    if image.protected:
        raise Forbidden(f"Image {image.id} is protected and cannot be deleted.")
    await rows.remove(connection, images, id=image.id)


async def ids(connection: AsyncConnection) -> set[str]:
    """The ids of all images."""
    return set(await connection.scalars(sa.select(images.c.id)))


# Members: the projects that a shared image is shared with


async def members(connection: AsyncConnection, viewer: Viewer, image: StoredImage) -> list[ImageMember]:
    """The members of an image: all of them for its owner, else the viewer itself."""
    shared = await rows.index(connection, image_members, "created_at", "member_id", image_id=image.id)
    found = [ImageMember(**row._mapping) for row in shared]
    return found if viewer.owns(image) else [each for each in found if each.member_id == viewer.project_id]


async def member(connection: AsyncConnection, viewer: Viewer, image: StoredImage, member_id: str) -> ImageMember:
    """One member of an image."""
    for each in await members(connection, viewer, image):
        if each.member_id == member_id:
            return each
    raise NotFound(f"{member_id} not found in the member list of the image {image.id}.")


async def share(connection: AsyncConnection, image: StoredImage, member_id: str) -> ImageMember:
    """Share an image with a project, which may accept it."""
    count = sa.select(sa.func.count()).where(image_members.c.image_id == image.id)
    if (await connection.scalar(count) or 0) >= MOST:
        raise TooLarge(f"An image can be shared with {MOST} projects.")
    taken = Conflict(f"{member_id} is already associated with image with ID {image.id}.")
    added = await rows.add(connection, image_members, {"image_id": image.id, "member_id": member_id}, taken)
    return ImageMember(**added._mapping)


async def answer(connection: AsyncConnection, image: StoredImage, member_id: str, status: str) -> ImageMember:
    """Record a member's answer to the sharing of an image."""
    mine = image_members.c.image_id == image.id, image_members.c.member_id == member_id
    answered = image_members.update().where(*mine).values(status=status, updated_at=sa.func.now())
    return ImageMember(**(await connection.execute(answered.returning(image_members))).one()._mapping)


async def unshare(connection: AsyncConnection, image: StoredImage, member_id: str) -> None:
    """Stop sharing an image with a project."""
    await rows.remove(connection, image_members, image_id=image.id, member_id=member_id)
