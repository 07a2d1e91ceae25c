"""The proxies' files in deploy/ are used as they are, but for ports and paths, by the real programs."""

import http.client
import shutil
import signal
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import pytest

from roost.identity import tokens
from roost.store.database import Database
from tests.cli.test_processes import free_port, running, wait_for
from tests.cli.test_tls import write_certificate

DEPLOY = Path(__file__).parents[2] / "deploy"


def found(program: str) -> str:
    """Where a program is that only some machines have; CI installs it."""
    path = shutil.which(program) or shutil.which(program, path="/usr/sbin")
    if path is None:
        pytest.skip(f"there is no {program}: make tools")
    return path


def settle_addresses(text: str, ports: dict[str, int]) -> str:
    for number, port in ports.items():
        assert number in text
        text = text.replace(number, str(port))
    return text


@contextmanager
def running_until_done(command: list[str]) -> Iterator[None]:
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.kill()


@contextmanager
def haproxy(folder: Path, ports: dict[str, int]) -> Iterator[None]:
    (folder / "roost.pem").write_bytes((folder / "cert.pem").read_bytes() + (folder / "key.pem").read_bytes())
    text = settle_addresses((DEPLOY / "haproxy/haproxy.cfg").read_text(), ports)
    file = folder / "haproxy.cfg"
    file.write_text(text.replace("/etc/roost", str(folder)))
    command = [found("haproxy"), "-f", str(file)]
    subprocess.run([*command, "-c"], check=True, capture_output=True)
    with running_until_done([*command, "-db"]):
        yield


@contextmanager
def nginx(folder: Path, ports: dict[str, int]) -> Iterator[None]:
    text = settle_addresses((DEPLOY / "nginx/roost.conf").read_text(), ports).replace("/etc/roost", str(folder))
    # What a distribution's own nginx.conf says around the files in conf.d.
    paths = "".join(f"{kind}_temp_path {folder};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    file = folder / "nginx.conf"
    file.write_text(
        f"daemon off; pid {folder}/nginx.pid; error_log {folder}/error.log;"
        f"events {{}} http {{ access_log off; {paths}\n{text}\n}}"
    )
    command = [found("nginx"), "-c", str(file), "-e", f"{folder}/error.log"]
    subprocess.run([*command, "-t"], check=True, capture_output=True)
    with running_until_done(command):
        yield


class Client:
    """Asks through the proxy, over TLS."""

    def __init__(self, port: int, authority: Path) -> None:
        self._port = port
        self._trusting = ssl.create_default_context(cafile=str(authority))

    def open(self, path: str, token: str = "") -> http.client.HTTPResponse:
        connection = http.client.HTTPSConnection("localhost", self._port, timeout=30, context=self._trusting)
        headers = {"X-Auth-Token": token, "OpenStack-API-Version": "compute 2.1003"} if token else {}
        connection.request("GET", path, headers=headers)
        return connection.getresponse()

    def status(self, path: str) -> int:
        try:
            return self.open(path).status
        except OSError:
            return 0


@pytest.fixture
async def token(database: Database) -> str:
    async with database.begin() as connection:
        query = (
            "SELECT u.id, r.project_id FROM users u JOIN role_assignments r ON r.user_id = u.id WHERE u.name = 'demo'"
        )
        user = (await connection.exec_driver_sql(query)).one()
        return await tokens.issue(connection, user.id, user.project_id, ("password",), tokens.expiry(3600))


@pytest.mark.parametrize("proxy", [haproxy, nginx])
def test_a_proxy_serves_tls_passes_streams_on_and_misses_no_request_when_an_api_stops(
    proxy: Callable[[Path, dict[str, int]], AbstractContextManager[None]],
    token: str,
    database_url: str,
    tmp_path: Path,
) -> None:
    write_certificate(tmp_path, 1)
    ports = {"8774": free_port(), "8775": free_port(), "8443": free_port()}
    (tmp_path / "roost.conf").write_text("[api]\ndrain_seconds = 6\n")
    tmp_path.chmod(0o755)
    client = Client(ports["8443"], tmp_path / "cert.pem")
    with ExitStack() as stack:
        apis = []
        for port in (ports["8774"], ports["8775"]):
            listening = ("--config", str(tmp_path / "roost.conf"), "--listen", f"127.0.0.1:{port}")
            apis.append(stack.enter_context(running("api", database_url, *listening)))
        for port in (ports["8774"], ports["8775"]):
            wait_for(f"http://127.0.0.1:{port}/readiness")
        stack.enter_context(proxy(tmp_path, ports))
        until = time.monotonic() + 60
        while client.status("/readiness") != 200:
            assert time.monotonic() < until
            time.sleep(0.1)

        versions = client.open("/identity/v3").read().decode()
        assert f"https://localhost:{ports['8443']}/identity/v3" in versions
        live = client.open("/compute/v2.1/os-fleet/events", token)
        assert live.status == 200
        assert live.readline()  # it comes although the stream does not end
        live.close()

        seen: list[int] = []
        enough = threading.Event()

        def go_on() -> None:
            while not enough.is_set():
                seen.append(client.status("/identity/v3"))
                time.sleep(0.02)  # an address may ask so often

        asking = threading.Thread(target=go_on)
        asking.start()
        apis[0].send_signal(signal.SIGTERM)
        assert apis[0].wait(30) == 0
        time.sleep(0.5)
        enough.set()
        asking.join()
        assert set(seen) == {200}
        assert len(seen) > 10
