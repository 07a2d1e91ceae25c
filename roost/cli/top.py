"""`roost top`: zones, racks and hosts, and the groups in them, live in the terminal; read through the API."""

import itertools
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from roost.errors import Unavailable

_BLOCKS = "▁▂▃▄▅▆▇█"
_NEARLY_FULL = 0.8
_MOST_GROUPS = 15
_FREE_AMOUNTS = "2.87"
"""The last version in which hypervisors say how full they are."""


@dataclass(frozen=True, slots=True)
class HostRow:
    """A host as one glyph."""

    name: str
    fill: float
    servers: int
    up: bool

    @property
    def glyph(self) -> str:
        """How full it is, as the height of a block; a dot where it is empty, a cross where it takes no servers."""
        if not self.up:
            return "✗"
        return _BLOCKS[min(7, int(self.fill * 8))] if self.servers else "·"

    @property
    def colour(self) -> str:
        """Red where it takes no servers, yellow where it is nearly full."""
        return "red" if not self.up else "yellow" if self.fill > _NEARLY_FULL else "green"


@dataclass(frozen=True, slots=True)
class GroupLine:
    """A server group, and what is wrong with it."""

    name: str
    policies: str
    members: int
    broken: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Picture:
    """The cloud at one moment: for each zone, for each aggregate of the scope in it, its hosts."""

    scope: str
    zones: Mapping[str, Mapping[str, Sequence[HostRow]]] = field(default_factory=dict)
    groups: Sequence[GroupLine] = ()

    @property
    def headline(self) -> str:
        """All of it in one line."""
        hosts = [host for parts in self.zones.values() for inside in parts.values() for host in inside]
        servers, down = sum(host.servers for host in hosts), sum(not host.up for host in hosts)
        broken = sum(bool(group.broken) for group in self.groups)
        found = [f"{len(self.zones)} zones", f"{len(hosts)} hosts", f"{servers} servers", f"{len(self.groups)} groups"]
        found += [f"{down} hosts down"] if down else []
        found += [f"{broken} groups broken"] if broken else []
        return ", ".join(found)


def look(client: Any, scope: str) -> Picture:
    """Ask the API for everything that the picture shows."""
    hypervisors = client.get("/os-hypervisors/detail", microversion=_FREE_AMOUNTS).json()["hypervisors"]
    aggregates = client.get("/os-aggregates", microversion="2.1").json()["aggregates"]
    scopes = client.get("/os-policy-scopes", microversion="2.1003").json()["policy_scopes"]
    groups = client.get("/os-server-groups?all_projects=1", microversion="2.1003").json()["server_groups"]
    audit = client.get("/os-server-groups/audit", microversion="2.1003")
    inside = {each["aggregate_id"] for found in scopes if found["name"] == scope for each in found["aggregates"]}
    return Picture(scope, _zones(hypervisors, aggregates, inside), _groups(groups, audit.text))


def _zones(
    hypervisors: Sequence[Any], aggregates: Sequence[Any], inside: set[int]
) -> dict[str, dict[str, list[HostRow]]]:
    zone_of = {
        host: each["availability_zone"] for each in aggregates if each["availability_zone"] for host in each["hosts"]
    }
    part_of = {host: each["name"] for each in aggregates if each["id"] in inside for host in each["hosts"]}
    zones: dict[str, dict[str, list[HostRow]]] = {}
    for each in hypervisors:
        name = each["hypervisor_hostname"]
        fill = each["vcpus_used"] / each["vcpus"] if each["vcpus"] else 0.0
        up = each["state"] == "up" and each["status"] == "enabled"
        parts = zones.setdefault(zone_of.get(name, "nova"), {})
        parts.setdefault(part_of.get(name, "-"), []).append(HostRow(name, fill, each["running_vms"], up))
    return zones


def _groups(groups: Sequence[Any], audit: str) -> list[GroupLine]:
    broken = {}
    for line in filter(None, audit.splitlines()):
        found = json.loads(line)
        broken[found["server_group_id"]] = tuple(each["message"] for each in found["violations"])
    lines = [
        GroupLine(each["name"], _policies(each["policies"]), len(each["members"]), broken.get(each["id"], ()))
        for each in groups
    ]
    return sorted(lines, key=lambda line: (-len(line.broken), -line.members, line.name))


def _policies(policies: Sequence[Any]) -> str:
    return ", ".join(
        each["name"] if each["scope"] == "host" else f"{each['name']}:{each['scope']}" for each in policies
    )


def draw(picture: Picture) -> Any:
    """The picture, as rich can print it."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    room = Table(
        title=picture.headline, title_justify="left", title_style="bold", box=None, min_width=60, pad_edge=False
    )
    for column in ("zone", picture.scope, "hosts", "servers"):
        room.add_column(column, justify="right" if column == "servers" else "left")
    for zone, parts in picture.zones.items():
        names = itertools.chain([zone], itertools.repeat(""))
        for (part, hosts), name in zip(sorted(parts.items()), names, strict=False):
            glyphs = Text()
            for host in hosts:
                glyphs.append(
                    host.glyph + " ", style="red" if not host.up else "yellow" if host.fill > 0.8 else "green"
                )
            room.add_row(name, part, glyphs, str(sum(host.servers for host in hosts)))
    groups = Table(box=None, pad_edge=False)
    for column in ("group", "policies", "members", "broken"):
        groups.add_column(column, justify="right" if column == "members" else "left")
    for line in picture.groups[:_MOST_GROUPS]:
        groups.add_row(line.name, line.policies, str(line.members), Text("; ".join(line.broken), style="red"))
    return Group(room, Text(), groups)


def run(cloud: str, scope: str, seconds: float, *, once: bool) -> int:
    """Show the picture until interrupted, or once."""
    try:
        import openstack
        from rich.console import Console
        from rich.live import Live
    except ImportError:
        raise Unavailable("`roost top` needs the client: pip install 'roost[client]'.") from None
    client = openstack.connect(cloud=cloud).compute
    if once:
        Console().print(draw(look(client, scope)))
        return 0
    with Live(draw(look(client, scope)), screen=True, auto_refresh=False) as live:
        while True:
            time.sleep(seconds)
            live.update(draw(look(client, scope)), refresh=True)
