"""Topologies: what a preset or a file makes, and what is said of a file that cannot be used."""

import time
from pathlib import Path

import pytest
import sqlalchemy as sa

from roost.cli import bootstrap
from roost.compute.inventory import topology
from roost.compute.inventory.topology import TopologyHost
from roost.config import Settings
from roost.errors import Conflict, Invalid
from roost.store.database import Database
from roost.store.tables.compute import aggregate_hosts, aggregates, fleet_changes, hosts, scopes, topologies
from tests.conftest import PASSWORDS


def written(folder: Path, text: str) -> str:
    """A topology file with this text in it."""
    path = folder / "topology.yaml"
    path.write_text(text)
    return str(path)


async def emptied(database: Database) -> None:
    """Take the small topology out again."""
    async with database.begin() as connection:
        for table in (aggregate_hosts, aggregates, scopes, hosts, topologies, fleet_changes):
            await connection.execute(table.delete())


async def loaded(database: Database, name: str) -> bool:
    """Load a topology into the emptied database."""
    await emptied(database)
    async with database.begin() as connection:
        return await topology.load(connection, topology.read(name))


def test_small_is_three_zones_of_four_racks_of_four_hosts() -> None:
    small = topology.read("small")
    assert len(small.hosts) == 48
    assert {host.zone for host in small.hosts} == {"zone1", "zone2", "zone3"}
    assert len({host.scopes["rack"] for host in small.hosts}) == 12
    assert len({host.scopes["switch"] for host in small.hosts}) == 6
    places = {"rack": "zone2-rack3", "switch": "zone2-switch2"}
    assert TopologyHost("zone2-rack3-host4", "zone2", places, 64, 262_144, 2_000) in small.hosts


def test_large_is_ten_thousand_hosts() -> None:
    assert len(topology.read("large").hosts) == 10_000


def test_a_file_generates_hosts_and_lists_more(tmp_path: Path) -> None:
    text = """
        generate: {zones: 1, racks_per_zone: 2, hosts_per_rack: 1, host: {vcpus: 8}}
        hosts:
          - {name: spare, zone: attic, scopes: {rack: r9, floor: top}, vcpus: 2, memory_mb: 512, disk_gb: 5}
          - {name: bare}
        simulation: {boot_seconds: 2}
    """
    read = topology.read(written(tmp_path, text))
    assert [host.name for host in read.hosts] == ["zone1-rack1-host1", "zone1-rack2-host1", "spare", "bare"]
    assert read.hosts[0] == TopologyHost(
        "zone1-rack1-host1", "zone1", {"rack": "zone1-rack1", "switch": "zone1-switch1"}, 8, 262_144, 2_000
    )
    assert read.hosts[2] == TopologyHost("spare", "attic", {"rack": "r9", "floor": "top"}, 2, 512, 5)
    assert read.hosts[3] == TopologyHost("bare", "", {}, 64, 262_144, 2_000)
    assert read.simulation == {"boot_seconds": 2, "failure_rate": 0.0}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "None is not of type 'object'"),
        ("{", "it is not YAML: while parsing"),
        ("zones: 3", "Additional properties are not allowed ('zones' was unexpected)"),
        ("{}", "it has no hosts; give it a key 'generate' or 'hosts'"),
        ("generate: {zones: 1, racks_per_zone: 1}", "generate: 'hosts_per_rack' is a required property"),
        (
            "generate: {zones: 0, racks_per_zone: 1, hosts_per_rack: 1}",
            "generate.zones: 0 is less than the minimum of 1",
        ),
        (
            "generate: {zones: yes, racks_per_zone: 1, hosts_per_rack: 1}",
            "generate.zones: True is not of type 'integer'",
        ),
        (
            "generate: {zones: 1000, racks_per_zone: 1000, hosts_per_rack: 1000}",
            "generate: more than 1000000 hosts",
        ),
        ("hosts: [{name: a}, {zone: z}]", "hosts[1]: 'name' is a required property"),
        ("hosts: [{name: a, vcpus: many}]", "hosts[0].vcpus: 'many' is not of type 'integer'"),
        ("hosts: [{name: 'a b'}]", "hosts[0].name: 'a b' does not match"),
        ("hosts: [{name: a, zone: 'z:1'}]", "hosts[0].zone: 'z:1' does not match"),
        ("hosts: [{name: a}, {name: a}]", "hosts: there are two hosts named 'a'"),
        ("hosts: [{name: a, scopes: {host: x}}]", "hosts: the scope 'host' is built in"),
        ("hosts: [{name: a, zone: x, scopes: {rack: x}}]", "hosts: 'x' is both a zone and a rack"),
        ("hosts: [{name: a}]\nsimulation: {failure_rate: 2}", "simulation.failure_rate: 2 is greater than"),
    ],
)
def test_a_malformed_file_is_refused_in_one_sentence_that_names_the_key(tmp_path: Path, text: str, reason: str) -> None:
    name = written(tmp_path, text)
    with pytest.raises(Invalid) as refused:
        topology.read(name)
    assert refused.value.message.startswith(f"The topology {name} cannot be used: {reason}")
    assert "\n" not in refused.value.message


