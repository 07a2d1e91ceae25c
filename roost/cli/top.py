"""`roost top`: what is wrong, and zones, racks, groups, hosts and servers, live in the terminal; read through the API.

Lists are searched and sorted by the API, so what is not on the screen counts too. Enter leads from a row to what is in
it, or to why a server is where it is.
"""

import contextlib
import os
import re
import select
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from roost.errors import RoostError, Unavailable
from roost.placement.phrases import counted

_VERSION = "2.1003"
_PAGE, _MOST = 100, 1000
_NEARLY_FULL = 0.8
_BLOCKS = "▁▂▃▄▅▆▇█"
_TICK = 0.1
_KEY = re.compile(r"\x1b\[[0-9;]*[A-Za-z~]|\x1bO.|.", re.DOTALL)
HELP = "q quit  ? help  / search  tab or 1-5 view  s sort  r reverse  ↑↓ PgUp PgDn move  enter into  backspace out"
VIEWS = ("wrong", "places", "groups", "hosts", "servers")

Ask = Callable[[str], Any]


@dataclass(frozen=True, slots=True)
class ViewLevel:
    """What is looked at: a view, or what is in one row of another."""

    view: str
    title: str = ""
    about: tuple[tuple[str, str], ...] = ()
    """What the rows have in common, as the API is asked for it."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line, and where Enter leads from it."""

    cells: tuple[Any, ...]
    target: ViewLevel | None = None


@dataclass(frozen=True, slots=True)
class ViewRows:
    """The rows of a level as far as they were read, and how many there are."""

    columns: tuple[str, ...]
    rows: Sequence[Row] = ()
    total: int = 0
    order: tuple[str, str] = ("", "")
    """The column by which they are sorted, and an arrow that says how."""


@dataclass(frozen=True, slots=True)
class Screen:
    """What the keys have chosen."""

    levels: tuple[ViewLevel, ...] = (ViewLevel("wrong"),)
    query: str = ""
    typing: bool = False
    sort: int = 0
    descends: bool = True
    at: int = 0
    help: bool = False
    ended: bool = False

    @property
    def level(self) -> ViewLevel:
        """What is looked at."""
        return self.levels[-1]

    def typed(self, key: str, listing: ViewRows) -> "Screen":
        """What a key changes while this listing is shown."""
        if self.typing:
            return self._searched(key)
        if key.isdigit() and 1 <= int(key) <= len(VIEWS):
            return self._to(ViewLevel(VIEWS[int(key) - 1]))
        if key == "\t":
            return self._to(ViewLevel(VIEWS[(VIEWS.index(self.levels[0].view) + 1) % len(VIEWS)]))
        if key in ("\r", "\n"):
            target = listing.rows[self.at].target if self.at < len(listing.rows) else None
            return self if target is None else self._to(*self.levels, target)
        if key in ("\x7f", "\b", "\x1b", "\x1b[D"):
            return self._to(*self.levels[:-1]) if len(self.levels) > 1 else self
        steps = {"\x1b[A": -1, "\x1b[B": 1, "\x1b[5~": -20, "\x1b[6~": 20}
        if key in steps:
            return replace(self, at=max(0, min(len(listing.rows) - 1, self.at + steps[key])))
        changes: Mapping[str, dict[str, Any]] = {
            "q": {"ended": True},
            "?": {"help": not self.help},
            "/": {"typing": True, "query": "", "at": 0},
            "s": {"sort": self.sort + 1, "at": 0},
            "r": {"descends": not self.descends, "at": 0},
        }
        return replace(self, **changes.get(key, {}))

    def _searched(self, key: str) -> "Screen":
        if key in ("\r", "\n", "\x1b"):
            return replace(self, typing=False, query="" if key == "\x1b" else self.query)
        query = self.query[:-1] if key in ("\x7f", "\b") else self.query + key
        return replace(self, query=query if query.isprintable() else self.query, at=0)

    def _to(self, *levels: ViewLevel) -> "Screen":
        return replace(self, levels=levels, query="", sort=0, descends=True, at=0)


