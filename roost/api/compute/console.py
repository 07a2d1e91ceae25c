"""What the dashboard and `roost top` ask, from 2.1003 on: lists, search, what is wrong, what happened, figures."""

import csv
import io
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from starlette.responses import StreamingResponse

from roost import quick_json
from roost.api import schemas
from roost.api.budgets import RouteKind
from roost.api.compute import server_groups
from roost.api.compute.explanations import FIRST
from roost.api.compute.fleet import ALL, INDEX, sees_all
from roost.api.routes import Call, Connection, Reply, Table
from roost.api.schemas import Schema, array, by_name, thing
from roost.compute.answers import history, lists, troubles
from roost.compute.answers.lists import ListRequest, ListRow, RowId
from roost.compute.answers.violations import BrokenRule
from roost.compute.groups import groups
from roost.errors import Forbidden, Invalid, NotFound
from roost.placement.phrases import sentence
from roost.store.pages import PageRequest, UnknownMarker

routes = Table(prefix="/v2.1")

_TEXT: Schema = {"type": "string", "maxLength": 255}
_NUMBER: Schema = {"type": "string", "pattern": "^[0-9]{1,6}$"}
_ROW: Schema = {"type": "object"}
_MOST_FOUND = 8
_MOST_ROWS = 1000
_PAGE_OF_EXPORT = 5000
_ROWS_AT_A_TIME = 100
"""How much of an export is read and written at once: others are served only in between."""


def _project(call: Call) -> str | None:
    """The caller's project; None for a caller who sees all."""
    return None if sees_all(call) else call.caller.project_id or ""


def _moment(value: Any) -> Any:
    return value.isoformat(timespec="seconds") if isinstance(value, datetime) else value


def _shown(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _moment(value) for name, value in row.items()}


# Lists

_WORDED = ["rules", "broken"]
"""What a list of groups says beside its columns."""
_RESERVED = {"q", "sort", "limit", "marker", "format", "broken"}
_NAMES = sorted({name for kind in lists.KINDS.values() for name in kind.filters} - _RESERVED)
_LIST_QUERY: Schema = {
    "type": "object",
    "properties": {
        **dict.fromkeys(_NAMES, _TEXT),
        "q": _TEXT,
        "sort": {"type": "string", "pattern": "^[a-z_]+(:(asc|desc))?$"},
        "limit": _NUMBER,
        "marker": _TEXT,
        "broken": {"enum": ["1"]},
    },
    "additionalProperties": False,
}
_LIST = thing({"kind": schemas.STRING, "columns": array(schemas.STRING), "total": schemas.INTEGER, "rows": array(_ROW)})


@routes.get("/os-lists/{kind}", since=FIRST, rule=INDEX, query=_LIST_QUERY, response=thing({"list": _LIST}))
async def show_list(call: Call) -> Reply:
    """List one kind of thing, filtered, sorted and paged."""
    asked = await _asked(call)
    limit = min(int(call.query.get("limit") or 100), _MOST_ROWS)
    page = PageRequest(limit, call.query.get("marker"))
    async with call.services.database.begin() as connection:
        rows = await _page(call, connection, asked, page)
        whole = page.marker is None and len(rows) < limit
        total = len(rows) if whole else await lists.count(connection, asked)
    columns = list(asked.kind.shown(asked.project_id is None))
    view = {"kind": call.path["kind"], "columns": columns, "total": total, "rows": [_shown(row) for row in rows]}
    return {"list": view}


async def _asked(call: Call) -> ListRequest:
    kind = lists.KINDS.get(call.path["kind"])
    if kind is None:
        raise NotFound(f"There is no list of {call.path['kind']}.")
    project_id = _project(call)
    if project_id is not None and kind.owner is None:
        raise Forbidden(call.forbidden.format(rule=ALL))
    broken = None
    if "broken" in call.query:
        if kind is not lists.KINDS["groups"]:
            raise Invalid("Only groups have rules that can be broken.")
        broken = {each.group_id for each in await _broken(call)}
    column, _, direction = call.query.get("sort", "name").partition(":")
    filters = {name: call.query[name] for name in _NAMES if name in call.query}
    return ListRequest(kind, project_id, filters, call.query.get("q", ""), column, direction == "desc", broken)


async def _broken(call: Call) -> list[BrokenRule]:
    """The rules that are broken, as far as the caller may know, by the identifiers that the caller knows."""
    async with call.services.database.autocommit() as connection:
        broken = await call.services.violations.now(connection)
        identifiers = await server_groups.identifiers(call, connection, call.caller.project_id or "")
    return [each.shown(identifiers) for each in broken if _project(call) in (None, each.project_id)]


