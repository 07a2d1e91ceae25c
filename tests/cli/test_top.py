"""`roost top`: the same truth as the page, at any size, with keys."""

import os
import subprocess
import sys
from typing import Any

import pytest
from rich.console import Console

from roost.cli.top import VIEWS, Picture, Screen, draw, rows_of
from tests.conftest import Served

TROUBLE = {"kind": "server_failed", "name": "db-1", "since": None, "sentence": "No valid host was found."}


def place(name: str, load: float = 0.1, **more: Any) -> dict[str, Any]:
    base = {"id": name, "name": name, "zone": "z1", "host_count": 4, "disabled": 0, "servers": 2, "violations": 0}
    return {**base, "load": load, **more}


def picture(**more: Any) -> Picture:
    group = {"name": "db", "members": 3, "broken": 1, "failed": 0, "project": "demo", "rules": "Never two in one rack"}
    host = {"name": "h1", "state": "down", "zone": "z1", "servers": 2, "load": 0.5}
    found: dict[str, Any] = {"troubles": {"total": 1, "items": [TROUBLE]}, "places": [place("r1"), place("r2", 0.9)]}
    return Picture("rack", **{**found, "groups": [group], "group_count": 1, "hosts": [host], **more})


def printed(screen: Screen, width: int = 100, height: int = 24, shown: Picture | None = None) -> str:
    console = Console(width=width, height=height, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    console.print(draw(shown or picture(), screen, width, height))
    return console.export_text()


def test_one_of_a_thing_is_not_several() -> None:
    assert picture().headline == "1 zone, 8 hosts, 4 servers, 1 group — 1 thing wrong"
    assert picture(troubles={"total": 0, "items": []}).headline.endswith("nothing is wrong")


@pytest.mark.parametrize(("view", "word"), zip(VIEWS, ("No valid host", "r2", "Never two", "down"), strict=True))
def test_every_view_shows_its_rows(view: str, word: str) -> None:
    assert word in printed(Screen(view=view))


@pytest.mark.parametrize(("width", "height"), [(20, 5), (40, 10), (300, 100)])
def test_any_terminal_is_large_enough(width: int, height: int) -> None:
    many = picture(places=[place(f"r{number}") for number in range(500)])
    for view in VIEWS:
        lines = printed(Screen(view=view), width, height, many).rstrip().splitlines()
        assert len(lines) <= height
        assert max(len(line.rstrip()) for line in lines) <= width


def test_what_does_not_fit_is_counted_and_can_be_reached() -> None:
    many = picture(places=[place(f"r{number:03}", servers=number) for number in range(100)])
    screen = Screen(view="places", sort=1, descends=False)
    assert "81 more below" in printed(screen, shown=many)
    for _ in range(81):
        screen = screen.typed("\x1b[B")
    assert "r099" in printed(screen, shown=many)


def test_keys_search_sort_change_the_view_and_quit() -> None:
    screen = Screen()
    for key in "2/r2\r":
        screen = screen.typed(key)
    assert (screen.view, screen.query, screen.typing) == ("places", "r2", False)
    assert [row[1] for row in rows_of(picture(), screen).rows] == ["r2"]
    screen = Screen(view="places").typed("s")
    assert [row[1] for row in rows_of(picture(), screen).rows] == ["r2", "r1"]
    assert [row[1] for row in rows_of(picture(), screen.typed("r")).rows] == ["r1", "r2"]
    assert screen.typed("\t").view == "groups"
    assert screen.typed("?").help
    assert screen.typed("q").ended
    assert not screen.typed("/").typed("q").ended


def test_a_real_cloud_is_shown_once(served: Served) -> None:
    command = [sys.executable, "-m", "roost", "top", "--once"]
    environment = {**os.environ, "OS_CLIENT_CONFIG_FILE": str(served.clouds), "COLUMNS": "140"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "3 zones, 48 hosts" in done.stdout
