"""Some API and two engine processes, a PostgreSQL, and proxies between all of them: everything that can be broken.

The test itself goes to PostgreSQL directly, as the ground truth is not to be read through what is being broken.
"""

import asyncio
import contextlib
import json
import multiprocessing
import os
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Coroutine
from dataclasses import dataclass, field
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any, TypeVar

import psycopg

from roost import config
from roost.cli import bootstrap
from roost.store import schema
from roost.store.embedded import EmbeddedPostgres
from tests.conftest import PASSWORDS
from tests.faults.process import run
from tests.faults.proxy import Proxy

Answer = TypeVar("Answer")

HEARTBEAT, DEAD_AFTER = 0.5, 3.0
SETTINGS = f"""
[database]
pool_size = 5
max_overflow = 10
[api]
max_requests = 32
[auth]
token_seconds = 86400
token_cache_seconds = 1
[quota]
instances = 90
cores = 165
ram = 600000
server_groups = 20
server_group_members = 12
[groups]
audit_seconds = 5
[notifications]
driver = messagingv2
[clusters]
heartbeat = {HEARTBEAT}
dead_after = {DEAD_AFTER}
[log]
level = INFO
format = json
"""
TO_CLIENTS, TO_POSTGRESQL = "between clients and an API", "between a process and PostgreSQL"
BOOTS_THAT_FAIL = 0.03
APIS_OF_A_MACHINE = 2
TOPOLOGY = f"""
generate: {{zones: 2, racks_per_zone: 3, hosts_per_rack: 5, host: {{vcpus: 8, memory_mb: 32768, disk_gb: 400}}}}
hosts:
  - {{name: lab1, zone: lab, vcpus: 64}}
  - {{name: lab2, zone: lab, vcpus: 64}}
  - {{name: lab3, zone: lab, vcpus: 64}}
simulation: {{boot_seconds: 0.05, failure_rate: {BOOTS_THAT_FAIL}}}
"""

# What a full disk does: no new row, and no new version of one either. Every table gets it, the queue's included.
_FULL_DISK = """
    CREATE TABLE rehearsal_disk (is_full boolean NOT NULL);
    INSERT INTO rehearsal_disk VALUES (false);
    CREATE FUNCTION rehearse_full_disk() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF (SELECT is_full FROM rehearsal_disk) THEN
            RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = 'disk_full';
        END IF;
        RETURN NULL;
    END $$;
    DO $$
    DECLARE it record;
    BEGIN
        FOR it IN SELECT relname FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
            WHERE nspname = 'public' AND relkind = 'r' AND relname <> 'rehearsal_disk'
        LOOP
            EXECUTE format('CREATE TRIGGER rehearsal_disk BEFORE INSERT OR UPDATE ON %I '
                'FOR EACH STATEMENT EXECUTE FUNCTION rehearse_full_disk()', it.relname);
        END LOOP;
    END $$;
"""


_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["tests.faults.process"])


@dataclass
class Process:
    """One `roost` process that can be killed, and comes back at the same address."""

    name: str
    command: list[str]
    machine: str
    """APIs of one machine have one of them decide for all."""
    database: Proxy
    front: Proxy | None
    """What its clients go through; engines have none."""
    database_url: str
    log: Path
    rehearsal: Path
    broker: Path
    running: ForkServerProcess | None = None
    _has_served: bool = False
    """Whether it has taken a request since its start: from then on only its end changes that."""

    def start(self) -> None:
        """Run it, unless it runs."""
        if self.running is None:
            arguments = (self.command, self.machine, self.database_url, self.log, self.rehearsal, self.broker)
            self.running = _FORKS.Process(target=run, args=arguments, daemon=True)
            self.running.start()

    def kill(self) -> None:
        """End it without a word."""
        if self.running is not None:
            self.running.kill()
            self.running.join()
            self.running = None
            self._has_served = False

    @property
    def serves(self) -> bool:
        """Whether it takes requests, as a load balancer in front of it would see it."""
        if not self._has_served:
            with socket.socket() as probe:
                self._has_served = probe.connect_ex(("127.0.0.1", int(self.command[-1].rpartition(":")[2]))) == 0
        return self._has_served

    def rehearse(self, **faults: Any) -> None:
        """Have it meet these faults, and no others, from now on."""
        beside = self.rehearsal.with_suffix(".new")
        beside.write_text(json.dumps(faults))
        beside.replace(self.rehearsal)


