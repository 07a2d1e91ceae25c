"""How long the work on each kind of request may take, here and in the database.

When it has taken so long, the task that works on it is cancelled, and with it the statement that PostgreSQL runs for
it. That needs no `SET statement_timeout`, and so no round trip.
"""

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType


class RouteKind(Enum):
    """What a request asks for."""

    PROBE = "probe"
    """Something that is public: health, versions, documents, the dashboard's files."""
    READ = "read"
    """One thing."""
    LIST = "list"
    """Many things."""
    WRITE = "write"
    """A change."""
    ANSWER = "answer"
    """Something that has to be worked out."""
    CLOUD = "cloud"
    """What a cloud may have to be asked for."""
    UPLOAD = "upload"
    """A file, as fast as the client sends it."""


SHARES: Mapping[RouteKind, float] = MappingProxyType(
    {RouteKind.PROBE: 0.25, RouteKind.READ: 0.25, RouteKind.LIST: 0.5}
    | dict.fromkeys((RouteKind.WRITE, RouteKind.ANSWER, RouteKind.CLOUD, RouteKind.UPLOAD), 1.0)
)
"""The part of `[api] request_seconds` that there is for the work itself; waiting for a turn does not count."""


def usual(method: str, path: str, *, public: bool, expensive: bool, streamed: bool) -> RouteKind:
    """What a route asks for as long as it does not say so itself."""
    if expensive:
        return RouteKind.ANSWER
    if streamed:
        return RouteKind.UPLOAD
    if method != "GET":
        return RouteKind.WRITE
    if public:
        return RouteKind.PROBE
    return RouteKind.READ if path.endswith("}") else RouteKind.LIST
