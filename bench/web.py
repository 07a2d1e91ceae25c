"""The dashboard with 10,000 hosts and 50,000 servers in headless Chromium: the first map, and an update of it.

The first map is measured from the navigation of a signed-in tab to the end of the first drawing; an update from the
event that tells of a change to the end of the drawing, the request for what changed included; and from the request
that makes the change. Beside it, what the server sends. Needs what `make browser-test` installs.
"""

import importlib.util
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.browser.conftest import crowd, sign_in
from tests.conftest import serve

if TYPE_CHECKING:
    from playwright.sync_api import Page

HOSTS, SERVERS, GROUPS = 10_000, 50_000, 5_000
UPDATES = 10
_VERSION = {"OpenStack-API-Version": "compute 2.1003"}
_FIRST, _UPDATE, _WHOLE = 2_000, 100, 1_000


def main() -> None:
    """Fill a large cloud, look at it, and print what that took."""
    if importlib.util.find_spec("playwright") is None:
        print("Not measured: `make .venv-browser/.installed` installs the browser, then PYTHONPATH=.venv-browser.")
        return
    with tempfile.TemporaryDirectory(prefix="roost-bench-", ignore_cleanup_errors=True) as folder:
        served = serve(Path(folder) / "served", "--topology", "large")
        try:
            _measure(served)
        finally:
            served.process.terminate()
            served.process.wait(60)


def _measure(served: Any) -> None:
    from playwright.sync_api import sync_playwright

    crowd(served, SERVERS, GROUPS)
    admin = sign_in(served, "roost-admin")
    started = time.perf_counter()
    size = len(admin.http.get("/compute/v2.1/os-fleet?scope=rack", headers=_VERSION).content)
    cold = time.perf_counter() - started
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--headless", "--no-sandbox", "--disable-gpu"]
        )
        page = chromium.new_page(viewport={"width": 1440, "height": 900})
        page.set_default_timeout(120_000)
        page.goto(served.url)
        page.get_by_label("User").fill(admin.name)
        page.get_by_label("Password", exact=True).fill(admin.password)
        page.get_by_role("button", name="Sign in").click()
        page.locator("svg.map .aggregate").first.wait_for()
        first = [_first(page) for _ in range(3)]
        updates = _updates(page, admin)
        chromium.close()
    _print(size, cold, first, updates)


def _first(page: "Page") -> float:
    page.reload()
    page.locator("svg.map .aggregate").first.wait_for()
    return float(page.evaluate("performance.getEntriesByName('roost:drawn')[0].startTime"))


def _updates(page: "Page", admin: Any) -> list[tuple[float, float]]:
    """Stop servers here and there: how long each took to be drawn since it was told, and since it was asked for."""
    page.locator("svg.map .aggregate").first.click()
    page.locator("svg.map .host").first.wait_for()
    servers = admin.ask("GET", "/compute/v2.1/servers?all_tenants=1&limit=200")["servers"]
    page.wait_for_timeout(3000)
    taken: list[tuple[float, float]] = []
    origin = float(page.evaluate("performance.timeOrigin"))
    for server in servers[:: len(servers) // UPDATES][:UPDATES]:
        page.evaluate("performance.clearMarks()")
        asked = time.time() * 1000 - origin
        admin.ask("POST", f"/compute/v2.1/servers/{server['id']}/action", {"os-stop": None})
        page.wait_for_timeout(1500)
        marks = page.evaluate("performance.getEntriesByType('mark').map(each => [each.name, each.startTime])")
        told = [at for name, at in marks if name == "roost:told"]
        drawn = [at for name, at in marks if name == "roost:drawn" and told and at > told[0]]
        if drawn:
            taken.append((drawn[0] - told[0], drawn[0] - asked))
    return taken


def _print(size: int, cold: float, first: list[float], updates: list[tuple[float, float]]) -> None:
    def verdict(value: float, bar: float) -> str:
        return "met" if value < bar else "**missed**"

    best = min(first)
    update, whole = (statistics.median(each) for each in zip(*updates, strict=True))
    print(f"{HOSTS:,} hosts, {SERVERS:,} servers, {GROUPS:,} groups")
    print("\n| what | bar | measured | |\n|---|---|---|---|")
    print(f"| first map, ms, best of {len(first)} | < {_FIRST} | {best:.0f} | {verdict(best, _FIRST)} |")
    print(f"| update, ms, median of {len(updates)} | < {_UPDATE} | {update:.0f} | {verdict(update, _UPDATE)} |")
    print(f"| from the request to the drawing, ms, median | < {_WHOLE} | {whole:.0f} | {verdict(whole, _WHOLE)} |")
    print(f"| the answer after all groups changed, s | - | {cold:.2f} | |")
    print(f"| the map by racks, KiB | - | {size / 1024:.0f} | |")
    print(f"\nEvery first map: {', '.join(f'{each:.0f}' for each in first)} ms.")
    print(f"Every update: {', '.join(f'{each:.0f}' for each, _ in updates)} ms.")
