"""The recount itself: it finds nothing wrong with what is right, and every single thing that is made wrong."""

import copy
import json
import uuid
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.faults import recount, soak
from tests.faults.recount import TABLES, Truth

Tables = dict[str, list[dict[str, Any]]]
SERVERS = [uuid.UUID(int=number) for number in range(1, 4)]
GROUP = uuid.UUID(int=99)
FLAVOR = {"vcpus": 1, "memory_mb": 512, "disk_gb": 1}
NOON = datetime(2026, 1, 1, 12)


def _server(number: int, host: int | None, **more: Any) -> dict[str, Any]:
    given: dict[str, Any] = {"vm_state": "active", "group_id": GROUP, "partition": 1}
    given |= dict.fromkeys(("task_state", "step", "client_token"))
    return {"id": SERVERS[number], "host_id": host, "flavor": FLAVOR, "project_id": "p", **given, **more}


def _right() -> Tables:
    """Two hosts in two racks, three servers in an anti-affinity group with at most two a rack, and a cluster of one."""
    used = {f"{name}_used": value for name, value in FLAVOR.items()}
    host = {"name": "h", "availability_zone": "z", "servers": 2, "vcpus": 8, "memory_mb": 8192, "disk_gb": 80}
    twice = {key: 2 * value for key, value in used.items()}
    ended = {"status": "SUCCEEDED", "start_time": NOON, "end_time": NOON, "owner": None, "action": "NODE_CHECK"}
    tables: Tables = {table: [] for table in (*TABLES, "sessions")}
    tables |= {
        "hosts": [{"id": 1, **host, **twice}, {"id": 2, **host, "servers": 1, **used}],
        "servers": [_server(0, 1), _server(1, 1), _server(2, 2, client_token="n")],
        "claims": [
            {"server_id": SERVERS[number], "host_id": host_id, **FLAVOR} for number, host_id in enumerate((1, 1, 2))
        ],
        "usage_shards": [],
        "project_usage": [{"project_id": "p", "instances": 3, "cores": 3, "ram": 1536, "server_groups": 1}],
        "server_groups": [{"id": GROUP, "project_id": "p"}],
        "server_group_policies": [
            {
                "group_id": GROUP,
                "name": "anti-affinity",
                "builtin_scope": None,
                "scope_id": 7,
                "aggregate_id": None,
                "zone": None,
                "rules": {"max_server_per_aggregate": 2},
            }
        ],
        "scopes": [{"id": 7, "name": "rack"}],
        "aggregate_hosts": [
            {"host_id": 1, "scope_id": 7, "aggregate_id": 71},
            {"host_id": 2, "scope_id": 7, "aggregate_id": 72},
        ],
        "clusters": [{"id": "c", "status": "ACTIVE", "status_reason": ""}],
        "nodes": [
            {"id": "n", "status": "ACTIVE", "status_reason": "", "physical_id": str(SERVERS[2]), "cluster_id": "c"}
        ],
        "actions": [{"id": "a", "status_reason": "", **ended}],
        "instance_actions": [{"server_id": SERVERS[0], "action": "create", "finish_time": NOON}],
        "migrations": [{"id": 1, "server_id": SERVERS[0], "status": "completed"}],
    }
    return tables


def test_what_is_right_is_found_right() -> None:
    truth = Truth(_right())
    assert list(recount.unrest(truth)) == []
    assert list(recount.everything(truth)) == []
    assert recount.broken_rules(truth) == {}
    assert list(recount.disagreements(truth, [])) == []


WRONG: dict[str, Callable[[Tables], Any]] = {
    "and gave 9": lambda t: t["claims"][2].update(vcpus=9),
    "says that it has 2 servers; it is 3": lambda t: t["claims"].append({**t["claims"][0], "server_id": SERVERS[2]}),
    "1 vcpus are used; it is 0": lambda t: t["claims"].pop(),
    "which is gone": lambda t: t["servers"].pop(0),
    "and should": lambda t: t["servers"][0].update(host_id=2),
    "nowhere": lambda t: t["servers"][0].update(host_id=None),
    "its flavor is 2": lambda t: t["servers"][0].update(flavor={**FLAVOR, "vcpus": 2}),
    "is said to use 2 instances; it is 3": lambda t: t["project_usage"][0].update(instances=2),
    "is said to use 1 server_groups; it is 0": lambda t: t["server_groups"].pop(),
    "never ended": lambda t: t["instance_actions"][0].update(finish_time=None),
    "is running for ever": lambda t: t["migrations"][0].update(status="running"),
    "did not end": lambda t: t["actions"][0].update(end_time=None),
    "ended before it began": lambda t: t["actions"][0].update(end_time=NOON - timedelta(seconds=1)),
    "is UPDATING for ever": lambda t: t["nodes"][0].update(status="UPDATING"),
    "was never begun": lambda t: t["clusters"][0].update(status="INIT"),
    "is an orphan": lambda t: t["nodes"].pop(),
    "is 2 nodes": lambda t: t["nodes"].append({**t["nodes"][0], "id": "m"}),
    "is lost": lambda t: t["nodes"][0].update(physical_id=str(uuid.UUID(int=5))),
    "has the server of": lambda t: t["nodes"][0].update(physical_id=str(SERVERS[1])),
    "in a cluster that is gone": lambda t: t["clusters"].pop(),
    "still owned by engine": lambda t: t["actions"][0].update(owner="engine"),
    "holds its locks": lambda t: t["sessions"].append({"state": "idle", "query": "", "since": timedelta(minutes=1)}),
}


