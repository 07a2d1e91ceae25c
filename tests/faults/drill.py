"""A drill: a deployment, its clients, and what must hold whenever everything has come to rest."""

import asyncio
import json
import random
import re
import shutil
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from psycopg.rows import dict_row

from roost.compute.answers import audit
from roost.store import retention
from roost.store.database import Database
from tests.faults import linearizability, recount
from tests.faults.clients import PROFILE, Clients, Operation
from tests.faults.deployment import BOOTS_THAT_FAIL, TO_POSTGRESQL, Deployment
from tests.faults.histories import Recorder
from tests.faults.recount import Truth

REST_SECONDS = 300.0
"""Within which everything must come to rest once the faults have ended; the machine may be busy with other things."""
ATTEMPTS = 10
"""How often a client asks again after a refusal that says when, on a machine that is busy with other things."""
MOST_FAULTS = 30
"""While one history is recorded."""
LIMITS = {"instances": 90, "cores": 165, "ram": 600_000, "server_groups": 20}


class Violation(AssertionError):
    """A promise was broken."""


@dataclass
class Drill:
    """One deployment on which programs are run, one after the other."""

    folder: Path
    seed: int
    apis: int = 3
    violations: list[str] = field(default_factory=list)
    quiet_points: int = 0
    histories: Counter[str] = field(default_factory=Counter)
    """How many histories of clients were recorded, and of how many operations they were."""
    settled: set[str] = field(default_factory=set)
    """The ids of notifications that were held against the changes of earlier programs."""

    def start(self) -> None:
        self.deployment = Deployment(self.folder, api_processes=self.apis)
        self.deployment.start()
        self.clients = Clients(self.deployment, self.seed)
        self.profile, self.policies = self._prepare()

    def _prepare(self) -> tuple[str, list[str]]:
        """What the clusters of all programs share."""
        body: dict[str, Any] = {"profile": {"name": "profile", "spec": PROFILE}}
        profile = self.clients.ask_and_wait("create profile", "POST", "/clustering/v1/profiles", body)
        assert profile.accepted, profile
        policies = []
        for kind, version, properties in _POLICIES:
            body = {"policy": {"name": kind, "spec": {"type": kind, "version": version, "properties": properties}}}
            made = self.clients.ask_and_wait("create policy", "POST", "/clustering/v1/policies", body)
            assert made.accepted, made.answer
            policies.append(str(made.answer["policy"]["id"]))
        return str(profile.answer["profile"]["id"]), policies

    def stop(self) -> None:
        """End the processes in order; those that cannot are one more violation."""
        self.clients.close()
        self.violations += self.deployment.stop()

    @contextmanager
    def to_the_end(self) -> Iterator[None]:
        """Hypothesis runs again what failed, and tells of that: what the drill itself stumbled on is kept here."""
        try:
            yield
        except Exception as error:
            if not self.violations:
                traceback.print_exc()
                self.violations.append(f"the drill itself failed: {type(error).__name__}: {error}")
            raise

    def come_to_rest(self) -> None:
        """End all faults, wait until nothing is being done any more, and hold everything against the ground truth."""
        self.deployment.heal()
        self.clients.wait()
        self.deployment.wait_until_served()
        self._bring_hosts_back()
        until = time.monotonic() + REST_SECONDS
        while left := list(recount.unrest(Truth.read(self.deployment.postgres.url, recount.RESTLESS))):
            if time.monotonic() > until:
                self.violations += [f"after {REST_SECONDS} s at peace, {each}" for each in left]
                break
            time.sleep(0.1)
        time.sleep(0.2)  # a worker that has just ended its last job may still be in that job's transaction
        truth = Truth.read(self.deployment.postgres.url)
        self.quiet_points += 1
        self.violations += self._wrong(truth)
        if self.violations:
            raise Violation("\n".join(self.violations))

    def crowded_hosts(self) -> list[tuple[str, list[str]]]:
        """The hosts that have servers, each by the id of its service, with those servers."""
        query = """
            SELECT hosts.service_uuid::text, array_agg(servers.id::text ORDER BY servers.id)
            FROM hosts JOIN servers ON servers.host_id = hosts.id WHERE NOT forced_down GROUP BY hosts.id
        """
        with self.deployment.sql() as connection:
            return connection.execute(query).fetchall()

    def say_down(self, service: str, down: bool) -> None:
        """Say that a host is down, or up again."""
        path = f"/compute/v2.1/os-services/{service}"
        self.clients.ask(f"host {'down' if down else 'up'}", "PUT", path, {"forced_down": down}, subject=service)

    def _bring_hosts_back(self) -> None:
        for _ in range(ATTEMPTS):
            down = self._there("hosts", "forced_down")
            if not down:
                return
            for host in down:
                self.say_down(str(host["service_uuid"]), False)
            self.clients.wait()
        self.violations.append(f"hosts that were said to be up are down: {down}")
        raise Violation(self.violations[-1])

    def _wrong(self, truth: Truth) -> Iterator[str]:
        yield from recount.everything(truth)
        yield from recount.within_limits(truth, LIMITS)
        yield from self._broken(truth)
        yield from recount.disagreements(truth, asyncio.run(self._findings()))
        yield from recount.notifications(truth, self.deployment.broker, self.settled)
        yield from self._outcomes(truth)
        yield from self.deployment.fell
        yield from (f"no answer within its time: {operation}" for operation in self.clients.hung)
        for operation in self.clients.history:
            if operation.status in (401, 403) and "uota" not in str(operation.answer):
                yield f"a valid token was refused: {operation}"
            if operation.status >= 500 and operation.status != 503:
                yield f"an answer that promises nothing: {operation}: {operation.answer}"

    async def _findings(self) -> list[str]:
        async with self._database() as database, database.begin() as connection:
            return [finding.message for finding in await audit.audit_all(connection)]

    @asynccontextmanager
    async def _database(self) -> AsyncIterator[Database]:
        database = Database(self.deployment.postgres.url)
        try:
            yield database
        finally:
            await database.close()

    def _broken(self, truth: Truth) -> Iterator[str]:
        """Rules bind when servers are placed: what was made a member, or given other policies, may break them."""
        loose = {operation.subject for operation in self.clients.history if operation.kind in _LOOSENS}
        for group, breaches in recount.broken_rules(truth).items():
            if group not in loose:
                yield f"the hard rules of group {group} are broken: {[set(breach) for breach in breaches]}"

    def clear(self) -> None:
        """Delete everything, as clients would, so that the next program finds room; that, too, must come to rest."""
        for _ in range(ATTEMPTS):
            for server in self._there("servers", "client_token IS NULL"):
                path = f"/compute/v2.1/servers/{server['id']}"
                self.clients.ask("delete server", "DELETE", path, subject=str(server["id"]))
            for cluster in self._there("clusters"):
                path = f"/clustering/v1/clusters/{cluster['id']}"
                self.clients.ask("delete cluster", "DELETE", path, subject=cluster["id"])
            self.come_to_rest()
            for node in self._there("nodes", "cluster_id IS NULL"):
                path = f"/clustering/v1/nodes/{node['id']}"
                self.clients.ask("delete node", "DELETE", path, subject=node["id"])
            for group in self._there("server_groups"):
                path = f"/compute/v2.1/os-server-groups/{group['id']}"
                self.clients.ask("delete group", "DELETE", path, subject=str(group["id"]))
            self.come_to_rest()
            tables = ("servers", "nodes", "clusters", "server_groups")
            left = [row["name"] for table in tables for row in self._there(table)]
            if not left:
                asyncio.run(self._forget())
                return
        self.violations.append(f"what was deleted at peace is still there: {left}")
        raise Violation(self.violations[-1])

    async def _forget(self) -> None:
        """Let the past go, or each recount would take longer than the one before it."""
        self.clients.forget()
        async with self._database() as database:
            await retention.purge(database, days=0, notifications=False)
        with self.deployment.sql() as connection:
            connection.execute("TRUNCATE rehearsal_witness")
        self.settled.update(json.loads(line)["message_id"] for line in self.deployment.broker.read_text().splitlines())
        self.deployment.broker.write_text("")

    def _there(self, table: str, where: str = "true") -> list[dict[str, Any]]:
        with self.deployment.sql() as connection:
            return connection.cursor(row_factory=dict_row).execute(f"SELECT * FROM {table} WHERE {where}").fetchall()

    def record(self, seed: int, *, faults: bool) -> list[linearizability.Operation]:
        """The history of some concurrent clients on a group, at peace or while processes and connections are lost."""
        recorder = Recorder(self.clients, seed)
        self.deployment.boots_fail(0)
        recording = asyncio.run_coroutine_threadsafe(recorder.record(), self.deployment.loop)
        dice = random.Random(seed)
        # On a machine that is busy with other things, faults without end would leave no time for an answer.
        for _ in range(MOST_FAULTS if faults else 0):
            time.sleep(dice.uniform(0.2, 1.0))
            if recording.done():
                break
            self._disturb(dice)
        recording.result()
        self.come_to_rest()
        history = recorder.resolve()
        self.clear()
        self.deployment.boots_fail(BOOTS_THAT_FAIL)
        self.histories.update(recorded=1, operations=len(history))
        return history

    def _disturb(self, dice: random.Random) -> None:
        process = dice.choice(self.deployment.processes)
        kind = dice.choice(["kill", "suspend", "cut", "freeze", "slow", "crash"])
        if kind == "kill":
            self.deployment.kill_and_restart(process)
        elif kind == "suspend":
            self.deployment.suspend(process, 1.0)
        elif kind == "cut":
            self.deployment.cut(process.database, TO_POSTGRESQL)
        elif kind == "freeze":
            self.deployment.freeze(process.database, TO_POSTGRESQL, 1.0)
        elif kind == "slow":
            self.deployment.slow_down(process.database, TO_POSTGRESQL, 0.02)
        else:
            self.deployment.crash_the_database()

    # Each request has had exactly one outcome

    def _outcomes(self, truth: Truth) -> Iterator[str]:
        yield from self._servers(truth)
        yield from self._things(truth, "group", "server_groups", "server_group")
        yield from self._things(truth, "cluster", "clusters", "cluster")
        yield from self._things(truth, "node", "nodes", "node")
        actions = truth.by_id("actions")
        for operation in self.clients.history:
            if operation.action_id is not None and operation.action_id not in actions:
                yield f"the action of an accepted request is lost: {operation}"

    def _servers(self, truth: Truth) -> Iterator[str]:
        there: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for server in truth["servers"]:
            if server["client_token"] is None:
                there[re.sub(r"-\d+$", "", server["name"])].append(server)
        deletions = self._deletions("server")
        for operation in self.clients.of("create server") + self.clients.of("create servers"):
            found = there.pop(operation.name or "", [])
            most = operation.body["server"].get("max_count", 1)
            if len({server["reservation_id"] for server in found}) > 1 or len(found) > most:
                yield f"doubled: {operation} made {len(found)} servers"
            elif operation.accepted:
                yield from _fate(operation, [str(server["id"]) for server in found], deletions, at_once=True)
            elif found and not operation.unknown:
                yield f"refused, and made all the same: {operation}"
        yield from (f"no request asked for the servers called {name}" for name in there)

    def _things(self, truth: Truth, kind: str, table: str, envelope: str) -> Iterator[str]:
        there: dict[str, list[str]] = defaultdict(list)
        for row in truth[table]:
            there[row["name"]].append(str(row["id"]))
        ids = {str(row["id"]) for row in truth[table]}
        deletions = self._deletions(kind)
        for operation in self.clients.of(f"create {kind}"):
            found = there.pop(operation.name or "", [])
            if len(found) > 1:
                yield f"doubled: {operation} made {len(found)}"
            elif operation.accepted:
                made = str(operation.answer[envelope]["id"])
                yield from _fate(operation, [made] if made in ids else [], deletions, at_once=kind == "group")
            elif found and not operation.unknown:
                yield f"refused, and made all the same: {operation}"

    def _deletions(self, kind: str) -> dict[str, list[Operation]]:
        found: dict[str, list[Operation]] = defaultdict(list)
        for operation in self.clients.history:
            # What was given to a cluster goes with it.
            if operation.kind == f"delete {kind}" or (kind == "node" and operation.kind == "add node"):
                found[operation.subject or ""].append(operation)
        return found

    def keep(self, folder: Path) -> None:
        """Write down every request with its times, and the logs, to find out what happened."""
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "history.txt").open("w") as history:
            for each in self.clients.history:
                print(f"{each.asked_at:.3f} {each.answered_at:.3f} {each} {each.body} {each.answer}", file=history)
        for log in self.folder.glob("*.log"):
            shutil.copy(log, folder)

    def summary(self) -> dict[str, Any]:
        """What was done, and what came of it."""
        return {
            "seed": self.seed,
            "operations": self.clients.kinds.total(),
            "operations_by_kind": dict(self.clients.kinds.most_common()),
            "answers_by_status": {str(status or "none"): n for status, n in sorted(self.clients.statuses.items())},
            "faults": sum(self.deployment.injected.values()),
            "faults_by_kind": dict(self.deployment.injected.most_common()),
            "quiet_points": self.quiet_points,
            "histories": self.histories,
            "violations": self.violations,
        }


