"""Requests for new servers: what can be asked for, and whether what they name exists."""

import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from roost import quick_json
from roost.compute.inventory import quotas
from roost.compute.inventory.flavors import Flavor
from roost.compute.inventory.live_fleet import LiveFleet
from roost.errors import Invalid
from roost.store.tables.servers import servers
from roost.store.uuids import is_uuid

Addresses = Mapping[str, Sequence[Mapping[str, object]]]
"""The addresses of a server in each of its networks, as clients see them."""
Hints = Mapping[str, object]
"""Scheduler hints: the names and values that a client gave."""


@dataclass(frozen=True, slots=True)
class NewServer:
    """What is each server's own in a request for several."""

    name: str
    metadata: Mapping[str, str] = field(default_factory=dict)
    addresses: Addresses = field(default_factory=dict)
    hostname: str | None = None
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    """The id that the server is to have. What it will need is reserved under it, and by it the server is found."""
    token: str | None = None
    """Identifies this server across attempts: a repeated request finds it and does not make another."""


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
    """Refuse a target that does not exist; otherwise the servers are made in ERROR."""
    hints: Hints = field(default_factory=dict)
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
class ImageNeeds:
    """What an image asks of a flavor."""

    memory_mb: int
    disk_gb: int


@dataclass(frozen=True, slots=True)
class References:
    """What the requests of a project refer to, as it is in the database."""

    flavors: Mapping[str, Flavor]
    granted: frozenset[str]
    """The private flavors that the project may use."""
    images: Mapping[str, ImageNeeds]
    keys: frozenset[tuple[str, str]]
    tokens: Mapping[str, str]
    places: Mapping[str, tuple[str, int | None]]
    limits: Mapping[quotas.Share, quotas.Limits]
    groups: Mapping[str, tuple[int, str]]
    """The version and the project of each group."""

    @classmethod
    async def load(
        cls, connection: AsyncConnection, live: LiveFleet, configured: quotas.Limits, requests: Sequence[CreateRequest]
    ) -> "References":
        """Read all of it in one statement, with everything that is new of the fleet."""
        project_id = requests[0].project_id
        near = {each for request in requests for each in (*(request.same_host or ()), *request.different_host)}
        wanted = {
            "project_id": project_id,
            "users": list({request.user_id for request in requests}),
            "flavors": list({request.flavor_id for request in requests}),
            "images": [each for each in {request.image_id for request in requests} if is_uuid(each)],
            "owners": list({request.user_id for request in requests if request.key_name}),
            "tokens": [new.token for request in requests for new in request.servers if new.token],
            "near": [each for each in near if is_uuid(each)],
            "groups": [each for each in {request.group_id for request in requests} if is_uuid(each)],
        }
        asked = quick_json.dumps({**wanted, **live.unseen()}).decode()
        found = quick_json.loads((await connection.execute(_LOOK, {"asked": asked})).scalar_one())
        await live.take_in(connection, found["moved"], found["claimed"], found["oldest"])
        return cls(
            flavors={each["id"]: Flavor(**each) for each in found["flavors"] or ()},
            granted=frozenset(found["granted"] or ()),
            images={image_id: ImageNeeds(*needs) for image_id, *needs in found["images"] or ()},
            keys=frozenset((user_id, name) for user_id, name in found["keys"] or ()),
            tokens=found["tokens"] or {},
            places={server_id: (owner, host_id) for server_id, owner, host_id in found["places"] or ()},
            limits=quotas.assemble(configured, [project_id], (tuple(each) for each in found["limits"] or ())),
            groups={group_id: (version, owner) for group_id, version, owner in found["groups"] or ()},
        )

    def flavor(self, request: CreateRequest) -> Flavor:
        """The flavor of a request, if its project may use it."""
        flavor = self.flavors.get(request.flavor_id)
        if flavor is None or not (flavor.is_public or request.may_see_all or flavor.id in self.granted):
            raise Invalid(f"Flavor {request.flavor_id} could not be found.")
        return flavor

    def check(self, request: CreateRequest, flavor: Flavor) -> None:
        """Raise `Invalid` for anything else that is named and does not exist."""
        if request.image_id is not None:
            image = self.images.get(request.image_id)
            if image is None:
                raise Invalid("Can not find requested image")
            if image.memory_mb > flavor.memory_mb:
                raise Invalid("Flavor's memory is too small for requested image.")
            if flavor.disk_gb and image.disk_gb > flavor.disk_gb:
                raise Invalid("Flavor's disk is too small for requested image.")
        if request.key_name is not None and (request.user_id, request.key_name) not in self.keys:
            raise Invalid("Invalid key_name provided.")


_LOOK = sa.text("SELECT CAST(roost_look(CAST(:asked AS jsonb)) AS text)")


async def hinted_hosts(
    connection: AsyncConnection, live: LiveFleet, hints: Hints, project_id: str
) -> tuple[list[int] | None, list[int]]:
    """Where the servers are that one asked to be with (None: it did not ask) and away from; those that are gone, or of
    other projects, do not count."""
    near, apart = named_servers(hints, "same_host"), named_servers(hints, "different_host")
    named = sa.select(servers.c.id, servers.c.host_id).where(servers.c.id.in_({*(near or ()), *(apart or ())}))
    rows = await connection.execute(named.where(servers.c.project_id == project_id)) if near or apart else ()
    places = {row.id: row.host_id for row in rows}
    together = None if near is None else live.indexes(map(places.get, near))
    return together, live.indexes(map(places.get, apart or ()))


def named_servers(hints: Hints, key: str) -> tuple[str, ...] | None:
    """The servers that a hint names, given as one id or several; None if there is no such hint."""
    value = hints.get(key)
    if value is None:
        return None
    return tuple(str(each).lower() for each in (value if isinstance(value, list) else [value]) if is_uuid(each))


def asked_partition(hints: Hints) -> int | None:
    """The partition that the hints ask for, as a number or, as the clients send it, in digits."""
    value = hints.get("partition")
    if isinstance(value, str) and re.fullmatch("[0-9]{1,9}", value):
        value = int(value)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
        raise Invalid(f"The hint 'partition' must be one whole number, and is {value!r}.")
    return value