@dataclass(frozen=True, slots=True)
class Picture:
    """The cloud at one moment."""

    scope: str
    troubles: Mapping[str, Any]
    places: Sequence[Mapping[str, Any]]
    groups: int = 0
    all: bool = True

    @property
    def headline(self) -> str:
        """All of it in one line."""
        zones = {each["zone"] for each in self.places}
        hosts, servers = (sum(each.get(name) or 0 for each in self.places) for name in ("host_count", "servers"))
        off = sum(each.get("disabled") or 0 for each in self.places)
        counts = [counted(len(zones), "zone"), *([counted(hosts, "host")] if self.all else [])]
        counts += [counted(servers, "server"), counted(self.groups, "group")]
        counts += [f"{off:,} disabled or down"] if off else []
        wrong = self.troubles["total"]
        return ", ".join(counts) + (f" — {counted(wrong, 'thing')} wrong" if wrong else " — nothing is wrong")


def look(ask: Ask, scope: str) -> Picture:
    """The whole cloud: three requests, however large it is."""
    fleet = ask(f"/os-fleet?scope={scope}")["fleet"]
    groups = ask("/os-lists/groups?limit=1")["list"]["total"]
    return Picture(scope, ask("/os-troubles")["troubles"], fleet["aggregates"], groups, fleet["all"])


# What the rows of each view are

_LISTED: Mapping[str, Mapping[str, str]] = {
    "groups": {
        **{"members": "members", "failed": "failed", "broken": "broken", "group": "name"},
        **{"project": "project", "rules": "rules"},
    },
    "hosts": {"load": "load", "host": "name", "state": "state", "zone": "zone", "servers": "servers"},
    "servers": {
        **{"server": "name", "status": "status", "host": "host", "zone": "zone", "flavor": "flavor"},
        **{"group": "group", "project": "project", "fault": "fault"},
    },
}
"""The columns of the views that the API lists, and what the API calls them."""


def read(ask: Ask, picture: Picture, screen: Screen) -> ViewRows:
    """The rows of what is looked at, searched and sorted."""
    level = screen.level
    if level.view == "why":
        return _why(ask, dict(level.about)["id"])
    if level.view in _LISTED and "place" not in dict(level.about):
        return _listed(ask, picture, screen)
    columns, rows = _places_rows(ask, picture, level) if level.view != "wrong" else _wrong_rows(picture)
    if screen.query:
        asked = screen.query.lower()
        rows = [row for row in rows if any(asked in str(cell).lower() for cell in row.cells)]
    if level.view == "wrong" and not screen.sort:
        return ViewRows(columns, rows, len(rows))
    key = screen.sort % len(columns)
    rows = sorted(rows, key=lambda row: row.cells[key], reverse=screen.descends)
    return ViewRows(columns, rows, len(rows), (columns[key], "↓" if screen.descends else "↑"))


def _listed(ask: Ask, picture: Picture, screen: Screen) -> ViewRows:
    view, columns = screen.level.view, _LISTED[screen.level.view]
    if view == "hosts" and not picture.all:
        return ViewRows(("Only operators see hosts.",))
    sortable = [each for each in columns if each not in ("broken", "rules") and (each != "host" or picture.all)]
    column = sortable[screen.sort % len(sortable)]
    # Servers begin with the first name, all others with the most.
    descends = screen.descends == (view != "servers")
    order = f"{columns[column]}:{'desc' if descends else 'asc'}"
    limit = min(_MOST, screen.at + _PAGE)
    query = {"sort": order, "limit": limit, **({"q": screen.query} if screen.query else {}), **dict(screen.level.about)}
    found = ask(f"/os-lists/{view}?{urlencode(query)}")["list"]
    rows = [Row(tuple(row.get(name, "") for name in columns.values()), _into(view, row)) for row in found["rows"]]
    return ViewRows(tuple(columns), rows, found["total"], (column, "↓" if descends else "↑"))


def _into(view: str, row: Mapping[str, Any]) -> ViewLevel:
    """Where a row of a list leads."""
    if view == "servers":
        return ViewLevel("why", f"server {row['name']}", (("id", str(row["id"])),))
    own = ("group_id", str(row["id"])) if view == "groups" else ("host", str(row["name"]))
    return ViewLevel("servers", f"{view[:-1]} {row['name']}", (own,))


