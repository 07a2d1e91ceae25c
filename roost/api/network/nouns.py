"""What the nouns of the network API have in common: how each is called, found, checked and shown."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from roost.api.routes import Call, Connection
from roost.api.schemas import STRING, Schema, array, thing
from roost.errors import NotFound
from roost.network.stored import NetworkViewer, StoredNoun
from roost.turns import spread

Values = dict[str, Any]
MoreOf = Callable[[Connection, Sequence[Any]], Awaitable[dict[str, Values]]]
"""What else is shown of rows, by their ids."""


TEXT: Schema = {"type": "string", "maxLength": 255}
OWNER: dict[str, Schema] = {"project_id": STRING, "tenant_id": STRING}
DESCRIBED: dict[str, Schema] = {"name": TEXT, "description": TEXT}
MOST = 50
"""Tags, addresses, routes and the like of one thing: what a list shows of each stays small."""
FIXED: Schema = array(thing({}, {"subnet_id": STRING, "ip_address": STRING}), maxItems=MOST)


def viewer(call: Call) -> NetworkViewer:
    """Who asks, as the network room knows callers."""
    return NetworkViewer(call.caller.project_id, call.caller.is_admin)


@dataclass(frozen=True, slots=True)
class Noun:
    """One kind of thing: its name, which of its attributes can be queried and changed, and what else happens with
    it."""

    singular: str
    plural: str
    title: str
    stored: StoredNoun
    makeable: Mapping[str, Schema]
    changeable: Mapping[str, Schema]
    required: tuple[str, ...]
    make: Callable[[Call, Connection, Values], Awaitable[Any]]
    change: Callable[[Call, Connection, Any, Values], Awaitable[None]]
    remove: Callable[[Connection, Any], Awaitable[None]]
    more: MoreOf
    shows_default_group: bool = False
    """Whether it shows the default security group of its project, which is made when it is first needed."""

    @property
    def path(self) -> str:
        """Where they are."""
        return "/" + self.plural.replace("_", "-")

    @property
    def variable(self) -> str:
        """What a path calls one of them."""
        return f"{self.singular}_id"

    def missing(self, identifier: str) -> NotFound:
        """The error for one that does not exist."""
        return NotFound(f"{self.title} {identifier} could not be found.")

    async def find(self, call: Call, connection: Connection, identifier: str) -> Any:
        """One that the caller sees."""
        row = await self.stored.find(connection, identifier, viewer(call))
        if row is None:
            raise self.missing(identifier)
        return row

    async def owned(self, call: Call, connection: Connection, verb: str) -> Any:
        """One that the caller may change."""
        row = await self.find(call, connection, call.path[self.variable])
        call.permit(f"{verb}_{self.singular}", project_id=row.project_id)
        return row

    def reading(self, call: Call) -> AbstractAsyncContextManager[Connection]:
        """A connection on which it can be shown."""
        database = call.services.database
        return database.begin() if self.shows_default_group else database.autocommit()

    async def views(self, connection: Connection, found: Sequence[Any]) -> list[Values]:
        """As they are shown."""
        more = await self.more(connection, found)
        return await spread(lambda row: {**_basics(self.stored, row), **more[row.id]}, found)


def _basics(stored: StoredNoun, row: Any) -> Values:
    hidden = ("of_server", "external", "gateway_network_id", "enable_snat")
    view = {name: getattr(row, name) for name in stored.columns if name not in hidden}
    moments = {key: _moment(view[key]) for key in ("created_at", "updated_at")}
    return {**view, **moments, "tenant_id": row.project_id, "revision_number": 1}


def _moment(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
