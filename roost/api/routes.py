"""The table of routes: a path, the versions it is served in, who may call it, and what it takes and gives.

A handler is declared beside its schemas:

    @routes.get("/flavors/{flavor_id}", rule="os_compute_api:...", response=FLAVOR)
    async def show(call: Call, connection: Connection) -> Reply: ...

A handler that takes a connection runs in one transaction; in a GET, each of its statements is one.
One path and method may be declared several times, for different versions, each with its own body.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import wraps
from inspect import signature
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar
from urllib.parse import urlencode

from oslo_utils import strutils
from starlette.datastructures import Headers
from starlette.responses import Response

from roost.api import budgets
from roost.api.budgets import RouteKind
from roost.api.permissions import Permissions
from roost.api.readiness import Readiness
from roost.api.schemas import Schema, Validator
from roost.api.versions import Version
from roost.clouds.base import Clouds
from roost.clouds.server_groups import Groups
from roost.compute.answers.violations import Violations
from roost.compute.inventory.image_files import ImageFiles
from roost.compute.scheduling.scheduler import Scheduler
from roost.config import Settings
from roost.errors import Forbidden
from roost.identity.tokens import Caller
from roost.network.addresses import AddressPool
from roost.store.database import Connection as Connection
from roost.store.database import Database
from roost.store.pages import PageRequest
from roost.store.watch import Watch

if TYPE_CHECKING:
    from roost.clouds.front import Front

Reply: TypeAlias = "dict[str, Any] | list[Any] | Response | None"
Handler: TypeAlias = "Callable[[Call], Awaitable[Reply]]"
Context: TypeAlias = "Callable[[Call], AbstractAsyncContextManager[Any]]"
H = TypeVar("H", bound="Handler | Callable[[Call, Any], Awaitable[Reply]]")
Answer: TypeAlias = Schema | Callable[[Version], Schema]
"""What a route gives: the same in all versions that it serves, or by the version."""


@dataclass(frozen=True, slots=True)
class Services:
    """What a handler may use: made once a process."""

    settings: Settings
    database: Database
    permissions: Permissions
    scheduler: Scheduler
    clouds: Clouds
    front: "Front | None"
    """The Nova that the compute API stands in front of, if it does; handlers ask `groups` instead."""
    groups: Groups
    watch: Watch
    violations: Violations
    addresses: AddressPool
    """Of the network that servers get when they name none."""
    image_files: ImageFiles
    readiness: Readiness


@dataclass(slots=True)
class Call:
    """One request: authenticated, permitted, and with its body and query validated."""

    services: Services
    caller: Caller
    version: Version
    headers: Headers
    path: Mapping[str, str]
    query: Mapping[str, str]
    """Of a key given twice, the last value; `queries` has all."""
    queries: list[tuple[str, str]]
    body: Any
    base: str
    """The address of this API as the client sees it, such as http://127.0.0.1:8774/compute."""
    url: str
    """The address of this request, without its query."""
    forbidden: str
    """What this API answers a caller without permission, with a place for the rule."""
    has_project: "Callable[[str], Awaitable[bool]]"
    """Whether there is a project with this id, as far as the caller may see."""
    address: str
    """Where the client connects from."""
    identify: "Callable[[], Awaitable[Caller]]"
    """Who the token speaks for by now: for answers that go on for long. Raises `Unauthorized` once it is not valid."""
    pieces: "Callable[[], AsyncGenerator[bytes]]"
    """The body of a route that is `streamed`, as it comes."""
    leave: Callable[[], None] = lambda: None
    """Ends the turn of this request early: what it waits for from here on is shared out by itself."""
    answer_headers: dict[str, str] = field(default_factory=dict)
    """Headers that the answer carries besides those of every answer."""

    @property
    def token(self) -> str:
        """The token that came with the request, to ask Nova with."""
        return self.headers["x-auth-token"]

    @property
    def page(self) -> PageRequest:
        """The page of a list that the query asks for, within what the configuration allows."""
        most = self.services.settings.max_limit
        return PageRequest(min(int(self.query.get("limit") or most), most), self.query.get("marker"))

    def flag(self, key: str, *, unclear: bool = False) -> bool:
        """Whether the query has this and says yes; a value that is no word for yes or no counts as `unclear`."""
        return key in self.query and bool(strutils.bool_from_string(self.query[key], default=unclear))

    def following(self, marker: str) -> str:
        """The address of the page after this item."""
        query = [(name, value) for name, value in self.queries if name != "marker"]
        return f"{self.url}?{urlencode([*query, ('marker', marker)])}"

    def permit(self, rule: str, **target: Any) -> None:
        """Raise `Forbidden` unless the caller may do this, to things that belong to `target` (default: its own)."""
        if not self.may(rule, **target):
            raise Forbidden(self.forbidden.format(rule=rule))

    def may(self, rule: str, **target: Any) -> bool:
        """Whether the caller may do this."""
        return self.services.permissions.allows(rule, self.caller, target)


