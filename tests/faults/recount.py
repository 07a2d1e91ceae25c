"""The ground truth, counted from scratch: plain SELECTs of whole tables, and plain Python.

Nothing of Roost is used here, so that what it believes of itself is held against something that it did not compute.
Every function yields sentences, each of which says what is wrong.
"""

import json
import re
import uuid
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
from psycopg.rows import dict_row

Row = dict[str, Any]

TABLES = (
    "hosts",
    "servers",
    "claims",
    "project_usage",
    "usage_shards",
    "server_groups",
    "server_group_policies",
    "scopes",
    "aggregates",
    "aggregate_hosts",
    "instance_actions",
    "migrations",
    "repairs",
    "clusters",
    "nodes",
    "actions",
    "outbox",
    "rehearsal_witness",
)
RESTLESS = ("servers", "actions", "repairs", "outbox")
"""The tables that say what is still being done."""
UNFINISHED = {"INIT", "READY", "RUNNING", "WAITING", "WAITING_LIFECYCLE_COMPLETION", "SUSPENDED"}
SESSIONS = """
    SELECT state, query, clock_timestamp() - state_change AS since FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT NULL
"""
LONGEST_TRANSACTION = timedelta(seconds=30)
"""Those who live are at rest no longer than this between two statements, however busy the machine."""
USED = ("instances", "cores", "ram", "server_groups")
RESOURCES = ("vcpus", "memory_mb", "disk_gb")


@dataclass(frozen=True)
class Truth:
    """Every table as it was at one moment."""

    tables: Mapping[str, list[Row]]

    @classmethod
    def read(cls, url: str, names: Iterable[str] = TABLES) -> "Truth":
        """Read it all, or these tables of it, in one snapshot."""
        with psycopg.connect(url, row_factory=dict_row) as connection:
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            tables = {table: connection.execute(f'SELECT * FROM "{table}"').fetchall() for table in names}
            tables["sessions"] = connection.execute(SESSIONS).fetchall()
        return cls(tables)

    def __getitem__(self, table: str) -> list[Row]:
        return self.tables[table]

    def by_id(self, table: str) -> dict[Any, Row]:
        """The rows of a table by their ids."""
        return {row["id"]: row for row in self[table]}


def unrest(truth: Truth) -> Iterator[str]:
    """What is still being done; nothing of this may last."""
    yield from (f"server {row['id']} is {row['task_state']}" for row in truth["servers"] if row["task_state"])
    yield from (
        f"action {row['action']} {row['id']} is {row['status']}: {row['status_reason']}"
        for row in truth["actions"]
        if row["status"] in UNFINISHED or row["owner"] is not None
    )
    yield from (
        f"repair {row['id']} is {row['status']}" for row in truth["repairs"] if row["status"] in ("running", "stopping")
    )
    yield from (f"notification {row['id']} waits" for row in truth["outbox"])


def everything(truth: Truth) -> Iterator[str]:
    """All that can be wrong in the database alone, once it is at rest."""
    yield from capacity(truth)
    yield from holdings(truth)
    yield from quotas(truth)
    yield from endings(truth)
    yield from machines(truth)
    yield from locks(truth)


def capacity(truth: Truth) -> Iterator[str]:
    """No host gives more than it has, and its sums are those of its claims."""
    claimed: dict[int, Counter[str]] = defaultdict(Counter)
    for claim in truth["claims"]:
        claimed[claim["host_id"]].update({name: claim[name] for name in RESOURCES} | {"servers": 1})
    for host in truth["hosts"]:
        sums = claimed[host["id"]]
        for name in RESOURCES:
            if sums[name] > host[name]:
                yield f"host {host['name']} has {host[name]} {name} and gave {sums[name]}"
            if sums[name] != host[f"{name}_used"]:
                yield f"host {host['name']} says that {host[f'{name}_used']} {name} are used; it is {sums[name]}"
        if sums["servers"] != host["servers"]:
            yield f"host {host['name']} says that it has {host['servers']} servers; it is {sums['servers']}"


def holdings(truth: Truth) -> Iterator[str]:
    """Each server at rest holds what its flavor says where it is, and (until confirmed) where it came from."""
    held: dict[Any, dict[int, Row]] = defaultdict(dict)
    for claim in truth["claims"]:
        held[claim["server_id"]][claim["host_id"]] = claim
    known = truth.by_id("servers")
    yield from (f"a claim is held by server {server_id}, which is gone" for server_id in held.keys() - known.keys())
    for server in truth["servers"]:
        if server["task_state"] is not None:
            continue
        due = set() if server["host_id"] is None else {server["host_id"]}
        if server["vm_state"] == "resized":
            due.add(server["step"]["source"])
        if held[server["id"]].keys() != due:
            yield f"server {server['id']} ({server['vm_state']}) holds {set(held[server['id']])} and should {due}"
        if server["host_id"] is None and server["vm_state"] not in ("error", "shelved_offloaded"):
            yield f"server {server['id']} is {server['vm_state']}, nowhere"
        for claim in held[server["id"]].values():
            for name in RESOURCES:
                if server["vm_state"] != "resized" and claim[name] != server["flavor"][name]:
                    yield f"server {server['id']} holds {claim[name]} {name}, its flavor is {server['flavor'][name]}"


