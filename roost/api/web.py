"""The dashboard's files: one page, its modules and its style, served as they are in `roost/web`."""

import asyncio
import gzip
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from roost.api.routes import Call, Reply, Table
from roost.errors import NotFound

routes = Table()

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
# The page takes nothing from anywhere else, and nothing that is written into it can run.
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    # Kept, and asked for again: an upgrade is seen at once, and an unchanged file costs no bytes.
    "Cache-Control": "no-cache",
}


@dataclass(frozen=True, slots=True)
class _File:
    content: bytes
    kind: str
    tag: str


@cache
def _files() -> dict[str, _File]:
    found = {}
    for entry in resources.files("roost").joinpath("web").iterdir():
        kind = _TYPES.get("." + entry.name.rpartition(".")[2])
        if kind is not None:
            content = entry.read_bytes()
            found[entry.name] = _File(content, kind, f'"{hashlib.sha256(content).hexdigest()[:32]}"')
    return found


def page(call: Call) -> Response:
    """The one page."""
    response = _answer(call, _files()["index.html"])
    response.headers["Vary"] = "Accept"
    return response


@routes.get("/web/{name}", public=True)
async def show(call: Call) -> Reply:
    """A file of the dashboard."""
    file = _files().get(call.path["name"])
    if file is None:
        raise NotFound("The resource could not be found.")
    return _answer(call, file)


def _answer(call: Call, file: _File) -> Response:
    headers = {**_HEADERS, "ETag": file.tag}
    if file.kind == _TYPES[".svg"]:
        # Browsers would ask for the icon again at every page.
        headers["Cache-Control"] = "max-age=3600"
    if file.tag in (call.headers.get("if-none-match") or ""):
        return Response(status_code=304, headers=headers)
    return Response(file.content, media_type=file.kind, headers=headers)


_WORTH_IT = 1024


class PiecewiseResponse(Response):
    """A long JSON document, which is sent piece by piece: to put it together would take as long as many requests."""

    def __init__(self, pieces: Sequence[bytes], status: int) -> None:
        self.pieces = pieces
        length = {"content-length": str(sum(map(len, pieces)))}
        super().__init__(None, status, length, media_type="application/json")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it as fast as the client reads."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        for piece in self.pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def compressed(headers: Headers, response: Response) -> Response:
    """The answer, compressed if the dashboard asks: programs on a fast network are served faster without."""
    asked = headers.get("sec-fetch-site") in ("same-origin", "none") and "gzip" in headers.get("accept-encoding", "")
    if not asked or "content-encoding" in response.headers:
        return response
    pieces = response.pieces if isinstance(response, PiecewiseResponse) else [getattr(response, "body", b"")]
    if sum(map(len, pieces)) <= _WORTH_IT:
        return response
    body = await asyncio.to_thread(_gzip, pieces)
    smaller = Response(body, response.status_code, {**response.headers, "content-length": str(len(body))})
    smaller.headers["Content-Encoding"] = "gzip"
    smaller.headers.add_vary_header("Accept-Encoding")
    return smaller


def _gzip(pieces: Sequence[bytes]) -> bytes:
    return gzip.compress(b"".join(pieces), compresslevel=1, mtime=0)


def wants_page(call: Call) -> bool:
    """Whether the caller is a browser; all others get the document."""
    return "text/html" in call.headers.get("accept", "")
