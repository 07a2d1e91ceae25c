"""Starting, finding and ending the processes of the lab. A process is known by its pid file and its working folder."""

import http.client
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from lab.services import Process, python_path
from lab.settings import Settings
from lab.steps import Failure

_UP_SECONDS = 120.0
_DOWN_SECONDS = 30.0


def start(settings: Settings, processes: Sequence[Process]) -> None:
    """Start those that do not run, side by side, and wait until all of them answer."""
    for process in processes:
        if pid_of(settings, process.name) is None:
            _spawn(settings, process)
    for process in processes:
        if process.port is not None:
            _await(settings, process)


def stop(settings: Settings, names: Iterable[str]) -> None:
    """Ask them to end, and kill what has not ended in time."""
    pids = [pid for name in names if (pid := pid_of(settings, name)) is not None]
    for pid in pids:
        _signal(pid, signal.SIGTERM)
    until = time.monotonic() + _DOWN_SECONDS
    while pids and time.monotonic() < until:
        time.sleep(0.1)
        pids = [pid for pid in pids if _is_ours(settings, pid)]
    for pid in pids:
        _signal(pid, signal.SIGKILL)


def running(settings: Settings) -> dict[str, int]:
    """The processes that run, with their pids."""
    names = sorted(file.stem for file in (settings.dir / "run").glob("*.pid"))
    return {name: pid for name in names if (pid := pid_of(settings, name)) is not None}


def pid_of(settings: Settings, name: str) -> int | None:
    """The process of this name, if it runs."""
    try:
        pid = int(_pid_file(settings, name).read_text())
    except (OSError, ValueError):
        return None
    return pid if _is_ours(settings, pid) else None


def _pid_file(settings: Settings, name: str) -> Path:
    return settings.dir / "run" / f"{name}.pid"


def _is_ours(settings: Settings, pid: int) -> bool:
    """Whether it lives, in the folder of this lab: a pid alone may have been given to somebody else since."""
    try:
        folder = Path(f"/proc/{pid}/cwd").readlink()
        ended = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return False
    return not ended and folder.is_relative_to(settings.dir)


def _signal(pid: int, signum: int) -> None:
    try:
        os.kill(pid, signum)
    except ProcessLookupError:
        return


def _spawn(settings: Settings, process: Process) -> None:
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("OS_", "LAB_", "PYTHON"))}
    environment |= {"PYTHONPATH": python_path(settings), "PYTHONWARNINGS": "ignore", **process.environment}
    with (settings.dir / "log" / f"{process.name}.out").open("wb") as log:
        child = subprocess.Popen(
            process.command,
            cwd=settings.dir,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    if not process.own_pid_file:
        _pid_file(settings, process.name).write_text(str(child.pid))


def _await(settings: Settings, process: Process) -> None:
    assert process.port is not None
    until = time.monotonic() + _UP_SECONDS
    while time.monotonic() < until:
        try:
            if _answers(settings.port(process.port), http_too=process.http):
                return
        except (OSError, http.client.HTTPException):
            time.sleep(0.2)
    raise Failure(f"{process.name} does not answer: see {settings.dir}/log/{process.name}.out")


def _answers(port: int, *, http_too: bool) -> bool:
    if not http_too:
        socket.create_connection(("127.0.0.1", port), timeout=2).close()
        return True
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", "/")
        return connection.getresponse().status < 500
    finally:
        connection.close()
