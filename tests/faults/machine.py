"""The machine: Hypothesis writes programs of requests and faults, and looks for one that breaks a promise.

A step only sends its requests, so that many are under way at once and a fault meets them in any state. Ids are not
known until an answer has come: each request has a number, which picks one of those that are known when it is its turn,
and everything else about the request. A program is reproduced by its seed; how its requests meet is up to the machine
that runs it.
"""

import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from tests.faults.clients import server_body
from tests.faults.deployment import DEAD_AFTER, TO_CLIENTS, TO_POSTGRESQL, Process
from tests.faults.drill import Drill, Violation
from tests.faults.proxy import Proxy

COMPUTE, CLUSTERING = "/compute/v2.1", "/clustering/v1"
QUIET_AFTER = 6
"""Steps between two quiet points, at least."""
MOST_UNDER_WAY = 48

POLICIES: list[list[dict[str, Any]]] = [
    [{"name": "anti-affinity"}],
    [{"name": "anti-affinity", "scope": "rack", "rules": {"max_server_per_aggregate": 2}}],
    [{"name": "affinity", "scope": "rack"}],
    [{"name": "affinity", "scope": "availability_zone"}, {"name": "anti-affinity"}],
    [{"name": "soft-anti-affinity"}],
    [{"name": "anti-affinity", "scope": "rack", "rules": {"partitions": 2}}],
]
SERVER_ACTIONS: list[dict[str, Any]] = [
    {"os-migrateLive": {"host": None, "block_migration": "auto"}},
    {"migrate": None},
    {"resize": {"flavorRef": "2"}},
    {"resize": {"flavorRef": "1"}},
    {"confirmResize": None},
    {"revertResize": None},
    {"shelve": None},
    {"unshelve": None},
    {"os-stop": None},
    {"os-start": None},
    {"reboot": {"type": "HARD"}},
]
CLUSTER_ACTIONS: list[dict[str, Any]] = [
    {"scale_out": {"count": 2}},
    {"scale_in": {"count": 1}},
    {"resize": {"adjustment_type": "EXACT_CAPACITY", "number": 3}},
    {"resize": {"adjustment_type": "CHANGE_IN_CAPACITY", "number": -2}},
    {"check": {}},
    {"recover": {"operation": "RECREATE"}},
    {"recover": {"operation": "REBOOT"}},
]
LISTS = [
    f"{COMPUTE}/servers/detail",
    f"{COMPUTE}/os-server-groups",
    f"{COMPUTE}/os-hypervisors/detail",
    f"{COMPUTE}/limits",
    f"{CLUSTERING}/clusters",
    f"{CLUSTERING}/nodes",
    f"{CLUSTERING}/actions",
    f"{CLUSTERING}/events",
]

HOSTS = [f"zone{zone}-rack{rack}-host{host}" for zone in (1, 2) for rack in (1, 2, 3) for host in range(1, 6)]

# As often as they stand here.
REQUESTS = [
    "list_things",
    *["create_servers"] * 4,
    *["act_on_server"] * 4,
    *["delete_server"] * 2,
    *["create_group"] * 2,
    "delete_group",
    "change_group",
    "change_members",
    "repair_group",
    "change_scopes",
    "lose_a_host",
    *["create_cluster"] * 2,
    *["act_on_cluster"] * 3,
    "change_policies",
    "delete_cluster",
    "change_nodes",
    "cancel_an_action",
]
FAULTS = [
    "kill",
    "suspend",
    "crash_the_database",
    "cut",
    "slow_down",
    "freeze",
    "fill_the_disk",
    "trouble_the_cloud",
    "shift_the_clock",
]
NUMBERS = st.integers(0, 1000)


