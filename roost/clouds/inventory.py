"""The hosts of a real OpenStack as the placement core sees them, read live: what is up from Nova, what is free from
Placement, zones and scopes from aggregates."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from openstack import exceptions

from roost.placement.fleet import Fleet, Resources
from roost.placement.rules import AVAILABILITY_ZONE

POLICY_SCOPE = "policy_scope"
"""The key of an aggregate's metadata that says which scope it belongs to."""
DEFAULT_ZONE = "nova"

_CLASSES = ("VCPU", "MEMORY_MB", "DISK_GB")
_CANDIDATES_VERSION = "1.29"
_PLENTY = 1 << 40
"""What a host has of a resource that is counted elsewhere, such as disk on shared storage."""


@dataclass(frozen=True, slots=True)
class Inventory:
    """All hosts, with what they have free for servers of one flavor."""

    fleet: Fleet
    needs: Resources


def read(connection: Any, flavor_id: str, *, volume_backed: bool = False) -> Inventory | None:
    """The hosts as they are now; None where the cloud does not let this user see them, or has no Placement or no such
    flavor."""
    flavor = connection.compute.find_flavor(flavor_id) if connection.has_service("placement") else None
    if flavor is None:
        return None
    needs, query = _demand(flavor, volume_backed)
    try:
        hypervisors = list(connection.compute.hypervisors(details=True))
        zones, scopes = _aggregates(connection.compute.aggregates())
        answer = connection.placement.get("/allocation_candidates", params=query, microversion=_CANDIDATES_VERSION)
        exceptions.raise_from_response(answer)
    except exceptions.ForbiddenException:
        return None
    rooms = answer.json()["provider_summaries"]
    fleet = Fleet()
    for hypervisor in hypervisors:
        host = (hypervisor.service_details or {}).get("host") or hypervisor.name
        total, free = room(rooms.get(hypervisor.id))
        fleet.add_host(
            host,
            total,
            free=free,
            enabled=hypervisor.state == "up" and hypervisor.status == "enabled",
            aggregates={**scopes.get(host, {}), AVAILABILITY_ZONE: zones.get(host, DEFAULT_ZONE)},
        )
    return Inventory(fleet, Resources(*(needs.get(name, 0) for name in _CLASSES)))


def _demand(flavor: Any, volume_backed: bool) -> tuple[dict[str, int], dict[str, str]]:
    """What a server takes of each resource, and the question to Placement that asks for it, as Nova would."""
    disk = (0 if volume_backed else flavor.disk or 0) + (flavor.ephemeral or 0) + -(-(flavor.swap or 0) // 1024)
    needs = {"VCPU": flavor.vcpus, "MEMORY_MB": flavor.ram, "DISK_GB": disk}
    required = ["!COMPUTE_STATUS_DISABLED"]
    for key, value in (flavor.extra_specs or {}).items():
        kind, _, name = key.partition(":")
        if kind == "resources" and value.isdigit():
            needs[name] = int(value)
        elif kind == "trait":
            required.append(f"!{name}" if value == "forbidden" else name)
    resources = ",".join(f"{name}:{amount}" for name, amount in needs.items() if amount)
    return needs, {"resources": resources, "required": ",".join(required)}


def _aggregates(aggregates: Any) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """The zone of each host, and its aggregate in each scope that it is in; two of one scope count as none."""
    zones: dict[str, str] = {}
    found: dict[str, dict[str, set[str]]] = {}
    for aggregate in aggregates:
        scope = (aggregate.metadata or {}).get(POLICY_SCOPE)
        for host in aggregate.hosts or ():
            if aggregate.availability_zone:
                zones[host] = aggregate.availability_zone
            if scope:
                found.setdefault(host, {}).setdefault(scope, set()).add(str(aggregate.id))
    scopes = {
        host: {scope: next(iter(ids)) for scope, ids in belongs.items() if len(ids) == 1}
        for host, belongs in found.items()
    }
    return zones, scopes


def room(summary: Mapping[str, Any] | None) -> tuple[Resources, Resources]:
    """What a host has in all, and what is free; a host that Placement did not offer has nothing free."""
    if summary is None:
        return Resources(), Resources()
    found = summary["resources"]
    total = [found[name]["capacity"] if name in found else _PLENTY for name in _CLASSES]
    used = [found[name]["used"] if name in found else 0 for name in _CLASSES]
    return Resources(*total), Resources(*(whole - taken for whole, taken in zip(total, used, strict=True)))