def _wrong_rows(picture: Picture) -> tuple[tuple[str, ...], list[Row]]:
    rows = []
    for each in picture.troubles["items"]:
        kind, target = (each.get("subject") or {}).get("kind"), None
        if kind in ("servers", "groups", "hosts"):
            target = _into(kind, {"id": each["subject"]["id"], "name": each["name"]})
        rows.append(Row((each["kind"], each["name"], each["since"] or "", each["sentence"]), target))
    return ("kind", "name", "since", "what"), rows


def _places_rows(ask: Ask, picture: Picture, level: ViewLevel) -> tuple[tuple[str, ...], list[Row]]:
    place = dict(level.about).get("place")
    if place is not None:
        return ("load", "host", "state", "zone", "servers"), _hosts_of(ask, picture.scope, place)
    rows = []
    for each in picture.places:
        name = each["name"] or each["id"]
        off, load = each.get("disabled") or 0, each.get("load") or 0.0
        cells = (load, name, each["zone"], each.get("host_count") or 0, off, each["servers"], each["violations"])
        target = ViewLevel("hosts", f"{picture.scope} {name}", (("place", each["id"]),)) if picture.all else None
        rows.append(Row(cells, target))
    return ("load", picture.scope, "zone", "hosts", "off", "servers", "broken"), rows


def _hosts_of(ask: Ask, scope: str, place: str) -> list[Row]:
    query = urlencode({"scope": scope, "only": place, "open": place})
    tiles = ask(f"/os-fleet?{query}")["fleet"]["aggregates"]
    return [_host_row(tile["zone"], host) for tile in tiles for host in tile["hosts"] or ()]


def _host_row(zone: str, host: Mapping[str, Any]) -> Row:
    load = max(used / (most or 1) for used, most in (host["vcpus"], host["memory_mb"]))
    state = "up" if host["enabled"] else "disabled"
    return Row((load, host["name"], state, zone, len(host["servers"])), _into("hosts", {"id": "", **host}))


def _why(ask: Ask, server_id: str) -> ViewRows:
    """Why a server is where it is, or nowhere, and what would help."""
    found = ask(f"/servers/{server_id}/explanation")["explanation"]
    if found is None:
        return ViewRows(("Roost has no record of how it was placed.",))
    lines = [found["sentence"], *(each["sentence"] for each in found["refused"])]
    lines += [f"It would help: {each['sentence']}" for each in found["help"]]
    return ViewRows(("why",), [Row((line,)) for line in lines], len(lines))


# What is drawn