class FaultMachine(RuleBasedStateMachine):
    """Steps of several requests, often with a fault among them, and now and then a quiet point."""

    drill: ClassVar[Drill]

    def __init__(self) -> None:
        super().__init__()
        self.clients = self.drill.clients
        self.deployment = self.drill.deployment
        self.steps = self.quiet_at = 0
        self.later: list[tuple[int, Callable[[], None]]] = []
        self._stop_if_violated()

    def _stop_if_violated(self) -> None:
        """A promise that was broken stays broken: running the program again to find a shorter one proves nothing."""
        if self.drill.violations:
            raise Violation("\n".join(self.drill.violations))

    @rule(
        requests=st.lists(st.tuples(st.sampled_from(REQUESTS), NUMBERS), min_size=6, max_size=26),
        fault=st.none() | st.none() | st.tuples(st.sampled_from(FAULTS), NUMBERS),
        place=NUMBERS,
        pause=st.sampled_from([0.0, 0.0, 0.1]),
    )
    def step(self, requests: list[tuple[str, int]], fault: tuple[str, int] | None, place: int, pause: float) -> None:
        """Send some requests without waiting for their answers; a fault comes before, after or between them."""
        self.steps += 1
        for due, undo in self.later:
            if due <= self.steps:
                with self.drill.to_the_end():
                    undo()
        self.later = [each for each in self.later if each[0] > self.steps]
        plan = list(requests)
        if fault is not None:
            plan.insert(place % (len(plan) + 1), fault)
        for name, number in plan:
            with self.drill.to_the_end():
                getattr(self, name)(number)
        time.sleep(pause)
        while self.clients.under_way > MOST_UNDER_WAY:
            time.sleep(0.05)

    @precondition(lambda self: self.steps - self.quiet_at >= QUIET_AFTER)
    @rule()
    def come_to_rest(self) -> None:
        """A quiet point."""
        self.quiet_at = self.steps
        self.later.clear()
        with self.drill.to_the_end():
            self.drill.come_to_rest()

    def teardown(self) -> None:
        """Every program ends with a quiet point, and leaves nothing behind."""
        if self.steps and not self.drill.violations:
            with self.drill.to_the_end():
                self.drill.come_to_rest()
                self.drill.clear()

    def _for_a_while(self, steps: int, undo: Callable[[], None]) -> None:
        self.later.append((self.steps + steps, undo))

    def _pick(self, known: Sequence[str], number: int) -> str | None:
        # The youngest are asked for most: those are the ones with which something is going on.
        return known[-1 - number % min(len(known), 8)] if known else None

    # Groups and scopes

    def create_group(self, number: int) -> None:
        name = self.clients.fresh_name("g")
        body = {"server_group": {"name": name, "policies": POLICIES[number % len(POLICIES)]}}
        project = "demo" if number % 7 == 0 else "admin"
        self.clients.ask("create group", "POST", f"{COMPUTE}/os-server-groups", body, name=name, project=project)

    def delete_group(self, number: int) -> None:
        if group := self._pick(self.clients.groups(), number):
            self.clients.ask("delete group", "DELETE", f"{COMPUTE}/os-server-groups/{group}", subject=group)

    def change_group(self, number: int) -> None:
        if group := self._pick(self.clients.groups(), number):
            name = self.clients.fresh_name("r")
            body = {"server_group": {"name": name, "policies": POLICIES[number % len(POLICIES)]}}
            path = f"{COMPUTE}/os-server-groups/{group}"
            self.clients.ask("rename group", "POST", path, body, name=name, subject=group)

    def change_members(self, number: int) -> None:
        group, server = self._pick(self.clients.groups(), number), self._pick(self.clients.servers(), number // 8)
        if group and server:
            word, kind = [("add_instance", "add member"), ("remove_instance", "remove member")][number % 2]
            path = f"{COMPUTE}/os-server-groups/{group}/action"
            self.clients.ask(kind, "POST", path, {word: {"instance_id": server}}, subject=group)

    def repair_group(self, number: int) -> None:
        if group := self._pick(self.clients.groups(), number):
            body = {"repair": {"max_parallel": 1 + number % 3}}
            self.clients.ask("repair group", "POST", f"{COMPUTE}/os-server-groups/{group}/repairs", body, subject=group)

    def change_scopes(self, number: int) -> None:
        """A scope, with aggregates that come and go, and groups that need it."""
        scope = self._pick(self.clients.made("scope", "policy_scope", "id"), number)
        aggregate = self._pick(self.clients.made("aggregate", "aggregate", "id"), number // 2)
        kind = number % 7
        if scope is None or kind == 0:
            name = self.clients.fresh_name("scope")
            body: dict[str, Any] = {"policy_scope": {"name": name, "allow_identifiers": True}}
            self.clients.ask("create scope", "POST", f"{COMPUTE}/os-policy-scopes", body, name=name)
        elif aggregate is None or kind == 1:
            name = self.clients.fresh_name("aggregate")
            self.clients.ask(
                "create aggregate", "POST", f"{COMPUTE}/os-aggregates", {"aggregate": {"name": name}}, name=name
            )
        elif kind == 2:
            body = {"add_host": {"host": HOSTS[number % len(HOSTS)]}}
            self.clients.ask("add host", "POST", f"{COMPUTE}/os-aggregates/{aggregate}/action", body, subject=aggregate)
        elif kind == 3:
            body = {"remove_host": {"host": HOSTS[number % len(HOSTS)]}}
            path = f"{COMPUTE}/os-aggregates/{aggregate}/action"
            self.clients.ask("remove host", "POST", path, body, subject=aggregate)
        elif kind in (4, 5):
            body = {["add_aggregate", "remove_aggregate"][kind - 4]: {"aggregate_id": int(aggregate)}}
            self.clients.ask("change scope", "POST", f"{COMPUTE}/os-policy-scopes/{scope}/action", body, subject=scope)
        else:
            self.clients.ask("delete scope", "DELETE", f"{COMPUTE}/os-policy-scopes/{scope}", subject=scope)

    # Servers

    def create_servers(self, number: int) -> None:
        name, count = self.clients.fresh_name("s"), 3 if number % 5 == 0 else 1
        group = self._pick(self.clients.groups(), number // 2) if number % 4 else None
        zone = [None, None, "zone1", "zone2"][number // 4 % 4]
        body = server_body(name, "123"[number // 16 % 3], group, zone, count)
        kind = "create server" if count == 1 else "create servers"
        self.clients.ask(kind, "POST", f"{COMPUTE}/servers", body, name=name)

    def delete_server(self, number: int) -> None:
        if server := self._pick(self.clients.servers(), number):
            self.clients.ask("delete server", "DELETE", f"{COMPUTE}/servers/{server}", subject=server)

    def act_on_server(self, number: int) -> None:
        if server := self._pick(self.clients.servers(), number):
            action = SERVER_ACTIONS[number // 8 % len(SERVER_ACTIONS)]
            path = f"{COMPUTE}/servers/{server}/action"
            self.clients.ask(f"server {next(iter(action))}", "POST", path, action, subject=server)

    def lose_a_host(self, number: int) -> None:
        """A host that has servers is down for some steps, and its servers are evacuated meanwhile."""
        crowded = self.drill.crowded_hosts()
        if crowded:
            service, there = crowded[number % len(crowded)]
            self.drill.say_down(service, True)
            for server in there:
                self._for_a_while(1, partial(self._evacuate, server))
            self._for_a_while(2 + number % 4, partial(self.drill.say_down, service, False))

    def _evacuate(self, server: str) -> None:
        path = f"{COMPUTE}/servers/{server}/action"
        self.clients.ask("server evacuate", "POST", path, {"evacuate": {}}, subject=server)

    def list_things(self, number: int) -> None:
        self.clients.ask("list", "GET", LISTS[number % len(LISTS)])

    # Clusters, nodes, policies, actions

    def create_cluster(self, number: int) -> None:
        name = self.clients.fresh_name("c")
        size = {"desired_capacity": number % 5, "timeout": 60}
        body = {"cluster": {"name": name, "profile_id": self.drill.profile, **size}}
        self.clients.ask("create cluster", "POST", f"{CLUSTERING}/clusters", body, name=name)

    def act_on_cluster(self, number: int) -> None:
        if cluster := self._pick(self.clients.clusters(), number):
            action = CLUSTER_ACTIONS[number // 8 % len(CLUSTER_ACTIONS)]
            path = f"{CLUSTERING}/clusters/{cluster}/actions"
            self.clients.ask(f"cluster {next(iter(action))}", "POST", path, action, subject=cluster)

    def change_policies(self, number: int) -> None:
        if cluster := self._pick(self.clients.clusters(), number // 8):
            policy = self.drill.policies[number % len(self.drill.policies)]
            kind = "policy_detach" if number % 3 == 0 else "policy_attach"
            path = f"{CLUSTERING}/clusters/{cluster}/actions"
            self.clients.ask(f"cluster {kind}", "POST", path, {kind: {"policy_id": policy}}, subject=cluster)

    def delete_cluster(self, number: int) -> None:
        if cluster := self._pick(self.clients.clusters(), number):
            path = f"{CLUSTERING}/clusters/{cluster}" + ("?force=true" if number % 3 == 0 else "")
            self.clients.ask("delete cluster", "DELETE", path, subject=cluster)

    def change_nodes(self, number: int) -> None:
        node, cluster = self._pick(self.clients.nodes(), number), self._pick(self.clients.clusters(), number // 2)
        kind = number % 5
        if node is None or kind < 2:
            name = self.clients.fresh_name("n")
            body: dict[str, Any] = {"node": {"name": name, "profile_id": self.drill.profile}}
            self.clients.ask("create node", "POST", f"{CLUSTERING}/nodes", body, name=name)
        elif cluster is not None and kind == 2:
            body = {"add_nodes": {"nodes": [node]}}
            self.clients.ask("add node", "POST", f"{CLUSTERING}/clusters/{cluster}/actions", body, subject=node)
        elif kind == 3:
            body = {"recover": {}}
            self.clients.ask("node recover", "POST", f"{CLUSTERING}/nodes/{node}/actions", body, subject=node)
        else:
            self.clients.ask("delete node", "DELETE", f"{CLUSTERING}/nodes/{node}", subject=node)

    def cancel_an_action(self, number: int) -> None:
        begun = [operation.action_id for operation in self.clients.history[-60:] if operation.action_id]
        if action := self._pick([each for each in begun if each], number):
            body = {"action": {"status": "CANCELLED", "force": number % 2 == 0}}
            self.clients.ask("cancel action", "PATCH", f"{CLUSTERING}/actions/{action}", body, subject=action)

    # Faults

    def kill(self, number: int) -> None:
        self.deployment.kill_and_restart(self._process(number))

    def suspend(self, number: int) -> None:
        self.deployment.suspend(self._process(number), [0.5, 2.0, DEAD_AFTER + 3][number % 3])

    def crash_the_database(self, number: int) -> None:
        self.deployment.crash_the_database()

    def cut(self, number: int) -> None:
        self.deployment.cut(*self._line(number))

    def slow_down(self, number: int) -> None:
        proxy, where = self._line(number)
        self.deployment.slow_down(proxy, where, [0.02, 0.2][number // 8 % 2])
        self._for_a_while(2 + number % 3, proxy.heal)

    def freeze(self, number: int) -> None:
        self.deployment.freeze(*self._line(number), [0.5, 2.0, DEAD_AFTER + 1][number % 3])

    def _process(self, number: int) -> Process:
        return self.deployment.processes[number % len(self.deployment.processes)]

    def _line(self, number: int) -> tuple[Proxy, str]:
        """One of the lines that can be cut, and what it connects."""
        if number % 3 == 0:
            front = self.deployment.apis[number % len(self.deployment.apis)].front
            assert front is not None
            return front, TO_CLIENTS
        return self._process(number).database, TO_POSTGRESQL

    def fill_the_disk(self, number: int) -> None:
        self.deployment.fill_the_disk()
        self._for_a_while(1 + number % 2, self.deployment.empty_the_disk)

    def trouble_the_cloud(self, number: int) -> None:
        engine = self.deployment.engines[number % 2]
        kind, share = ["fails", "silent", "twice"][number // 2 % 3], [0.3, 1.0][number // 6 % 2]
        self.deployment.trouble_the_cloud(engine, **{kind: share})
        self._for_a_while(4, engine.rehearse)

    def shift_the_clock(self, number: int) -> None:
        process = self._process(number)
        self.deployment.shift_the_clock(process, [-100_000.0, -60.0, 60.0, 100_000.0][number // 4 % 4])
        self._for_a_while(6, process.rehearse)


def run(drill: Drill, number: int, *, programs: int, steps: int) -> None:
    """Run programs on a drill; `number` decides which."""
    machine = seed(number)(type("Programs", (FaultMachine,), {"drill": drill}))
    once = settings(
        max_examples=programs + 1,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    try:
        run_state_machine_as_test(machine, settings=once)
    except Exception:
        # Hypothesis runs a program that failed once more, and wonders that it fails elsewhere.
        if drill.violations:
            raise Violation("\n".join(drill.violations)) from None
        raise


def asked_seed(default: int | None = None) -> int:
    """The seed to use: the one in the environment, or this, or a new one."""
    asked = os.environ.get("SEED")
    if asked:
        return int(asked)
    return time.time_ns() % 1_000_000 if default is None else default