def quotas(truth: Truth) -> Iterator[str]:
    """What a project is said to use is what it has."""
    used: dict[str, Counter[str]] = defaultdict(Counter)
    for server in truth["servers"]:
        other = (server["step"] or {}).get("flavor") or server["flavor"]
        used[server["project_id"]].update(
            {
                "instances": 1,
                "cores": max(server["flavor"]["vcpus"], other["vcpus"]),
                "ram": max(server["flavor"]["memory_mb"], other["memory_mb"]),
            }
        )
    for group in truth["server_groups"]:
        used[group["project_id"]]["server_groups"] += 1
    said = said_usage(truth)
    for project in used.keys() | said.keys():
        for name in USED:
            counted = said[project][name]
            if counted != used[project][name]:
                yield f"project {project} is said to use {counted} {name}; it is {used[project][name]}"


def said_usage(truth: Truth) -> dict[str, Counter[str]]:
    """What each project is said to use: the sum of its row and its shards."""
    said: dict[str, Counter[str]] = defaultdict(Counter)
    for row in (*truth["project_usage"], *truth["usage_shards"]):
        said[row["project_id"]].update({name: row.get(name, 0) for name in USED})
    return said


def within_limits(truth: Truth, limits: Mapping[str, int]) -> Iterator[str]:
    """No project uses more than its quota."""
    for project_id, used in said_usage(truth).items():
        for name, limit in limits.items():
            if used[name] > limit:
                yield f"project {project_id} uses {used[name]} {name} of {limit}"


def endings(truth: Truth) -> Iterator[str]:
    """What ended says when, and what began has ended."""
    at_rest = {row["id"] for row in truth["servers"] if row["task_state"] is None}
    for row in truth["instance_actions"]:
        if row["server_id"] in at_rest and row["finish_time"] is None:
            yield f"'{row['action']}' of server {row['server_id']} never ended"
    resized = {row["id"] for row in truth["servers"] if row["vm_state"] == "resized"}
    for row in truth["migrations"]:
        over = row["status"] not in ("migrating", "running", "accepted", "finished")
        if row["server_id"] in at_rest - resized and not over:
            yield f"the move {row['id']} of server {row['server_id']} is {row['status']} for ever"
    for row in truth["actions"]:
        if row["status"] not in UNFINISHED and row["end_time"] is None:
            yield f"action {row['id']} is {row['status']} and did not end"
        if row["end_time"] is not None and row["start_time"] is not None and row["end_time"] < row["start_time"]:
            yield f"action {row['id']} ended before it began"
    for kind in ("nodes", "clusters"):
        for row in truth[kind]:
            if row["status"].endswith("ING") and row["status"] != "WARNING":
                yield f"one of the {kind}, {row['id']}, is {row['status']} for ever: {row['status_reason']}"
            if row["status"] == "INIT":
                yield f"one of the {kind}, {row['id']}, was never begun"


def machines(truth: Truth) -> Iterator[str]:
    """Each node has its one server, and each server that was made for a node has that node."""
    servers, nodes = truth.by_id("servers"), truth.by_id("nodes")
    for server in truth["servers"]:
        if server["client_token"] is not None and server["client_token"] not in nodes:
            yield f"server {server['id']} is an orphan: its node {server['client_token']} is gone"
    owners = Counter(node["physical_id"] for node in truth["nodes"] if node["physical_id"])
    yield from (f"server {server_id} is {number} nodes" for server_id, number in owners.items() if number > 1)
    for node in truth["nodes"]:
        if node["status"] != "ACTIVE":
            continue
        its = servers.get(uuid.UUID(node["physical_id"]))
        if its is None:
            yield f"node {node['id']} is ACTIVE, and its server {node['physical_id']} is lost"
        elif its["client_token"] != node["id"]:
            yield f"node {node['id']} has the server of {its['client_token']}"
    clusters = truth.by_id("clusters")
    for node in truth["nodes"]:
        if node["cluster_id"] is not None and node["cluster_id"] not in clusters:
            yield f"node {node['id']} is in a cluster that is gone"


def locks(truth: Truth) -> Iterator[str]:
    """What is gone holds nothing."""
    yield from (
        f"action {row['id']} is {row['status']} and still owned by {row['owner']}"
        for row in truth["actions"]
        if row["owner"] is not None
    )
    for session in truth["sessions"]:
        if session["since"] is not None and session["since"] > LONGEST_TRANSACTION:
            yield f"a session is {session['state']}, and holds its locks, since {session['since']}: {session['query']}"


