"""docs/architecture.md walks through functions in the order in which requests enter them, and draws every room;
CONTRIBUTING lists every room."""

import ast
import re
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import httpx
import pytest

from roost import config
from roost.api.app import App, make_services
from roost.api.auth import RoostAuthenticator
from roost.clusters import bindings
from roost.compute.moves import repair_steps
from roost.compute.moves.repair_steps import EmbeddedMover
from roost.store.database import Database
from roost.workers import WorkerPool
from tests.clusters.house import clustering
from tests.compute.cloud import Cloud
from tests.conftest import Api

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "architecture.md").read_text()
WALK = re.compile(r"^\d+\. `(?P<file>[^`]+)` `(?P<function>[^`]+)`: ", re.MULTILINE)
WALKS = {title: WALK.findall(steps) for title, steps in re.findall(r"^### (.+?)\n(.*?)(?=^### |\Z)", PAGE, re.M | re.S)}


def functions(path: Path) -> set[str]:
    """`function` and `Class.method` of a file."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{inner.name}" for inner in node.body if hasattr(inner, "name")}
    return found


def test_five_requests_are_walked_through() -> None:
    assert len(WALKS) == 5
    numbered = {title: len(re.findall(r"^\d+\. ", steps, re.M)) for title, steps in _sections()}
    assert {title: len(walk) for title, walk in WALKS.items()} == numbered, "a line of a walk names no function"


def _sections() -> list[tuple[str, str]]:
    return re.findall(r"^### (.+?)\n(.*?)(?=^### |\Z)", PAGE, re.M | re.S)


@pytest.mark.parametrize("title", WALKS)
def test_every_step_of_a_walk_exists(title: str) -> None:
    missing = [
        f"{file} {function}"
        for file, function in WALKS[title]
        if not (ROOT / file).is_file() or function not in functions(ROOT / file)
    ]
    assert missing == []


class Trace:
    """The functions of a walk that were entered, in order, each as often as it was: the engine also looks for work
    while there is none."""

    def __init__(self, title: str) -> None:
        self.walk = WALKS[title]
        self.entered: list[tuple[str, str]] = []

    def look(self, frame: FrameType, event: str, argument: object) -> None:
        """Take note of a call."""
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(str(ROOT)):
            step = (code.co_filename.removeprefix(f"{ROOT}/"), code.co_qualname)
            if step in self.walk:
                self.entered.append(step)

    def begin(self) -> None:
        """Forget what came before."""
        self.entered.clear()

    def check(self) -> None:
        """Every step was entered, in order."""
        later = iter(self.entered)
        missing = [step for step in self.walk if step not in later]
        assert not missing, self.entered


@contextmanager
def traced(title: str) -> Iterator[Trace]:
    """Trace this thread and those that start meanwhile: begin before thread pools do."""
    trace = Trace(title)
    threading.setprofile(trace.look)
    sys.setprofile(trace.look)
    try:
        yield trace
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


async def test_a_create_in_a_group_takes_the_walk(cloud: Cloud) -> None:
    group = await cloud.group("anti-affinity")
    with traced("Create a server in a group") as trace:
        await cloud.boot(group=group)
    trace.check()


async def test_a_group_with_scopes_takes_the_walk(database_url: str, database: Database) -> None:
    notifying = config.load(notifications__driver="messagingv2", notifications__transport_url="fake:///")
    services = make_services(config.with_database(notifying, database_url), database)
    transport = httpx.ASGITransport(App(services, RoostAuthenticator(database, 0)))
    async with httpx.AsyncClient(transport=transport, base_url="http://roost.test") as http:
        cloud = Cloud(Api(services, http, {}))
        with traced("Create a group with scopes") as trace:
            await cloud.group("anti-affinity:rack", "affinity:availability_zone")
    trace.check()


async def test_a_scale_out_takes_the_walk(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bindings, "_THREADS", ThreadPoolExecutor(1))  # threads of other tests are not traced
    with traced("Scale out a cluster under three policies") as trace:
        async with clustering(database_url) as house:
            cluster = await house.cluster(1)
            for policy in (
                await house.policy("senlin.policy.scaling", event="CLUSTER_SCALE_OUT"),
                await house.policy("senlin.policy.zone_placement", zones=[{"name": "zone1"}]),
                await house.policy("senlin.policy.affinity", servergroup={"policies": "anti-affinity"}),
            ):
                attached = await house.act(cluster, "policy_attach", {"policy_id": policy["id"]})
                assert attached["status"] == "SUCCEEDED", attached["status_reason"]
            answer = house.post(f"/clusters/{cluster['id']}/actions", {"scale_out": {}})
            trace.begin()
            grown = await house.done(await answer)
            assert grown["status"] == "SUCCEEDED", grown["status_reason"]
    trace.check()


async def test_a_repair_takes_the_walk(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    async def here(pool: WorkerPool, owner: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """What a worker does in another process, where it is not traced."""
        return function(*arguments)

    monkeypatch.setattr(WorkerPool, "run", here)
    group = await cloud.group("anti-affinity:rack")
    for _ in range(2):
        await cloud.boot(group=group)
    path, together = f"/os-server-groups/{group}", {"policies": [{"name": "affinity", "scope": "rack"}]}
    assert (await cloud.ask("POST", path, json={"server_group": together})).status_code == 200
    with traced("Repair a group") as trace:
        begun = await cloud.ask("POST", f"{path}/repairs", json={"repair": {}}, cloud="roost-admin")
        assert begun.status_code == 200, begun.text
        mover = EmbeddedMover(cloud.database, cloud.api.services.scheduler)
        await repair_steps.advance_all(cloud.database, mover)
    trace.check()


def rooms(folder: Path) -> set[str]:
    """The packages in a folder."""
    return {each.parent.name for each in folder.glob("*/__init__.py")}


def test_the_diagram_draws_every_room() -> None:
    drawn = PAGE.partition("```mermaid")[2].partition("```")[0]
    for room in rooms(ROOT / "roost") | {"web"}:
        assert f"roost.{room}" in drawn, room
    for room in rooms(ROOT / "roost" / "compute"):
        assert re.search(rf'\b{room}\["{room}', drawn), room


def test_contributing_lists_every_room() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text()
    listed = set(re.findall(r"^\| `(roost/[^`]+)`", page, re.M))
    expected = {f"roost/{room}" for room in rooms(ROOT / "roost") | {"web"}}
    expected |= {f"roost/compute/{room}" for room in rooms(ROOT / "roost" / "compute")}
    assert listed == expected


TRANSACTIONS = {
    # Settings hold as long as a transaction: what looks for words has PostgreSQL use their index.
    "roost/api/compute/console.py show_list",
    "roost/api/compute/console.py search",
    # A project that looks at its network for the first time gets its default security group.
    "roost/api/network/collections.py index",
}


def test_what_only_reads_opens_no_transaction() -> None:
    """READ COMMITTED shows a transaction no more than it shows each of its statements, for two round trips more."""
    opened = [
        f"{path.relative_to(ROOT)} {node.name}"
        for path in (ROOT / "roost" / "api").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.AsyncFunctionDef) and _only_gets(node) and ".begin()" in ast.unparse(node)
    ]
    assert set(opened) == TRANSACTIONS


def _only_gets(function: ast.AsyncFunctionDef) -> bool:
    verbs = {ast.unparse(each.func) for each in function.decorator_list if isinstance(each, ast.Call)}
    return verbs == {"routes.get"}