def test_a_missing_file_is_refused_with_the_presets() -> None:
    with pytest.raises(Invalid, match=r"There is no topology nowhere\.yaml: name a preset \(small or large\)"):
        topology.read("nowhere.yaml")


async def test_zones_racks_and_switches_become_aggregates_and_scopes(database: Database) -> None:
    async with database.begin() as connection:
        found = (await connection.execute(sa.select(scopes.c.name, scopes.c.allow_identifiers))).all()
        assert sorted(found) == [("rack", False), ("switch", False)]
        query = (
            sa.select(aggregates.c.name, aggregates.c.availability_zone, scopes.c.name.label("scope"))
            .join_from(aggregate_hosts, aggregates, aggregates.c.id == aggregate_hosts.c.aggregate_id)
            .join(hosts, hosts.c.id == aggregate_hosts.c.host_id)
            .outerjoin(scopes, scopes.c.id == aggregates.c.scope)
            .where(hosts.c.name == "zone2-rack3-host4")
            .order_by(aggregates.c.name)
        )
        assert (await connection.execute(query)).all() == [
            ("zone2", "zone2", None),
            ("zone2-rack3", "", "rack"),
            ("zone2-switch2", "", "switch"),
        ]


async def test_the_large_topology_loads_in_seconds(database: Database) -> None:
    started = time.perf_counter()
    assert await loaded(database, "large")
    assert time.perf_counter() - started < 10
    async with database.begin() as connection:
        assert await connection.scalar(sa.select(sa.func.count()).select_from(hosts)) == 10_000
        assert await connection.scalar(sa.select(sa.func.count()).select_from(aggregate_hosts)) == 30_000
        (noted,) = await connection.scalars(sa.select(fleet_changes.c.host_ids))
        assert len(noted) == 10_000


async def test_an_inventory_that_is_there_is_left_as_it_is(database: Database, settings: Settings) -> None:
    async with database.begin() as connection:
        await connection.execute(aggregate_hosts.delete())
        await connection.execute(hosts.delete().where(hosts.c.name != "zone1-rack1-host1"))
        assert not await topology.load(connection, topology.read("large"))
    await bootstrap._fill(settings, PASSWORDS, None)
    await bootstrap._fill(settings, PASSWORDS, "small")
    with pytest.raises(Conflict, match=r"^The inventory was made from the topology small: start without --topology"):
        await bootstrap._fill(settings, PASSWORDS, "large")
    async with database.begin() as connection:
        assert await connection.scalar(sa.select(sa.func.count()).select_from(hosts)) == 1


async def test_the_simulation_is_kept_with_the_inventory(database: Database, tmp_path: Path) -> None:
    await loaded(database, written(tmp_path, "{hosts: [{name: a}], simulation: {boot_seconds: 0.5}}"))
    async with database.begin() as connection:
        assert await topology.simulation(connection) == {"boot_seconds": 0.5, "failure_rate": 0.0}
