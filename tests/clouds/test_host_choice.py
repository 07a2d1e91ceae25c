"""Clusters with scoped rules on a Nova that refuses hosts which Roost chose: the next host, and never a broken rule."""

import itertools
import re
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from openstack.compute.v2.server import Server

from roost.clouds.base import ServerOutcome, ServerRequest
from roost.clouds.openstack import OpenStackCloud
from roost.placement.rules import Rule

PROJECT, GROUP = "ours", "group"
HOSTS = [f"rack{rack}-host{number}" for rack in range(6) for number in range(2)]
APART = (Rule.parse("anti-affinity:rack"),)
TOGETHER = (Rule.parse("affinity:rack"),)

Passes = Callable[[str], bool]


def rack(host: str) -> str:
    return host.partition("-")[0]


class SimulatedNova:
    """A Nova and a Placement with 12 hosts in 6 racks. Nova's own filters let pass what `passes` does; a server that is
    asked for on another host ends in ERROR, as a real one does."""

    def __init__(self, passes: Passes = lambda host: True, specs: dict[str, str] | None = None) -> None:
        self.compute = self.placement = self.image = self.config = self
        self.passes = passes
        self.flavor = SimpleNamespace(id="f", vcpus=1, ram=64, disk=1, ephemeral=0, swap=0, extra_specs=specs or {})
        self.shown = SimpleNamespace(properties={}, hw_cpu_policy=None)
        self.tagged: list[SimpleNamespace] = []
        self.there: dict[str, Server] = {}
        self.asked: list[dict[str, str]] = []
        self.tried: list[str] = []
        self.placements: list[tuple[str, ...]] = []
        """Where the members were, after each change."""
        self.pcpus = True
        self._numbers = itertools.count()

    def aggregate(self, hosts: Iterable[str], **metadata: str) -> None:
        number = len(self.tagged) + 100
        self.tagged.append(SimpleNamespace(id=number, hosts=list(hosts), metadata=metadata, availability_zone=None))

    # What Roost asks

    def has_service(self, name: str) -> bool:
        return name == "placement"

    def get_region_name(self) -> None:
        return None

    def find_flavor(self, name: str) -> Any:
        return self.flavor

    def find_image(self, name: str) -> Any:
        return self.shown

    def find_server_group(self, name: str) -> Any:
        members = [server.id for server in self.there.values()]
        return SimpleNamespace(id=GROUP, policy="soft-anti-affinity", rules={}, member_ids=members)

    def hypervisors(self, details: bool) -> list[Any]:
        rows = [{"id": host, "name": host, "service_details": {"host": host}} for host in HOSTS]
        return [SimpleNamespace(**row, state="up", status="enabled") for row in rows]

    def aggregates(self) -> list[Any]:
        racks = [
            SimpleNamespace(
                id=number,
                hosts=[host for host in HOSTS if rack(host) == f"rack{number}"],
                metadata={"policy_scope": "rack"},
                availability_zone=None,
            )
            for number in range(6)
        ]
        return [*racks, *self.tagged]

    def get(self, path: str, params: dict[str, str], microversion: str) -> Any:
        self.asked.append(params)
        amounts = {"VCPU": 8, "MEMORY_MB": 4096, "DISK_GB": 100}
        resources = {name: {"capacity": amount, "used": 0} for name, amount in amounts.items()}
        refused = "PCPU" in params["resources"] and not self.pcpus
        offered = {host: {"resources": resources} for host in HOSTS if not refused}
        return SimpleNamespace(status_code=200, json=lambda: {"provider_summaries": offered})

    def servers(self, details: bool, any_tags: str = "") -> list[Server]:
        wanted = set(any_tags.split(",")) if any_tags else None
        return [server for server in self.there.values() if wanted is None or wanted & set(server.tags)]

    def create_server(self, **given: Any) -> None:
        host = given.get("host") or next(filter(self.passes, HOSTS), HOSTS[0])
        self.tried.append(host)
        made = {"id": f"s{next(self._numbers)}", "name": given["name"], "tags": given["tags"], "metadata": {}}
        if self.passes(host):
            made |= {"status": "ACTIVE", "compute_host": host}
        else:
            made |= {"status": "ERROR", "fault": {"message": "No valid host was found. "}}
        self.there[made["id"]] = Server(**made, created_at="2026-11-16T00:00:00Z")
        self.placements.append(self.homes())

    def delete_server(self, server_id: str, **_: Any) -> None:
        self.there.pop(server_id, None)

    def homes(self) -> tuple[str, ...]:
        return tuple(server.compute_host for server in self.there.values() if server.compute_host)


