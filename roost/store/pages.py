"""Keyset pages: every list is read in an order, from the item that the client names as its marker."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.errors import Invalid
from roost.store.uuids import is_uuid

Rows = Sequence[sa.Row[Any]]
"""Rows of any query: lists of all kinds are read here, and the module that asks names the type of its own."""

_ROWS_AT_A_TIME = 500


@dataclass(frozen=True, slots=True)
class SortKey:
    """A column or expression to sort by. Nulls come first in ascending order and last in descending order."""

    column: sa.ColumnElement[Any]
    descends: bool = False

    @property
    def _nullable(self) -> bool:
        return bool(getattr(self.column, "nullable", False))

    @property
    def order(self) -> sa.ColumnElement[Any]:
        """What ORDER BY takes. Without nulls, the plain form lets PostgreSQL use an index."""
        return self.order_by(self.column)

    def order_by(self, column: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
        """The same order, of a column with the same values."""
        order = column.desc() if self.descends else column.asc()
        if not self._nullable:
            return order
        return order.nulls_last() if self.descends else order.nulls_first()

    def after(self, value: Any) -> sa.ColumnElement[bool]:
        """The rows that follow this value."""
        if value is None:
            return sa.false() if self.descends else self.column.is_not(None)
        if not self.descends:
            return sa.and_(self.column > value)
        below = self.column < value
        return sa.or_(below, self.column.is_(None)) if self._nullable else below

    def since(self, value: Any) -> sa.ColumnElement[bool]:
        """The rows with this value and those that follow it, in a form with which an index scan begins there."""
        if self._nullable:
            return sa.true()
        return sa.and_(self.column <= value if self.descends else self.column >= value)

    def same(self, value: Any) -> sa.ColumnElement[bool]:
        """The rows with this value."""
        return self.column.is_(None) if value is None else self.column == value


@dataclass(frozen=True, slots=True)
class PageRequest:
    """At most `limit` items, after the one that `marker` names and after `offset` more."""

    limit: int | None = None
    marker: str | None = None
    offset: int = 0


EVERYTHING = PageRequest()


class UnknownMarker(Invalid):
    """No item that the caller may see has this id."""

    def __init__(self, marker: str) -> None:
        super().__init__(f"marker [{marker}] not found")


async def read(
    connection: AsyncConnection,
    visible: sa.Select[Any],
    keys: Sequence[SortKey],
    page: PageRequest,
    *conditions: sa.ColumnElement[bool],
    named: sa.Column[Any],
    ways: Sequence[sa.ColumnElement[bool]] = (),
) -> Rows:
    """Read a page. `visible` selects what the caller may see, `conditions` filter it, and `named` is the column that a
    marker refers to: a marker may be any visible item, filtered out or not. The last key must be unique. With `ways`,
    an item is read if it meets one of these conditions; none may meet two. Each is read by its own index."""
    query = visible.where(*conditions)
    if page.marker is not None:
        query = query.where(await _after_marker(connection, visible, keys, page.marker, named))
    query = _united(query, keys, page.limit, ways) if len(ways) > 1 else _ordered(query.where(*ways), keys, page.limit)
    if page.offset:
        query = query.offset(page.offset)
    return await every_row(await connection.execute(query))


@dataclass(frozen=True, slots=True)
class ValueOrder:
    """An order by a column whose values are listed in it, and among rows of one value by another, unique column."""

    column: sa.ColumnElement[Any]
    values: Sequence[Any]
    then: sa.ColumnElement[Any]


async def read_by_value(
    connection: AsyncConnection,
    visible: sa.Select[Any],
    order: ValueOrder,
    page: PageRequest,
    *conditions: sa.ColumnElement[bool],
    named: sa.Column[Any],
) -> Rows:
    """Read a page in such an order: the rows of one value after another, by an index, until the page is full."""
    column, values, then = order.column, order.values, order.then
    query, rows = visible.where(*conditions), []
    if page.marker is not None:
        value, last = await _place_of(connection, visible, (column, then), page.marker, named)
        if value not in values:
            raise UnknownMarker(page.marker)
        rest = query.where(column == value, then > last).order_by(then).limit(page.limit)
        rows = list((await connection.execute(rest)).all())
        values = values[values.index(value) + 1 :]
    left = None if page.limit is None else page.limit - len(rows)
    if not values or left == 0:
        return rows
    array = sa.literal(list(values), ARRAY(column.type))
    listed = sa.func.unnest(array).table_valued("value", with_ordinality="place").render_derived()
    found = query.add_columns(then.label("then")).where(column == listed.c.value).order_by(then).limit(left).lateral()
    joined = sa.select(*list(found.c)[:-1]).select_from(listed.join(found, sa.true()))
    return [*rows, *(await connection.execute(joined.order_by(listed.c.place, found.c.then).limit(left))).all()]


def _ordered(query: sa.Select[Any], keys: Sequence[SortKey], limit: int | None) -> sa.Select[Any]:
    return query.order_by(*(key.order for key in keys)).limit(limit)


def _united(
    query: sa.Select[Any], keys: Sequence[SortKey], limit: int | None, ways: Sequence[sa.ColumnElement[bool]]
) -> sa.Select[Any]:
    """The first of all from the first of each way."""
    columns = [key.column.label(f"key{place}") for place, key in enumerate(keys)]
    firsts = [_ordered(query.add_columns(*columns).where(way), keys, limit).subquery().select() for way in ways]
    found = sa.union_all(*firsts).subquery()
    order = [key.order_by(found.c[f"key{place}"]) for place, key in enumerate(keys)]
    return sa.select(*list(found.c)[: -len(keys)]).order_by(*order).limit(limit)


async def every_row(result: sa.CursorResult[Any]) -> Rows:
    """All rows of an answer; where there are many, others are served in between."""
    rows: list[Any] = []
    for piece in result.partitions(_ROWS_AT_A_TIME):
        rows += piece
        if len(piece) == _ROWS_AT_A_TIME:
            await asyncio.sleep(0)
    return rows


async def _after_marker(
    connection: AsyncConnection,
    visible: sa.Select[Any],
    keys: Sequence[SortKey],
    marker: str,
    named: sa.Column[Any],
) -> sa.ColumnElement[bool]:
    """The rows that differ from the marker in some key, follow it there, and equal it in all keys before."""
    last = await _place_of(connection, visible, [key.column for key in keys], marker, named)
    after: sa.ColumnElement[bool] = sa.false()
    for key, value in zip(reversed(keys), reversed(last), strict=True):
        after = sa.or_(key.after(value), sa.and_(key.same(value), after))
    return sa.and_(keys[0].since(last[0]), after)


async def _place_of(
    connection: AsyncConnection,
    visible: sa.Select[Any],
    columns: Sequence[sa.ColumnElement[Any]],
    marker: str,
    named: sa.Column[Any],
) -> tuple[Any, ...]:
    """What the marker has in these columns."""
    if not _could_name(named, marker):
        raise UnknownMarker(marker)
    labelled = [column.label(f"key{place}") for place, column in enumerate(columns)]
    place = visible.with_only_columns(*labelled, maintain_column_froms=True).where(named == sa.cast(marker, named.type))
    last = (await connection.execute(place)).one_or_none()
    if last is None:
        raise UnknownMarker(marker)
    return tuple(last)


def _could_name(column: sa.Column[Any], marker: str) -> bool:
    """Whether PostgreSQL can compare the column with this text at all."""
    if isinstance(column.type, sa.Uuid):
        return is_uuid(marker)
    if isinstance(column.type, sa.Integer):
        return marker.isascii() and marker.isdecimal() and len(marker) < 10
    return True
