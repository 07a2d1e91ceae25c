"""Request bodies: read no further than the limit, waited for no longer, and parsed no deeper."""

import asyncio
import json
import math
from collections.abc import Collection
from typing import Any

from starlette.datastructures import Headers
from starlette.types import Receive

from roost.config import Settings
from roost.errors import Invalid, TooLarge, TooSlow, UnsupportedMedia

MALFORMED = "Malformed request body"


async def read(receive: Receive, headers: Headers, settings: Settings, *, also: Collection[str] = ()) -> Any:
    """The JSON body of a request, or None if it has none; `also` says what else JSON may be called."""
    raw = await read_raw(receive, headers, settings)
    if not raw:
        return None
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in ("application/json", *also) and not (kind.startswith("application/") and kind.endswith("+json")):
        raise UnsupportedMedia("Unsupported Content-Type")
    if _depth(raw, settings.max_body_depth) > settings.max_body_depth:
        raise Invalid(MALFORMED)
    try:
        body = json.loads(raw.decode(), parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError):
        raise Invalid(MALFORMED) from None
    if b"\\u" in raw and not _storable(body):
        raise Invalid(MALFORMED)
    return body


async def read_raw(receive: Receive, headers: Headers, settings: Settings) -> bytes:
    """A request's body as it is."""
    try:
        async with asyncio.timeout(settings.body_seconds):
            return await _read(receive, headers, settings.max_body_bytes)
    except TimeoutError:
        raise TooSlow(f"The body did not come within {settings.body_seconds:g} seconds.") from None


async def _read(receive: Receive, headers: Headers, limit: int) -> bytes:
    too_large = TooLarge(f"Request is too large: at most {limit} bytes are read.")
    if headers.get("content-length", "0").isdigit() and int(headers.get("content-length", "0")) > limit:
        raise too_large
    chunks, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Invalid("The request ended before its body did.")
        chunks.append(message.get("body", b""))
        size += len(chunks[-1])
        if size > limit:
            raise too_large
        if not message.get("more_body", False):
            return b"".join(chunks)


def _depth(raw: bytes, enough: int) -> int:
    """How deep brackets nest outside strings; counted only where there are brackets enough to matter."""
    if raw.count(b"[") + raw.count(b"{") <= enough:
        return 0
    deepest = depth = 0
    in_string = escaped = False
    for byte in raw:
        if escaped:
            escaped = False
        elif in_string:
            escaped = byte == 0x5C
            in_string = byte != 0x22
        elif byte == 0x22:
            in_string = True
        elif byte in b"[{":
            depth += 1
            deepest = max(deepest, depth)
        elif byte in b"]}":
            depth -= 1
    return deepest


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text} is larger than any number that we could give back")
    return number


def _storable(value: Any) -> bool:
    """Half a character and the character zero may be written as \\u escapes, but PostgreSQL keeps neither."""
    if isinstance(value, str):
        return "\x00" not in value and not any("\ud800" <= character <= "\udfff" for character in value)
    if isinstance(value, dict):
        return all(_storable(key) and _storable(item) for key, item in value.items())
    return all(_storable(item) for item in value) if isinstance(value, list) else True
