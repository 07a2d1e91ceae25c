"""Flavors: the sizes that a server can have, who may use them, and their extra specs."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.errors import Conflict, NotFound
from roost.placement.fleet import Resources
from roost.store import pages
from roost.store.database import violated
from roost.store.pages import EVERYTHING, PageRequest, SortKey
from roost.store.tables.compute import flavor_access, flavors

SORT_KEYS: Mapping[str, sa.Column[Any]] = {
    "created_at": flavors.c.created_at,
    "description": flavors.c.description,
    "ephemeral_gb": flavors.c.ephemeral_gb,
    "flavorid": flavors.c.id,
    "id": flavors.c.id,
    "is_public": flavors.c.is_public,
    "memory_mb": flavors.c.memory_mb,
    "name": flavors.c.name,
    "root_gb": flavors.c.disk_gb,
    "rxtx_factor": flavors.c.rxtx_factor,
    "swap": flavors.c.swap_mb,
    "vcpus": flavors.c.vcpus,
}


@dataclass(frozen=True, slots=True)
class Flavor:
    """A flavor."""

    name: str
    vcpus: int
    memory_mb: int
    disk_gb: int
    id: str = ""
    ephemeral_gb: int = 0
    swap_mb: int = 0
    rxtx_factor: float = 1.0
    is_public: bool = True
    description: str | None = None
    extra_specs: Mapping[str, str] = field(default_factory=dict)


_COLUMNS = [flavors.c[name] for name in Flavor.__dataclass_fields__]
USUAL = (
    Flavor("m1.tiny", 1, 512, 1, id="1"),
    Flavor("m1.small", 1, 2048, 20, id="2"),
    Flavor("m1.medium", 2, 4096, 40, id="3"),
    Flavor("m1.large", 4, 8192, 80, id="4"),
    Flavor("m1.xlarge", 8, 16384, 160, id="5"),
)


async def create(connection: AsyncConnection, flavor: Flavor) -> Flavor:
    """Add a flavor; without an id, it gets a uuid."""
    values = {**asdict(flavor), "id": flavor.id or str(uuid.uuid4())}
    try:
        return Flavor(*(await connection.execute(flavors.insert().values(values).returning(*_COLUMNS))).one())
    except IntegrityError as error:
        if violated(error) == "pk_flavors":
            raise Conflict(f"Flavor with ID {values['id']} already exists.") from None
        raise Conflict(f"Flavor with name {flavor.name} already exists.") from None


async def show(
    connection: AsyncConnection, flavor_id: str, *, project_id: str | None = None, lock: bool = False
) -> Flavor:
    """One flavor; with `project_id`, only one that this project may use."""
    query = sa.select(*_COLUMNS).where(flavors.c.id == flavor_id)
    if project_id is not None:
        query = query.where(_usable_by(project_id))
    row = (await connection.execute(query.with_for_update() if lock else query)).one_or_none()
    if row is None:
        raise NotFound(f"Flavor {flavor_id} could not be found.")
    return Flavor(*row)


async def index(
    connection: AsyncConnection,
    *,
    project_id: str,
    is_public: bool | None = True,
    min_memory_mb: int = 0,
    min_disk_gb: int = 0,
    name: str | None = None,
    sort_key: str = "flavorid",
    descending: bool = False,
    page: PageRequest = EVERYTHING,
) -> Sequence[Flavor]:
    """A page of flavors: the public ones and the project's own, or the private ones, or (None) all."""
    visible = sa.select(*_COLUMNS)
    if is_public is not None:
        visible = visible.where(_usable_by(project_id) if is_public else ~flavors.c.is_public)
    conditions = [flavors.c.memory_mb >= min_memory_mb, flavors.c.disk_gb >= min_disk_gb]
    if name is not None:
        conditions.append(flavors.c.name == name)
    keys = (SortKey(SORT_KEYS[sort_key], descending), SortKey(flavors.c.id, descending))
    rows = await pages.read(connection, visible, keys, page, *conditions, named=flavors.c.id)
    return [Flavor(*tuple(row)) for row in rows]


async def describe(connection: AsyncConnection, flavor_id: str, description: str | None) -> Flavor:
    """Change the description of a flavor."""
    query = flavors.update().where(flavors.c.id == flavor_id).values(description=description).returning(*_COLUMNS)
    row = (await connection.execute(query)).one_or_none()
    if row is None:
        raise NotFound(f"Flavor {flavor_id} could not be found.")
    return Flavor(*row)


async def delete(connection: AsyncConnection, flavor_id: str) -> None:
    """Remove a flavor; servers made of it keep their size."""
    if (await connection.execute(flavors.delete().where(flavors.c.id == flavor_id))).rowcount == 0:
        raise NotFound(f"Flavor {flavor_id} could not be found.")


