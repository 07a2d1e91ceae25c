"""Topologies: which hosts the embedded cloud has, and the zones, racks and switches that they stand in.

A topology is a preset (`small`, `large`) or a YAML file:

    generate: {zones: 3, racks_per_zone: 4, hosts_per_rack: 4, racks_per_switch: 2,
               host: {vcpus: 64, memory_mb: 262144, disk_gb: 2000}}
    hosts:
      - {name: spare1, zone: zone1, scopes: {rack: zone1-rack1}, vcpus: 16, memory_mb: 65536, disk_gb: 500}
    simulation: {boot_seconds: 0.5, failure_rate: 0.01}

A zone becomes an aggregate with that availability zone. Every kind of scope becomes a policy scope, and every rack or
switch in it an aggregate of that scope.
"""

import ipaddress
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import sqlalchemy as sa
import yaml
from jsonschema import Draft202012Validator
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.compute.inventory.changes import host_changed
from roost.errors import Invalid
from roost.store.tables.compute import aggregate_hosts, aggregates, hosts, scopes, topologies
from roost.suggestions import explained

DEFAULT = "small"
MOST_HOSTS = 1_000_000

_BUILT_IN = frozenset({"host", "zone", "availability_zone"})
_FAST = {"boot_seconds": 0.0, "failure_rate": 0.0}

_HOST = {"vcpus": 64, "memory_mb": 262_144, "disk_gb": 2_000}
_PRESETS: dict[str, dict[str, Any]] = {
    "small": {"generate": {"zones": 3, "racks_per_zone": 4, "hosts_per_rack": 4, "racks_per_switch": 2}},
    "large": {"generate": {"zones": 10, "racks_per_zone": 25, "hosts_per_rack": 40, "racks_per_switch": 5}},
}

_COUNT = {"type": "integer", "minimum": 1, "maximum": MOST_HOSTS}
_AMOUNT = {"type": "integer", "minimum": 1, "maximum": 2**31 - 1}
_CAPACITY = dict.fromkeys(_HOST, _AMOUNT)
_PLACE = {"type": "string", "pattern": r"^[^:\s](|[^:]{0,253}[^:\s])$"}
_SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "generate": {
            "type": "object",
            "additionalProperties": False,
            "required": ["zones", "racks_per_zone", "hosts_per_rack"],
            "properties": {
                "zones": _COUNT,
                "racks_per_zone": _COUNT,
                "hosts_per_rack": _COUNT,
                "racks_per_switch": _COUNT,
                "host": {"type": "object", "additionalProperties": False, "properties": _CAPACITY},
            },
        },
        "hosts": {
            "type": "array",
            "maxItems": MOST_HOSTS,
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["name"],
                "properties": {
                    "name": {"type": "string", "pattern": r"^[a-zA-Z0-9-._]{1,255}$"},
                    "zone": _PLACE,
                    "scopes": {"type": "object", "propertyNames": _PLACE, "additionalProperties": _PLACE},
                    **_CAPACITY,
                },
            },
        },
        "simulation": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "boot_seconds": {"type": "number", "minimum": 0},
                "failure_rate": {"type": "number", "minimum": 0, "maximum": 1},
            },
        },
    },
}


@dataclass(frozen=True, slots=True)
class TopologyHost:
    """One host to be: its zone may be empty, and its scopes say where it stands in each (`{"rack": "r1"}`)."""

    name: str
    zone: str
    scopes: Mapping[str, str]
    vcpus: int
    memory_mb: int
    disk_gb: int


@dataclass(frozen=True, slots=True)
class Topology:
    """All hosts to be, and how long their servers take to boot and how often they fail to."""

    name: str
    hosts: tuple[TopologyHost, ...]
    simulation: Mapping[str, float]


def identify(name: str) -> str:
    """What a topology is called from now on: a preset by its name, a file by its full path."""
    return name if name in _PRESETS else str(Path(name).resolve())


def read(name: str) -> Topology:
    """Read a preset or a file."""
    content = _PRESETS.get(name) or _content(Path(name))
    error = min(Draft202012Validator(_SCHEMA).iter_errors(content), key=lambda found: len(found.path), default=None)
    if error is not None:
        raise Invalid(f"The topology {name} cannot be used: {_key(error.absolute_path)}{explained(error)}.")
    generated = content.get("generate")
    if generated and generated["zones"] * generated["racks_per_zone"] * generated["hosts_per_rack"] > MOST_HOSTS:
        raise Invalid(f"The topology {name} cannot be used: generate: more than {MOST_HOSTS} hosts.")
    listed = [_listed(host) for host in content.get("hosts", ())]
    behaviour = {**_FAST, **content.get("simulation", {})}
    topology = Topology(identify(name), (*_generated(generated), *listed), behaviour)
    _check(name, topology)
    return topology


def _content(path: Path) -> Any:
    try:
        content = yaml.safe_load(path.read_text())
    except OSError:
        known = " or ".join(_PRESETS)
        raise Invalid(f"There is no topology {path}: name a preset ({known}) or a file that can be read.") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())
        raise Invalid(f"The topology {path} cannot be used: it is not YAML: {reason}.") from None
    return content


