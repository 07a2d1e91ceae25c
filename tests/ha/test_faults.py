"""What fails in a datacenter, under constant load: nothing that was acknowledged is lost, and nothing is done twice.

`make ha-test` runs each fault HA_ROUNDS times (3) and writes what it saw to build/ha.json, and all logs to build/ha.
"""

import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psycopg
import pytest

from tests.faults import recount
from tests.ha.clients import Clients
from tests.ha.machines import MORE_SETTINGS, PASSWORD, SUPERUSER, Datacenter, Machine, running
from tests.ha.probe import Probe

pytestmark = pytest.mark.skipif("ROOST_HA" not in os.environ, reason="takes a quarter of an hour: make ha-test")

ROUNDS = int(os.environ.get("HA_ROUNDS") or 3)
WRITTEN = Path("build/ha.json")
REST_SECONDS = 120.0
SLOWER_SECONDS = 5.0
"""How much longer than PostgreSQL itself Roost may be away."""
ENOUGH = 10
"""Servers that must be created before a fault, and after it."""


@dataclass(frozen=True)
class Figures:
    """What one fault did."""

    fault: str
    acknowledged: int
    lost: int
    doubled: int
    refused: dict[int, int]
    own_outage: float
    """The longest time for which PostgreSQL could not be written to."""
    outage: float
    """The longest time for which no server was created."""


@dataclass
class Rehearsal:
    """The machines, their clients and the ledger of everything so far."""

    datacenter: Datacenter
    clients: Clients
    probe: Probe
    seen: list[Figures] = field(default_factory=list)

    def under_load(self, name: str, fault: Callable[[], None]) -> None:
        """Let clients work while something breaks and is mended; then recount everything."""
        clients, probe = self.clients, self.probe
        before, refused = len(clients.created), Counter(clients.refused)
        with probe.writing(), clients.working():
            self.wait_for_creations()
            cluster = clients.grow_a_cluster()
            begun = time.time()
            fault()
            self.wait_for_creations()
            ended = time.time()
        self.datacenter.wait_for_the_databases()
        self.datacenter.wait_until_served()
        truth = at_rest(self.datacenter.url(SUPERUSER))
        lost, doubled = clients.lost(truth["servers"]), clients.doubled(truth["servers"])
        figures = Figures(
            fault=name,
            acknowledged=len(clients.created) - before,
            lost=len(lost),
            doubled=len(doubled),
            refused=dict(clients.refused - refused),
            own_outage=round(probe.longest_pause(begun, ended), 1),
            outage=round(clients.longest_pause(begun, ended), 1),
        )
        self.seen.append(figures)
        print(figures, flush=True)
        assert (lost, doubled) == ([], [])
        assert probe.lost() == []
        assert list(recount.everything(truth)) == []
        (made,) = [row for row in truth["clusters"] if str(row["id"]) == cluster]
        nodes = [row["status"] for row in truth["nodes"] if str(row["cluster_id"]) == cluster]
        assert (made["status"], nodes) == ("ACTIVE", ["ACTIVE"] * 5)
        assert listed(clients) == {str(row["id"]) for row in truth["servers"]}
        # HAProxy answers 502 and 504 for an API that went away; Roost itself only ever asks to try again.
        assert set(figures.refused) <= {0, 502, 503, 504}
        assert figures.outage <= figures.own_outage + SLOWER_SECONDS

    def wait_for_creations(self) -> None:
        """Wait until the clients have created a few more servers."""
        wanted = len(self.clients.created) + ENOUGH
        self.datacenter.wait(lambda: len(self.clients.created) >= wanted, "servers are created")


def at_rest(url: str) -> recount.Truth:
    """Everything that is stored, once nothing is under way any more."""
    until = time.monotonic() + REST_SECONDS
    while True:
        truth = recount.Truth.read(url)
        if not (left := list(recount.unrest(truth))):
            return truth
        assert time.monotonic() < until, left
        time.sleep(0.5)


def listed(clients: Clients) -> set[str]:
    """The servers that a client sees, page by page."""
    found: set[str] = set()
    marker = ""
    while page := clients.ask("GET", f"/compute/v2.1/servers?all_tenants=1&limit=500{marker}")["servers"]:
        found |= {each["id"] for each in page}
        marker = f"&marker={page[-1]['id']}"
    return found


