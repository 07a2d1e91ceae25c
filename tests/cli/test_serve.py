"""`roost serve`: one folder, one process, and nothing left when it ends."""

import contextlib
import json
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml

from roost.cli import bootstrap
from roost.store.embedded import EmbeddedPostgres
from tests.conftest import Served, serve


@pytest.fixture
def folder(folders: Path) -> Path:
    return folders / secrets.token_hex(3)


@pytest.fixture
def start(folder: Path) -> Iterator[Callable[..., Served]]:
    """Start `roost serve` on the test's folder; whatever still runs at the end is ended."""
    started: list[Served] = []

    def one(*arguments: str) -> Served:
        started.append(serve(folder, *arguments))
        return started[-1]

    yield one
    for served in started:
        if served.process.poll() is None:
            served.process.terminate()
            served.process.wait(30)


def roost(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-m", "roost", *arguments], capture_output=True, text=True, timeout=300)


def clouds(served: Served) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(served.clouds.read_text())["clouds"]
    return loaded


def ask(served: Served, path: str, body: Any = None, token: str = "") -> tuple[dict[str, Any], str]:
    """The body and, if one was given, the token of an answer."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(served.url + path, data, {"Content-Type": "application/json"})
    if token:
        request.add_header("X-Auth-Token", token)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer), answer.headers.get("X-Subject-Token", "")


def sign_in(served: Served, cloud: str) -> str:
    auth = clouds(served)[cloud]["auth"]
    person = {"name": auth["username"], "password": auth["password"], "domain": {"id": "default"}}
    scope = {"project": {"name": auth["project_name"], "domain": {"id": "default"}}}
    identity = {"methods": ["password"], "password": {"user": person}}
    return ask(served, "/identity/v3/auth/tokens", {"auth": {"identity": identity, "scope": scope}})[1]


def follow(served: Served, token: str) -> Any:
    """The feed of changes, which lasts until one of the two ends it."""
    headers = {"X-Auth-Token": token, "OpenStack-API-Version": "compute 2.1003"}
    request = urllib.request.Request(f"{served.url}/compute/v2.1/os-fleet/events", headers=headers)
    return urllib.request.urlopen(request, timeout=30)


def processes_of(folder: Path) -> list[str]:
    """Every process that still has to do with the folder."""
    listed = subprocess.run(["ps", "-ewwo", "args"], capture_output=True, text=True, check=True).stdout
    return [line for line in listed.splitlines() if str(folder) in line]


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_everything_and_a_new_start_finds_it_again(
    start: Callable[..., Served], folder: Path, signum: signal.Signals
) -> None:
    first = start()
    before = first.clouds.read_text()
    token = sign_in(first, "roost-admin")
    made, _ = ask(first, "/identity/v3/projects", {"project": {"name": "kept"}}, token)
    with follow(first, token) as feed:
        assert feed.readline() == b"event: hello\n"
        first.process.send_signal(signum)
        assert first.process.wait(30) == 0
        assert b"event: bye\n" in feed.read()
    assert processes_of(folder) == []

    second = start()
    passwords = [cloud["auth"]["password"] for cloud in clouds(second).values()]
    assert passwords == [cloud["auth"]["password"] for cloud in yaml.safe_load(before)["clouds"].values()]
    shown, _ = ask(second, f"/identity/v3/projects/{made['project']['id']}", token=token)
    assert shown["project"]["name"] == "kept"


def ended(process: int) -> bool:
    """Whether a process has ended; one that was not waited for is a zombie."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_sigterm_ends_everything_in_time_whatever_the_database_is_doing(
    start: Callable[..., Served], folder: Path
) -> None:
    """One backend works for ever, and one does not even hear that it is to end."""
    served = start()
    backends = []
    for statement in ("SELECT count(*) FROM generate_series(1, 1000000000000)", "SELECT pg_sleep(600)"):
        connection = psycopg.connect(EmbeddedPostgres(folder.absolute()).url, autocommit=True)
        backends.append(connection.info.backend_pid)
        threading.Thread(target=_run, args=(connection, statement), daemon=True).start()
    time.sleep(1)
    os.kill(backends[1], signal.SIGSTOP)
    begun = time.monotonic()
    served.process.terminate()
    served.process.wait(60)
    # `drain_seconds` is 0; a machine that has more to do than this test is slower by as much.
    assert time.monotonic() - begun < 5 * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
    assert all(ended(backend) for backend in backends)
    assert processes_of(folder) == []
    assert sign_in(start(), "roost")


def _run(connection: "psycopg.Connection[Any]", statement: str) -> None:
    with contextlib.suppress(psycopg.Error):
        connection.execute(statement)


def test_a_start_after_a_kill_ends_the_database_that_was_left(start: Callable[..., Served], folder: Path) -> None:
    first = start()
    first.process.kill()
    first.process.wait()
    assert processes_of(folder) != []
    second = start()
    assert sign_in(second, "roost")
    second.process.terminate()
    assert second.process.wait(30) == 0
    assert processes_of(folder) == []


