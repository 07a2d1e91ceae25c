"""`roost top`: the same truth as the page, at any size, with keys."""

import os
import pty
import re
import select
import subprocess
import sys
import time
from typing import Any
from urllib.parse import parse_qs, urlsplit

import openstack
import pytest
from rich.console import Console

from roost.cli.top import HELP, VIEWS, Picture, Screen, ViewLevel, ViewRows, draw, look, read
from tests.conftest import Served

TROUBLE = {
    **{"kind": "server_failed", "name": "db-1", "since": None, "sentence": "No valid host was found."},
    "subject": {"kind": "servers", "id": "s1"},
}
SIZE = {"vcpus": [1, 2], "memory_mb": [1, 8]}
HOST = {"name": "h1", "enabled": True, "servers": [{}, {}], **SIZE}
ROWS: dict[str, list[dict[str, Any]]] = {
    "groups": [
        {
            **{"id": "g1", "name": "db", "members": 3, "broken": 1, "failed": 0, "project": "demo"},
            "rules": "Never two in one rack",
        }
    ],
    "hosts": [{"id": 1, "name": "h1", "state": "down", "zone": "z1", "servers": 2, "load": 0.5}],
    "servers": [{"id": "s1", "name": "db-1", "status": "ERROR", "project": "demo", "fault": "No room."}],
}
EXPLANATION = {"sentence": "No host can take it.", "refused": [], "help": [{"sentence": "Add a rack."}]}