def draw(picture: Picture, listing: ViewRows, screen: Screen, width: int, height: int, trouble: str = "") -> Any:
    """The screen, cut to the terminal; what does not fit is counted."""
    from rich.table import Table
    from rich.text import Text

    room = max(1, height - 5)
    at = min(screen.at, max(0, len(listing.rows) - 1))
    first = max(0, min(at - room // 2, len(listing.rows) - room))
    table = Table(box=None, pad_edge=False, expand=True, show_edge=False)
    for name in listing.columns:
        arrow = listing.order[1] if name == listing.order[0] else ""
        table.add_column(name + arrow, no_wrap=True, overflow="ellipsis")
    for index, row in enumerate(listing.rows[first : first + room], first):
        cells = (_cell(name, value) for name, value in zip(listing.columns, row.cells, strict=True))
        table.add_row(*cells, style="reverse" if index == at else "")
    left = listing.total - first - room
    tabs = "  ".join(f"[{each}]" if each == screen.levels[0].view else each for each in VIEWS)
    path = "".join(f" > {each.title}" for each in screen.levels[1:])
    foot = f"{tabs}{path}   / {screen.query}{'_' if screen.typing else ''}"
    foot += f"   {left:,} more below" if left > 0 else ""
    lines = Table.grid(expand=True)
    bad = bool(trouble or picture.troubles["total"])
    lines.add_row(Text((trouble or picture.headline)[: width - 1], style="bold red" if bad else "bold green"))
    lines.add_row(table if listing.rows else Text((listing.columns if len(listing.columns) == 1 else ["none"])[0]))
    lines.add_row(Text(foot[: width - 1], style="dim"))
    lines.add_row(Text(HELP[: width - 1] if screen.help else "? help"[: width - 1], style="dim"))
    return lines


def _cell(name: str, value: Any) -> Any:
    from rich.text import Text

    if name == "load":
        block = _BLOCKS[min(7, int(value * 8))]
        return Text(f"{block} {value:4.0%}", style="yellow" if value > _NEARLY_FULL else "green")
    bad = (name in ("broken", "failed", "off", "fault") and value) or value in ("down", "ERROR") or name == "kind"
    return Text(str(value), style="red" if bad else "")


# What runs


@contextlib.contextmanager
def _keys() -> Iterator[Callable[[float], list[str]]]:
    """Read keys; `wait(seconds)` gives those that were pressed."""
    if not sys.stdin.isatty():

        def sleep(seconds: float) -> list[str]:
            time.sleep(seconds)
            return []

        yield sleep
        return
    import termios
    import tty

    stdin = sys.stdin.fileno()
    before = termios.tcgetattr(stdin)

    def wait(seconds: float) -> list[str]:
        if not select.select([stdin], [], [], seconds)[0]:
            return []
        return _KEY.findall(os.read(stdin, 1024).decode(errors="ignore"))

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
    except ImportError:
        raise Unavailable("`roost top` needs the client: pip install 'roost[client]'.") from None
    client = openstack.connect(cloud=cloud).compute

    def ask(path: str) -> Any:
        answer = client.get(path, microversion=_VERSION)
        if answer.status_code >= 400:
            raise Unavailable(f"Roost answered {answer.status_code} to {path}.")
        return answer.json()

    picture = look(ask, scope)
    if not once:
        _follow(ask, picture, seconds)
        return 0
    console = Console()
    for view in VIEWS[:3]:
        screen = Screen((ViewLevel(view),))
        console.print(draw(picture, read(ask, picture, screen), screen, console.width, 40))
    return 0


def _follow(ask: Ask, picture: Picture, seconds: float) -> None:
    """Draw what the keys choose. The API is asked by another thread, so that keys work meanwhile."""
    from keystoneauth1.exceptions import ClientException
    from rich.live import Live

    screen, listing, trouble = Screen(), ViewRows(()), ""
    asked: tuple[Any, Future[tuple[Picture, ViewRows]]] | None = None
    shown: Any = None
    pressed: list[str] = []
    drawn: Any = None
    due = 0.0

    def answer(now: Picture, chosen: Screen, whole: bool) -> tuple[Picture, ViewRows]:
        now = look(ask, now.scope) if whole else now
        return now, read(ask, now, chosen)

    with _keys() as wait, Live(screen=True, auto_refresh=False) as live, ThreadPoolExecutor(1) as worker:
        while not screen.ended:
            question = _question(screen)
            if asked is None and (question != shown or time.monotonic() >= due):
                whole = time.monotonic() >= due
                asked = question, worker.submit(answer, picture, screen, whole)
                due = time.monotonic() + seconds if whole else due
            if asked is not None and asked[1].done():
                shown, trouble = asked[0], ""
                try:
                    picture, listing = asked[1].result()
                except (RoostError, ClientException) as error:  # It goes on when Roost answers again.
                    trouble = f"{type(error).__name__}: {error}"
                asked = None
            size = shutil.get_terminal_size()
            if drawn != (drawn := (picture, listing, screen, size, trouble)):
                live.update(draw(picture, listing, screen, size.columns, size.lines, trouble), refresh=True)
            pressed += wait(_TICK)
            # Enter waits for the rows that were asked for last.
            while pressed and (pressed[0] not in "\r\n" or screen.typing or _question(screen) == shown):
                screen = screen.typed(pressed.pop(0), listing)


def _question(screen: Screen) -> tuple[Any, ...]:
    """What the API is to be asked for."""
    return screen.levels, screen.query, screen.sort, screen.descends, screen.at // _PAGE
