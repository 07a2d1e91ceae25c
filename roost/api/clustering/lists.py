"""Lists: which filters and sort keys a noun has, in what order its rows come, and from where a page goes on."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from oslo_utils import strutils

from roost.api.routes import Call, Connection
from roost.clusters.errors import BadRequest, NotAllowed
from roost.clusters.lookup import Resource, read_page
from roost.store.pages import EVERYTHING, PageRequest, UnknownMarker
from roost.store.uuids import is_uuid


class _Identified(Protocol):
    @property
    def id(self) -> str: ...


R = TypeVar("R", bound=_Identified)

LARGEST = 2**63 - 1
"""The largest number that PostgreSQL takes for a limit."""

Check = Callable[[str], Any]
"""Reads one value of a filter; raises `BadRequest` for what it cannot be."""


def text(value: str) -> str:
    """Any value."""
    return value


def one_of(values: Iterable[str]) -> Check:
    """One of a fixed set."""
    allowed = frozenset(values)

    def check(value: str) -> str:
        if value not in allowed:
            raise BadRequest(f"Field value {value} is invalid")
        return value

    return check


def boolean(name: str, value: str) -> bool:
    """A truth value in a query."""
    try:
        return bool(strutils.bool_from_string(value, strict=True))
    except ValueError:
        raise BadRequest(f"Invalid value '{value}' specified for '{name}'") from None


def whole_number(name: str, value: str) -> int:
    """A number that is not negative, in a query."""
    try:
        number = int(value)
    except ValueError:
        raise BadRequest(f"The value for {name} must be an integer: '{value}'.") from None
    if number < 0:
        raise BadRequest(f"Value must be >= 0 for field '{name}'.")
    if number > LARGEST:
        raise BadRequest(f"Value must be <= {LARGEST} for field '{name}'.")
    return number


@dataclass(frozen=True, slots=True)
class Page:
    """What a request asks to be listed."""

    filters: Mapping[str, list[Any]]
    order: tuple[tuple[str, bool], ...]
    """Column names, and whether descending."""
    limit: int
    marker: str | None
    everywhere: bool


@dataclass(frozen=True, slots=True)
class Listing(Generic[R]):
    """The list of one noun."""

    resource: Resource[R]
    sorts: tuple[str, ...]
    default_sort: str | None
    filters: Mapping[str, Check] = field(default_factory=dict)
    columns: Mapping[str, str] = field(default_factory=dict)
    """Where a filter or a sort key is called differently in the table."""
    paged: bool = True
    quote_unknown: bool = False

    def read(self, call: Call) -> Page:
        """Validate the query."""
        given: dict[str, list[str]] = {}
        for key, value in call.queries:
            if key not in self.filters and key not in self._controls:
                raise BadRequest("Invalid parameter " + (f"'{key}'" if self.quote_unknown else key))
            given.setdefault(key, []).append(value)
        everywhere = boolean("global_project", given["global_project"][-1]) if "global_project" in given else False
        page = Page(
            filters={
                key: [check(value) for value in given[key]] for key, check in self.filters.items() if key in given
            },
            order=self._order(given["sort"][-1]) if "sort" in given else self._default_order,
            limit=whole_number("limit", given["limit"][-1]) if "limit" in given else LARGEST,
            marker=self._marker(given["marker"][-1]) if "marker" in given else None,
            everywhere=everywhere,
        )
        if everywhere and not call.caller.is_admin:
            raise NotAllowed
        return page

    async def records(self, connection: Connection, call: Call, page: Page, **only: str) -> list[R]:
        """The records of a page, with these values only."""
        filters = {self._column(key): values for key, values in page.filters.items()}
        filters |= {key: [value] for key, value in only.items()}
        order = [(self._column(key), descends) for key, descends in page.order]
        most = call.services.settings.max_limit
        asked = PageRequest(min(page.limit, most), page.marker) if self.paged else EVERYTHING
        owner = call.caller if self.paged and not page.everywhere else None
        try:
            found = await read_page(connection, self.resource, asked, order, filters, owner)
        except UnknownMarker:
            raise BadRequest(f"The marker '{page.marker}' could not be found.") from None
        if self.paged and page.limit > most == len(found):
            # The body has no room for links, and openstacksdk follows this header as well.
            call.answer_headers["Link"] = f'<{call.following(found[-1].id)}>; rel="next"'
        return found

    @property
    def _controls(self) -> tuple[str, ...]:
        return ("sort", "limit", "marker", "global_project") if self.paged else ("sort",)

    @property
    def _default_order(self) -> tuple[tuple[str, bool], ...]:
        return ((self.default_sort, False),) if self.default_sort else ()

    def _column(self, name: str) -> str:
        return self.columns.get(name, name)

    def _order(self, value: str) -> tuple[tuple[str, bool], ...]:
        order = []
        for part in value.split(","):
            name, _, direction = part.strip().partition(":")
            if not name:
                raise BadRequest("Missing sort key for 'sort'.")
            if name not in self.sorts:
                raise BadRequest(f"Unsupported sort key '{name}' for 'sort'.")
            if direction not in ("", "asc", "desc"):
                raise BadRequest(f"Unsupported sort dir '{direction}' for 'sort'.")
            order.append((name, direction == "desc"))
        return tuple(order)

    def _marker(self, value: str) -> str:
        if not is_uuid(value):
            raise BadRequest(f"The value for marker is not a valid UUID: '{value}'.")
        return value
