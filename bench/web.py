"""The dashboard with 10,000 hosts and 100,000 servers in headless Chromium: first paint, interactions, memory.

The first map is measured from the navigation of a signed-in tab to the end of the first drawing; an interaction from
the key or click to the next paint (the browser's own event timing), and to the answer on the page, requests included,
with the CPU time that the page itself took (its share, whatever else the machine does); an update from the event that
tells of a change to the end of the drawing. Then servers change for some minutes (`--minutes`, 5 by default; 60 for an
hour) under an open rack, and the memory of the tab, garbage collected, is compared between the first and the last
quarter. `--hosts`, `--servers` and `--groups` try less, or 100,000 hosts. Needs what `make browser-test` installs.
"""

import argparse
import importlib.util
import itertools
import statistics
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from roost.compute.inventory import images
from tests.browser.conftest import crowd, sign_in
from tests.conftest import serve

if TYPE_CHECKING:
    from playwright.sync_api import Page

UPDATES = 10
_VERSION = {"OpenStack-API-Version": "compute 2.1003"}
_FIRST, _INTERACTION, _SEARCH, _UPDATE, _WHOLE, _GROWTH = 2_000, 100, 200, 100, 1_000, 10.0
_OBSERVE = """() => {
    window.slowest = 0;
    new PerformanceObserver((list) => {
        for (const each of list.getEntries()) window.slowest = Math.max(window.slowest, each.duration);
    }).observe({ type: "event", durationThreshold: 16 });
}"""
# The page keeps the last of its marks alone.
_MARKS = """window.marks = [];
new PerformanceObserver(list => window.marks.push(...list.getEntries().map(each => [each.name, each.startTime])))
    .observe({ type: "mark", buffered: true });
"""
# From the deed to the frame in which the page has what it is to show.
_ANSWERED = """() => new Promise((resolve) => {
    const from = performance.now();
    const look = () => {
        if (%s) requestAnimationFrame(() => resolve(performance.now() - from));
        else setTimeout(look, 2);
    };
    %s;
    look();
})"""


@dataclass
class Figures:
    """What was measured."""

    size: int = 0
    cold: float = 0.0
    first: list[float] = field(default_factory=list)
    updates: list[tuple[float, float]] = field(default_factory=list)
    answered: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Of each deed: ms until it was answered, and ms of CPU of the page."""
    slowest: float = 0.0
    memory: list[tuple[float, int]] = field(default_factory=list)
    """MiB of the heap and nodes of the document, over time."""
    changes: int = 0


def main() -> None:
    """Fill a large cloud, look at it, and print what that took."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--hosts", type=int, default=10_000)
    parser.add_argument("--servers", type=int, default=100_000)
    parser.add_argument("--groups", type=int, default=10_000)
    parser.add_argument("--minutes", type=float, default=5.0)
    given = parser.parse_args()
    if importlib.util.find_spec("playwright") is None:
        print("Not measured: `make .venv-browser/.installed` installs the browser, then PYTHONPATH=.venv-browser.")
        return
    with tempfile.TemporaryDirectory(prefix="roost-bench-", ignore_cleanup_errors=True) as folder:
        topology = Path(folder) / "topology.yaml"
        topology.write_text(yaml.safe_dump(_topology(given.hosts)))
        served = serve(Path(folder) / "served", "--topology", str(topology))
        try:
            crowd(served, given.servers, given.groups)
            _print(given, _measure(served, given.minutes))
        finally:
            served.process.terminate()
            served.process.wait(60)