@dataclass
class Deployment:
    """All of it."""

    folder: Path
    settings: str = SETTINGS
    topology: str = TOPOLOGY
    proxied: bool = True
    """Whether the processes reach PostgreSQL through proxies, which take their share of the machine."""
    api_processes: int = 2
    apis: list[Process] = field(default_factory=list)
    engines: list[Process] = field(default_factory=list)
    injected: Counter[str] = field(default_factory=Counter)
    """How often which kind of fault was brought about."""
    fell: list[str] = field(default_factory=list)
    """Processes that ended without being killed."""

    def start(self) -> None:
        """Make the database and start everything."""
        self.folder.mkdir(parents=True)
        self.broker = self.folder / "broker.jsonl"
        self.broker.touch()
        self.postgres = EmbeddedPostgres(self.folder / "postgres", {"fsync": "off", "full_page_writes": "off"})
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()
        self.postgres.start()
        try:
            self._start_processes()
        except BaseException:
            self.stop()
            raise

    def _start_processes(self) -> None:
        schema.upgrade(self.postgres.url)
        settings = self.folder / "roost.conf"
        settings.write_text(self.settings)
        topology = self.folder / "topology.yaml"
        topology.write_text(self.topology)
        bootstrap.fill(config.with_database(config.load(settings), self.postgres.url), PASSWORDS, str(topology))
        with self.sql() as connection:
            connection.execute(_FULL_DISK)
            connection.execute(_WITNESS)
        self.apis += [self._process("api", number + 1, settings) for number in range(self.api_processes)]
        self.engines += [self._process("engine", number + 1, settings) for number in range(2)]
        for each in self.processes:
            each.start()
        self.wait_until_served()

    @property
    def processes(self) -> list[Process]:
        """Those that can be killed."""
        return [*self.apis, *self.engines]

    def _process(self, kind: str, number: int, settings: Path) -> Process:
        async def dial() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            sockets = self.postgres.url.partition("host=")[2]
            return await asyncio.open_unix_connection(f"{sockets}/.s.PGSQL.5432")

        command = [kind, "--config", str(settings)]
        front = None
        if kind == "api":
            port = _free_port()
            command += ["--listen", f"127.0.0.1:{port}"]
            front = Proxy(lambda: asyncio.open_connection("127.0.0.1", port))
            self.await_(front.start())
        back = Proxy(dial)
        self.await_(back.start())
        return Process(
            name=f"{kind}{number}",
            command=command,
            machine=f"{self.folder}-{(number - 1) // APIS_OF_A_MACHINE}",
            database=back,
            front=front,
            database_url=f"postgresql://roost@127.0.0.1:{back.port}/roost" if self.proxied else self.postgres.url,
            log=self.folder / f"{kind}{number}.log",
            rehearsal=self.folder / f"{kind}{number}.json",
            broker=self.broker,
        )

    def await_(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        """Do something on the loop of the proxies and clients, from outside of it."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    def sql(self) -> "psycopg.Connection[Any]":
        """A connection past all proxies; each statement is a transaction."""
        return psycopg.connect(self.postgres.url, autocommit=True)

    def wait_until_served(self) -> None:
        """Wait until all API processes answer; a process that ended by itself is noted and started again."""
        until = time.monotonic() + 300
        for process in self.processes:
            self._notice_the_fallen(process)
        for process in self.apis:
            while not process.serves:
                self._notice_the_fallen(process)
                assert time.monotonic() < until, f"{process.name} does not answer: see {process.log}"
                time.sleep(0.05)

    def _notice_the_fallen(self, process: Process) -> None:
        if process.running is not None and not process.running.is_alive():
            # A process that begins while there is no database says so and ends; it is started again.
            last = process.log.read_text().splitlines()[-1:]
            if (
                process.running.exitcode != 1
                or not last
                or not last[0].startswith("roost: The database does not answer")
            ):
                self.fell.append(f"{process.name} ended by itself with {process.running.exitcode}: {last}")
            process.kill()
        process.start()

    def heal(self) -> None:
        """Take every fault back, and start what does not run."""
        for process in self.processes:
            if process.running is not None:
                _signal(process.running, signal.SIGCONT)
            process.rehearse()
            for proxy in (process.database, process.front):
                if proxy is not None:
                    self.loop.call_soon_threadsafe(proxy.heal)
        self.empty_the_disk()
        self.wait_until_served()

    def stop(self) -> list[str]:
        """End everything in order; which processes failed to."""
        running = [process for process in self.processes if process.running is not None]
        for process in running:
            assert process.running is not None
            process.running.terminate()
        failed = []
        for process in running:
            assert process.running is not None
            process.running.join(60)
            if process.running.exitcode != 0:
                failed.append(f"{process.name} ended with {process.running.exitcode}: see {process.log}")
            process.kill()
        for process in self.processes:
            for proxy in (process.database, process.front):
                if proxy is not None:
                    self.await_(proxy.stop())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.postgres.stop()
        return failed

    # Faults

    def kill_and_restart(self, process: Process) -> None:
        """kill -9, and start it again at once."""
        process.kill()
        process.start()
        self.injected["kill -9 of an API" if process.front else "kill -9 of an engine"] += 1

    def suspend(self, process: Process, seconds: float) -> None:
        """SIGSTOP: the process stands still in the middle of whatever it does, and goes on later."""
        running = process.running
        if running is not None and running.pid is not None:
            _signal(running, signal.SIGSTOP)
            threading.Timer(seconds, _signal, (running, signal.SIGCONT)).start()
            self.injected["SIGSTOP of an API" if process.front else "SIGSTOP of an engine"] += 1

    def crash_the_database(self) -> None:
        """Stop PostgreSQL in immediate mode, as a power cut would, and start it again."""
        self.postgres.restart()
        self.injected["immediate restart of PostgreSQL"] += 1

    def cut(self, proxy: Proxy, kind: str) -> None:
        """End the connections through a proxy."""
        self.loop.call_soon_threadsafe(proxy.cut)
        self.injected[f"cut connections {kind}"] += 1

    def slow_down(self, proxy: Proxy, kind: str, seconds: float) -> None:
        """Delay everything that goes through a proxy."""
        proxy.delay = seconds
        self.injected[f"delayed connections {kind}"] += 1

    def freeze(self, proxy: Proxy, kind: str, seconds: float) -> None:
        """Let nothing through for a while."""
        self.loop.call_soon_threadsafe(proxy.freeze)
        self.loop.call_soon_threadsafe(self.loop.call_later, seconds, proxy.heal)
        self.injected[f"frozen connections {kind}"] += 1

    def fill_the_disk(self) -> None:
        """Let the database have no room for anything new, until healed."""
        with self.sql() as connection:
            connection.execute("UPDATE rehearsal_disk SET is_full = true")
        self.injected["full disk"] += 1

    def empty_the_disk(self) -> None:
        """Let the database have room again."""
        with self.sql() as connection:
            connection.execute("UPDATE rehearsal_disk SET is_full = false")

    def boots_fail(self, share: float) -> None:
        """How many of the servers do not come up, by bad luck."""
        with self.sql() as connection:
            connection.execute(
                "UPDATE topologies SET simulation = jsonb_set(simulation, '{failure_rate}', to_jsonb(%s::float))",
                (share,),
            )

    def trouble_the_cloud(self, process: Process, **shares: float) -> None:
        """Let the cloud fail, act silently or act twice, each in a share of the calls."""
        process.rehearse(cloud=shares)
        for kind in shares:
            self.injected[f"cloud {kind}"] += 1

    def shift_the_clock(self, process: Process, seconds: float) -> None:
        """Set the wall clock of a process forward or back."""
        process.rehearse(clock=seconds)
        self.injected["shifted clock"] += 1


# What changed, written by the database itself in the transaction that changed it: neither more nor less than what was
# committed. A group that goes takes its members along; its servers are not said to leave it one by one.
_WITNESS = """
    CREATE TABLE rehearsal_witness (
        id bigserial, event text NOT NULL, group_id uuid NOT NULL, server_id uuid, tx bigint DEFAULT txid_current()
    );
    CREATE FUNCTION rehearse_group() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF TG_OP = 'INSERT' THEN
            INSERT INTO rehearsal_witness (event, group_id) VALUES ('server_group.create', NEW.id);
        ELSIF TG_OP = 'DELETE' THEN
            INSERT INTO rehearsal_witness (event, group_id) VALUES ('server_group.delete', OLD.id);
        ELSIF NEW.name <> OLD.name THEN
            INSERT INTO rehearsal_witness (event, group_id) VALUES ('server_group.update', NEW.id);
        END IF;
        RETURN NULL;
    END $$;
    CREATE TRIGGER rehearsal_group AFTER INSERT OR UPDATE OR DELETE ON server_groups
        FOR EACH ROW EXECUTE FUNCTION rehearse_group();
    CREATE FUNCTION rehearse_member() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF TG_OP <> 'INSERT' AND OLD.group_id IS NOT NULL AND (TG_OP = 'DELETE' OR NEW.group_id IS NULL)
            AND EXISTS (SELECT 1 FROM server_groups WHERE id = OLD.group_id)
        THEN
            INSERT INTO rehearsal_witness (event, group_id, server_id)
            VALUES ('server_group.remove_member', OLD.group_id, OLD.id);
        END IF;
        IF TG_OP <> 'DELETE' AND NEW.group_id IS NOT NULL AND (TG_OP = 'INSERT' OR OLD.group_id IS NULL) THEN
            INSERT INTO rehearsal_witness (event, group_id, server_id)
            VALUES ('server_group.add_member', NEW.group_id, NEW.id);
        END IF;
        RETURN NULL;
    END $$;
    CREATE TRIGGER rehearsal_member AFTER INSERT OR UPDATE OR DELETE ON servers
        FOR EACH ROW EXECUTE FUNCTION rehearse_member();
"""


def _signal(process: ForkServerProcess, number: signal.Signals) -> None:
    """Send a signal to a process, unless it has ended."""
    if process.pid is not None and process.is_alive():
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
