"""What is not Roost's own in front of a Nova: the request goes on to Nova, and Nova's answer comes back.

Three things are changed on the way. A version that Nova does not have is asked for in Nova's newest. Nova's answer
keeps Nova's request id, and Nova is sent Roost's. Links in the answer lead to Roost, since clients may not be able to
reach Nova.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.responses import Response

from roost.api.versions import COMPUTE, Version
from roost.clouds.front import Front
from roost.errors import RoostError
from roost.store.database import is_unavailable

logger = logging.getLogger(__name__)

_REQUEST_ID = "x-openstack-request-id"
_FORWARDED = (
    *("accept", "content-type", "x-auth-token", "x-service-token", _REQUEST_ID),
    *("openstack-api-version", "x-openstack-nova-api-version"),
)
_RETURNED = (
    *("content-type", "location", "retry-after", "www-authenticate", _REQUEST_ID, "x-compute-request-id"),
    *("openstack-api-version", "x-openstack-nova-api-version"),
)
_INVENTORY = ("os-aggregates", "os-services", "os-hypervisors")
EVENTS = "os-server-external-events"
"""The events that Neutron and Cinder send to Nova: servers that are being made wait for them."""


@dataclass(frozen=True, slots=True)
class Relayed:
    """A request that is Nova's."""

    method: str
    path: str
    query: str
    headers: Headers
    body: bytes
    request_id: str
    """Roost's own, under which its log has the request."""
    base: str
    """Where clients reach the compute API of Roost."""


async def relay(front: Front, asked: Relayed) -> Response:
    """Ask Nova. A change of its hosts or aggregates is answered once Roost knows it too, or could not read it."""
    sent = {name: asked.headers[name] for name in _FORWARDED if name in asked.headers}
    sent.setdefault(_REQUEST_ID, asked.request_id)
    whole = f"{asked.path}?{asked.query}" if asked.query else asked.path
    spoken = await _spoken_by_nova(front, sent, asked.headers)
    words = asked.path.split("/")
    answer = await front.nova.relay(asked.method, whole, spoken, asked.body or None, urgent=EVENTS in words)
    if asked.method != "GET" and answer.status < 400 and any(word in words for word in _INVENTORY):
        await _read_inventory(front)
    returned = {name: answer.headers[name] for name in _RETURNED if name in answer.headers}
    root = await front.nova.root()
    if "location" in returned:
        returned["location"] = returned["location"].replace(root, asked.base, 1)
    body = answer.body
    if "json" in returned.get("content-type", ""):
        body = body.replace(f'"{root}/'.encode(), f'"{asked.base}/'.encode())
    return Response(body, answer.status, returned)


async def _read_inventory(front: Front) -> None:
    """Read a change at once. Nova has made it already: where reading fails, the client must not be told that the change
    failed, and the next round reads it."""
    try:
        await front.follow_inventory()
    except Exception as error:
        if not isinstance(error, RoostError) and not is_unavailable(error):
            raise
        logger.warning("a change of Nova's hosts or aggregates could not be read: %s", error)


async def _spoken_by_nova(front: Front, sent: Mapping[str, str], headers: Headers) -> dict[str, str]:
    """The same headers in a version that Nova has: its newest for those that only Roost has."""
    asked = COMPUTE.asked(headers)
    if asked is None:
        return dict(sent)
    if asked != "latest":
        version = Version.parse(asked)
        if not COMPUTE.serves(version) or version <= Version.parse(await front.nova.newest_version()):
            return dict(sent)
    named = {"openstack-api-version": "compute latest", "x-openstack-nova-api-version": "latest"}
    return {**sent, **{name: value for name, value in named.items() if name in sent}}