_POLICIES: list[tuple[str, str, dict[str, Any]]] = [
    ("senlin.policy.deletion", "1.0", {"criteria": "OLDEST_FIRST", "destroy_after_deletion": True}),
    ("senlin.policy.scaling", "1.0", {"event": "CLUSTER_SCALE_OUT", "adjustment": {"number": 2}}),
    ("senlin.policy.batch", "1.0", {"min_in_service": 0, "max_batch_size": 2, "pause_time": 1}),
    ("senlin.policy.zone_placement", "1.0", {"zones": [{"name": "zone1"}, {"name": "zone2"}]}),
]

_LOOSENS = ("add member", "rename group", "create scoped group")


def _fate(
    operation: Operation, found: list[str], deletions: dict[str, list[Operation]], *, at_once: bool
) -> Iterator[str]:
    """What was made is there unless its deletion was asked for, and gone if that was accepted; where an action deletes
    it that may fail, it may still be there."""
    if "reservation_id" in operation.answer:
        # Their ids are not known: only what is left of them shows whether they were deleted.
        return
    made = str(next(iter(operation.answer.values()))["id"])
    asked = deletions.get(made, [])
    if not asked and [made] != found:
        yield f"lost: {operation} made {made}, and there is {found}"
    if at_once and found and any(each.accepted for each in asked):
        yield f"deleted, and still there: {operation} made {made}"
    gone_already = any(each.accepted or each.unknown for each in asked)
    if any(each.status == 404 for each in asked) and not gone_already:
        yield f"lost: {operation} made {made}, and its deletion does not find it"
