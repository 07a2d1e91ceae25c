"""A served Roost with something in it, and a real Chromium that looks at it.

`make browser-test` installs what this needs; without Playwright these tests are not collected.
"""

import contextlib
import importlib.util
import os
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import psycopg
import pytest
import yaml

from roost.compute.inventory import images
from roost.store.embedded import EmbeddedPostgres
from tests import commands
from tests.conftest import Served, serve

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs" / "images"
WIDE, PHONE = {"width": 1440, "height": 900}, {"width": 390, "height": 844}
ZOOMED = {"width": 720, "height": 450}
"""What is left of a wide window at 200 %."""
PATIENCE = 60_000
_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)

if importlib.util.find_spec("playwright") is None:
    collect_ignore_glob = ["test_*.py"]


@dataclass
class Client:
    """One user of the API."""

    http: httpx.Client
    name: str
    password: str
    project_id: str

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """One request that must succeed; its answer."""
        service = path.split("/")[1]
        version = {"compute": "compute 2.1003", "clustering": "clustering 1.14"}.get(service, "")
        answer = self.http.request(method, path, json=body, headers={"OpenStack-API-Version": version})
        assert answer.is_success, f"{method} {path}: {answer.text}"
        return answer.json() if answer.content else None

    def token(self) -> str:
        """Another token for the same, as a browser keeps it."""
        identity = {"methods": ["token"], "token": {"id": self.http.headers["X-Auth-Token"]}}
        body = {"auth": {"identity": identity, "scope": {"project": {"id": self.project_id}}}}
        return self.http.post("/identity/v3/auth/tokens", json=body).headers["X-Subject-Token"]

    def group(self, name: str, *policies: dict[str, Any]) -> str:
        """A server group."""
        body = {"server_group": {"name": name, "policies": list(policies)}}
        return str(self.ask("POST", "/compute/v2.1/os-server-groups", body)["server_group"]["id"])

    def boot(self, name: str, number: int, group: str | None = None, flavor: str = "2") -> list[str]:
        """Servers, and wait until they run."""
        image = images.USUAL[0].id
        server = {"name": name, "flavorRef": flavor, "imageRef": image, "networks": "none"}
        count = {"min_count": number, "max_count": number, "return_reservation_id": True}
        hints = {"os:scheduler_hints": {"group": group}} if group else {}
        made = self.ask("POST", "/compute/v2.1/servers", {"server": {**server, **count}, **hints})
        path = f"/compute/v2.1/servers/detail?reservation_id={made['reservation_id']}"
        ready: list[str] = until(lambda: self._running(path, number))
        return ready

    def _running(self, path: str, number: int) -> list[str] | None:
        servers = self.ask("GET", path)["servers"]
        ready = [server["id"] for server in servers if server["status"] == "ACTIVE"]
        return ready if len(ready) == number else None

    def done(self, answer: httpx.Response) -> None:
        """Wait until an action of a cluster has ended well."""
        assert answer.is_success, answer.text
        action = answer.headers["Location"].partition("/clustering/")[2]

        def ended() -> bool:
            found = self.ask("GET", f"/clustering/{action}")["action"]
            assert found["status"] != "FAILED", found
            return bool(found["status"] == "SUCCEEDED")

        until(ended)

    def cluster(self, name: str, **sizes: int) -> str:
        """A cluster that policies govern, with its nodes."""
        properties = {"name": name, "flavor": "m1.small", "image": images.USUAL[0].name}
        spec = {"type": "os.nova.server", "version": 1.0, "properties": properties}
        profile = self.ask("POST", "/clustering/v1/profiles", {"profile": {"name": name, "spec": spec}})["profile"][
            "id"
        ]
        body = {"cluster": {"name": name, "profile_id": profile, "desired_capacity": 0, **sizes}}
        answer = self.http.post("/clustering/v1/clusters", json=body)
        self.done(answer)
        cluster = str(answer.json()["cluster"]["id"])
        self.attach(
            cluster, "scaling", event="CLUSTER_SCALE_OUT", adjustment={"type": "CHANGE_IN_CAPACITY", "number": 3}
        )
        zones = [{"name": f"zone{number}"} for number in (1, 2, 3)]
        self.attach(cluster, "zone_placement", zones=zones)
        self.attach(cluster, "deletion", criteria="OLDEST_FIRST")
        return cluster

    def attach(self, cluster: str, kind: str, **properties: Any) -> None:
        """Put a policy on a cluster."""
        spec = {"type": f"senlin.policy.{kind}", "version": "1.0", "properties": properties}
        named = {"policy": {"name": kind.replace("_", "-"), "spec": spec}}
        policy = self.ask("POST", "/clustering/v1/policies", named)["policy"]["id"]
        self.act(cluster, "policy_attach", policy_id=policy)

    def act(self, cluster: str, action: str, wait: bool = True, **inputs: Any) -> None:
        """Have something done to a cluster."""
        answer = self.http.post(f"/clustering/v1/clusters/{cluster}/actions", json={action: inputs})
        assert answer.is_success, answer.text
        if wait:
            self.done(answer)