async def _page(call: Call, connection: Connection, asked: ListRequest, page: PageRequest) -> list[ListRow]:
    """One page of a list: first which rows are on it, and then all columns of these alone."""
    return await _rows(call, connection, asked, await lists.ids(connection, asked, page))


async def _rows(call: Call, connection: Connection, asked: ListRequest, ids: Sequence[RowId]) -> list[ListRow]:
    """These rows; of groups, with what their rules are in words, and how many of them are broken."""
    rows = await lists.rows_of(connection, asked, ids)
    if asked.kind is lists.KINDS["groups"]:
        await _describe(call, connection, rows)
    return rows


async def _describe(call: Call, connection: Connection, rows: list[ListRow]) -> None:
    broken = Counter(each.group_id for each in await call.services.violations.now(connection))
    rules = await groups.rules_of(connection, [str(row["id"]) for row in rows])
    identifiers = await server_groups.identifiers(call, connection, call.caller.project_id or "")
    for row in rows:
        group_id = str(row["id"])
        row["rules"] = sentence([identifiers.shown(rule) for rule in rules.get(group_id, ())])
        row["broken"] = broken[group_id]


_EXPORT_QUERY: Schema = {
    **_LIST_QUERY,
    "properties": {**_LIST_QUERY["properties"], "format": {"enum": ["csv", "json"]}},
    "required": ["format"],
}


@routes.get(
    "/os-exports/{kind}", since=FIRST, rule=INDEX, kind=RouteKind.LIST, query=_EXPORT_QUERY, response=array(_ROW)
)
async def export(call: Call) -> Reply:
    """Send a whole list as a file, in the `format` asked for."""
    asked, form = await _asked(call), call.query["format"]
    kind = "text/csv; charset=utf-8" if form == "csv" else "application/json"
    name = f"{call.path['kind']}.{form}"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    # A question that cannot be answered is refused here, before the answer begins.
    ids = await _exported(call, asked)
    return StreamingResponse(_lines(call, asked, form, ids), media_type=kind, headers=headers)


async def _exported(call: Call, asked: ListRequest, marker: str | None = None) -> list[RowId]:
    async with call.services.database.begin() as connection:
        return await lists.ids(connection, asked, PageRequest(_PAGE_OF_EXPORT, marker))


async def _after(call: Call, asked: ListRequest, ids: list[RowId]) -> list[RowId]:
    """The page after this one: after its last row that there still is, since others may delete them meanwhile."""
    for last in reversed(ids):
        with suppress(UnknownMarker):
            return await _exported(call, asked, str(last))
    return []


async def _lines(call: Call, asked: ListRequest, form: str, ids: list[RowId]) -> AsyncIterator[str]:
    """The whole list: which rows are on a page, and then a few rows after the other, so that it is never held at
    once."""
    columns, following = list(asked.kind.shown(asked.project_id is None)), ""
    columns += _WORDED if asked.kind is lists.KINDS["groups"] else []
    yield _csv(columns) if form == "csv" else "["
    while ids:
        for start in range(0, len(ids), _ROWS_AT_A_TIME):
            async with call.services.database.autocommit() as connection:
                rows = await _rows(call, connection, asked, ids[start : start + _ROWS_AT_A_TIME])
            shown = [_shown(row) for row in rows]
            if form == "csv":
                yield "".join(_csv([_safe(row[name]) for name in columns]) for row in shown)
            elif shown:
                yield following + quick_json.dumps(shown).decode()[1:-1]
                following = ","
        ids = await _after(call, asked, ids) if len(ids) == _PAGE_OF_EXPORT else []
    yield "" if form == "csv" else "]"


