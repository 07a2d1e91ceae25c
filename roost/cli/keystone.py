"""Roost in the catalogue of a Keystone."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from roost.config import Settings
from roost.errors import Conflict, Invalid, Unavailable

NAME = "roost"
PATHS = {"clustering": "/clustering", "compute": "/compute/v2.1"}
"""What can be registered, and where it is below Roost's own address."""

INTERFACES = ("public", "internal", "admin")
_WAS = "roost_was"
"""The attribute of an endpoint that says where it led before Roost took its place."""


def register(
    settings: Settings, cloud: str | None, url: str | None, types: list[str], interfaces: list[str] | None
) -> int:
    """Make the services and endpoints that are missing, and correct those that lead elsewhere."""
    _check_types(types)
    address = (url or settings.public_url or "").rstrip("/")
    if not address.startswith(("http://", "https://")):
        raise Invalid(
            "Say where clients reach Roost, as http://... or https://...: set [api] public_url, or give --url."
        )
    with _identity(settings, cloud) as identity:
        for kind in types:
            # Neutron and Cinder call Nova by its internal endpoint: Roost takes its place only if it is asked to.
            wanted = interfaces or (["public"] if kind == "compute" else list(INTERFACES))
            _register(identity, kind, address + PATHS[kind], settings.region, wanted)
    return 0


def unregister(settings: Settings, cloud: str | None, types: list[str]) -> int:
    """Give endpoints back that belonged to others, and remove Roost's own."""
    _check_types(types)
    with _identity(settings, cloud) as identity:
        for kind in types:
            _unregister(identity, kind, settings.region)
    return 0


def _check_types(types: list[str]) -> None:
    if unknown := [kind for kind in types if kind not in PATHS]:
        raise Invalid(f"'{unknown[0]}' cannot be registered: use {' or '.join(PATHS)}.")


@contextmanager
def _identity(settings: Settings, cloud: str | None) -> Iterator[Any]:
    try:
        import openstack
        from keystoneauth1 import exceptions as keystone
        from openstack import exceptions
    except ImportError:
        raise Unavailable("openstacksdk is not installed: pip install 'roost[client]'") from None
    try:
        yield openstack.connect(cloud=cloud or settings.clusters.os_cloud).identity
    except exceptions.ForbiddenException as error:
        raise Invalid("Keystone lets only administrators change its catalogue: name one with --cloud.") from error
    except (exceptions.SDKException, keystone.ClientException) as error:
        raise Unavailable(f"Keystone cannot be asked: {error}") from error


def _register(identity: Any, kind: str, url: str, region: str, interfaces: list[str]) -> None:
    service = _service(identity, kind)
    there = {endpoint["interface"]: endpoint for endpoint in _endpoints(identity, service.id, region)}
    for interface in interfaces:
        endpoint = there.get(interface)
        if endpoint is None:
            identity.create_endpoint(service_id=service.id, interface=interface, url=url, region_id=region)
            did = "made"
        elif endpoint["url"] != url:
            did = f"changed, was {endpoint['url']}"
            # Roost's own former address is nothing to go back to.
            _change(identity, endpoint, {"url": url, _WAS: endpoint.get(_WAS) or endpoint["url"]})
        else:
            did = "there already"
        print(f"endpoint {kind} {interface} in {region}, {url}: {did}")


def _unregister(identity: Any, kind: str, region: str) -> None:
    for service in identity.services(type=kind):
        for endpoint in _endpoints(identity, service.id, region):
            where = f"endpoint {kind} {endpoint['interface']} in {region}, {endpoint['url']}"
            if service.name == NAME:
                identity.delete_endpoint(endpoint["id"])
                print(f"{where}: removed")
            elif was := endpoint.get(_WAS):
                _change(identity, endpoint, {"url": was, _WAS: None})
                print(f"{where}: given back to {was}")
        if service.name == NAME and not list(identity.endpoints(service_id=service.id)):
            identity.delete_service(service.id)
            print(f"service {kind}, called {NAME}: removed")


def _endpoints(identity: Any, service_id: str, region: str) -> list[dict[str, Any]]:
    """The endpoints of a service in a region, with all their attributes: the SDK knows only the usual ones."""
    answer = identity.get("/endpoints", params={"service_id": service_id})
    _accepted(answer)
    return [row for row in answer.json()["endpoints"] if row["region_id"] == region]


def _change(identity: Any, endpoint: dict[str, Any], values: dict[str, Any]) -> None:
    _accepted(identity.patch(f"/endpoints/{endpoint['id']}", json={"endpoint": values}))


def _accepted(answer: Any) -> None:
    from openstack import exceptions

    exceptions.raise_from_response(answer)


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
