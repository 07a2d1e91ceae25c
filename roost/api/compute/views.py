"""What the answers of many nouns share: times, links, pages, and the choice of an action."""

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from roost.api.routes import Call
from roost.api.schemas import BOOLEAN, DIGITS, MOST_DIGITS, STRING, Schema, array, thing
from roost.errors import Invalid

PAGE: dict[str, Schema] = {"limit": {**DIGITS, "minLength": 1, "maxLength": MOST_DIGITS}, "marker": STRING}
"""The query parameters of a list that is read page by page."""

LINKS: Schema = array(thing({"href": STRING, "rel": STRING}))

HOST_NAME: Schema = {"type": "string", "pattern": "^[a-zA-Z0-9-._]*$", "minLength": 1, "maxLength": 255}

BOOLEAN_WORD: Schema = {**BOOLEAN, "type": "string", "enum": [word for word in BOOLEAN["enum"] if word not in (0, 1)]}
"""A boolean in a query."""


def open_query(**known: Schema) -> Schema:
    """A query in which unknown keys are ignored, as early versions of Nova do."""
    return {"type": "object", "properties": known}


def closed_query(**known: Schema) -> Schema:
    """A query in which unknown keys are refused."""
    return thing({}, known)


def timestamp(moment: datetime | None) -> str | None:
    """In UTC, with microseconds and without saying so."""
    if moment is None:
        return None
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds")


def next_page(call: Call, items: Sequence[Mapping[str, Any]], key: str) -> list[dict[str, str]]:
    """The link to the following page, if this one is full."""
    limit = call.page.limit
    if not limit or len(items) < limit:
        return []
    return [{"rel": "next", "href": call.following(items[-1][key])}]


def links(call: Call, collection: str, identifier: str) -> list[dict[str, str]]:
    """Where one thing is found."""
    bookmark = f"{call.base}/{collection}/{identifier}"
    return [
        {"rel": "self", "href": f"{call.base}/v2.1/{collection}/{identifier}"},
        {"rel": "bookmark", "href": bookmark},
    ]


def action(body: Mapping[str, Any], known: Collection[str]) -> str:
    """The one action that the body of a POST .../action names."""
    if len(body) != 1:
        raise Invalid("Malformed request body: too many body keys" if body else "Malformed request body")
    (name,) = body
    if name not in known:
        raise Invalid(f"There is no such action: {name}")
    return name


def integer(text: str) -> int | None:
    """The integer that a path names, if it names one."""
    digits = text.removeprefix("-")
    readable = digits.isascii() and digits.isdecimal() and len(digits) <= MOST_DIGITS
    return int(text) if readable else None
