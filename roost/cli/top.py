"""`roost top`: what is wrong, and zones, racks and groups, live in the terminal; read through the API."""

import contextlib
import os
import select
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from roost.errors import Unavailable
from roost.placement.phrases import counted

_VERSION = "2.1003"
_PAGE = 1000
_NEARLY_FULL = 0.8
_BLOCKS = "▁▂▃▄▅▆▇█"
HELP = "q quit  ? help  / search  tab or 1-4 view  s sort  r reverse  ↑↓ move"
VIEWS = ("wrong", "places", "groups", "hosts")


@dataclass(frozen=True, slots=True)
class Picture:
    """The cloud at one moment."""

    scope: str
    troubles: Mapping[str, Any]
    places: Sequence[Mapping[str, Any]]
    groups: Sequence[Mapping[str, Any]] = ()
    group_count: int = 0
    hosts: Sequence[Mapping[str, Any]] = ()

    @property
    def headline(self) -> str:
        """All of it in one line."""
        zones = {each["zone"] for each in self.places}
        hosts, servers = (sum(each.get(name) or 0 for each in self.places) for name in ("host_count", "servers"))
        off = sum(each.get("disabled") or 0 for each in self.places)
        counts = [counted(len(zones), "zone"), counted(hosts, "host"), counted(servers, "server")]
        counts += [counted(self.group_count, "group"), *([f"{off:,} disabled or down"] if off else [])]
        wrong = self.troubles["total"]
        return ", ".join(counts) + (f" — {counted(wrong, 'thing')} wrong" if wrong else " — nothing is wrong")


@dataclass(frozen=True, slots=True)
class Screen:
    """What the keys have chosen."""

    view: str = "wrong"
    query: str = ""
    typing: bool = False
    sort: int = 0
    descends: bool = True
    first: int = 0
    help: bool = False
    ended: bool = False

    def typed(self, key: str) -> "Screen":
        """What a key changes."""
        if self.typing:
            if key in ("\r", "\n", "\x1b"):
                return replace(self, typing=False, query="" if key == "\x1b" else self.query)
            query = self.query[:-1] if key in ("\x7f", "\b") else self.query + key
            return replace(self, query=query if query.isprintable() else self.query, first=0)
        if key in "1234":
            return replace(self, view=VIEWS[int(key) - 1], first=0, sort=0)
        if key == "\t":
            return replace(self, view=VIEWS[(VIEWS.index(self.view) + 1) % len(VIEWS)], first=0, sort=0)
        changes: Mapping[str, dict[str, Any]] = {
            "q": {"ended": True},
            "?": {"help": not self.help},
            "/": {"typing": True, "query": ""},
            "s": {"sort": self.sort + 1},
            "r": {"descends": not self.descends},
            "\x1b[A": {"first": max(0, self.first - 1)},
            "\x1b[B": {"first": self.first + 1},
        }
        return replace(self, **changes.get(key, {}))