def _key(path: Iterable[str | int]) -> str:
    """`hosts[3].vcpus: `, or nothing for the file as a whole."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return f"{text.lstrip('.')}: " if text else ""


def _generated(plan: Mapping[str, Any] | None) -> Iterator[TopologyHost]:
    if plan is None:
        return
    capacity = {**_HOST, **plan.get("host", {})}
    racks_per_switch = plan.get("racks_per_switch", plan["racks_per_zone"])
    for zone in (f"zone{number}" for number in range(1, plan["zones"] + 1)):
        for rack in range(plan["racks_per_zone"]):
            places = {"rack": f"{zone}-rack{rack + 1}", "switch": f"{zone}-switch{rack // racks_per_switch + 1}"}
            for number in range(1, plan["hosts_per_rack"] + 1):
                yield TopologyHost(f"{places['rack']}-host{number}", zone, places, **capacity)


def _listed(host: Mapping[str, Any]) -> TopologyHost:
    capacity = {name: host.get(name, usual) for name, usual in _HOST.items()}
    return TopologyHost(host["name"], host.get("zone", ""), host.get("scopes", {}), **capacity)


def _check(name: str, topology: Topology) -> None:
    """What a schema cannot say: names are unique, among hosts and among aggregates."""
    if not topology.hosts:
        raise Invalid(f"The topology {name} cannot be used: it has no hosts; give it a key 'generate' or 'hosts'.")
    names: set[str] = set()
    kinds: dict[str, str] = {}
    for host in topology.hosts:
        wrong = None
        if host.name in names:
            wrong = f"there are two hosts named '{host.name}'"
        for kind in _BUILT_IN & host.scopes.keys():
            wrong = f"the scope '{kind}' is built in; the zone of a host is its key 'zone'"
        for kind, place in _places(host):
            if kinds.setdefault(place, kind) != kind:
                wrong = f"'{place}' is both a {kinds[place]} and a {kind}"
        if wrong is not None:
            raise Invalid(f"The topology {name} cannot be used: hosts: {wrong}.")
        names.add(host.name)


def _places(host: TopologyHost) -> Iterator[tuple[str, str]]:
    """Where a host stands: its zone, and its place in each scope."""
    if host.zone:
        yield "zone", host.zone
    yield from host.scopes.items()


async def stored(connection: AsyncConnection) -> str | None:
    """The name of the topology that the inventory was made from; None if there is no inventory yet."""
    name: str | None = await connection.scalar(sa.select(topologies.c.name))
    return name


async def simulation(connection: AsyncConnection) -> Mapping[str, float]:
    """How the simulated hosts behave: `boot_seconds` and `failure_rate`."""
    found: Mapping[str, float] | None = await connection.scalar(sa.select(topologies.c.simulation))
    return found or _FAST


async def load(connection: AsyncConnection, topology: Topology, tell: Callable[[str], None] = lambda _: None) -> bool:
    """Make the inventory, unless there is one already; says whether it did. `tell` hears what is being made."""
    claim = insert(topologies).values(name=topology.name, simulation=dict(topology.simulation))
    if await connection.scalar(claim.on_conflict_do_nothing().returning(topologies.c.id)) is None:
        return False
    for what, load_some in (
        (f"{len(topology.hosts):,} hosts", _load_hosts),
        ("scopes", _load_scopes),
        ("aggregates", _load_aggregates),
        ("the hosts of aggregates", _load_memberships),
    ):
        tell(what)
        await load_some(connection, topology.hosts)
    return True


async def _load_hosts(connection: AsyncConnection, wanted: Sequence[TopologyHost]) -> None:
    first = ipaddress.IPv4Address("10.0.0.1")
    rows = (
        (host.name, str(first + number), host.zone, host.vcpus, host.memory_mb, host.disk_gb)
        for number, host in enumerate(wanted)
    )
    await _copy(connection, hosts, ("name", "address", "availability_zone", "vcpus", "memory_mb", "disk_gb"), rows)
    await host_changed(connection, (await connection.scalars(sa.select(hosts.c.id))).all())


async def _load_scopes(connection: AsyncConnection, wanted: Sequence[TopologyHost]) -> None:
    names = dict.fromkeys(scope for host in wanted for scope in host.scopes)
    await _copy(connection, scopes, ("name",), ((name,) for name in names))


async def _load_aggregates(connection: AsyncConnection, wanted: Sequence[TopologyHost]) -> None:
    scope_ids = await _ids(connection, scopes)
    zones = dict.fromkeys(host.zone for host in wanted if host.zone)
    places = dict.fromkeys((place, scope) for host in wanted for scope, place in host.scopes.items())
    rows = [(zone, zone, 0) for zone in zones] + [(place, "", scope_ids[scope]) for place, scope in places]
    await _copy(connection, aggregates, ("name", "availability_zone", "scope_id"), rows)


async def _load_memberships(connection: AsyncConnection, wanted: Sequence[TopologyHost]) -> None:
    scope_ids, host_ids, aggregate_ids = [await _ids(connection, table) for table in (scopes, hosts, aggregates)]
    rows = [(aggregate_ids[host.zone], host_ids[host.name], host.zone, 0) for host in wanted if host.zone]
    rows += [
        (aggregate_ids[place], host_ids[host.name], "", scope_ids[scope])
        for host in wanted
        for scope, place in host.scopes.items()
    ]
    await _copy(connection, aggregate_hosts, ("aggregate_id", "host_id", "availability_zone", "scope_id"), rows)


async def _ids(connection: AsyncConnection, table: sa.Table) -> dict[str, int]:
    rows = (await connection.execute(sa.select(table.c.name, table.c.id))).all()
    return {row.name: row.id for row in rows}


async def _copy(
    connection: AsyncConnection, table: sa.Table, columns: Sequence[str], rows: Iterable[tuple[Any, ...]]
) -> None:
    """COPY, since a statement a row would take minutes for a large fleet."""
    driver = (await connection.get_raw_connection()).driver_connection
    assert isinstance(driver, psycopg.AsyncConnection)
    async with driver.cursor().copy(f"COPY {table.name} ({', '.join(columns)}) FROM STDIN") as copy:
        for row in rows:
            await copy.write_row(row)
