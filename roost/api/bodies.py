"""Request bodies: read no further than the limit, waited for no longer, and parsed no deeper."""

import asyncio
import contextlib
import json
import math
import re
from collections.abc import AsyncGenerator, Collection
from typing import Any

from starlette.datastructures import Headers
from starlette.types import Receive

from roost.config import Settings
from roost.errors import Invalid, TooLarge, TooSlow, UnsupportedMedia

MALFORMED = "Malformed request body"


PUBLIC_BYTES = 32 << 10
"""Enough for any body that is read before its sender is known."""
_DRAINED_BYTES = 16 << 20
"""How much is read and thrown away, so that a client that is still sending gets its 413."""
_DRAIN_SECONDS = 2.0


def parse(
    raw: bytes, headers: Headers, settings: Settings, also: Collection[str] = (), *, trusted: bool = False
) -> Any:
    """The JSON body of a request, or None if it has none; `also` says what else JSON may be called. Services of the
    operator are `trusted` with any number of values: Nova's scheduler names all of its hosts."""
    if not raw:
        return None
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in ("application/json", *also) and not (kind.startswith("application/") and kind.endswith("+json")):
        raise UnsupportedMedia("Unsupported Content-Type")
    _check(raw, settings.max_body_depth, None if trusted else settings.max_body_values)
    try:
        body = json.loads(raw.decode(), parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError):
        raise Invalid(MALFORMED) from None
    if b"\\u" in raw and not _storable(body):
        raise Invalid(MALFORMED)
    return body


async def read(receive: Receive, headers: Headers, settings: Settings, *, public: bool = False) -> bytes:
    """A request's body as it is; on a `public` route it is short."""
    limit = min(settings.max_body_bytes, PUBLIC_BYTES) if public else settings.max_body_bytes
    try:
        async with asyncio.timeout(settings.body_seconds):
            return await _read(receive, headers, limit)
    except TimeoutError:
        raise TooSlow(f"The body did not come within {settings.body_seconds:g} seconds.") from None


async def pieces(receive: Receive, settings: Settings) -> AsyncGenerator[bytes]:
    """A body of any size, piece by piece; each must come within the time that others have for the whole."""
    while True:
        try:
            async with asyncio.timeout(settings.body_seconds):
                message = await receive()
        except TimeoutError:
            raise TooSlow(f"No more of the body came for {settings.body_seconds:g} seconds.") from None
        if message["type"] == "http.disconnect":
            raise Invalid("The request ended before its body did.")
        yield message.get("body", b"")
        if not message.get("more_body", False):
            return


async def _read(receive: Receive, headers: Headers, limit: int) -> bytes:
    too_large = TooLarge(f"Request is too large: at most {limit} bytes are read.")
    if headers.get("content-length", "0").isdigit() and int(headers.get("content-length", "0")) > limit:
        await _drain(receive)
        raise too_large
    chunks, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Invalid("The request ended before its body did.")
        chunks.append(message.get("body", b""))
        size += len(chunks[-1])
        if size > limit:
            if message.get("more_body", False):
                await _drain(receive)
            raise too_large
        if not message.get("more_body", False):
            return b"".join(chunks)


async def _drain(receive: Receive) -> None:
    """Throw away what the client still sends, up to a limit: an answer before its end would reset the connection."""
    most = _DRAINED_BYTES
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_DRAIN_SECONDS):
            while most > 0:
                message = await receive()
                most -= len(message.get("body", b""))
                if not message.get("more_body", False):
                    return


_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_ALL_BUT_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")
_ONE_KIND = bytes.maketrans(b"{}", b"[]")


def _check(raw: bytes, depth: int, most: int | None) -> None:
    """Refuse a body that nests too deep or has too many values, in a time that has a bound, whatever it is made of."""
    if _openings(raw) <= depth and (most is None or raw.count(b",") <= most):
        return
    # A value has two texts at most: its name, and itself.
    bare, texts = _STRING.subn(b"", raw, 0 if most is None else 2 * most + 1)
    if most is not None and (texts > 2 * most or bare.count(b",") > most or _openings(bare) > most):
        raise TooLarge(f"Request is too large: at most {most} values are read.")
    brackets = bare.translate(_ONE_KIND, _ALL_BUT_BRACKETS)
    if 2 * _openings(bare) != len(brackets):
        raise Invalid(MALFORMED)
    # The innermost pairs are removed, level by level.
    for _ in range(depth):
        inner = brackets.replace(b"[]", b"")
        if len(inner) == len(brackets):
            break
        brackets = inner
    if brackets:
        raise Invalid(MALFORMED)


def _openings(raw: bytes) -> int:
    return raw.count(b"[") + raw.count(b"{")


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
        return not _UNSTORABLE.search(value)
    if isinstance(value, dict):
        return all(_storable(key) and _storable(item) for key, item in value.items())
    return all(_storable(item) for item in value) if isinstance(value, list) else True
