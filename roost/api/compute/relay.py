"""What is not Roost's own in front of a Nova: the request goes on to Nova as it is, and Nova's answer comes back."""

from collections.abc import Mapping

from starlette.datastructures import Headers
from starlette.responses import Response

from roost.api.versions import COMPUTE, Version
from roost.clouds.front import Front

_FORWARDED = (
    *("accept", "content-type", "x-auth-token", "x-service-token", "x-openstack-request-id"),
    *("openstack-api-version", "x-openstack-nova-api-version"),
)
_RETURNED = (
    *("content-type", "location", "retry-after", "www-authenticate"),
    *("openstack-api-version", "x-openstack-nova-api-version"),
)
_NOVAS_NEWEST = Version(2, 1000)
_INVENTORY = ("os-aggregates", "os-services", "os-hypervisors")


async def relay(front: Front, method: str, path: str, query: str, headers: Headers, body: bytes) -> Response:
    """Ask Nova. Whoever changes its hosts or aggregates is told so only when Roost knows it too."""
    sent = {name: headers[name] for name in _FORWARDED if name in headers}
    whole = f"{path}?{query}" if query else path
    answer = await front.nova.relay(method, whole, _spoken_by_nova(sent, headers), body or None)
    if method != "GET" and answer.status < 400 and any(word in path.split("/") for word in _INVENTORY):
        await front.follow_inventory()
    returned = {name: answer.headers[name] for name in _RETURNED if name in answer.headers}
    return Response(answer.body, answer.status, returned)


def _spoken_by_nova(sent: Mapping[str, str], headers: Headers) -> dict[str, str]:
    """The same headers in a version that Nova has: its newest for those that only Roost has."""
    asked = COMPUTE.asked(headers)
    if asked is None or not (asked == "latest" or Version.parse(asked) > _NOVAS_NEWEST):
        return dict(sent)
    named = {"openstack-api-version": "compute latest", "x-openstack-nova-api-version": "latest"}
    return {**sent, **{name: value for name, value in named.items() if name in sent}}