def _topology(hosts: int) -> dict[str, Any]:
    zones = 10 if hosts >= 400 else 1
    return {"generate": {"zones": zones, "racks_per_zone": max(1, hosts // zones // 40), "hosts_per_rack": 40}}


def _measure(served: Any, minutes: float) -> Figures:
    from playwright.sync_api import sync_playwright

    admin, found = sign_in(served, "roost-admin"), Figures()
    started = time.perf_counter()
    found.size = len(admin.http.get("/compute/v2.1/os-fleet?scope=rack", headers=_VERSION).content)
    found.cold = time.perf_counter() - started
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--headless", "--no-sandbox", "--disable-gpu"]
        )
        page = chromium.new_page(viewport={"width": 1440, "height": 900})
        page.set_default_timeout(120_000)
        page.add_init_script(_MARKS)
        page.goto(served.url)
        page.get_by_label("User").fill(admin.name)
        page.get_by_label("Password", exact=True).fill(admin.password)
        page.get_by_role("button", name="Sign in").click()
        page.locator("svg.map .aggregate").first.wait_for()
        found.first = [_first(page) for _ in range(3)]
        page.evaluate(_OBSERVE)
        found.answered = _interactions(page, admin)
        found.updates = _updates(page, admin)
        found.slowest = float(page.evaluate("window.slowest"))
        _remember(page, admin, minutes, found)
        chromium.close()
    return found


def _first(page: "Page") -> float:
    page.reload()
    page.locator("svg.map .aggregate").first.wait_for()
    page.wait_for_function("window.marks.some(each => each[0] === 'roost:drawn')")
    return float(page.evaluate("window.marks.find(each => each[0] === 'roost:drawn')[1]"))


def _interactions(page: "Page", admin: Any) -> dict[str, tuple[float, float]]:
    """What an operator does all day, each three times: the median of how long the answer takes."""
    server = admin.ask("GET", "/compute/v2.1/servers?all_tenants=1&limit=1")["servers"][0]
    (group,) = admin.ask("GET", "/compute/v2.1/os-lists/groups?limit=1")["list"]["rows"]
    (rack,) = admin.ask("GET", "/compute/v2.1/os-lists/aggregates?scope=rack&limit=1")["list"]["rows"]
    sorted_by = "document.querySelector('[aria-sort] a[href*=%s]')"
    heading = "document.querySelector('.panel h2')?.textContent.includes(%s)"
    deeds = {
        "open a list of servers": ("location.hash = '#/lists/servers'", heading % "' servers'"),
        **{
            f"sort it by {name}": (f"location.hash = '#/lists/servers?sort={name}'", sorted_by % name)
            for name in ("host", "zone", "status", "flavor", "project")
        },
        "find a project in it": (
            "location.hash = '#/lists/servers?q=demo'",
            "document.querySelector('#filter-q')?.value === 'demo'",
        ),
        "filter it by state": ("location.hash = '#/lists/servers?status=ERROR'", heading % "'0 servers'"),
        "open a host": (f"location.hash = '#/host/{rack['name']}-host1'", heading % "'-host1'"),
        "open a rack": (f"location.hash = '#/aggregate/{rack['id']}'", heading % f"'{rack['name']}'"),
        "open a server": (f"location.hash = '#/server/{server['id']}'", heading % f"'{server['name']}'"),
        "open a group": (f"location.hash = '#/groups/{group['id']}'", heading % f"'{group['name']}'"),
        "sort the groups by members": ("location.hash = '#/lists/groups?sort=members:desc'", sorted_by % "members"),
        "open the groups": ("location.hash = '#/groups'", heading % "'Server groups'"),
        "open the history": ("location.hash = '#/feed'", heading % "'What happened'"),
        "open the overview": ("location.hash = '#/'", heading % "'wrong'"),
    }
    browser = page.context.new_cdp_session(page)
    browser.send("Performance.enable", {"timeDomain": "threadTicks"})
    found: dict[str, tuple[float, float]] = {}
    for name, (deed, seen) in deeds.items():
        found[name] = sorted(_answered(page, browser, deed, seen) for _ in range(3))[1]
    opened = "document.querySelectorAll('svg.map .aggregate.open').length > %d"
    found["open a rack on the map"] = sorted(_answered(page, browser, _CLICK, opened % each) for each in range(3))[1]
    page.locator("svg.map .aggregate").first.hover()
    for key in ("ArrowRight", "ArrowDown", "ArrowLeft", "ArrowUp"):
        page.keyboard.press(key)
    found["search"] = _answered(page, browser, _TYPE, "document.querySelector('#found a[href*=server]')")
    page.keyboard.press("Escape")
    return found


_TYPE = """const field = document.querySelector('#search');
    field.value = 'server-777'; field.dispatchEvent(new Event('input'))"""
_CLICK = """document.querySelector('svg.map .aggregate:not(.open)')
    .dispatchEvent(new MouseEvent('click', { bubbles: true }))"""


def _answered(page: "Page", browser: Any, deed: str, seen: str) -> tuple[float, float]:
    page.evaluate("location.hash = '#/clusters'")
    page.get_by_role("heading", name="Clusters").wait_for()
    page.wait_for_timeout(300)
    before = _busy(browser)
    taken = float(page.evaluate(_ANSWERED % (seen, deed)))
    return taken, _busy(browser) - before


def _busy(browser: Any) -> float:
    """How long the page has kept its thread busy, in ms of CPU."""
    figures = {each["name"]: each["value"] for each in browser.send("Performance.getMetrics")["metrics"]}
    return float(figures["TaskDuration"]) * 1000


def _updates(page: "Page", admin: Any) -> list[tuple[float, float]]:
    """Stop servers here and there: how long each took to be drawn since it was told, and since it was asked for."""
    servers = admin.ask("GET", "/compute/v2.1/servers?all_tenants=1&limit=200")["servers"]
    page.wait_for_timeout(3000)
    taken: list[tuple[float, float]] = []
    origin = float(page.evaluate("performance.timeOrigin"))
    for server in servers[:: max(1, len(servers) // UPDATES)][:UPDATES]:
        page.evaluate("window.marks = []")
        asked = time.time() * 1000 - origin
        admin.ask("POST", f"/compute/v2.1/servers/{server['id']}/action", {"os-stop": None})
        page.wait_for_timeout(1500)
        marks = page.evaluate("window.marks")
        told = [at for name, at in marks if name == "roost:told"]
        drawn = [at for name, at in marks if name == "roost:drawn" and told and at > told[0]]
        if drawn:
            taken.append((drawn[0] - told[0], drawn[0] - asked))
    return taken


def _remember(page: "Page", admin: Any, minutes: float, found: Figures) -> None:
    """Stop and start servers in an open rack, let groups and servers come and go, look at one page after another, and
    weigh the tab now and then."""
    browser = page.context.new_cdp_session(page)
    (rack,) = admin.ask("GET", "/compute/v2.1/os-lists/aggregates?scope=rack&limit=1")["list"]["rows"]
    host = f"{rack['name']}-host1"
    servers = admin.ask("GET", f"/compute/v2.1/servers?all_tenants=1&host={host}&limit=20")["servers"]
    pages = itertools.cycle(
        ("#/", f"#/host/{host}", f"#/aggregate/{rack['id']}", "#/lists/servers", "#/groups", "#/feed")
    )
    deeds = itertools.cycle([(each["id"], deed) for deed in ("os-stop", "os-start") for each in servers])
    end, weigh, gone = time.monotonic() + minutes * 60, 0.0, ("", "")
    while time.monotonic() < end:
        server, deed = next(deeds)
        path = f"/compute/v2.1/servers/{server}/action"
        # One that is already so, or on its way, refuses: then the next.
        found.changes += admin.http.post(path, json={deed: None}, headers=_VERSION).is_success
        if time.monotonic() >= weigh:
            weigh = time.monotonic() + max(1.0, minutes * 60 / 40)
            found.memory.append(_weight(browser))
            gone = _come_and_go(admin, gone)
            page.evaluate("at => { location.hash = at }", next(pages))
        page.wait_for_timeout(100)
    found.memory.append(_weight(browser))


def _come_and_go(admin: Any, before: tuple[str, str]) -> tuple[str, str]:
    """Delete the group and the server of the last time, and make others."""
    for path, each in zip(("os-server-groups", "servers"), before, strict=True):
        if each:
            admin.http.delete(f"/compute/v2.1/{path}/{each}", headers=_VERSION)
    group = admin.group("passing", {"name": "anti-affinity", "scope": "rack"})
    server = {"name": "passing", "flavorRef": "1", "imageRef": images.USUAL[0].id, "networks": "none"}
    hints = {"os:scheduler_hints": {"group": group}}
    made = admin.ask("POST", "/compute/v2.1/servers", {"server": server, **hints})
    return group, str(made["server"]["id"])


def _weight(browser: Any) -> tuple[float, int]:
    browser.send("HeapProfiler.collectGarbage")
    heap = browser.send("Runtime.getHeapUsage")["usedSize"] / 2**20
    return heap, int(browser.send("Memory.getDOMCounters")["nodes"])


def _print(given: argparse.Namespace, found: Figures) -> None:
    def row(what: str, value: float, bar: float, form: str = ".0f") -> str:
        return f"| {what} | < {bar:g} | {value:{form}} | {'met' if value < bar else '**missed**'} |"

    update, whole = (statistics.median(each) for each in zip(*found.updates, strict=True))
    quarter = max(1, len(found.memory) // 4)
    before, after = (
        statistics.median(heap for heap, _ in part) for part in (found.memory[:quarter], found.memory[-quarter:])
    )
    print(f"{given.hosts:,} hosts, {given.servers:,} servers, {given.groups:,} groups")
    print("\n| what | bar | measured | |\n|---|---|---|---|")
    print(row(f"first map, ms, best of {len(found.first)}", min(found.first), _FIRST))
    print(row("slowest interaction until the next paint, ms", found.slowest, _INTERACTION))
    for name, (taken, busy) in found.answered.items():
        bar = _SEARCH if name == "search" else _INTERACTION
        print(row(f"{name}, until it is answered, ms (CPU of the page: {busy:.0f})", taken, bar))
    print(row(f"update, ms, median of {len(found.updates)}", update, _UPDATE))
    print(row("from the request to the drawing, ms, median", whole, _WHOLE))
    spent = f"{given.minutes:g} minutes, {found.changes:,} changes"
    print(row(f"growth of the heap in {spent}, MiB (from {before:.1f} to {after:.1f})", after - before, _GROWTH, ".1f"))
    nodes = [count for _, count in found.memory]
    print(f"| nodes of the document, most | - | {max(nodes):,} | |")
    print(f"| the answer after all groups changed, s | - | {found.cold:.2f} | |")
    print(f"| the map by racks, KiB | - | {found.size / 1024:.0f} | |")
    print(f"\nEvery first map: {', '.join(f'{each:.0f}' for each in found.first)} ms.")
    print(f"Every update: {', '.join(f'{each:.0f}' for each, _ in found.updates)} ms.")
    print(f"The heap over time: {', '.join(f'{heap:.1f}' for heap, _ in found.memory)} MiB.")


if __name__ == "__main__":
    main()
