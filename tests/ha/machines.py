"""Five machines on this one: each has an address on the loopback network, a folder, and the ports that it really has.

On db1, db2 and db3 run etcd, Patroni and PostgreSQL; on app1 and app2 HAProxy, PgBouncer, an API and an engine. The
files are those of deploy/, with other paths and addresses. app1 can reach the databases through forwarders that can be
cut.
"""

import asyncio
import contextlib
import os
import random
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import psycopg

from tests.cli.test_tls import write_certificate
from tests.faults.proxy import Proxy

DEPLOY = Path(__file__).parents[2] / "deploy"
POSTGRESQL = max(Path("/usr/lib/postgresql").glob("*/bin"), default=Path("/usr/lib/postgresql/15/bin"))
PASSWORD = "secret-of-admin"
SUPERUSER = "postgres:secret-of-postgres"
START_SECONDS = 120.0
STOP_SECONDS = 30.0
# What a machine for rehearsals has besides: as many servers as its hosts hold, and a short patience with dead engines.
MORE_SETTINGS = """
[quota]
instances = -1
cores = -1
ram = -1
[auth]
token_seconds = 86400
[clusters]
heartbeat = 1
dead_after = 5
"""


@dataclass
class Machine:
    """Programs that live and die together. A process belongs to the machine in whose folder it works."""

    name: str
    address: str
    folder: Path
    commands: dict[str, list[str]] = field(default_factory=dict)
    """The programs, in the order in which they start."""
    started: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    def start(self, *programs: str) -> None:
        """Start these programs, or all, unless they run."""
        for program in programs or self.commands:
            running = self.started.get(program)
            if running is None or running.poll() is not None:
                with (self.folder / f"{program}.log").open("ab") as log:
                    self.started[program] = subprocess.Popen(
                        self.commands[program],
                        cwd=self.folder,
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                        start_new_session=True,
                        **_unprivileged(program),
                    )

    def stop(self, *programs: str) -> None:
        """Ask these programs, or all, to end, the last one first, and wait until they have."""
        for program in reversed(programs or tuple(self.commands)):
            if program in self.started:
                running = self.started.pop(program)
                running.terminate()
                try:
                    running.wait(STOP_SECONDS)
                except subprocess.TimeoutExpired:
                    running.kill()
                    running.wait()

    def kill(self, program: str) -> None:
        """kill -9 of one program; it stays off until `start`."""
        running = self.started.pop(program)
        running.kill()
        running.wait()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to every process of this machine."""
        for pid in working_in(self.folder):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def cut_the_power(self) -> None:
        """kill -9 of everything that runs here; it stays off until `start`."""
        # Those that were killed first may have been replaced before the last one was.
        while working_in(self.folder):
            self.signal(signal.SIGKILL)
            for running in self.started.values():
                running.poll()
        self.started.clear()


def working_in(folder: Path) -> list[int]:
    """The processes that work in a folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            ended = (process / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
            if not ended and (process / "cwd").readlink().is_relative_to(folder):
                found.append(int(process.name))
    return found


def _unprivileged(program: str) -> dict[str, Any]:
    """PostgreSQL and PgBouncer refuse to run as root."""
    if os.geteuid() != 0 or program in ("api", "engine", "haproxy"):
        return {}
    return {"user": "postgres", "group": "postgres", "extra_groups": []}


class Datacenter:
    """All machines, and what an operator does to them."""

    def __init__(self, *, forwarded: bool = False) -> None:
        """With `forwarded`, app1 reaches the databases through forwarders."""
        self.folder = Path(tempfile.mkdtemp(prefix="roost-ha-"))
        self.folder.chmod(0o755)
        self._backup = self.folder / "backup"
        (self._backup / "wal").mkdir(parents=True)
        # Each run has its own network, so that two do not meet.
        self._network = f"127.{random.randint(16, 250)}.{random.randint(1, 250)}"
        self.databases = [self._machine(f"db{number}", number) for number in (1, 2, 3)]
        self.applications = [self._machine(f"app{number}", 10 + number) for number in (1, 2)]
        self._restored: list[Machine] = []
        self._forwarded = forwarded
        self._forwarders: list[Proxy] = []
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()
        write_certificate(self.folder, 1)

    def _machine(self, name: str, number: int) -> Machine:
        folder = self.folder / name
        folder.mkdir()
        return Machine(name, f"{self._network}.{number}", folder)

    @property
    def machines(self) -> list[Machine]:
        return [*self.databases, *self.applications, *self._restored]

    def url(
        self, user: str = "roost:secret", database: str = "roost", machines: "Sequence[Machine] | None" = None
    ) -> str:
        """The three databases, or these, as libpq takes them."""
        hosts = ",".join(f"{each.address}:5432" for each in machines or self.databases)
        return f"postgresql://{user}@{hosts}/{database}?target_session_attrs=read-write&connect_timeout=2"

    @property
    def fronts(self) -> list[str]:
        """Where clients ask: the HAProxy of each application machine."""
        return [f"https://{each.address}:8443" for each in self.applications]

    @property
    def authority(self) -> Path:
        """The certificate that clients trust."""
        return self.folder / "cert.pem"

    def trusting(self) -> ssl.SSLContext:
        """For clients of the fronts."""
        context = ssl.create_default_context(cafile=str(self.authority))
        context.check_hostname = False
        return context

    # From nothing to a served Roost, in the order of docs/high-availability.md

    def start(self) -> None:
        """Start everything, and wait until all of it serves."""
        for machine in self.databases:
            self._write_database_files(machine)
            machine.start()
        self.wait_for_the_databases()
        with psycopg.connect(self.url(SUPERUSER, "postgres"), autocommit=True) as connection:
            connection.execute("CREATE ROLE roost LOGIN PASSWORD 'secret'")
            connection.execute("CREATE DATABASE roost OWNER roost")
        if self._forwarded:
            self._forward()
        for machine in self.applications:
            self._write_application_files(machine)
            machine.start("haproxy", "pgbouncer")
        self._fill()
        for machine in self.applications:
            machine.start()
        self.wait_until_served()
        # A proxy takes a little longer to see that the APIs are ready.
        trusting = self.trusting()
        served = [f"{front}/identity/v3" for front in self.fronts]
        self.wait(lambda: all(_status(each, trusting) == 200 for each in served), "the proxies")

    def _write_database_files(self, machine: Machine) -> None:
        for name in ("etcd", "patroni"):
            (machine.folder / f"{name}.yml").write_text(self._adapted(f"ha/{name}.yml", machine))
        machine.commands["etcd"] = ["/usr/bin/etcd", "--config-file", "etcd.yml"]
        machine.commands["patroni"] = ["/usr/bin/patroni", "patroni.yml"]
        _give(machine.folder, self._backup)

    def _write_application_files(self, machine: Machine) -> None:
        (machine.folder / "userlist.txt").write_text('"roost" "secret"\n')
        (machine.folder / "pgbouncer.ini").write_text(self._adapted("ha/pgbouncer.ini", machine))
        _give(machine.folder)
        (machine.folder / "roost.conf").write_text(self._adapted("ha/roost.conf", machine) + MORE_SETTINGS)
        certificate = [(self.folder / name).read_bytes() for name in ("cert.pem", "key.pem")]
        (machine.folder / "roost.pem").write_bytes(b"".join(certificate))
        first, second = (each.address for each in self.applications)
        text = (DEPLOY / "haproxy/haproxy.cfg").read_text()
        text = text.replace("127.0.0.1:8774", f"{first}:8774").replace("127.0.0.1:8775", f"{second}:8774")
        text = text.replace("/etc/roost", str(machine.folder)).replace("bind :8443", f"bind {machine.address}:8443")
        (machine.folder / "haproxy.cfg").write_text(text + self._adapted("ha/postgresql.cfg", machine))
        roost = [sys.executable, "-m", "roost"]
        configured = ["--config", str(machine.folder / "roost.conf")]
        machine.commands = {
            "haproxy": ["/usr/sbin/haproxy", "-db", "-f", "haproxy.cfg"],
            "pgbouncer": ["/usr/sbin/pgbouncer", "pgbouncer.ini"],
            "api": [*roost, "api", *configured, "--listen", f"{machine.address}:8774"],
            "engine": [*roost, "engine", *configured, "--listen", f"{machine.address}:9774"],
        }

    def _adapted(self, file: str, machine: Machine) -> str:
        """A file of deploy/ for a machine: its own name instead of db1's, addresses for names, folders of its own."""
        text = (DEPLOY / file).read_text()
        seen = self._network if machine.name != "app1" or not self._forwarded else self._beyond
        for number, each in enumerate(self.databases, 1):
            text = text.replace(f"{each.name}:", f"{seen}.{number}:")
        if machine.name.startswith("db"):
            # Lists name all machines; every other address is the machine's own.
            lists = [line for line in text.splitlines() if "hosts:" in line or line.startswith("initial-cluster:")]
            own = "\n".join(
                line
                if line in lists
                else line.replace(f"{seen}.1:", f"{machine.address}:").replace("db1", machine.name)
                for line in text.splitlines()
            )
            text = own + "\n"
        places = {
            "/srv/backup": self._backup,
            "/var/lib/etcd/roost": machine.folder / "etcd",
            "/var/lib/postgresql/roost": machine.folder / "postgresql",
            "/var/run/postgresql": machine.folder,
            "/usr/lib/postgresql/15/bin": POSTGRESQL,
            "/etc/pgbouncer": machine.folder,
            "127.0.0.1": machine.address,
            # Those who run this need not be postgres, and have no watchdog to play with.
            "local all all peer": "local all all trust",
            "mode: automatic": "mode: 'off'",
        }
        return _replaced(text, places)

    def _fill(self) -> None:
        """What an operator does once, on one machine."""
        configured = ["--config", str(self.applications[1].folder / "roost.conf")]
        environment = {**os.environ, "ROOST_ADMIN_PASSWORD": PASSWORD}
        for command in (["db", "upgrade"], ["bootstrap", "--topology", "small"]):
            self.wait(partial(_succeeds, [*command, *configured], environment), " ".join(["roost", *command]))

    # A backup, and a new cluster out of it

    def back_up(self) -> None:
        """Copy the primary while it works, in place of an earlier copy."""
        shutil.rmtree(self._backup / "base", ignore_errors=True)
        command = [str(POSTGRESQL / "pg_basebackup"), "-d", self.url("replicator:secret-of-replicator", "")]
        command += ["-D", str(self._backup / "base"), "--checkpoint=fast"]
        subprocess.run(command, check=True, capture_output=True, **_unprivileged("pg_basebackup"))

    def restore(self, moment: str) -> "list[Machine]":
        """Two new machines with everything that was committed until a moment."""
        first = 20 + len(self._restored)
        machines = [self._machine(f"db{number}", number) for number in (first, first + 1)]
        scope = f"restored{first}"
        archive = self._backup / scope
        archive.mkdir()
        _give(archive)
        for machine in machines:
            text = self._adapted("ha/patroni.yml", machine).replace(f"{self._backup}/wal", str(archive))
            more = self._adapted("ha/restore.yml", machine).replace("2026-01-31 12:00:00+00", moment)
            text = text.replace("scope: roost", f"scope: {scope}").replace("bootstrap:\n", more, 1)
            (machine.folder / "patroni.yml").write_text(text)
            machine.commands["patroni"] = ["/usr/bin/patroni", "patroni.yml"]
            _give(machine.folder)
            machine.start()
        self._restored += machines
        self.wait(lambda: sorted(map(self.role, machines)) == ["primary", "synchronous"], "a restored primary", 240)
        return machines

    # Waiting

    def wait(self, done: Callable[[], Any], what: str, seconds: float = START_SECONDS) -> None:
        """Wait until something is so."""
        until = time.monotonic() + seconds
        while not done():
            if time.monotonic() > until:
                raise TimeoutError(f"{what}: not within {seconds:g} seconds; see {self.folder}")
            time.sleep(0.2)

    def role(self, machine: Machine) -> str:
        """What Patroni says that a machine is: primary, sync_standby, replica, or nothing."""
        for role in ("primary", "synchronous", "replica"):
            if _status(f"http://{machine.address}:8008/{role}") == 200:
                return role
        return ""

    def primary(self) -> Machine:
        """The machine that may be written to."""
        return next(each for each in self.databases if self.role(each) == "primary")

    def synchronous(self) -> Machine:
        """The machine that a commit waits for."""
        return next(each for each in self.databases if self.role(each) == "synchronous")

    def wait_for_the_databases(self) -> None:
        """Wait until there is a primary, and both others follow it, one of them synchronously."""
        wanted = ["primary", "replica", "synchronous"]
        self.wait(lambda: sorted(map(self.role, self.databases)) == wanted, "a primary and two standbys")
        self.wait(self._writable, "a database that can be written to")

    def _writable(self) -> bool:
        try:
            with psycopg.connect(self.url(SUPERUSER, "postgres"), autocommit=True) as connection:
                connection.execute("SET statement_timeout = '3s'")
                return connection.execute("SELECT pg_logical_emit_message(true, 'ha', '')").fetchone() is not None
        except psycopg.Error:
            return False

    def wait_until_served(self) -> None:
        """Wait until every API is ready."""
        for machine in self.applications:
            self.wait_until_ready(f"{machine.address}:8774")

    def wait_until_ready(self, address: str) -> None:
        """Wait until the API at an address is ready."""
        self.wait(lambda: _status(f"http://{address}/readiness") == 200, address)

    # Faults, and what an operator does

    def patronictl(self, *arguments: str) -> str:
        """Run Patroni's own command."""
        file = self.databases[0].folder / "patroni.yml"
        done = subprocess.run(
            ["/usr/bin/patronictl", "-c", str(file), *arguments], check=True, capture_output=True, text=True, timeout=90
        )
        return done.stdout

    @property
    def _beyond(self) -> str:
        """The network in which app1 sees the databases."""
        first, second, third = self._network.split(".")
        return f"{first}.{int(second) + 1}.{third}"

    def _forward(self) -> None:
        for number, machine in enumerate(self.databases, 1):
            for port in (5432, 8008):
                dial = partial(asyncio.open_connection, machine.address, port)
                proxy = Proxy(dial, (f"{self._beyond}.{number}", port))
                asyncio.run_coroutine_threadsafe(proxy.start(), self.loop).result()
                self._forwarders.append(proxy)

    def cut_app1_off(self) -> None:
        """Let nothing through between app1 and the databases; without a notification."""
        for proxy in self._forwarders:
            self.loop.call_soon_threadsafe(proxy.freeze)

    def connect_app1(self) -> None:
        """Let everything through again."""
        for proxy in self._forwarders:
            self.loop.call_soon_threadsafe(proxy.heal)

    # The end

    def keep_logs(self, folder: Path) -> None:
        """Copy every log to a folder."""
        for machine in self.machines:
            (folder / machine.name).mkdir(parents=True, exist_ok=True)
            for log in machine.folder.glob("*.log"):
                shutil.copy(log, folder / machine.name)

    def stop(self) -> None:
        """End everything, and remove every trace."""
        for machine in self.machines:
            machine.signal(signal.SIGCONT)
        for proxy in self._forwarders:
            asyncio.run_coroutine_threadsafe(proxy.stop(), self.loop).result()
        # The primary's shutdown waits for its standbys, and Patroni for etcd.
        for programs in (("haproxy", "pgbouncer", "api", "engine"), ("patroni",), ("etcd",)):
            threads = [
                threading.Thread(target=machine.stop, args=[each for each in programs if each in machine.commands])
                for machine in self.machines
                if programs[0] in machine.commands
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        for machine in self.machines:
            machine.cut_the_power()
        self.loop.call_soon_threadsafe(self.loop.stop)
        shutil.rmtree(self.folder)


@contextlib.contextmanager
def running(*, forwarded: bool = False) -> Iterator[Datacenter]:
    """All machines, as long as they are needed."""
    datacenter = Datacenter(forwarded=forwarded)
    try:
        datacenter.start()
        yield datacenter
    finally:
        datacenter.stop()


def _give(*folders: Path) -> None:
    """PostgreSQL's account must be able to write there."""
    if os.geteuid() == 0:
        for folder in folders:
            subprocess.run(["chown", "-R", "postgres:postgres", folder], check=True)
            folder.chmod(0o755)
            for file in folder.glob("*.yml"):
                file.chmod(0o600)


def _replaced(text: str, places: Mapping[str, object]) -> str:
    for there, here in places.items():
        text = text.replace(there, str(here))
    return text


def _succeeds(command: list[str], environment: dict[str, str]) -> bool:
    done = subprocess.run([sys.executable, "-m", "roost", *command], env=environment, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise RuntimeError(done.stderr)
    return done.returncode == 0


def _status(url: str, trusting: ssl.SSLContext | None = None) -> int:
    try:
        with urllib.request.urlopen(url, timeout=3, context=trusting) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0