class Groups:
    """Roost's own rules of the group."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.known = tuple(rules)

    async def rules(self, group_ids: Iterable[str]) -> dict[str, tuple[Rule, ...]]:
        return dict.fromkeys(group_ids, self.known)


async def made(nova: SimulatedNova, count: int, rules: Sequence[Rule] = APART, **more: Any) -> list[ServerOutcome]:
    """Ask for servers of one cluster."""

    @asynccontextmanager
    async def turn(group: str) -> Any:
        yield

    with ThreadPoolExecutor(4) as threads:
        groups: Any = Groups(rules)
        cloud = OpenStackCloud(threads, lambda: nova, PROJECT, "user", turn, groups)
        wanted = [ServerRequest(f"n{number}", "s", "f", server_group=GROUP, **more) for number in range(count)]
        return await cloud.create_servers(wanted)


def gpu(host: str) -> bool:
    return host in ("rack0-host1", "rack2-host0", "rack3-host1", "rack5-host0")


def never_shared_a_rack(nova: SimulatedNova) -> bool:
    return all(len(set(map(rack, homes))) == len(homes) for homes in nova.placements)


@pytest.mark.parametrize("key", ["aggregate_instance_extra_specs:gpu", "gpu"])
async def test_a_flavor_that_is_bound_to_an_aggregate_goes_there_at_once(key: str) -> None:
    nova = SimulatedNova(gpu, {key: "yes"})
    nova.aggregate(filter(gpu, HOSTS), gpu="yes, maybe")
    outcomes = await made(nova, 4)
    assert [outcome.error for outcome in outcomes] == [None] * 4
    assert len(nova.tried) == 4
    assert never_shared_a_rack(nova)


async def test_hosts_that_are_other_projects_own_are_not_tried() -> None:
    nova = SimulatedNova(lambda host: rack(host) in ("rack1", "rack2"))
    nova.aggregate(
        [host for host in HOSTS if rack(host) == "rack1"], filter_tenant_id="another", filter_tenant_id2=PROJECT
    )
    nova.aggregate([host for host in HOSTS if rack(host) not in ("rack1", "rack2")], filter_tenant_id="another,third")
    outcomes = await made(nova, 2)
    assert [outcome.error for outcome in outcomes] == [None] * 2
    assert len(nova.tried) == 2


async def test_hosts_that_nova_refuses_are_left_for_the_next_ones() -> None:
    """What Roost cannot know, such as PCI devices: four hosts of twelve have one."""
    nova = SimulatedNova(gpu, {"pci_passthrough:alias": "gpu:1"})
    outcomes = await made(nova, 4)
    assert [outcome.error for outcome in outcomes] == [None] * 4
    assert sorted(nova.homes()) == sorted(filter(gpu, HOSTS))
    assert never_shared_a_rack(nova)
    assert len(nova.tried) <= len(HOSTS) + 4, "a host that was refused is not tried again for servers that are alike"


async def test_what_nova_refuses_everywhere_is_a_reason_and_leaves_nothing() -> None:
    nova = SimulatedNova(lambda host: False)
    outcomes = await made(nova, 2)
    assert nova.there == {}
    assert all(str(outcome.error).startswith("No valid host was found.") for outcome in outcomes)
    # The rule may leave the last hosts to one server alone: the other has its answer before these are tried.
    said = " ".join(str(outcome.error) for outcome in outcomes)
    assert max(map(int, re.findall(r"Nova refused (\d+) of them", said))) == 12


async def test_more_servers_than_the_rule_has_places_for() -> None:
    nova = SimulatedNova(gpu)
    outcomes = await made(nova, 6)
    assert sum(outcome.error is None for outcome in outcomes) == 4
    assert never_shared_a_rack(nova)
    assert len(nova.there) == 4


async def test_a_wrong_guess_costs_nothing() -> None:
    """The flavor names what no aggregate has, and Nova does not look at it."""
    nova = SimulatedNova(specs={"fancy": "yes"})
    outcomes = await made(nova, 6)
    assert [outcome.error for outcome in outcomes] == [None] * 6
    assert len(nova.tried) == 6


async def test_values_with_operators_are_left_to_nova() -> None:
    nova = SimulatedNova(gpu, {"aggregate_instance_extra_specs:gpus": "<in> 2"})
    outcomes = await made(nova, 2)
    assert [outcome.error for outcome in outcomes] == [None] * 2


async def test_affinity_stays_in_the_rack_that_it_began_in() -> None:
    nova = SimulatedNova(lambda host: rack(host) == "rack4")
    outcomes = await made(nova, 2, TOGETHER)
    assert all(len(set(map(rack, homes))) <= 1 for homes in nova.placements)
    assert {rack(host) for host in nova.homes()} == {"rack4"}
    assert [outcome.error for outcome in outcomes] == [None] * 2


@pytest.mark.parametrize("pcpus", [True, False])
async def test_dedicated_cpus_are_asked_for_as_nova_does(pcpus: bool) -> None:
    nova = SimulatedNova(specs={"hw:cpu_policy": "dedicated"})
    nova.pcpus = pcpus
    assert [outcome.error for outcome in await made(nova, 1)] == [None]
    dedicated, shared = "MEMORY_MB:64,DISK_GB:1,PCPU:1", "VCPU:1,MEMORY_MB:64,DISK_GB:1"
    assert [query["resources"] for query in nova.asked] == ([dedicated] if pcpus else [dedicated, shared])


async def test_traits_of_the_image_are_asked_for() -> None:
    nova = SimulatedNova(specs={"trait:FAST": "forbidden"})
    nova.shown.properties["trait:SECURE"] = "required"
    assert [outcome.error for outcome in await made(nova, 1, image="i")] == [None]
    assert nova.asked[0]["required"] == "!COMPUTE_STATUS_DISABLED,!FAST,SECURE"


@pytest.mark.parametrize(("rules", "judged"), [(APART, True), ((Rule.parse("anti-affinity"),), False)])
async def test_with_hints_nova_judges_the_hosts_of_roost_where_it_does_not_know_the_rules(
    rules: Sequence[Rule], judged: bool
) -> None:
    """Left to itself, this Nova puts every server on the first host that passes."""
    nova = SimulatedNova(gpu)
    outcomes = await made(nova, 2, rules, scheduler_hints={"group": GROUP, "different_host": "s"})
    assert [outcome.error for outcome in outcomes] == [None] * 2
    assert never_shared_a_rack(nova) is judged