@pytest.fixture(scope="module")
def rehearsal() -> Iterator[Rehearsal]:
    with running(forwarded=True) as datacenter:
        with psycopg.connect(datacenter.url(SUPERUSER), autocommit=True) as connection:
            connection.execute("CREATE TABLE rehearsal_witness (event text, group_id uuid, server_id uuid)")
        clients = Clients(datacenter.fronts, PASSWORD, trusting=datacenter.trusting())
        clients.sign_in()
        rehearsal = Rehearsal(datacenter, clients, Probe(datacenter.url(SUPERUSER, "postgres"), datacenter.loop))
        yield rehearsal
        datacenter.keep_logs(WRITTEN.with_suffix(""))
        WRITTEN.write_text(json.dumps([asdict(each) for each in rehearsal.seen], indent=2) + "\n")


@pytest.fixture(autouse=True, params=range(ROUNDS))
def round_number(request: pytest.FixtureRequest) -> int:
    """Every fault comes several times."""
    return int(request.param)


def test_the_primary_loses_its_power(rehearsal: Rehearsal) -> None:
    def fault() -> None:
        lost = rehearsal.datacenter.primary()
        lost.cut_the_power()
        another_primary(rehearsal.datacenter, lost)
        rehearsal.wait_for_creations()
        lost.start()
        rehearsal.datacenter.wait_for_the_databases()

    rehearsal.under_load("kill -9 of the primary's machine", fault)


def test_the_primary_freezes_and_comes_back(rehearsal: Rehearsal) -> None:
    def fault() -> None:
        frozen = rehearsal.datacenter.primary()
        frozen.signal(signal.SIGSTOP)
        another_primary(rehearsal.datacenter, frozen)
        rehearsal.wait_for_creations()
        frozen.signal(signal.SIGCONT)
        rehearsal.datacenter.wait_for_the_databases()

    rehearsal.under_load("SIGSTOP of the primary's machine", fault)


def test_a_switchover(rehearsal: Rehearsal) -> None:
    datacenter = rehearsal.datacenter

    def fault() -> None:
        before, after = datacenter.primary(), datacenter.synchronous()
        datacenter.patronictl("switchover", "roost", "--primary", before.name, "--candidate", after.name, "--force")
        datacenter.wait(lambda: datacenter.role(after) == "primary", "the candidate leads")
        datacenter.wait_for_the_databases()

    rehearsal.under_load("patronictl switchover", fault)


def test_the_synchronous_standby_is_lost_and_comes_back(rehearsal: Rehearsal) -> None:
    def fault() -> None:
        lost = rehearsal.datacenter.synchronous()
        lost.cut_the_power()
        rehearsal.wait_for_creations()
        lost.start()
        rehearsal.datacenter.wait_for_the_databases()

    rehearsal.under_load("kill -9 of the synchronous standby's machine", fault)


def test_one_member_of_etcd_is_lost(rehearsal: Rehearsal) -> None:
    def fault() -> None:
        primary = rehearsal.datacenter.primary()
        primary.kill("etcd")
        time.sleep(30)  # longer than the time to live of the primary's lock
        assert rehearsal.datacenter.role(primary) == "primary"
        primary.start("etcd")

    rehearsal.under_load("kill -9 of one member of etcd", fault)


def test_without_a_majority_of_etcd_nothing_is_written(rehearsal: Rehearsal) -> None:
    datacenter = rehearsal.datacenter

    def fault() -> None:
        for machine in datacenter.databases[:2]:
            machine.kill("etcd")
        datacenter.wait(lambda: "primary" not in map(datacenter.role, datacenter.databases), "no leader")
        time.sleep(2)  # answers to what was committed before are on their way
        before = len(rehearsal.clients.created), len(rehearsal.probe.written)
        time.sleep(10)
        assert (len(rehearsal.clients.created), len(rehearsal.probe.written)) == before
        for machine in datacenter.databases[:2]:
            machine.start("etcd")
        datacenter.wait_for_the_databases()

    rehearsal.under_load("kill -9 of two of three members of etcd", fault)