class Cloud:
    """Answers as the API does, and remembers the questions."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, path: str) -> Any:
        self.asked.append(path)
        if path.startswith("/os-lists/"):
            kind = urlsplit(path).path.rpartition("/")[2]
            return {"list": {"rows": ROWS[kind], "total": 5_000}}
        if path.startswith("/os-fleet"):
            return {"fleet": {"aggregates": [place("r1", hosts=[HOST])]}}
        return {"explanation": EXPLANATION}


def place(name: str, load: float = 0.1, **more: Any) -> dict[str, Any]:
    base = {"id": name, "name": name, "zone": "z1", "host_count": 4, "disabled": 0, "servers": 2, "violations": 0}
    return {**base, "load": load, **more}


def picture(**more: Any) -> Picture:
    found: dict[str, Any] = {"troubles": {"total": 1, "items": [TROUBLE]}, "places": [place("r1"), place("r2", 0.9)]}
    return Picture("rack", **{**found, "groups": 1, **more})


def at(view: str, **more: Any) -> Screen:
    return Screen((ViewLevel(view),), **more)


def printed(screen: Screen, width: int = 100, height: int = 24, shown: Picture | None = None) -> str:
    shown = shown or picture()
    console = Console(width=width, height=height, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    console.print(draw(shown, read(Cloud(), shown, screen), screen, width, height))
    return console.export_text()


def test_one_of_a_thing_is_not_several() -> None:
    assert picture().headline == "1 zone, 8 hosts, 4 servers, 1 group — 1 thing wrong"
    assert picture(troubles={"total": 0, "items": []}).headline.endswith("nothing is wrong")


@pytest.mark.parametrize(
    ("view", "word"), list(zip(VIEWS, ("No valid host", "r2", "Never two", "down", "No room."), strict=True))
)
def test_every_view_shows_its_rows(view: str, word: str) -> None:
    assert word in printed(at(view), width=120)


@pytest.mark.parametrize(("width", "height"), [(20, 5), (40, 10), (300, 100)])
def test_any_terminal_is_large_enough(width: int, height: int) -> None:
    many = picture(places=[place(f"r{number}") for number in range(500)])
    for view in VIEWS:
        lines = printed(at(view), width, height, many).rstrip().splitlines()
        assert len(lines) <= height
        assert max(len(line.rstrip()) for line in lines) <= width


def test_what_does_not_fit_is_counted_and_can_be_reached() -> None:
    many = picture(places=[place(f"r{number:03}", servers=number) for number in range(100)])
    screen = at("places", sort=1, descends=False)
    assert "81 more below" in printed(screen, shown=many)
    for _ in range(5):
        screen = screen.typed("\x1b[6~", read(Cloud(), many, screen))
    assert "r099" in printed(screen, shown=many)
    assert "4,981 more below" in printed(at("hosts"))


def test_keys_search_sort_change_the_view_and_quit() -> None:
    nothing = ViewRows(())
    screen = Screen()
    for key in "2/r2\r":
        screen = screen.typed(key, nothing)
    assert (screen.level.view, screen.query, screen.typing) == ("places", "r2", False)
    assert [row.cells[1] for row in read(Cloud(), picture(), screen).rows] == ["r2"]
    screen = at("places").typed("s", nothing)
    assert [row.cells[1] for row in read(Cloud(), picture(), screen).rows] == ["r2", "r1"]
    assert [row.cells[1] for row in read(Cloud(), picture(), screen.typed("r", nothing)).rows] == ["r1", "r2"]
    assert screen.typed("\t", nothing).level.view == "groups"
    assert screen.typed("?", nothing).help
    assert screen.typed("q", nothing).ended
    assert not screen.typed("/", nothing).typed("q", nothing).ended
    assert screen.typed("\r", nothing) == screen
    assert screen.typed("\x7f", nothing) == screen


def test_the_api_searches_and_sorts_all_that_there_is() -> None:
    cloud = Cloud()
    read(cloud, picture(), at("hosts", query="h 1", sort=1))
    read(cloud, picture(), at("servers", at=250))
    hosts, servers = (parse_qs(urlsplit(path).query) for path in cloud.asked)
    assert hosts == {"sort": ["name:desc"], "limit": ["100"], "q": ["h 1"]}
    assert servers == {"sort": ["name:asc"], "limit": ["350"]}


@pytest.mark.parametrize(
    ("view", "trail"),
    [
        ("places", ["hosts", "servers", "why"]),
        ("groups", ["servers", "why"]),
        ("hosts", ["servers", "why"]),
        ("wrong", ["why"]),
    ],
)
def test_enter_leads_into_a_row_and_backspace_out_of_it(view: str, trail: list[str]) -> None:
    cloud, screen = Cloud(), at(view)
    for expected in trail:
        screen = screen.typed("\r", read(cloud, picture(), screen))
        assert screen.level.view == expected
    assert "It would help: Add a rack." in printed(screen)
    for _ in trail:
        screen = screen.typed("\x7f", ViewRows(()))
    assert screen == at(view)


def test_a_tenant_is_not_shown_hosts() -> None:
    assert "Only operators see hosts." in printed(at("hosts"), shown=picture(all=False))


def environment(served: Served) -> dict[str, str]:
    return {**os.environ, "OS_CLIENT_CONFIG_FILE": str(served.clouds), "COLUMNS": "140", "TERM": "xterm"}


def test_a_real_cloud_is_shown_once(served: Served) -> None:
    command = [sys.executable, "-m", "roost", "top", "--once"]
    done = subprocess.run(command, env=environment(served), capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "3 zones, 48 hosts" in done.stdout


def test_every_question_is_one_that_the_api_answers(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(served.clouds))
    client = openstack.connect(cloud="roost-admin").compute

    def ask(path: str) -> Any:
        answer = client.get(path, microversion="2.1003")
        assert answer.status_code == 200, answer.text
        return answer.json()

    cloud = look(ask, "rack")
    for view in VIEWS:
        for sort in range(8):
            read(ask, cloud, at(view, sort=sort, query="1"))
    into = at("places").typed("\r", read(ask, cloud, at("places")))
    assert len(read(ask, cloud, into).rows) == 4


def test_keys_work_in_a_terminal(served: Served) -> None:
    """Hosts, the one searched for, into it, and out of it all."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "roost", "top", "--interval", "1"]
    process = subprocess.Popen(command, env=environment(served), stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    try:
        await_text(ours, "48 hosts")
        for keys, text in (("4", "more below"), ("/zone2-rack3-host2\r", "zone2-rack3-host2"), ("?", HELP[:30])):
            os.write(ours, keys.encode())
            await_text(ours, text)
        os.write(ours, b"\r")
        await_text(ours, "> host zone2-rack3-host2")
        os.write(ours, b"q")
        assert process.wait(30) == 0
    finally:
        process.kill()
        os.close(ours)


def await_text(terminal: int, text: str) -> None:
    """Read what is drawn until this is in it."""
    drawn, end = "", time.monotonic() + 60
    while text not in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", drawn):
        assert time.monotonic() < end, drawn
        if select.select([terminal], [], [], 1)[0]:
            drawn += os.read(terminal, 65536).decode(errors="ignore")