def _safe(value: Any) -> Any:
    """A text that a spreadsheet does not take for a formula."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value


def _csv(values: list[Any]) -> str:
    text = io.StringIO()
    csv.writer(text).writerow(values)
    return text.getvalue()


# Search

_FOUND = thing({"q": schemas.STRING, "results": array(thing({"kind": schemas.STRING, "rows": array(_ROW)}))})


@routes.get(
    "/os-search",
    since=FIRST,
    rule=INDEX,
    query={"type": "object", "properties": {"q": _TEXT}, "required": ["q"], "additionalProperties": False},
    response=thing({"search": _FOUND}),
)
async def search(call: Call) -> Reply:
    """Find anything by the beginning of a word of its name, by its id, its address or its project."""
    query = call.query["q"]
    # In a transaction, for which the search chooses how PostgreSQL plans.
    async with call.services.database.begin() as connection:
        found = await lists.search(connection, query, _project(call), _MOST_FOUND)
    results = [{"kind": kind, "rows": [_shown(row) for row in rows]} for kind, rows in found.items()]
    return {"search": {"q": query, "results": results}}


# What is wrong

_TROUBLE = thing(
    {
        "kind": schemas.STRING,
        "name": schemas.STRING,
        "sentence": schemas.STRING,
        "subject": {"oneOf": [schemas.NULL, thing({"kind": schemas.STRING, "id": schemas.STRING})]},
        "since": schemas.NULLABLE_STRING,
        "remedies": array(thing({"sentence": schemas.STRING, "command": schemas.STRING})),
    }
)
_TROUBLES = thing({"total": schemas.INTEGER, "counts": by_name(schemas.INTEGER), "items": array(_TROUBLE)})


@routes.get("/os-troubles", since=FIRST, rule=INDEX, response=thing({"troubles": _TROUBLES}))
async def show_troubles(call: Call) -> Reply:
    """Say what is wrong, the most harmful first, and what can be done about it."""
    broken = await _broken(call)
    async with call.services.database.autocommit() as connection:
        found = await troubles.find(connection, _project(call), broken, call.services.settings.clusters.dead_after)
    items = [
        {
            "kind": str(each.kind),
            "name": each.name,
            "sentence": each.sentence,
            "subject": None if each.subject is None else {"kind": each.subject[0], "id": each.subject[1]},
            "since": _moment(each.since),
            "remedies": [{"sentence": text, "command": command} for text, command in each.remedies],
        }
        for each in found.found
    ]
    counts = {str(kind): number for kind, number in found.counts.items()}
    return {"troubles": {"total": sum(counts.values()), "counts": counts, "items": items}}


# What happened

_HISTORY_QUERY: Schema = {
    "type": "object",
    "properties": {
        **dict.fromkeys(("group_id", "server_id", "host", "cluster_id", "before"), _TEXT),
        "kind": {"enum": list(history.KINDS)},
        "limit": _NUMBER,
    },
    "additionalProperties": False,
}


@routes.get("/os-history", since=FIRST, rule=INDEX, query=_HISTORY_QUERY, response=thing({"events": array(_ROW)}))
async def show_history(call: Call, connection: Connection) -> Reply:
    """Show what happened, the latest first: placements, moves, failures, rules broken and mended, hosts, actions."""
    project_id = _project(call)
    if project_id is not None and "host" in call.query:
        raise Forbidden(call.forbidden.format(rule=ALL))
    kinds = [value for name, value in call.queries if name == "kind"]
    asked = history.FeedRequest(
        project_id,
        frozenset(kinds or history.KINDS),
        call.query.get("group_id"),
        call.query.get("server_id"),
        call.query.get("host"),
        call.query.get("cluster_id"),
        _before(call.query.get("before")),
        min(int(call.query.get("limit") or 100), _MOST_ROWS),
    )
    # To the microsecond, so that the last of a page says where the next begins.
    events = [each._asdict() | {"at": each.at.isoformat()} for each in await history.feed(connection, asked)]
    if project_id is not None:
        for event in events:
            event["host"] = event["source"] = None
            if event["kind"] in ("rule_broken", "rule_mended"):
                event["detail"] = None
    return {"events": events}


def _before(text: str | None) -> datetime | None:
    try:
        found = datetime.fromisoformat(text) if text else None
    except ValueError:
        raise Invalid(f"'{text}' is not a moment; write 2026-01-31T12:00:00+00:00.") from None
    if found is not None and found.tzinfo is None:
        raise Invalid(f"'{text}' has no time zone; write 2026-01-31T12:00:00+00:00.")
    return found


_POINT = array(schemas.ANY, minItems=2, maxItems=2)


@routes.get(
    "/os-figures",
    since=FIRST,
    rule=ALL,
    query={"type": "object", "properties": {"hours": _NUMBER}, "additionalProperties": False},
    response=thing({"figures": by_name(array(_POINT))}),
)
async def show_figures(call: Call, connection: Connection) -> Reply:
    """Show free room, servers, broken rules, boots and how long they took, by the minute."""
    hours = min(int(call.query.get("hours") or 6), 24 * 14)
    found = await history.figures(connection, hours)
    return {"figures": {name: [[_moment(at), value] for at, value in points] for name, points in found.items()}}