async def set_extra_specs(connection: AsyncConnection, flavor_id: str, specs: Mapping[str, str]) -> None:
    """Add extra specs, or change those of the same name."""
    merged = flavors.c.extra_specs.op("||")(sa.cast(dict(specs), flavors.c.extra_specs.type))
    await show(connection, flavor_id, lock=True)
    await connection.execute(flavors.update().where(flavors.c.id == flavor_id).values(extra_specs=merged))


async def extra_spec(connection: AsyncConnection, flavor_id: str, key: str, *, lock: bool = False) -> str:
    """The value of one extra spec."""
    specs: Mapping[str, str] = (await show(connection, flavor_id, lock=lock)).extra_specs
    if key not in specs:
        raise NotFound(f"Flavor {flavor_id} has no extra specs with key {key}.")
    return specs[key]


async def delete_extra_spec(connection: AsyncConnection, flavor_id: str, key: str) -> None:
    """Remove one extra spec."""
    await extra_spec(connection, flavor_id, key, lock=True)
    without = flavors.c.extra_specs.op("-")(sa.cast(key, sa.Text))
    await connection.execute(flavors.update().where(flavors.c.id == flavor_id).values(extra_specs=without))


async def projects(connection: AsyncConnection, flavor_id: str) -> Sequence[str]:
    """The projects that may use a private flavor."""
    query = sa.select(flavor_access.c.project_id).where(flavor_access.c.flavor_id == flavor_id)
    return (await connection.scalars(query.order_by(flavor_access.c.project_id))).all()


async def allow(connection: AsyncConnection, flavor_id: str, project_id: str) -> None:
    """Let a project use a private flavor."""
    query = insert(flavor_access).values(flavor_id=flavor_id, project_id=project_id).on_conflict_do_nothing()
    if await connection.scalar(query.returning(flavor_access.c.flavor_id)) is None:
        raise Conflict(f"Flavor access already exists for flavor {flavor_id} and project {project_id} combination.")


async def disallow(connection: AsyncConnection, flavor_id: str, project_id: str) -> None:
    """Stop a project from using a private flavor."""
    of_both = (flavor_access.c.flavor_id == flavor_id, flavor_access.c.project_id == project_id)
    if (await connection.execute(flavor_access.delete().where(*of_both))).rowcount == 0:
        raise NotFound(f"Flavor access not found for {flavor_id} / {project_id} combination.")


class FlavorSize(Protocol):
    """A flavor, of Roost or of a Nova, as far as placement needs it."""

    @property
    def id(self) -> str: ...
    @property
    def vcpus(self) -> int: ...
    @property
    def memory_mb(self) -> int: ...
    @property
    def disk_gb(self) -> int: ...
    @property
    def ephemeral_gb(self) -> int: ...


def resources_of(flavor: FlavorSize) -> Resources:
    """What a server of this flavor takes up on a host."""
    return Resources(flavor.vcpus, flavor.memory_mb, flavor.disk_gb + flavor.ephemeral_gb)


@dataclass(frozen=True, slots=True)
class ServerFlavor:
    """A server's own copy of a flavor, which later changes to the flavor do not affect. A mirrored server of Nova's has
    only its size."""

    vcpus: int = 0
    memory_mb: int = 0
    disk_gb: int = 0
    """All that the server takes: root and ephemeral disk."""
    id: str = ""
    name: str = ""
    root_gb: int = 0
    ephemeral_gb: int = 0
    swap_mb: int = 0
    extra_specs: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, flavor: Flavor) -> "ServerFlavor":
        """The copy that a new server keeps of a flavor."""
        return cls(
            *resources_of(flavor),
            id=flavor.id,
            name=flavor.name,
            root_gb=flavor.disk_gb,
            ephemeral_gb=flavor.ephemeral_gb,
            swap_mb=flavor.swap_mb,
            extra_specs=flavor.extra_specs,
        )

    @classmethod
    def from_json(cls, data: Mapping[str, object]) -> "ServerFlavor":
        """Read what is stored; raises `ValueError` with a message if it is not a flavor."""
        if not isinstance(data, Mapping) or not data.keys() <= cls.__dataclass_fields__.keys():
            raise ValueError(f"The flavor of a server cannot be read: {data!r}.")
        values: Any = data
        return cls(**values)

    def to_json(self) -> dict[str, object]:
        """As it is stored."""
        return {name: getattr(self, name) for name in _KEPT}

    @property
    def size(self) -> Resources:
        """What the server takes up on a host."""
        return Resources(self.vcpus, self.memory_mb, self.disk_gb)


_KEPT = tuple(ServerFlavor.__dataclass_fields__)


def _usable_by(project_id: str) -> sa.ColumnElement[bool]:
    granted = sa.select(flavor_access).where(
        flavor_access.c.flavor_id == flavors.c.id, flavor_access.c.project_id == project_id
    )
    return flavors.c.is_public | granted.exists()
