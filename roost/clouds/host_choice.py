"""Which host of a real OpenStack each new server should go to: the placement core over live inventory."""

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from roost.clouds import inventory
from roost.clouds.base import ServerRequest
from roost.clouds.inventory import Demand, Inventory
from roost.compute.scheduling import records
from roost.placement import scheduler
from roost.placement.decision import Decision, Request
from roost.placement.fleet import Members
from roost.placement.rules import Limit, Rule


@dataclass(frozen=True, slots=True)
class ChosenHost:
    """Where a server is to be made."""

    host: str


@dataclass(frozen=True, slots=True)
class _Kind:
    """What servers must share to be placed in one decision."""

    zone: str | None
    group: str | None
    avoided: frozenset[str]


def place(
    connection: Any,
    requests: Sequence[ServerRequest],
    avoided: Mapping[str, Collection[str]],
    rules: Mapping[str, Sequence[Rule]],
    project_id: str,
) -> dict[str, ChosenHost | str]:
    """The host of each server, or why there is none, by node id; `rules` are those of the groups that are Roost's own.
    Servers that ask for what does not exist are left out: Nova refuses them."""
    demands: dict[Demand, list[ServerRequest]] = {}
    for request in requests:
        demands.setdefault(demand(request), []).append(request)
    groups: dict[str, tuple[Sequence[Rule], Sequence[str]]] = {}
    places: dict[str, ChosenHost | str] = {}
    for wanted, alike in demands.items():
        seen = inventory.read(connection, wanted, project_id)
        for group in {request.server_group for request in alike if request.server_group} - groups.keys():
            if (found := connection.compute.find_server_group(group)) is not None:
                groups[group] = _rules(found, rules), _hosts(connection, found)
        known = [request for request in alike if not request.server_group or request.server_group in groups]
        if seen is not None:
            places |= _places(seen, known, groups, avoided)
    return places


def names_a_host(request: ServerRequest) -> bool:
    """Whether an administrator has chosen the host, in the form zone:host."""
    return ":" in (request.availability_zone or "")


def is_known(request: ServerRequest) -> bool:
    """Whether Roost knows of everything that this request asks of a host; only Nova's filters know what hints mean."""
    return set(request.scheduler_hints) <= {"group"}


def demand(request: ServerRequest) -> Demand:
    """What a server asks of its host, wherever that is."""
    volume_backed = any(
        device.get("boot_index") == 0 and device.get("destination_type") == "volume" for device in request.block_devices
    )
    return Demand(request.flavor, request.image, volume_backed)


def _rules(group: Any, known: Mapping[str, Sequence[Rule]]) -> Sequence[Rule]:
    """The rules of a group: Roost's, or the one that Nova has."""
    limits = {limit: value for limit, value in (group.rules or {}).items() if limit in set(Limit)}
    return known.get(group.id) or [Rule.parse(group.policy, limits)]


def _hosts(connection: Any, group: Any) -> list[str]:
    """The hosts of a group's members."""
    ids = set(group.member_ids or ())
    servers = connection.compute.servers(details=True) if ids else ()
    return [server.compute_host for server in servers if server.id in ids and server.compute_host]


def _places(
    seen: Inventory,
    requests: Sequence[ServerRequest],
    groups: Mapping[str, tuple[Sequence[Rule], Sequence[str]]],
    avoided: Mapping[str, Collection[str]],
) -> dict[str, ChosenHost | str]:
    """One decision for all that are alike, each knowing what the ones before it took."""
    fleet = seen.fleet
    kinds: dict[_Kind, list[str]] = {}
    for request in requests:
        kind = _Kind(request.availability_zone, request.server_group, frozenset(avoided.get(request.node_id, ())))
        kinds.setdefault(kind, []).append(request.node_id)
    members = {
        group: Members(index for host in hosts if (index := fleet.index(host)) is not None)
        for group, (_, hosts) in groups.items()
    }
    places: dict[str, ChosenHost | str] = {}
    for kind, node_ids in kinds.items():
        wanted = Request(
            resources=seen.needs,
            count=len(node_ids),
            rules=tuple(groups[kind.group][0]) if kind.group else (),
            members=members[kind.group] if kind.group else Members(),
            zone=kind.zone,
            excluded=[index for host in kind.avoided if (index := fleet.index(host)) is not None],
            seed=random.getrandbits(20),
        )
        for node_id, answer in zip(node_ids, _decide(seen, wanted), strict=True):
            places[node_id] = answer
    return places


def _decide(seen: Inventory, request: Request) -> list[ChosenHost | str]:
    """All of them together if that can be, else as many as there is place for; on hosts that Nova probably refuses only
    where there is no other."""
    likely = replace(request, excluded=[*request.excluded, *seen.unlikely])
    decision = scheduler.place(seen.fleet, likely)
    if not decision and not scheduler.place(seen.fleet, replace(likely, count=1)):
        decision = scheduler.place(seen.fleet, request)
    if decision:
        return _taken(seen, decision)
    answers: list[ChosenHost | str] = []
    for left in range(request.count, 0, -1):
        decision = scheduler.place(seen.fleet, replace(likely, count=1)) or scheduler.place(
            seen.fleet, replace(request, count=1)
        )
        if not decision:
            reason = f"No valid host was found. {records.sentence(decision)}"
            return answers + [reason] * left
        answers += _taken(seen, decision)
    return answers


def _taken(seen: Inventory, decision: Decision) -> list[ChosenHost | str]:
    """The hosts of a decision, with what it takes noted for the next one."""
    for host, partition in decision.placed():
        seen.fleet.claim(host, seen.needs)
        decision.request.members.add(host, partition=partition)
    return [ChosenHost(seen.fleet.name(host)) for host in decision.hosts]
