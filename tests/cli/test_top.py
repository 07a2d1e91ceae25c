"""The live view: what is drawn of a cloud, and that a served one can be looked at."""

import os
import subprocess
import sys

from rich.console import Console

from roost.cli.top import GroupLine, HostRow, Picture, draw
from tests.conftest import Served

FULL = HostRow("h1", 1.0, 9, True)
EMPTY = HostRow("h2", 0.0, 0, True)
DOWN = HostRow("h3", 0.5, 4, False)
PICTURE = Picture(
    "rack",
    {"zone1": {"r1": [FULL, EMPTY], "r2": [DOWN]}},
    [GroupLine("db", "affinity:rack", 3, ("2 members are apart",)), GroupLine("web", "anti-affinity", 5)],
)


def drawn(picture: Picture) -> str:
    console = Console(width=100, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    console.print(draw(picture))
    return console.export_text()


def test_a_host_is_a_glyph_of_how_full_it_is() -> None:
    assert [host.glyph for host in (FULL, EMPTY, DOWN, HostRow("h", 0.5, 3, True))] == ["█", "·", "✗", "▅"]
    assert [host.colour for host in (FULL, EMPTY, DOWN)] == ["yellow", "green", "red"]


def test_everything_is_counted_in_one_line() -> None:
    assert PICTURE.headline == "1 zones, 3 hosts, 13 servers, 2 groups, 1 hosts down, 1 groups broken"


def test_zones_racks_hosts_and_groups_are_drawn() -> None:
    lines = [line.split() for line in drawn(PICTURE).splitlines()]
    assert ["zone1", "r1", "█", "·", "9"] in lines
    assert ["r2", "✗", "4"] in lines
    assert ["db", "affinity:rack", "3", "2", "members", "are", "apart"] in lines


def test_a_served_cloud_can_be_looked_at(served: Served) -> None:
    environment = {**os.environ, "OS_CLIENT_CONFIG_FILE": str(served.clouds)}
    command = [sys.executable, "-m", "roost", "top", "--once"]
    shown = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert "3 zones, 48 hosts" in shown
    assert "zone1-rack1" in shown