def test_one_api_is_cut_off_from_the_database(rehearsal: Rehearsal) -> None:
    def fault() -> None:
        rehearsal.datacenter.cut_app1_off()
        time.sleep(30)
        rehearsal.wait_for_creations()
        rehearsal.datacenter.connect_app1()
        rehearsal.datacenter.wait_until_served()

    rehearsal.under_load("no network between app1 and the databases", fault)


def test_every_process_is_restarted_one_after_the_other(rehearsal: Rehearsal) -> None:
    datacenter = rehearsal.datacenter

    def fault() -> None:
        primary = datacenter.primary()
        for machine in [each for each in datacenter.databases if each is not primary] + [primary]:
            for program in machine.commands:
                restart(datacenter, machine, program)
                datacenter.wait_for_the_databases()
        for machine in datacenter.applications:
            for program in machine.commands:
                restart(datacenter, machine, program)
                datacenter.wait_until_served()

    rehearsal.under_load("restart of every process, one by one", fault)


def test_a_backup_becomes_a_new_cluster_as_it_was_at_a_moment(rehearsal: Rehearsal) -> None:
    datacenter, clients = rehearsal.datacenter, rehearsal.clients
    with clients.working():
        rehearsal.wait_for_creations()
        datacenter.back_up()
        rehearsal.wait_for_creations()
        with psycopg.connect(datacenter.url(SUPERUSER), autocommit=True) as connection:
            (moment,) = connection.execute("SELECT clock_timestamp()").fetchone() or ()
            rehearsal.wait_for_creations()
            (segment,) = connection.execute("SELECT pg_walfile_name(pg_switch_wal())").fetchone() or ()
    datacenter.wait(lambda: (datacenter.folder / "backup" / "wal" / segment).exists(), "the log is archived")
    restored = datacenter.restore(str(moment))
    url = datacenter.url(SUPERUSER, machines=restored)
    with served(datacenter, url) as address:
        truth = at_rest(url)
        then = moment.timestamp()
        stored = {str(row["id"]) for row in truth["servers"]}
        due = {each for each, at in clients.created.items() if at <= then and clients.doomed.get(each, then + 1) > then}
        early = {each for each in stored if clients.asked.get(clients.names.get(each, ""), 0.0) > then}
        assert due - stored == set()
        assert early == set()
        assert {each for each, at in clients.deleted.items() if at <= then} & stored == set()
        assert list(recount.everything(truth)) == []
        there = Clients([address], PASSWORD)
        there.sign_in()
        assert listed(there) == stored
        with there.working():
            datacenter.wait(lambda: len(there.created) > ENOUGH, "servers are created in the restored cluster")
        print(f"restored: {len(due)} acknowledged before the moment, 0 missing; {len(stored)} servers", flush=True)
    for machine in restored:
        machine.cut_the_power()


@contextmanager
def served(datacenter: Datacenter, url: str) -> Iterator[str]:
    """An API and an engine on another database; where they answer."""
    folder = datacenter.folder / "restored"
    folder.mkdir(exist_ok=True)
    (folder / "roost.conf").write_text(f"[database]\nurl = {url}\n{MORE_SETTINGS}")
    roost, configured = [sys.executable, "-m", "roost"], ["--config", str(folder / "roost.conf")]
    address = f"{datacenter.applications[0].address}:8790"
    commands = {"api": [*roost, "api", *configured, "--listen", address], "engine": [*roost, "engine", *configured]}
    machine = Machine("restored", address, folder, commands)
    machine.start()
    try:
        datacenter.wait_until_ready(address)
        yield f"http://{address}"
    finally:
        machine.stop()


def another_primary(datacenter: Datacenter, than: Machine) -> None:
    """Wait until another machine leads."""
    others = [each for each in datacenter.databases if each is not than]
    datacenter.wait(lambda: "primary" in map(datacenter.role, others), "another primary")


def restart(datacenter: Datacenter, machine: Machine, program: str) -> None:
    """Stop a program and start it again, as a package's upgrade does."""
    machine.stop(program)
    machine.start(program)
