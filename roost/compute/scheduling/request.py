"""Requests for new servers: what can be asked for, and whether what they name is there."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.compute.inventory.live_fleet import LiveFleet
from roost.errors import Invalid
from roost.store.tables.compute import flavor_access, flavors, images, keypairs
from roost.store.tables.servers import servers
from roost.store.uuids import is_uuid


@dataclass(frozen=True, slots=True)
class NewServer:
    """What is each server's own in a request for several."""

    name: str
    metadata: Mapping[str, str] = field(default_factory=dict)
    addresses: Mapping[str, Any] = field(default_factory=dict)
    hostname: str | None = None
    token: str | None = None
    """Names this server across attempts: asked for again, it is found and not made again."""


@dataclass(frozen=True, slots=True)
class CreateRequest:
    """A request for one or several servers of one kind, to be placed together."""

    project_id: str
    user_id: str
    request_id: str
    servers: tuple[NewServer, ...]
    flavor_id: str
    least: int = 1
    """How many of the servers must find a place; fewer than all are made where not all do."""
    image_id: str | None = None
    key_name: str | None = None
    user_data: str | None = None
    description: str | None = None
    config_drive: bool = False
    tags: tuple[str, ...] = ()
    zone: str | None = None
    target: str | None = None
    """The one host to use, by name."""
    target_must_exist: bool = False
    """Refuse a target that is not there; else the servers are made, and in ERROR."""
    hints: Mapping[str, Any] = field(default_factory=dict)
    group_id: str | None = None
    same_host: tuple[str, ...] | None = None
    different_host: tuple[str, ...] = ()
    may_see_all: bool = False
    """The caller may name servers, groups and flavors of other projects."""
    seed: int | None = None
    """What decides between equals; random if not given."""
    expected: tuple[tuple[int, int | None], ...] | None = None
    """The ids of the hosts that the servers must come to, as a plan said, and in a divided group their partitions; else
    `Overtaken` is raised."""


@dataclass(frozen=True, slots=True)
class CreatedServers:
    """The servers of a request, in its order, and what they can be listed by."""

    server_ids: tuple[str, ...]
    reservation_id: str


@dataclass(frozen=True, slots=True)
class References:
    """What the requests of a batch refer to, as it is in the database."""

    flavors: Mapping[str, sa.Row[Any]]
    private: frozenset[tuple[str, str]]
    images: Mapping[str, sa.Row[Any]]
    keys: frozenset[tuple[str, str]]
    tokens: Mapping[str, str]
    places: Mapping[str, tuple[str, int | None]]

    @classmethod
    async def load(cls, connection: AsyncConnection, boots: Sequence[CreateRequest]) -> "References":
        """One query a kind, and none for a kind that nobody names."""
        flavor_rows = await _rows(connection, flavors, "id", {boot.flavor_id for boot in boots})
        access = await _rows(
            connection, flavor_access, "flavor_id", {row.id for row in flavor_rows if not row.is_public}
        )
        image_rows = await _rows(connection, images, "id", {boot.image_id for boot in boots if boot.image_id})
        owners = {boot.user_id for boot in boots if boot.key_name}
        tokens = {new.token for boot in boots for new in boot.servers if new.token}
        near = {server_id for boot in boots for server_id in (*(boot.same_host or ()), *boot.different_host)}
        return cls(
            flavors={row.id: row for row in flavor_rows},
            private=frozenset((row.flavor_id, row.project_id) for row in access),
            images={row.id: row for row in image_rows},
            keys=frozenset((row.user_id, row.name) for row in await _rows(connection, keypairs, "user_id", owners)),
            tokens={row.client_token: row.id for row in await _rows(connection, servers, "client_token", tokens)},
            places={row.id: (row.project_id, row.host_id) for row in await _rows(connection, servers, "id", near)},
        )

    def flavor(self, boot: CreateRequest) -> sa.Row[Any]:
        """The flavor of a request, if its project may use it."""
        row = self.flavors.get(boot.flavor_id)
        allowed = row is not None and (row.is_public or boot.may_see_all or (row.id, boot.project_id) in self.private)
        if row is None or not allowed:
            raise Invalid(f"Flavor {boot.flavor_id} could not be found.")
        return row

    def check(self, boot: CreateRequest, flavor: sa.Row[Any]) -> None:
        """Raise `Invalid` for anything else that is named and is not there."""
        if boot.image_id is not None:
            image = self.images.get(boot.image_id)
            if image is None:
                raise Invalid("Can not find requested image")
            if image.min_memory_mb > flavor.memory_mb:
                raise Invalid("Flavor's memory is too small for requested image.")
            if flavor.disk_gb and image.min_disk_gb > flavor.disk_gb:
                raise Invalid("Flavor's disk is too small for requested image.")
        if boot.key_name is not None and (boot.user_id, boot.key_name) not in self.keys:
            raise Invalid("Invalid key_name provided.")


async def _rows(connection: AsyncConnection, table: sa.Table, key: str, values: Iterable[str]) -> Sequence[sa.Row[Any]]:
    wanted = list(values)
    if not wanted:
        return ()
    return (await connection.execute(sa.select(table).where(table.c[key].in_(wanted)))).all()


async def hinted_hosts(
    connection: AsyncConnection, live: LiveFleet, hints: Mapping[str, Any], project_id: str
) -> tuple[list[int] | None, list[int]]:
    """Where the servers are that one asked to be with (None: it did not ask) and away from; those that are gone, or of
    other projects, do not count."""
    near, apart = named_servers(hints, "same_host"), named_servers(hints, "different_host")
    rows = await _rows(connection, servers, "id", {*(near or ()), *(apart or ())})
    places = {row.id: row.host_id for row in rows if row.project_id == project_id}
    together = None if near is None else live.indexes(map(places.get, near))
    return together, live.indexes(map(places.get, apart or ()))


def named_servers(hints: Mapping[str, Any], key: str) -> tuple[str, ...] | None:
    """The servers that a hint names, given as one id or several; None if there is no such hint."""
    value = hints.get(key)
    if value is None:
        return None
    return tuple(str(each).lower() for each in (value if isinstance(value, list) else [value]) if is_uuid(each))


def asked_partition(hints: Mapping[str, Any]) -> int | None:
    """The partition that the hints ask for, as a number or, as the clients send it, in digits."""
    value = hints.get("partition")
    if isinstance(value, str) and re.fullmatch("[0-9]{1,9}", value):
        value = int(value)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
        raise Invalid(f"The hint 'partition' must be one whole number, and is {value!r}.")
    return value
