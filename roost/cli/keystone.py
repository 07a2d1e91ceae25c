"""Roost in the catalogue of a Keystone."""

from typing import Any

from roost.config import Settings
from roost.errors import Conflict, Invalid, Unavailable

NAME = "roost"
PATHS = {"clustering": "/clustering", "compute": "/compute/v2.1"}
"""What can be registered, and where it is below Roost's own address."""

_INTERFACES = ("public", "internal", "admin")


def register(settings: Settings, cloud: str | None, url: str | None, types: list[str]) -> int:
    """Make the services and endpoints that are missing, and correct those that lead elsewhere."""
    if unknown := [kind for kind in types if kind not in PATHS]:
        raise Invalid(f"'{unknown[0]}' cannot be registered: use {' or '.join(PATHS)}.")
    address = (url or settings.public_url or "").rstrip("/")
    if not address.startswith(("http://", "https://")):
        raise Invalid(
            "Say where clients reach Roost, as http://... or https://...: set [api] public_url, or give --url."
        )
    try:
        import openstack
        from keystoneauth1 import exceptions as keystone
        from openstack import exceptions
    except ImportError:
        raise Unavailable("openstacksdk is not installed: pip install 'roost[client]'") from None
    try:
        identity = openstack.connect(cloud=cloud or settings.clusters.os_cloud).identity
        for kind in types:
            _register(identity, kind, address + PATHS[kind], settings.region)
    except exceptions.ForbiddenException as error:
        raise Invalid("Keystone lets only administrators change its catalogue: name one with --cloud.") from error
    except (exceptions.SDKException, keystone.ClientException) as error:
        raise Unavailable(f"Keystone cannot be asked: {error}") from error
    return 0


def _register(identity: Any, kind: str, url: str, region: str) -> None:
    service = _service(identity, kind)
    there = {
        endpoint.interface: endpoint
        for endpoint in identity.endpoints(service_id=service.id)
        if endpoint.region_id == region
    }
    for interface in _INTERFACES:
        endpoint = there.get(interface)
        if endpoint is None:
            identity.create_endpoint(service_id=service.id, interface=interface, url=url, region_id=region)
            did = "made"
        elif endpoint.url != url:
            did = f"changed, was {endpoint.url}"
            identity.update_endpoint(endpoint, url=url)
        else:
            did = "there already"
        print(f"endpoint {kind} {interface} in {region}, {url}: {did}")


def _service(identity: Any, kind: str) -> Any:
    there = list(identity.services(type=kind))
    own = next((service for service in there if service.name == NAME), None)
    if kind == "compute" and own is None and len(there) == 1:
        # One who asks for this puts Roost in front of Nova: Nova's own service stays, and leads to Roost.
        own = there[0]
    if own is None and there:
        raise Conflict(
            f"The catalogue has a service of type '{kind}' already, called '{there[0].name}': clients would not know "
            "which of the two to use."
        )
    print(f"service {kind}, called {own.name if own else NAME}: {'there already' if own else 'made'}")
    return own or identity.create_service(type=kind, name=NAME, description="Decides where servers live.")
