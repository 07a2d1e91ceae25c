"""Lists of the network API: a page of what the caller sees, filtered and sorted as it asks."""

from roost.api.network.nouns import Noun, Values, viewer
from roost.api.routes import Call
from roost.errors import Invalid
from roost.store.pages import PageRequest, UnknownMarker


async def read(noun: Noun, call: Call) -> tuple[list[Values], bool]:
    """A page, and whether there is more. What the database cannot filter is filtered here, batch by batch."""
    database, most = call.services.database, call.services.settings.max_limit
    asked = call.query.get("limit", "")
    if asked and not (asked.isascii() and asked.isdecimal()):
        raise Invalid(f"Invalid input for operation: '{asked}' is not a valid limit.")
    limit = (min(int(asked), most) if len(asked) < 10 and asked else most) or most  # as Neutron: 0 is no limit
    equal, order, marker = _equal(noun, call), _order(noun, call), call.query.get("marker")
    left = {key for key, _ in call.queries} - {*_PAGING, "tenant_id", *noun.stored.filters}
    batch = most if left else limit + 1
    found: list[Values] = []
    while True:
        try:
            async with database.autocommit() as connection:
                page = PageRequest(batch, marker)
                batch_rows = await noun.stored.page(connection, viewer(call), equal, order, page)
        except UnknownMarker:
            raise Invalid(f"Invalid input for operation: Marker {marker} not found.") from None
        if batch_rows:
            async with noun.reading(call) as connection:
                found += [view for view in await noun.views(connection, batch_rows) if _matches(call, view)]
        if len(found) > limit or len(batch_rows) < batch:
            return found[:limit], len(found) > limit
        marker = batch_rows[-1].id


_PAGING = ("fields", "limit", "marker", "sort_key", "sort_dir", "page_reverse")


def _equal(noun: Noun, call: Call) -> dict[str, list[str]]:
    """What of the query the database can look for."""
    asked: dict[str, list[str]] = {}
    for key, value in call.queries:
        key = "project_id" if key == "tenant_id" else key
        if key in noun.stored.filters:
            asked.setdefault(key, []).append(value)
    return asked


def _order(noun: Noun, call: Call) -> list[tuple[str, bool]]:
    given, directions = _all(call, "sort_key"), _all(call, "sort_dir")
    columns = {**{name: name for name in noun.stored.sorts}, "tenant_id": "project_id"}
    for key in given:
        if key not in columns:
            raise Invalid(f"Invalid input for operation: '{key}' is an invalid attribute for sort_key.")
    directions += ["asc"] * (len(given) - len(directions))
    return [(columns[key], way == "desc") for key, way in zip(given, directions, strict=False)]


def _matches(call: Call, view: Values) -> bool:
    asked: dict[str, list[str]] = {}
    for key, value in call.queries:
        if key not in _PAGING:
            asked.setdefault(key, []).append(value)
    return all(_has(view, key, values) for key, values in asked.items())


def _has(view: Values, key: str, values: list[str]) -> bool:
    if key == "fixed_ips":
        wanted = [value.partition("=")[::2] for value in values]
        return all(any(fixed.get(name) == text for fixed in view.get(key, ())) for name, text in wanted)
    if key in ("tags", "tags-any", "not-tags", "not-tags-any"):
        tags = {tag for value in values for tag in value.split(",")}
        held = set(view.get("tags", ()))
        return (bool(tags & held) if key.endswith("any") else tags <= held) != key.startswith("not")
    if key not in view:
        return True  # as in Neutron, an unknown attribute limits nothing
    held_value = view[key]
    if isinstance(held_value, list):
        return all(value in held_value for value in values)
    words = {"True": "true", "False": "false", "None": "none"}
    text = str(held_value)
    return any(value == text or value.lower() == words.get(text) for value in values)


def fields(call: Call, views: list[Values]) -> list[Values]:
    """As much of each as the caller wants to see."""
    wanted = [field for value in _all(call, "fields") for field in value.split(",")]
    return [{key: view[key] for key in wanted if key in view} for view in views] if wanted else views


def _all(call: Call, key: str) -> list[str]:
    return [value for name, value in call.queries if name == key]