def test_an_end_before_it_is_ready_leaves_nothing(folder: Path) -> None:
    process = subprocess.Popen([sys.executable, "-m", "roost", "serve", "--data", str(folder)])
    while not (folder / "postgres" / "postmaster.pid").exists():
        assert process.poll() is None
    process.terminate()
    assert process.wait(60) == 0
    assert processes_of(folder) == []


def test_a_second_start_on_the_same_folder_says_so(served: Served) -> None:
    done = roost("serve", "--data", str(served.folder), "--listen", "127.0.0.1:0")
    assert done.returncode == 1
    assert done.stderr == (
        f"roost: Roost already runs on {served.folder} (process {served.process.pid}). "
        "Stop it, or give another folder with --data.\n"
    )
    assert ask(served, "/healthcheck")[0] == {"status": "ok", "problems": []}


def test_a_port_in_use_is_said_before_anything_is_started(folder: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = "{}:{}".format(*taken.getsockname())
        done = roost("serve", "--data", str(folder), "--listen", address)
    assert done.returncode == 1
    assert done.stderr == (
        f"roost: Cannot listen on {address}: Address already in use. Stop what does, or choose another with --listen.\n"
    )
    assert processes_of(folder) == []


def test_clouds_yaml_is_private_and_has_a_cloud_for_each_persona(served: Served) -> None:
    assert served.clouds.stat().st_mode & 0o777 == 0o600
    found = clouds(served)
    assert list(found) == [
        *("roost", "roost-reader", "roost-manager"),
        *("roost-alt", "roost-alt-reader", "roost-alt-manager", "roost-admin"),
    ]
    assert {cloud["auth"]["auth_url"] for cloud in found.values()} == {f"{served.url}/identity"}
    passwords = [cloud["auth"]["password"] for cloud in found.values()]
    assert len(set(passwords)) == len(passwords)
    assert min(len(password) for password in passwords) >= 20
    for user in bootstrap.USERS:
        assert sign_in(served, user.cloud)


def test_what_it_prints_can_be_typed_and_no_secret_is_in_it_or_in_the_log(served: Served) -> None:
    token = sign_in(served, "roost")
    printed = (served.folder.parent / f"{served.folder.name}.log").read_text()
    assert f"Roost is ready at {served.url}" in printed
    assert f"export OS_CLIENT_CONFIG_FILE={served.clouds}" in printed
    assert len(re.findall(r"^  openstack --os-cloud ", printed, re.MULTILINE)) == 3
    assert token not in printed
    assert not any(cloud["auth"]["password"] in printed for cloud in clouds(served).values())


def test_a_clouds_yaml_that_cannot_be_read_is_said(start: Callable[..., Served], folder: Path) -> None:
    first = start()
    first.process.terminate()
    first.process.wait(30)
    first.clouds.write_text("nonsense")
    done = roost("serve", "--data", str(folder))
    assert done.returncode == 1
    expected = f"roost: {first.clouds} cannot be read; remove it, and new passwords will be made.\n"
    assert done.stderr == expected
    assert processes_of(folder) == []


@pytest.mark.parametrize("listen", ["nonsense", "127.0.0.1", ":80", "127.0.0.1:x", "127.0.0.1:99999"])
def test_an_address_that_is_none_is_said(folder: Path, listen: str) -> None:
    done = roost("serve", "--data", str(folder), "--listen", listen)
    assert done.returncode == 1
    assert done.stderr == (
        f"roost: '{listen}' is not an address to listen on: write HOST:PORT, such as 127.0.0.1:8774.\n"
    )
    assert not folder.exists()


def test_a_topology_that_there_is_not_is_one_sentence(folder: Path) -> None:
    done = roost("serve", "--data", str(folder), "--topology", "enormous")
    assert done.returncode == 1
    assert re.fullmatch(r"roost: .*enormous.*\n", done.stderr)
    assert processes_of(folder) == []


def test_a_host_that_cannot_be_listened_on_is_one_sentence(folder: Path) -> None:
    done = roost("serve", "--data", str(folder), "--listen", "no.such.host.invalid:8774")
    assert done.returncode == 1
    assert re.fullmatch(r"roost: Cannot listen on no.such.host.invalid:8774: .*\n", done.stderr)


def test_the_data_may_be_named_relatively(folders: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    process = subprocess.Popen(
        [sys.executable, "-m", "roost", "serve", "--data", "rel", "--listen", "127.0.0.1:0"],
        cwd=folders,
        env=environment,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    lines = iter(process.stdout.readline, b"")
    assert any(b"Roost is ready" in line for line in lines)
    process.terminate()
    assert process.wait(30) == 0
    assert (folders / "rel" / "clouds.yaml").exists()