@dataclass(slots=True)
class Rows:
    """The rows of a view, before they are cut to the terminal."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]] = field(default_factory=list)


def look(client: Any, scope: str, query: str = "") -> Picture:
    """Ask the API for everything that the views show: a few requests, however large the cloud is."""

    def ask(path: str) -> Any:
        answer = client.get(path, microversion=_VERSION)
        if answer.status_code >= 400:
            raise Unavailable(f"Roost answered {answer.status_code} to {path}.")
        return answer.json()

    fleet = ask(f"/os-fleet?scope={scope}")["fleet"]
    groups = ask(f"/os-lists/groups?limit={_PAGE}&sort=members:desc&q={query}")["list"]
    hosts = ask(f"/os-lists/hosts?limit={_PAGE}&sort=load:desc&q={query}")["list"]["rows"] if fleet["all"] else []
    return Picture(scope, ask("/os-troubles")["troubles"], fleet["aggregates"], groups["rows"], groups["total"], hosts)


def rows_of(picture: Picture, screen: Screen) -> Rows:
    """The rows of the view that is chosen, searched and sorted."""
    if screen.view == "wrong":
        found = Rows(("kind", "name", "since", "what"))
        found.rows = [(e["kind"], e["name"], e["since"] or "", e["sentence"]) for e in picture.troubles["items"]]
    elif screen.view == "places":
        found = Rows(("load", picture.scope, "zone", "hosts", "off", "servers", "broken"))
        found.rows = [
            (
                e.get("load") or 0.0,
                e["name"] or e["id"],
                e["zone"],
                e.get("host_count") or 0,
                e.get("disabled") or 0,
                e["servers"],
                e["violations"],
            )
            for e in picture.places
        ]
    elif screen.view == "groups":
        found = Rows(("broken", "failed", "group", "members", "project", "rules"))
        found.rows = [
            (e["broken"], e["failed"], e["name"], e["members"], e["project"], e["rules"]) for e in picture.groups
        ]
    else:
        found = Rows(("load", "host", "state", "zone", "servers"))
        found.rows = [(e["load"], e["name"], e["state"], e["zone"], e["servers"]) for e in picture.hosts]
    if screen.query:
        asked = screen.query.lower()
        found.rows = [row for row in found.rows if any(asked in str(cell).lower() for cell in row)]
    if screen.view != "wrong" or screen.sort:
        key = screen.sort % len(found.columns)
        found.rows.sort(key=lambda row: row[key], reverse=screen.descends)
    return found


def draw(picture: Picture, screen: Screen, width: int, height: int) -> Any:
    """The screen, cut to the terminal; what does not fit is counted."""
    from rich.table import Table
    from rich.text import Text

    found = rows_of(picture, screen)
    room = max(1, height - 5)
    first = min(screen.first, max(0, len(found.rows) - room))
    table = Table(box=None, pad_edge=False, expand=True, show_edge=False)
    sorted_by = screen.sort % len(found.columns) if screen.view != "wrong" or screen.sort else -1
    for index, name in enumerate(found.columns):
        arrow = ("↓" if screen.descends else "↑") if index == sorted_by else ""
        table.add_column(name + arrow, no_wrap=True, overflow="ellipsis")
    for row in found.rows[first : first + room]:
        table.add_row(*(_cell(name, value) for name, value in zip(found.columns, row, strict=True)))
    left = len(found.rows) - first - room
    views = "  ".join(f"[{each}]" if each == screen.view else each for each in VIEWS)
    foot = f"{views}   / {screen.query}{'_' if screen.typing else ''}" + (f"   {left:,} more below" if left > 0 else "")
    bad = bool(picture.troubles["total"])
    lines = Table.grid(expand=True)
    lines.add_row(Text(picture.headline[: width - 1], style="bold red" if bad else "bold green"))
    lines.add_row(table if found.rows else Text("nothing to show"))
    lines.add_row(Text(foot[: width - 1], style="dim"))
    lines.add_row(Text(HELP[: width - 1] if screen.help else "? help"[: width - 1], style="dim"))
    return lines


def _cell(name: str, value: Any) -> Any:
    from rich.text import Text

    if name == "load":
        block = _BLOCKS[min(7, int(value * 8))]
        return Text(f"{block} {value:4.0%}", style="yellow" if value > _NEARLY_FULL else "green")
    bad = (name in ("broken", "failed", "off") and value) or value == "down" or name == "kind"
    return Text(str(value), style="red" if bad else "")


@contextlib.contextmanager
def _keys() -> Iterator[Any]:
    """Read single keys; `wait(seconds)` gives the next one, or none."""
    if not sys.stdin.isatty():

        def sleep(seconds: float) -> str:
            time.sleep(seconds)
            return ""

        yield sleep
        return
    import termios
    import tty

    stdin = sys.stdin.fileno()
    before = termios.tcgetattr(stdin)

    def wait(seconds: float) -> str:
        if not select.select([stdin], [], [], seconds)[0]:
            return ""
        return os.read(stdin, 8).decode(errors="ignore")

    try:
        tty.setcbreak(stdin)
        yield wait
    finally:
        termios.tcsetattr(stdin, termios.TCSADRAIN, before)


def run(cloud: str, scope: str, seconds: float, *, once: bool) -> int:
    """Show the cloud until `q` is pressed, or once."""
    try:
        import openstack
        from rich.console import Console
        from rich.live import Live
    except ImportError:
        raise Unavailable("`roost top` needs the client: pip install 'roost[client]'.") from None
    client = openstack.connect(cloud=cloud).compute
    picture, screen = look(client, scope), Screen()
    if once:
        console = Console()
        for view in VIEWS[:3]:
            console.print(draw(picture, Screen(view=view), console.width, 40))
        return 0
    with _keys() as wait, Live(screen=True, auto_refresh=False) as live:
        due = time.monotonic() + seconds
        while not screen.ended:
            size = shutil.get_terminal_size()
            live.update(draw(picture, screen, size.columns, size.lines), refresh=True)
            key = wait(max(0.0, due - time.monotonic()))
            if key:
                screen = screen.typed(key)
            if time.monotonic() >= due:
                picture, due = look(client, scope), time.monotonic() + seconds
    return 0