def until(ready: Callable[[], Any]) -> Any:
    """Ask again until there is an answer."""
    for _ in range(600):
        answer = ready()
        if answer:
            return answer
        time.sleep(0.2)
    raise AssertionError("waited too long")


def sign_in(served: Served, cloud: str) -> Client:
    """A client with a token of one of the users of clouds.yaml."""
    auth = yaml.safe_load(served.clouds.read_text())["clouds"][cloud]["auth"]
    user = {"name": auth["username"], "domain": {"id": "default"}, "password": auth["password"]}
    body = {
        "auth": {
            "identity": {"methods": ["password"], "password": {"user": user}},
            "scope": {"project": {"name": auth["project_name"], "domain": {"id": "default"}}},
        }
    }
    http = httpx.Client(base_url=served.url, timeout=60)
    answer = http.post("/identity/v3/auth/tokens", json=body)
    http.headers["X-Auth-Token"] = answer.headers["X-Subject-Token"]
    return Client(http, auth["username"], auth["password"], answer.json()["token"]["project"]["id"])


@dataclass
class World:
    """What there is to look at: two projects, groups, servers and a cluster."""

    served: Served
    admin: Client
    demo: Client
    alt: Client
    database: str = ""
    members: list[str] = field(default_factory=list)
    cluster: str = ""
    secret: str = ""

    def host(self, server: str) -> str:
        """Where a server is."""
        shown = self.admin.ask("GET", f"/compute/v2.1/servers/{server}")["server"]
        return str(shown["OS-EXT-SRV-ATTR:host"])

    def move(self, server: str, host: str) -> None:
        """Move a server, and wait until it is there."""
        body = {"os-migrateLive": {"host": host, "block_migration": "auto"}}
        self.admin.ask("POST", f"/compute/v2.1/servers/{server}/action", body)
        until(lambda: self.host(server) == host)

    @contextlib.contextmanager
    def standstill(self) -> Iterator[None]:
        """Meanwhile no server comes, goes or changes."""
        with psycopg.connect(EmbeddedPostgres(self.served.folder).url) as connection:
            connection.execute("LOCK TABLE servers IN SHARE MODE")
            yield

    def force(self, server: str, host: str) -> None:
        """Move a member against its group's rules: they bind when members are scheduled, so it leaves the group
        for the migration."""
        path = f"/compute/v2.1/os-server-groups/{self.database}/action"
        self.admin.ask("POST", path, {"remove_instance": {"instance_id": server}})
        self.move(server, host)
        self.admin.ask("POST", path, {"add_instance": {"instance_id": server}})


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    """A `roost serve` of the module's own."""
    with tempfile.TemporaryDirectory(prefix="roost-", ignore_cleanup_errors=True) as folder:
        served = serve(Path(folder) / "served")
        admin, demo, alt = (sign_in(served, cloud) for cloud in ("roost-admin", "roost", "roost-alt"))
        world = World(served, admin, demo, alt)
        _furnish(world)
        yield world
        served.process.terminate()
        assert served.process.wait(60) == 0


