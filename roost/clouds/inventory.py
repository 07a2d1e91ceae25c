"""The hosts of a real OpenStack as the placement core sees them, read live: what is up from Nova, what is free from
Placement, zones and scopes from aggregates.

Nova's filters know more than this, and have the last word. What two usual ones would say is guessed from the metadata
of aggregates, so that the hosts that they let pass are tried first.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
_OF_AGGREGATES = "aggregate_instance_extra_specs:"
_TENANT = "filter_tenant_id"
_OPERATORS = ("<", "=", "!", ">", "s=", "s!", "s<", "s>")
"""How values begin that are more than the text to find."""
_PLENTY = 1 << 40
"""What a host has of a resource that is counted elsewhere, such as disk on shared storage."""


@dataclass(frozen=True, slots=True)
class Inventory:
    """All hosts, with what they have free for servers of one flavor."""

    fleet: Fleet
    needs: Resources
    unlikely: tuple[int, ...] = ()
    """Hosts that Nova will probably refuse."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What servers that are alike ask of a host."""

    flavor: str
    image: str | None = None
    volume_backed: bool = False


def read(connection: Any, demand: Demand, project_id: str) -> Inventory | None:
    """The hosts as they are now; None where the cloud does not let this user see them, or has no Placement or no such
    flavor."""
    flavor = connection.compute.find_flavor(demand.flavor) if connection.has_service("placement") else None
    if flavor is None:
        return None
    specs, image = flavor.extra_specs or {}, _image_properties(connection, demand.image)
    needs, required = _needs(flavor, demand.volume_backed), [*_traits(specs), *_traits(image)]
    try:
        hypervisors = list(connection.compute.hypervisors(details=True))
        aggregates = list(connection.compute.aggregates())
        rooms: Mapping[str, Any] = {}
        if "dedicated" in (specs.get("hw:cpu_policy"), image.get("hw_cpu_policy")):
            rooms = _candidates(connection, {**needs, "VCPU": 0, "PCPU": needs["VCPU"]}, required)
        if rooms:
            needs["VCPU"] = 0
        # Hosts that keep no CPUs apart give dedicated ones out of the others.
        rooms = rooms or _candidates(connection, needs, required)
    except exceptions.ForbiddenException:
        return None
    zones, scopes = _aggregates(aggregates)
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
    needed = Resources(*(needs.get(name, 0) for name in _CLASSES))
    return Inventory(fleet, needed, tuple(_refused(fleet, aggregates, specs, project_id)))


def _candidates(connection: Any, needs: Mapping[str, int], required: Sequence[str]) -> Mapping[str, Any]:
    """What Placement says of the hosts that have all of this free, as Nova would ask it."""
    resources = ",".join(f"{name}:{amount}" for name, amount in needs.items() if amount)
    query = {"resources": resources, "required": ",".join(["!COMPUTE_STATUS_DISABLED", *required])}
    answer = connection.placement.get("/allocation_candidates", params=query, microversion=_CANDIDATES_VERSION)
    exceptions.raise_from_response(answer)
    found: Mapping[str, Any] = answer.json()["provider_summaries"]
    return found


def _needs(flavor: Any, volume_backed: bool) -> dict[str, int]:
    """What a server takes of each resource."""
    disk = (0 if volume_backed else flavor.disk or 0) + (flavor.ephemeral or 0) + -(-(flavor.swap or 0) // 1024)
    needs = {"VCPU": flavor.vcpus, "MEMORY_MB": flavor.ram, "DISK_GB": disk}
    for key, value in (flavor.extra_specs or {}).items():
        kind, _, name = key.partition(":")
        if kind == "resources" and value.isdigit():
            needs[name] = int(value)
    return needs


def _traits(properties: Mapping[str, Any]) -> list[str]:
    """The traits that a flavor or an image asks for, or wants none of."""
    named = [(key.partition(":"), value) for key, value in properties.items()]
    return [f"!{name}" if value == "forbidden" else name for (kind, _, name), value in named if kind == "trait"]


def _image_properties(connection: Any, image_id: str | None) -> Mapping[str, Any]:
    image = connection.image.find_image(image_id) if image_id is not None else None
    return {} if image is None else {**(image.properties or {}), "hw_cpu_policy": image.hw_cpu_policy}


def _refused(fleet: Fleet, aggregates: Iterable[Any], specs: Mapping[str, str], project_id: str) -> Iterator[int]:
    """The hosts that AggregateInstanceExtraSpecsFilter or AggregateMultiTenancyIsolation would refuse."""
    wanted = {
        key.removeprefix(_OF_AGGREGATES): value
        for key, value in specs.items()
        if (key.startswith(_OF_AGGREGATES) or ":" not in key) and not value.startswith(_OPERATORS)
    }
    offered: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for aggregate in aggregates:
        for key, value in (aggregate.metadata or {}).items():
            # Several keys that begin alike make room for more projects than fit into one value.
            named = _TENANT if key.startswith(_TENANT) else key
            for host in aggregate.hosts or ():
                offered[host][named] |= {each.strip() for each in value.split(",")}
    for host in fleet.hosts():
        own = offered[fleet.name(host)]
        isolated = bool(own[_TENANT]) and project_id not in own[_TENANT]
        if isolated or any(value not in own[key] for key, value in wanted.items()):
            yield host


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
