"""What tests share: a real PostgreSQL, a fresh database a test, the API in process, and a served Roost for clients."""

import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import psycopg
import pytest
import sqlalchemy as sa
from jsonschema import Draft202012Validator
from starlette.datastructures import Headers

from roost import config
from roost.api.app import APIS, App, make_services
from roost.api.auth import RoostAuthenticator
from roost.api.compute import COMPUTE_API
from roost.api.routes import Services
from roost.api.versions import Version
from roost.cli import bootstrap
from roost.config import Settings
from roost.identity import tokens
from roost.store import schema
from roost.store.database import Database
from roost.store.embedded import EmbeddedPostgres

if TYPE_CHECKING:
    from tests.compute.cloud import Cloud

EXPECTED_SKIPS = {
    "tests/ha/test_faults.py::": "Patroni's failovers take a quarter of an hour: make ha-test",
    "tests/packaging/test_wheel.py::": "installing the wheel takes a minute: make dist-test",
    "tests/nova/test_samples.py::": "each Nova is in its own environment: make nova-matrix",
    "tests/imports/test_senlin.py::": "one test needs the real Senlin: make senlin-import-test",
}
"""How the names of tests begin that may be skipped where everything is installed that `make test` needs, and why."""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Where `ROOST_NO_SKIPS` is set, a test that is skipped for no known reason is a failure."""
    if unexpected := _unexpected_skips(terminalreporter):
        terminalreporter.section("skipped, and not expected to be", red=True)
        for report in unexpected:
            terminalreporter.line(f"{report.nodeid}: {report.longrepr}")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """The same, as the exit status."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and not exitstatus and _unexpected_skips(reporter):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


SLOW = ("tests/faults", "tests/security", "tests/docs", "tests/clients", "tests/cli")
"""Where tests wait for processes and clients."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the slow ones: the last file that a worker takes up must not keep the others waiting."""
    items.sort(key=lambda item: next((at for at, name in enumerate(SLOW) if item.nodeid.startswith(name)), len(SLOW)))


def _unexpected_skips(reporter: pytest.TerminalReporter) -> list[pytest.TestReport]:
    if not os.environ.get("ROOST_NO_SKIPS"):
        return []
    return [each for each in reporter.stats.get("skipped", []) if not each.nodeid.startswith(tuple(EXPECTED_SKIPS))]


PASSWORDS = {user.name: f"password of {user.name}" for user in bootstrap.USERS}


