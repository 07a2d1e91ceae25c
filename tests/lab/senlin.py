"""A real Senlin on the lab: its API, conductor, engine and health manager, each a process of Senlin's own."""

import os
import secrets
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pymysql

from lab import tenants
from lab.settings import REPOSITORY, Settings
from tests.lab.deployment import until

VENV = REPOSITORY / ".venv-senlin-16"
"""As `make senlin-import-test` makes it."""
_PROCESSES = ("senlin-conductor", "senlin-engine", "senlin-health-manager", "senlin-api")

_OPTIONS = """
[DEFAULT]
transport_url = {message_bus}
host = {host}
rpc_response_timeout = 30
periodic_interval = 5
[database]
connection = {database}
[senlin_api]
bind_host = 127.0.0.1
bind_port = {port}
api_paste_config = {venv}/etc/senlin/api-paste.ini
[conductor]
workers = 1
[engine]
workers = 1
[health_manager]
workers = 1
[receiver]
host = 127.0.0.1
[authentication]
auth_url = {auth_url}
service_username = senlin
service_password = lab
service_project_name = service
[keystone_authtoken]
auth_type = password
auth_url = {auth_url}
www_authenticate_uri = {auth_url}
username = senlin
password = lab
project_name = service
user_domain_id = default
project_domain_id = default
"""


@dataclass
class Senlin:
    """Where it answers, and its processes."""

    url: str
    database: str
    folder: Path
    processes: list["subprocess.Popen[bytes]"]

    def stop(self) -> None:
        """End all of it."""
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.processes.clear()

    def log(self) -> str:
        """What its processes have said last."""
        return "\n".join(file.read_text()[-3000:] for file in self.folder.glob("senlin-*.log"))


@contextmanager
def running(lab: Settings, folder: Path) -> Iterator[Senlin]:
    """A Senlin with a new database, and its own user in Keystone."""
    folder.mkdir(parents=True, exist_ok=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    _user(lab)
    _database(lab)
    database = f"mysql+pymysql://lab:lab@127.0.0.1:{lab.port('mariadb')}/senlin"
    made = Senlin(f"http://127.0.0.1:{port}", database, folder, [])
    config = folder / "senlin.conf"
    config.write_text(
        _OPTIONS.format(
            message_bus=lab.message_bus,
            # Messages to one that was killed must not be waited for.
            host=f"lab-{secrets.token_hex(4)}",
            database=database,
            port=port,
            venv=VENV,
            auth_url=lab.auth_url,
        )
    )
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("OS_", "PYTHON"))}
    environment["PYTHONWARNINGS"] = "ignore"

    def command(name: str, *words: str) -> list[str]:
        return [f"{VENV}/bin/python", f"{VENV}/bin/{name}", "--config-file", str(config), *words]

    subprocess.run(command("senlin-manage", "db_sync"), env=environment, check=True, capture_output=True)
    try:
        for name in _PROCESSES:
            with (folder / f"{name}.log").open("wb") as log:
                made.processes.append(subprocess.Popen(command(name), env=environment, stdout=log, stderr=log))
        token = tenants.connect(lab).auth_token
        until(lambda: _answers(made, token), 300)
        yield made
    finally:
        made.stop()


def _answers(senlin: Senlin, token: str) -> bool:
    """Whether all work, and the API hears from the conductor: what is asked of one before it listens is lost."""
    assert all(process.poll() is None for process in senlin.processes), senlin.log()
    logs = [(senlin.folder / f"{name}.log").read_text() for name in _PROCESSES[:3]]
    if not all("Service clean-up attempt count" in log for log in logs):
        return False
    try:
        return httpx.get(f"{senlin.url}/v1/build-info", headers={"X-Auth-Token": token}, timeout=60).status_code == 200
    except httpx.TransportError:
        return False


def _user(lab: Settings) -> None:
    identity: Any = tenants.connect(lab).identity
    user = identity.find_user("senlin", domain_id="default")
    user = user or identity.create_user(name="senlin", password="lab", domain_id="default")
    for role in ("admin", "service"):
        identity.assign_project_role_to_user(identity.find_project("service"), user, identity.find_role(role))


def _database(lab: Settings) -> None:
    connection = pymysql.connect(unix_socket=f"{lab.dir}/run/mariadb.sock", user="root")
    with connection, connection.cursor() as cursor:
        cursor.execute("DROP DATABASE IF EXISTS senlin")
        cursor.execute("CREATE DATABASE senlin CHARACTER SET utf8mb3")
        cursor.execute("GRANT ALL ON senlin.* TO 'lab'@'127.0.0.1'")