def _furnish(world: World) -> None:
    """Enough to look like a cloud at work."""
    for project in (world.demo.project_id, world.alt.project_id):
        more = {"quota_set": {"instances": 100, "cores": 400, "ram": 1_000_000}}
        world.admin.ask("PUT", f"/compute/v2.1/os-quota-sets/{project}", more)
    rack = {"name": "anti-affinity", "scope": "rack", "rules": {"max_server_per_aggregate": 2}}
    world.database = world.demo.group("db", rack, {"name": "soft-affinity", "scope": "switch"})
    world.members = world.demo.boot("db", 4, world.database, flavor="4")
    web = world.demo.group("web", {"name": "anti-affinity", "scope": "host"})
    world.demo.boot("web", 9, web, flavor="3")
    world.demo.boot("batch", 6, world.demo.group("batch", {"name": "soft-anti-affinity", "scope": "rack"}), flavor="5")
    world.demo.boot("alone", 3)
    world.cluster = world.demo.cluster("shop", max_size=12)
    world.demo.act(world.cluster, "resize", adjustment_type="EXACT_CAPACITY", number=3, min_size=2)
    world.secret = world.alt.group("secret-vault", {"name": "anti-affinity", "scope": "rack"})
    world.alt.boot("secret", 5, world.secret, flavor="3")
    services = world.admin.ask("GET", "/compute/v2.1/os-services")["services"]
    idle = next(each["id"] for each in services if each["host"] == "zone3-rack4-host4")
    body = {"status": "disabled", "disabled_reason": "a new fan"}
    world.admin.ask("PUT", f"/compute/v2.1/os-services/{idle}", body)


_CROWD = """
INSERT INTO server_groups (name, project_id, user_id)
    SELECT 'group-' || n, (SELECT id FROM projects WHERE name = 'demo'), (SELECT id FROM users WHERE name = 'demo')
    FROM generate_series(1, {groups}) AS n;
INSERT INTO server_group_policies (group_id, position, name, scope_id, rules)
    SELECT id, 0, 'anti-affinity', (SELECT id FROM scopes WHERE name = 'rack'), '{{"max_server_per_aggregate": 2}}'
    FROM server_groups;
INSERT INTO servers (id, project_id, user_id, name, hostname, flavor, reservation_id, host_id, group_id, vm_state,
                     power_state)
    SELECT gen_random_uuid(), g.project_id, g.user_id, 'server-' || n, 'server', to_jsonb(f), 'r-bench', h.id, g.id,
           'active', 1
    FROM generate_series(1, {servers}) AS n
    JOIN (SELECT id, row_number() OVER (ORDER BY id) AS place FROM hosts) AS h
        ON h.place = 1 + (n * 41 + n / {groups} * 997) % (SELECT count(*) FROM hosts)
    JOIN (SELECT id, project_id, user_id, row_number() OVER (ORDER BY number) AS place FROM server_groups) AS g
        ON g.place = 1 + n % {groups}
    JOIN (SELECT id, name, vcpus, memory_mb, disk_gb, disk_gb AS root_gb FROM flavors) AS f
        ON f.id = CAST(1 + h.place / 40 % 4 AS text);
INSERT INTO claims (server_id, host_id, vcpus, memory_mb, disk_gb)
    SELECT id, host_id, (flavor ->> 'vcpus')::int, (flavor ->> 'memory_mb')::int, (flavor ->> 'disk_gb')::int
    FROM servers;
UPDATE hosts SET servers = c.number, vcpus_used = c.vcpus, memory_mb_used = c.memory_mb, disk_gb_used = c.disk_gb
    FROM (SELECT host_id, count(*) AS number, sum(vcpus) AS vcpus, sum(memory_mb) AS memory_mb, sum(disk_gb) AS disk_gb
          FROM claims GROUP BY host_id) AS c
    WHERE hosts.id = c.host_id;
UPDATE server_groups SET version = version + 1;
VACUUM ANALYZE;
"""


def crowd(served: Served, servers: int, groups: int) -> None:
    """Fill a cloud with servers that were never booted, so that it looks as one after years of work."""
    with psycopg.connect(EmbeddedPostgres(served.folder).url, autocommit=True) as connection:
        for statement in filter(str.strip, _CROWD.format(servers=servers, groups=groups).split(";\n")):
            connection.execute(statement)


@pytest.fixture(scope="session")
def large(folders: Path) -> Iterator[Client]:
    """The operator of a cloud of 10,000 hosts."""
    served = serve(folders / "large", "--topology", "large")
    crowd(served, servers=20_000, groups=5_000)
    yield sign_in(served, "roost-admin")
    served.process.terminate()
    assert served.process.wait(60) == 0