# Rules


def broken_rules(truth: Truth) -> dict[str, list[frozenset[str]]]:
    """For each group whose hard rules are broken, the members at fault, one set for each breach."""
    scopes = {row["id"]: row["name"] for row in truth["scopes"]}
    inside: dict[tuple[int, str], str] = {}
    """The aggregate of a host in a scope."""
    for host in truth["hosts"]:
        inside[host["id"], "host"] = str(host["id"])
        inside[host["id"], "availability_zone"] = host["availability_zone"] or "nova"
    for row in truth["aggregate_hosts"]:
        if row["scope_id"]:
            inside[row["host_id"], scopes[row["scope_id"]]] = str(row["aggregate_id"])
    members: dict[Any, list[Row]] = defaultdict(list)
    for server in truth["servers"]:
        if server["group_id"] is not None and server["host_id"] is not None:
            members[server["group_id"]].append(server)
    found: dict[str, list[frozenset[str]]] = defaultdict(list)
    for policy in truth["server_group_policies"]:
        if not policy["name"].startswith("soft-"):
            scope = policy["builtin_scope"] or scopes[policy["scope_id"]]
            places: dict[str | None, set[str]] = defaultdict(set)
            for server in members[policy["group_id"]]:
                places[inside.get((server["host_id"], scope))].add(str(server["id"]))
            partitions = {str(server["id"]): server["partition"] for server in members[policy["group_id"]]}
            breaches = list(_breaches(policy, places, partitions))
            if breaches:
                found[str(policy["group_id"])] += breaches
    return found


def _breaches(
    policy: Row, places: dict[str | None, set[str]], partitions: Mapping[str, int | None]
) -> Iterator[frozenset[str]]:
    outside = places.pop(None, None)
    if outside:
        yield frozenset(outside)
    target = policy["zone"] or (str(policy["aggregate_id"]) if policy["aggregate_id"] is not None else None)
    if target is not None:
        off = places.get(target, set()) if policy["name"] == "anti-affinity" else _others(places, target)
        if off:
            yield frozenset(off)
    elif policy["name"] == "affinity":
        if len(places) > 1:
            yield frozenset().union(*places.values())
    elif divided := policy["rules"].get("partitions"):
        for those in places.values():
            numbers = {partitions[member] for member in those}
            if len(numbers) > 1 or not numbers <= set(range(1, divided + 1)):
                yield frozenset(those)
    else:
        most = max(policy["rules"].get("max_server_per_host", 0), policy["rules"].get("max_server_per_aggregate", 0))
        yield from (frozenset(those) for those in places.values() if len(those) > (most or 1))


def _others(places: Mapping[str | None, set[str]], target: str) -> set[str]:
    return {member for place, those in places.items() if place != target for member in those}


FOUND = re.compile(r"server group (\S+): .*: ([0-9a-f, -]+)$")


def disagreements(truth: Truth, findings: list[str]) -> Iterator[str]:
    """Where the audit and the recount differ. Of members that are apart, the audit names those that would move."""
    counted = broken_rules(truth)
    audited: dict[str, list[frozenset[str]]] = defaultdict(list)
    for finding in findings:
        match = FOUND.match(finding)
        if match is None:
            yield f"the audit found: {finding}"
        else:
            audited[match[1]].append(frozenset(match[2].split(", ")))
    for group in counted.keys() | audited.keys():
        ours, theirs = counted.get(group, []), audited.get(group, [])
        unlike = [those for those in theirs if not any(those <= each for each in ours)]
        if len(ours) != len(theirs) or unlike:
            yield f"of group {group} the audit says {theirs}; it is {ours}"


# Notifications

CHANGES = {f"server_group.{change}" for change in ("create", "update", "delete", "add_member", "remove_member")}


def notifications(truth: Truth, broker: Path, settled: Container[str] = ()) -> Iterator[str]:
    """What was received, each message once, is what was committed; settled ones were looked at before."""
    received: dict[str, tuple[str, str, str | None]] = {}
    for line in broker.read_text().splitlines():
        message = json.loads(line)
        if message["event_type"] not in CHANGES or message["message_id"] in settled:
            continue  # what the engine finds out is announced as well, and is not a change
        data = message["payload"]["nova_object.data"]
        about = message["event_type"].endswith("_member")
        announced = message["event_type"], data["uuid"], data["members"][0] if about else None
        if received.setdefault(message["message_id"], announced) != announced:
            yield f"the message {message['message_id']} was sent with another content"
    committed = Counter(
        (row["event"], str(row["group_id"]), str(row["server_id"]) if row["server_id"] else None)
        for row in truth["rehearsal_witness"]
    )
    heard = Counter(received.values())
    yield from (f"{number} x {event} was committed and not announced" for event, number in (committed - heard).items())
    yield from (f"{number} x {event} was announced and not committed" for event, number in (heard - committed).items())