@pytest.fixture(scope="session")
def folders() -> Iterator[Path]:
    """Where servers keep their data. Not in pytest's own folder: as root, PostgreSQL runs as another user, and each
    pytest that starts takes that folder away from all users but its own."""
    with tempfile.TemporaryDirectory(prefix="roost-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def postgres(folders: Path) -> Iterator[EmbeddedPostgres]:
    """One PostgreSQL a test process, with a migrated and filled database to copy from."""
    # What a test writes need not outlive a power cut; waiting for the disk would be most of the time that tests take.
    careless = {"fsync": "off", "full_page_writes": "off"}
    server = EmbeddedPostgres(folders / "postgres", careless)
    server.start()
    schema.upgrade(server.url)
    bootstrap.fill(config.with_database(config.load(), server.url), PASSWORDS, "small")
    yield server
    server.stop()


@pytest.fixture
def database_url(postgres: EmbeddedPostgres) -> Iterator[str]:
    """A database of the test's own, with the users and the small topology in it."""
    with new_database(postgres, "TEMPLATE roost STRATEGY FILE_COPY") as url:
        yield url


@pytest.fixture
def empty_url(postgres: EmbeddedPostgres) -> Iterator[str]:
    """A database of the test's own, with nothing in it."""
    with new_database(postgres, "TEMPLATE template1") as url:
        yield url


@contextmanager
def new_database(postgres: EmbeddedPostgres, how: str) -> Iterator[str]:
    """A database as long as it is used."""
    name = f"test_{secrets.token_hex(6)}"
    with psycopg.connect(postgres.url.replace("/roost?", "/postgres?"), autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}" {how}')
        yield postgres.url.replace("/roost?", f"/{name}?")
        connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    """Connections to the test's own database."""
    database = Database(database_url)
    yield database
    await database.close()


@pytest.fixture
def settings(database_url: str) -> Settings:
    """The defaults, on the test's own database."""
    return config.with_database(config.load(), database_url)


def refusal_of(response: httpx.Response) -> tuple[int, str]:
    """The status and the message of a request to the compute API that must fail."""
    assert not response.is_success, response.text
    ((_, fault),) = response.json().items()
    assert fault["code"] == response.status_code
    return response.status_code, without_names(fault["message"])


def without_names(message: str) -> str:
    """A refusal in the words of Nova or Senlin, without the allowed names that Roost adds to it."""
    return message.partition("; allowed are ")[0].removesuffix("; none is allowed")


def as_declared(services: Services, answer: httpx.Response) -> None:
    """A good answer has a status and a shape that its route declares."""
    asked = answer.request
    path, method = asked.url.path, "GET" if asked.method == "HEAD" else asked.method
    api = next((one for one in APIS if one.prefix and path.startswith(one.prefix + "/")), None)
    if api is None or (api is COMPUTE_API and services.settings.in_front_of_nova):
        return
    routes = api.find(path.removeprefix(api.prefix))[0][method]
    version = Version(0, 0)
    if api.negotiation is not None and not routes[0].public:
        version = api.negotiation.choose(Headers(asked.headers))
    route = next(route for route in routes if route.serves(version))
    shapes = route.answers(version)
    assert answer.status_code in shapes, f"{asked}: {answer.status_code} is not declared"
    shape = shapes[answer.status_code]
    if shape is None:
        # What an action of a server answers depends on which it is; what is not JSON has no schema.
        free = route.path.endswith("/{server_id}/action") or answer.headers.get("content-type") != "application/json"
        assert free, f"{asked}: no body is declared"
    elif asked.method != "HEAD":
        Draft202012Validator(shape).validate(answer.json())


@dataclass
class Api:
    """The whole API in this process: `await api.get("/compute/v2.1/flavors", cloud="roost", version="2.61")`.

    Every good answer is held against what its route declares.
    """

    services: Services
    http: httpx.AsyncClient
    tokens: dict[str, str]

    async def token(self, cloud: str) -> str:
        """A token of one of the clouds of clouds.yaml."""
        if cloud not in self.tokens:
            user = next(user for user in bootstrap.USERS if user.cloud == cloud)
            query = (
                "SELECT u.id AS user_id, p.id AS project_id FROM users u, projects p WHERE u.name = :user "
                "AND p.name = :project"
            )
            async with self.services.database.begin() as connection:
                row = (await connection.execute(sa.text(query), {"user": user.name, "project": user.project})).one()
                secret = await tokens.issue(connection, row.user_id, row.project_id, ("password",), tokens.expiry(3600))
            # Only now, when it is committed, may another task of the test use it.
            self.tokens[cloud] = secret
        return self.tokens[cloud]

    async def request(
        self, method: str, path: str, *, cloud: str | None = "roost-admin", version: str | None = None, **more: Any
    ) -> httpx.Response:
        """One request, as the given cloud (None: without a token), in the given compute microversion."""
        headers = dict(more.pop("headers", {}))
        if cloud is not None:
            headers["X-Auth-Token"] = await self.token(cloud)
        if version is not None:
            headers["OpenStack-API-Version"] = f"{path.split('/')[1]} {version}"
        answer = await self.http.request(method, path, headers=headers, **more)
        if answer.is_success:
            as_declared(self.services, answer)
        return answer

    async def get(self, path: str, **more: Any) -> httpx.Response:
        return await self.request("GET", path, **more)

    async def post(self, path: str, json: Any = None, **more: Any) -> httpx.Response:
        return await self.request("POST", path, json=json, **more)

    async def put(self, path: str, json: Any = None, **more: Any) -> httpx.Response:
        return await self.request("PUT", path, json=json, **more)

    async def patch(self, path: str, json: Any = None, **more: Any) -> httpx.Response:
        return await self.request("PATCH", path, json=json, **more)

    async def delete(self, path: str, **more: Any) -> httpx.Response:
        return await self.request("DELETE", path, **more)


@pytest.fixture
async def api(settings: Settings, database: Database) -> AsyncIterator[Api]:
    """The API on the test's own database."""
    services = make_services(settings, database)
    app = App(services, RoostAuthenticator(database, 0))
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://roost.test") as http:
        yield Api(services, http, {})


@pytest.fixture
def cloud(api: Api) -> "Cloud":
    """The embedded cloud behind the API; nothing in it moves unless the test lets the engine work."""
    from tests.compute.cloud import Cloud

    return Cloud(api)


@dataclass(frozen=True)
class Served:
    """A `roost serve` in its own process, for real clients."""

    url: str
    folder: Path
    process: "subprocess.Popen[bytes]"

    @property
    def clouds(self) -> Path:
        """The clouds.yaml that it wrote."""
        return self.folder / "clouds.yaml"


def serve(folder: Path, *arguments: str) -> Served:
    """Start `roost serve` on a free port and wait until it answers."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [
        sys.executable,
        "-m",
        "roost",
        "serve",
        "--data",
        str(folder),
        "--listen",
        f"127.0.0.1:{port}",
        *arguments,
    ]
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("OS_", "ROOST_"))}
    with (folder.parent / f"{folder.name}.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
    url = f"http://127.0.0.1:{port}"
    for _ in range(2400):  # a busy machine takes its time
        try:
            urllib.request.urlopen(f"{url}/healthcheck", timeout=1).close()
            return Served(url, folder, process)
        except OSError:
            if process.poll() is not None:
                break
            time.sleep(0.1)
    process.kill()
    raise AssertionError(f"roost serve did not start:\n{(folder.parent / f'{folder.name}.log').read_text()}")


@pytest.fixture(scope="session")
def serving(folders: Path) -> Iterator[Served]:
    """One `roost serve` for all tests that only need one."""
    settings = folders / "served.conf"
    settings.write_text("[clusters]\nhealth_interval_min = 1\n")
    started = serve(folders / "served", "--config", str(settings))
    yield started
    started.process.terminate()
    assert started.process.wait(30) == 0


@pytest.fixture(scope="module")
def served(serving: Served) -> Iterator[Served]:
    """An empty `roost serve`: a file of tests takes away again whatever it makes."""
    yield serving
    until = time.monotonic() + 60
    while left := _left(serving):
        assert time.monotonic() < until, left
        time.sleep(0.5)


def _left(served: Served) -> list[tuple[str, str, str]]:
    tables = ("servers", "server_groups", "clusters", "nodes", "receivers")
    query = " UNION ALL ".join(f"SELECT '{table}', name, project_id FROM {table}" for table in tables)
    with psycopg.connect(EmbeddedPostgres(served.folder).url) as connection:
        return connection.execute(query).fetchall()