@pytest.mark.parametrize("sentence", WRONG)
def test_what_is_made_wrong_is_found(sentence: str) -> None:
    tables = copy.deepcopy(_right())
    WRONG[sentence](tables)
    assert any(sentence in found for found in recount.everything(Truth(tables)))


RULES: dict[str, dict[str, Any]] = {
    "too many": {"rules": {}},
    "apart": {"name": "affinity"},
    "outside the target": {"name": "affinity", "aggregate_id": 71},
    "in the forbidden one": {"aggregate_id": 72},
    "of two partitions": {"rules": {"partitions": 2}},
}


@pytest.mark.parametrize("kind", RULES)
def test_a_broken_rule_is_found_and_an_audit_that_does_not_find_it_is_told(kind: str) -> None:
    tables = _right()
    tables["server_group_policies"][0].update(RULES[kind])
    tables["servers"][1]["partition"] = 2
    truth = Truth(tables)
    ((group, (members,)),) = recount.broken_rules(truth).items()
    assert group == str(GROUP)
    assert list(recount.disagreements(truth, [])) != []
    said = f"server group {group}: broken: {', '.join(sorted(members))}"
    assert list(recount.disagreements(truth, [said])) == []
    assert list(recount.disagreements(Truth(_right()), [said])) != []


@pytest.mark.parametrize("number", [None, 3])
def test_a_member_without_a_partition_of_its_group_is_found(number: int | None) -> None:
    tables = _right()
    tables["server_group_policies"][0]["rules"] = {"partitions": 2}
    assert recount.broken_rules(Truth(tables)) == {}
    tables["servers"][2]["partition"] = number
    assert recount.broken_rules(Truth(tables)) == {str(GROUP): [frozenset({str(SERVERS[2])})]}


def test_a_repair_under_way_is_unrest() -> None:
    tables = _right()
    tables["repairs"] = [{"id": "r", "status": "running"}, {"id": "s", "status": "done"}]
    assert list(recount.unrest(Truth(tables))) == ["repair r is running"]


def test_a_member_outside_the_scope_breaks_the_rule() -> None:
    tables = _right()
    tables["aggregate_hosts"].pop()
    assert recount.broken_rules(Truth(tables)) == {str(GROUP): [frozenset({str(SERVERS[2])})]}


def test_what_is_told_is_what_was_committed_each_once(tmp_path: Path) -> None:
    data = {"nova_object.data": {"uuid": str(GROUP), "members": [str(SERVERS[0])]}}
    message = {"message_id": "m", "event_type": "server_group.add_member", "payload": data}
    broker = tmp_path / "broker"
    broker.write_text(f"{json.dumps(message)}\n{json.dumps(message)}\n")
    tables = _right()
    tables["rehearsal_witness"] = [{"event": "server_group.add_member", "group_id": GROUP, "server_id": SERVERS[0]}]
    assert list(recount.notifications(Truth(tables), broker)) == []
    tables["rehearsal_witness"].append({"event": "server_group.delete", "group_id": GROUP, "server_id": None})
    (lost,) = recount.notifications(Truth(tables), broker)
    assert lost.endswith("was committed and not announced")
    tables["rehearsal_witness"].clear()
    (invented,) = recount.notifications(Truth(tables), broker)
    assert invented.endswith("was announced and not committed")
    assert list(recount.notifications(Truth(tables), broker, {"m"})) == []


def test_the_page_has_the_sum_of_the_soaks_in_the_ledger() -> None:
    page = soak.PAGE.read_text()
    assert soak.with_sum(page, json.loads(soak.LEDGER.read_text())) == page


def test_the_sum_of_runs_counts_what_each_of_them_did() -> None:
    run = {"minutes": 1.5, "operations": 3, "faults": 1, "quiet_points": 2, "violations": ["lost"]}
    kinds = {"operations_by_kind": {"list": 3}, "faults_by_kind": {"cut": 1}, "answers_by_status": {"200": 3}}
    total = soak.summed([{**run, **kinds, "histories": {"recorded": 1}}, {**run, **kinds, "histories": {}}])
    assert (total["operations"], total["faults"], total["minutes"]) == (6, 2, 3.0)
    assert (total["faults_by_kind"], total["violations"]) == ({"cut": 2}, ["lost", "lost"])
    assert total["histories"] == {"recorded": 1}