@pytest.fixture(scope="session")
def browser() -> "Iterator[Browser]":
    """Debian's Chromium."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=list(_FLAGS))
        yield chromium
        chromium.close()


Visit = Callable[..., "Page"]

_NOTE_COMMANDS = """
window.commands = new Set();
new MutationObserver(() => {
    for (const each of document.querySelectorAll(".command code")) window.commands.add(each.textContent);
}).observe(document, { childList: true, subtree: true });
"""


@pytest.fixture
def visit(browser: "Browser", request: pytest.FixtureRequest) -> Iterator[Visit]:
    """`page = visit(world.admin)`: a page of a signed-in browser. Any error on its console fails the test,
    and so does any command that it ever showed and that `openstack` would refuse."""
    complaints: list[str] = []
    contexts: list[Any] = []
    pages: list[Page] = []

    def open_page(
        client: Client | None,
        at: str = "#/",
        size: Any = WIDE,
        scheme: Any = "light",
        forgiving: bool = False,
        site: str | None = None,
    ) -> "Page":
        site = site or request.getfixturevalue("world").served.url
        kept = [{"name": "roost-token", "value": client.token()}] if client else []
        context = browser.new_context(
            viewport=size,
            color_scheme=scheme,
            reduced_motion="reduce",
            storage_state={"cookies": [], "origins": [{"origin": site, "localStorage": kept}]},
        )
        contexts.append(context)
        page = context.new_page()
        pages.append(page)
        page.set_default_timeout(PATIENCE)
        page.add_init_script(_NOTE_COMMANDS)
        if not forgiving:
            page.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(f"{site}/{at}")
        if client is not None:
            page.locator("#live.live.live").wait_for()
            page.locator("svg.map .aggregate").first.wait_for(state="attached")
        return page

    yield open_page
    lines = {line for page in pages if not page.is_closed() for line in page.evaluate("[...window.commands ?? []]")}
    for line in sorted(lines):
        commands.check(line)
    for context in contexts:
        context.close()
    assert complaints == []


class Gate:
    """Stands between the browser and Roost, and can be shut."""

    def __init__(self, beyond: str) -> None:
        self._beyond = ("127.0.0.1", int(beyond.rpartition(":")[2]))
        self._open = True
        self._through: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def shut(self) -> None:
        """Cut all connections, and refuse new ones."""
        self._open = False
        for each in self._through:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self._through.clear()

    def open(self) -> None:
        """Accept connections again."""
        self._open = True

    def _accept(self) -> None:
        while True:
            near, _ = self._listener.accept()
            if not self._open:
                near.close()
                continue
            far = socket.create_connection(self._beyond)
            self._through += [near, far]
            for source, target in ((near, far), (far, near)):
                threading.Thread(target=_pass_on, args=(source, target), daemon=True).start()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


def counted(page: "Page", selector: str, number: int) -> None:
    """Wait until there are so many of these."""
    from playwright.sync_api import expect

    expect(page.locator(selector)).to_have_count(number, timeout=PATIENCE)


def look(page: "Page", at: str) -> None:
    """Go to a view and wait until it is drawn."""
    page.evaluate("at => { location.hash = at }", at)
    page.wait_for_function("at => document.querySelector('#panel').dataset.at === at", arg=at)


def picture(page: "Page", name: str) -> None:
    """A screenshot for the documentation, if `make pictures` asks for it."""
    if "ROOST_PICTURES" not in os.environ:
        return
    IMAGES.mkdir(exist_ok=True)
    page.mouse.move(1, 1)
    page.screenshot(path=IMAGES / f"{name}.png", full_page=page.viewport_size is not None and _narrow(page))


def _narrow(page: "Page") -> bool:
    return page.viewport_size is not None and page.viewport_size["width"] < 600


def faults(page: "Page", *only: str, without_map: bool = False) -> list[str]:
    """What axe finds, by all its rules, or by some `only`."""
    # Evaluated, since the page's policy forbids to add a script.
    if not page.evaluate("'axe' in window"):
        page.evaluate(resources.files("axe_playwright_python").joinpath("axe.min.js").read_text())
    rules = {"runOnly": list(only)} if only else {}
    context = {"exclude": [["svg.map"]]} if without_map else {}
    asked = {"resultTypes": ["violations"], **rules}
    found = page.evaluate("([where, how]) => axe.run(where, how)", [context or "html", asked])
    return [f"{each['id']}: {node['html']}" for each in found["violations"] for node in each["nodes"][:3]]