@dataclass(frozen=True, slots=True)
class Route:
    """One row of the table."""

    method: str
    path: str
    handler: Handler
    since: Version
    until: Version | None
    rule: str | None
    """The permission that guards this."""
    owned: bool
    """The handler checks the permission, on the thing that it loads; else it is checked before, on the caller's own."""
    public: bool
    """Served without a token."""
    expensive: bool
    """May take seconds: worked out in a separate process, and ended when the client goes away."""
    streamed: bool
    """The body may be of any size and of any type; the handler takes it as it comes."""
    kind: RouteKind
    """By this it is decided how long the work on a request may take."""
    body: Validator | None
    described: Schema | None
    """What a body may be, where the handler reads it by itself."""
    query: Validator | None
    response: Answer | None
    status: int
    also: Mapping[int, Schema | None]
    """Other answers than the usual, by their status."""

    def serves(self, version: Version) -> bool:
        """Whether this row is for that version."""
        return self.since <= version and (self.until is None or version <= self.until)

    def answers(self, version: Version) -> dict[int, Schema | None]:
        """The shape of each good answer in that version, by its status; None where it has no body."""
        usual = self.response(version) if callable(self.response) else self.response
        return {self.status: usual, **self.also}


@dataclass(slots=True)
class _Place:
    """A place in the tree of path segments."""

    literal: dict[str, "_Place"] = field(default_factory=dict)
    variable: "_Place | None" = None
    name: str = ""
    routes: dict[str, list[Route]] = field(default_factory=dict)


def _reading(call: Call) -> AbstractAsyncContextManager[Connection]:
    return call.services.database.autocommit()


def _writing(call: Call) -> AbstractAsyncContextManager[Connection]:
    return call.services.database.begin()


def _within(handler: Callable[..., Awaitable[Reply]], context: Context) -> Handler:
    """The handler, with what it takes besides the call, if it does."""
    if len(signature(handler).parameters) == 1:
        return handler

    @wraps(handler)
    async def handle(call: Call) -> Reply:
        async with context(call) as given:
            return await handler(call, given)

    return handle


class Table:
    """All routes of one API, found by path. A `context` makes what handlers take instead of a connection."""

    def __init__(self, prefix: str = "", context: "Context | None" = None) -> None:
        self._prefix, self._context = prefix, context
        self._root = _Place()
        self.routes: list[Route] = []

    def add(
        self,
        method: str,
        path: str,
        *,
        since: str | None = None,
        until: str | None = None,
        rule: str | None = None,
        owned: bool = False,
        public: bool = False,
        expensive: bool = False,
        streamed: bool = False,
        kind: RouteKind | None = None,
        body: Schema | None = None,
        described: Schema | None = None,
        query: Schema | None = None,
        response: Answer | None = None,
        status: int = 200,
        also: Mapping[int, Schema | None] = MappingProxyType({}),
    ) -> Callable[[H], H]:
        """Declare a handler, as a decorator."""

        whole = self._prefix + path

        def declare(handler: H) -> H:
            route = Route(
                method=method,
                path=whole,
                handler=_within(handler, self._context or (_reading if method == "GET" else _writing)),
                since=Version.parse(since) if since else Version(0, 0),
                until=Version.parse(until) if until else None,
                rule=rule,
                owned=owned,
                public=public,
                expensive=expensive,
                streamed=streamed,
                kind=kind or budgets.usual(method, whole, public=public, expensive=expensive, streamed=streamed),
                body=Validator(body) if body is not None else None,
                described=described,
                query=Validator(query) if query is not None else None,
                response=response,
                status=status,
                also=also,
            )
            self._insert(route)
            return handler

        return declare

    def get(self, path: str, **row: Any) -> Callable[[H], H]:
        """Declare a GET (which answers HEAD too)."""
        return self.add("GET", path, **row)

    def post(self, path: str, **row: Any) -> Callable[[H], H]:
        """Declare a POST."""
        return self.add("POST", path, **row)

    def put(self, path: str, **row: Any) -> Callable[[H], H]:
        """Declare a PUT."""
        return self.add("PUT", path, **row)

    def patch(self, path: str, **row: Any) -> Callable[[H], H]:
        """Declare a PATCH."""
        return self.add("PATCH", path, **row)

    def delete(self, path: str, **row: Any) -> Callable[[H], H]:
        """Declare a DELETE."""
        return self.add("DELETE", path, **row)

    def include(self, *tables: "Table") -> "Table":
        """Take over all routes of other tables."""
        for table in tables:
            for route in table.routes:
                self._insert(route)
        return self

    def find(self, path: str) -> "tuple[Mapping[str, list[Route]], dict[str, str]] | None":
        """The routes at a path, by method, and the values of its variables."""
        place, values = self._root, {}
        for segment in path.strip("/").split("/") if path.strip("/") else ():
            following = place.literal.get(segment)
            if following is None:
                following = place.variable
                if following is None:
                    return None
                values[following.name] = segment
            place = following
        return (place.routes, values) if place.routes else None

    def _insert(self, route: Route) -> None:
        place = self._root
        for segment in route.path.strip("/").split("/") if route.path.strip("/") else ():
            if segment.startswith("{"):
                name = segment.strip("{}")
                place.variable = place.variable or _Place(name=name)
                place = place.variable
                assert place.name == name, f"{route.path}: this variable is called {place.name} elsewhere"
            else:
                place = place.literal.setdefault(segment, _Place())
        place.routes.setdefault(route.method, []).append(route)
        self.routes.append(route)
