"""`roost import senlin`, with a database that Senlin 16 made."""

import asyncio
import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from roost import config
from roost.cli import imports
from roost.cli.main import main, parser
from tests.clusters.house import PROPERTIES, House, clustering
from tests.imports.conftest import SenlinStore, load

TABLES = ("profiles", "policies", "clusters", "nodes", "cluster_policies", "health_registry", "receivers", "events")


@pytest.fixture(autouse=True)
def on_its_own_database(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOST_DATABASE_URL", database_url)


def run(senlin: SenlinStore, *options: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["import", "senlin", "--from", senlin.url, *options])
    return int(ended.value.code or 0)


def rows(url: str, query: str, *values: Any) -> list[dict[str, Any]]:
    with psycopg.connect(url, row_factory=dict_row) as connection:
        return connection.execute(query, values).fetchall()


def now(ago: int = 0) -> str:
    """A moment as Senlin stores it."""
    return f"{datetime.now(UTC) - timedelta(seconds=ago):%Y-%m-%d %H:%M:%S.%f}"


def everything(url: str) -> dict[str, list[dict[str, Any]]]:
    return {table: rows(url, f"SELECT * FROM {table} ORDER BY 1, 2") for table in TABLES}


def lines(output: str, noun: str) -> dict[str, str]:
    """What was said of each thing of a kind, by its name."""
    found = re.findall(rf"^{noun} \S+ (.*?): (.*)$", output, re.MULTILINE)
    return dict(found)


def test_what_comes_has_the_ids_and_the_data_that_it_had(senlin: SenlinStore, database_url: str) -> None:
    before = senlin.content()
    assert run(senlin) == 1, "some things cannot come"
    assert senlin.content() == before
    found = everything(database_url)
    for table, own in (("profiles", "profile"), ("clusters", "cluster"), ("nodes", "node"), ("policies", "policy")):
        theirs = {row["id"]: row for row in senlin.ask(f"SELECT * FROM {own}")}
        assert found[table]
        for row in found[table]:
            for column in ("name", "type", "index", "physical_id", "role", "min_size", "max_size", "desired_capacity"):
                assert row.get(column) == (dict(theirs[row["id"]]).get(column) if column in row else None), column
            assert (row["user_id"], row["project_id"]) == (theirs[row["id"]]["user"], theirs[row["id"]]["project"])
    assert [row["name"] for row in found["clusters"] if row["metadata"] == {"tier": "front"}] == ["main"]
    assert {row["name"] for row in found["clusters"]} == {"main", "behind", "odd"}
    assert Counter(row["cluster_id"] for row in found["nodes"]) == {
        senlin.id("cluster", "main"): 3,
        senlin.id("cluster", "behind"): 2,
        senlin.id("cluster", "odd"): 1,
        None: 1,
    }
    main_row = next(row for row in found["clusters"] if row["name"] == "main")
    assert (main_row["next_index"], main_row["config"]) == (4, {"node.name.format": "web-$3I"})
    assert main_row["init_at"].tzinfo is not None


def test_times_are_those_of_senlin(senlin: SenlinStore, database_url: str) -> None:
    senlin.ask("UPDATE node SET created_at = '2021-03-04 05:06:07.000000'")
    run(senlin)
    [row] = rows(database_url, "SELECT DISTINCT created_at FROM nodes")
    assert row["created_at"] == datetime(2021, 3, 4, 5, 6, 7, tzinfo=UTC)


def test_bindings_keep_their_data(senlin: SenlinStore, database_url: str) -> None:
    run(senlin)
    query = """SELECT p.name, b.data, b.enabled, b.priority FROM cluster_policies b JOIN policies p ON p.id = policy_id
               JOIN clusters c ON c.id = cluster_id WHERE c.name = %s"""
    on_main = {row["name"]: row for row in rows(database_url, query, "main")}
    group = on_main["apart"]["data"]["AffinityPolicy"]["data"]
    assert group == {"servergroup_id": "9a000000-0000-4000-8000-000000000001", "inherited_group": False}
    assert {name: row["priority"] for name, row in on_main.items()} == {
        **{"scaling": 100, "zones": 300, "apart": 300, "deletion": 400, "health": 600}
    }
    [balance] = rows(database_url, query, "behind")
    assert balance["data"]["LoadBalancingPolicy"]["data"] == {
        **{"loadbalancer": "lb-1", "listener": "listener-1", "pool": "pool-1", "healthmonitor": "monitor-1"},
        "vip_address": "192.0.2.10",
    }
    members = rows(
        database_url, "SELECT nodes.data FROM nodes JOIN clusters c ON c.id = cluster_id WHERE c.name = 'behind'"
    )
    assert sorted(row["data"]["lb_member"] for row in members) == ["member-1", "member-2"]
    [watch] = rows(database_url, "SELECT * FROM health_registry")
    assert (watch["check_type"], watch["interval"]) == ("NODE_STATUS_POLLING", 60)


def test_what_does_not_come_is_named_with_its_reason(senlin: SenlinStore, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(senlin, "--dry-run") == 1
    output = capsys.readouterr().out
    clusters, nodes = lines(output, "cluster"), lines(output, "node")
    assert clusters["main"] == "would come"
    assert re.fullmatch(r"left: it is in progress: CLUSTER_SCALE_OUT \S+ is RUNNING", clusters["growing"])
    assert nodes["growing-node-001"] == nodes["growing-node-002"] == "left: its cluster is left"
    assert clusters["stacks"] == "cannot come: Roost neither makes nor deletes nodes of type os.heat.stack"
    assert nodes["stacks-node-001"].startswith("cannot come: its cluster")
    policies, receivers = lines(output, "policy"), lines(output, "receiver")
    assert policies["nothing"] == "cannot come: its spec is refused: The 'weight' of zone 'zone1' must be > 0."
    assert receivers["add"] == "cannot come: CLUSTER_ADD_NODES cannot be triggered"
    assert receivers["out"] == receivers["letters"] == "would come"


def test_what_roost_does_otherwise_is_said(senlin: SenlinStore, capsys: pytest.CaptureFixture[str]) -> None:
    run(senlin, "--dry-run")
    output = capsys.readouterr().out
    assert "zone1, zone2, zone3 (nodes now: 1 in zone1, 1 in zone2, 1 in zone3)" in output
    assert "every new and recreated node joins it" in output
    assert "it comes in status WARNING, for Senlin left it RESIZING" in output
    assert "Projects and users are Keystone's" in output
    assert "it comes disabled, for Roost would refuse it: Policy 'pinned' places all servers in zone 'zone1'" in output


def test_a_binding_that_roost_would_refuse_comes_disabled(senlin: SenlinStore, database_url: str) -> None:
    run(senlin)
    query = """SELECT p.name, b.enabled FROM cluster_policies b JOIN policies p ON p.id = policy_id
               JOIN clusters c ON c.id = cluster_id WHERE c.name = 'odd'"""
    enabled = {row["name"]: row["enabled"] for row in rows(database_url, query)}
    assert enabled == {"pinned": True, "zones": False}


def test_a_dry_run_changes_nothing(senlin: SenlinStore, database_url: str) -> None:
    before = everything(database_url)
    run(senlin, "--dry-run", "--events")
    assert everything(database_url) == before
    assert rows(database_url, "SELECT * FROM imports") == []


def test_a_second_run_changes_nothing(
    senlin: SenlinStore, database_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    senlin.ask("UPDATE event SET timestamp = ?", now())
    run(senlin, "--events")
    first = everything(database_url)
    assert len(first["events"]) == 2
    capsys.readouterr()
    run(senlin, "--events")
    assert everything(database_url) == first
    output = capsys.readouterr().out
    assert lines(output, "cluster")["main"] == "there already"
    assert " came" not in output.replace("events: 0 came", "")


def test_two_at_once_bring_everything_once(senlin: SenlinStore, database_url: str) -> None:
    settings = config.with_database(config.load(), database_url)
    with ThreadPoolExecutor(3) as threads:
        asked = [
            threads.submit(imports.senlin, settings, senlin.url, dry_run=False, with_events=False) for _ in range(3)
        ]
        assert [each.result() for each in asked] == [1, 1, 1]
    assert len(rows(database_url, "SELECT * FROM nodes")) == 7


def test_what_was_deleted_in_roost_does_not_come_back(
    senlin: SenlinStore, database_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run(senlin)
    with psycopg.connect(database_url) as connection:
        connection.execute("DELETE FROM nodes")
        connection.execute("DELETE FROM clusters")
    capsys.readouterr()
    run(senlin)
    assert rows(database_url, "SELECT * FROM clusters") == rows(database_url, "SELECT * FROM nodes") == []
    output = capsys.readouterr().out
    deleted = "there already: it was imported before, and deleted in Roost since"
    assert lines(output, "cluster")["main"] == lines(output, "node")["alone-000"] == deleted


def test_what_was_in_progress_comes_once_it_has_ended(senlin: SenlinStore, database_url: str) -> None:
    run(senlin)
    senlin.ask("DELETE FROM cluster_lock")
    senlin.ask("UPDATE action SET status = 'SUCCEEDED'")
    run(senlin)
    [row] = rows(database_url, "SELECT id FROM clusters WHERE name = 'growing'")
    assert len(rows(database_url, "SELECT 1 FROM nodes WHERE cluster_id = %s", row["id"])) == 2


def test_a_lock_of_a_node_leaves_its_cluster(senlin: SenlinStore, capsys: pytest.CaptureFixture[str]) -> None:
    senlin.ask("INSERT INTO node_lock VALUES (?, 'action-1')", senlin.id("node", "main-node-002"))
    run(senlin, "--dry-run")
    output = capsys.readouterr().out
    assert lines(output, "cluster")["main"] == "left: it is in progress: action action-1 holds its lock"
    assert lines(output, "node")["main-node-001"] == "left: its cluster is left"
    assert lines(output, "receiver")["out"] == "left: its cluster is left"
    assert lines(output, "health registry")["of cluster main"] == "left: its cluster is left"


def test_a_server_that_is_a_node_of_roost_is_not_taken_twice(
    senlin: SenlinStore, database_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run(senlin)
    senlin.ask(
        "INSERT INTO node SELECT 'other', name, physical_id, '', profile_id, user, project, domain, -1, role, "
        "init_at, created_at, updated_at, status, status_reason, meta_data, data, dependents, tainted "
        "FROM node WHERE name = 'alone-000'"
    )
    capsys.readouterr()
    run(senlin)
    assert "node other alone-000: cannot come: its server" in capsys.readouterr().out


def test_senlin_must_not_run(senlin: SenlinStore, database_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    senlin.ask(
        "INSERT INTO service (id, host, `binary`, updated_at) VALUES ('s', 'ctl1', 'senlin-engine', ?)", now(ago=30)
    )
    assert run(senlin) == 1
    assert "Senlin is running (senlin-engine on ctl1)" in capsys.readouterr().err
    assert rows(database_url, "SELECT * FROM clusters") == []
    assert run(senlin, "--dry-run") == 1
    assert lines(capsys.readouterr().out, "cluster")["main"] == "would come"
    senlin.ask("UPDATE service SET updated_at = '2020-01-01 00:00:00.000000'")
    run(senlin)
    assert rows(database_url, "SELECT * FROM clusters") != []


def test_events_older_than_what_roost_keeps_do_not_come(senlin: SenlinStore, database_url: str) -> None:
    recent, old = senlin.ask("SELECT id FROM event")
    senlin.ask("UPDATE event SET timestamp = ? WHERE id = ?", now(), recent["id"])
    senlin.ask("UPDATE event SET timestamp = '2020-01-01 00:00:00.000000' WHERE id = ?", old["id"])
    run(senlin, "--events")
    [event] = rows(database_url, "SELECT * FROM events")
    assert (event["id"], event["level"], event["status_reason"]) == (recent["id"], 20, "scaled out")


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("nonsense", "--from is not a database address"),
        ("postgresql://u:geheim@h/senlin", "A Senlin database is in MySQL or MariaDB, not in postgresql"),
        ("mysql+pymysql://u:geheim@127.0.0.1:1/senlin", "mysql+pymysql://u:***@127.0.0.1:1/senlin cannot be read"),
        ("sqlite:////nowhere/senlin.db", "cannot be read"),
    ],
)
def test_a_database_that_cannot_be_read(url: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["import", "senlin", "--from", url])
    assert ended.value.code == 1
    printed = capsys.readouterr()
    assert said in printed.err
    assert "geheim" not in printed.err + printed.out
    assert "Traceback" not in printed.err


def test_another_database_is_no_senlin(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = SenlinStore(f"sqlite:///{tmp_path}/other.db")
    other.ask("CREATE TABLE profile (id TEXT)")
    assert run(other) == 1
    assert "roost: sqlite:///" in capsys.readouterr().err


# Afterwards, on the embedded cloud


async def moved_in(house: House, senlin: SenlinStore) -> str:
    """Give the tenant of the embedded cloud what is in the database, with servers that exist; the main cluster's id."""
    seed = await house.cluster(3)
    nodes = await house.members(seed)
    zones = {node["physical_id"]: node["data"]["placement"]["zone"] for node in nodes}
    for number, node in enumerate(nodes, 1):
        placement = f'{{"placement": {{"zone": "{zones[node["physical_id"]]}"}}}}'
        values = (node["physical_id"], placement, f"main-node-{number:03d}")
        senlin.ask("UPDATE node SET physical_id = ?, data = ? WHERE name = ?", *values)
    for table in ("profile", "policy", "cluster", "node", "receiver"):
        senlin.ask(f"UPDATE {table} SET user = ?, project = ?", seed["user"], seed["project"])
    spec = f'{{"type": "os.nova.server", "version": "1.0", "properties": {{"flavor": "{PROPERTIES["flavor"]}"}}}}'
    senlin.ask("UPDATE profile SET spec = ? WHERE name = 'web'", spec)
    async with house.database.begin() as connection:
        await connection.exec_driver_sql("DELETE FROM nodes")
        await connection.exec_driver_sql("DELETE FROM clusters")
    return senlin.id("cluster", "main")


async def bring(house: House, senlin: SenlinStore) -> None:
    """Import while the house works; the command has an event loop of its own."""
    await asyncio.to_thread(imports.senlin, house.settings, senlin.url, dry_run=False, with_events=False)


async def test_an_imported_cluster_grows_shrinks_and_heals(database_url: str, senlin: SenlinStore) -> None:
    async with clustering(database_url) as house:
        main_id = await moved_in(house, senlin)
        senlin.ask("DELETE FROM cluster_policy WHERE policy_id = ?", senlin.id("policy", "apart"))
        before = await house.servers()
        await bring(house, senlin)
        cluster = await house.get(f"/clusters/{main_id}")
        assert (cluster["name"], len(cluster["nodes"])) == ("main", 3)
        assert (await house.act(cluster, "check"))["status"] == "SUCCEEDED"
        grown = await house.act(cluster, "scale_out", {"count": 3})
        assert grown["status"] == "SUCCEEDED", grown["status_reason"]
        members = await house.members(cluster)
        assert Counter(node["data"]["placement"]["zone"] for node in members) == {"zone1": 2, "zone2": 2, "zone3": 2}
        assert [node["name"] for node in members[3:]] == ["web-004", "web-005", "web-006"]
        assert before <= await house.servers()
        shrunk = await house.act(cluster, "scale_in", {"count": 3})
        assert shrunk["status"] == "SUCCEEDED", shrunk["status_reason"]
        left = await house.members(cluster)
        assert Counter(node["data"]["placement"]["zone"] for node in left) == {"zone1": 1, "zone2": 1, "zone3": 1}
        lost = left[0]
        gone = await house.api.delete(f"/compute/v2.1/servers/{lost['physical_id']}", cloud="roost")
        assert gone.status_code == 204
        await asyncio.sleep(1)
        assert (await house.act(cluster, "check"))["status"] in ("SUCCEEDED", "FAILED")
        healed = await house.act(cluster, "recover")
        assert healed["status"] == "SUCCEEDED", healed["status_reason"]
        again = next(node for node in await house.members(cluster) if node["id"] == lost["id"])
        assert (again["status"], again["physical_id"] != lost["physical_id"]) == ("ACTIVE", True)
        assert again["data"]["placement"]["zone"] == lost["data"]["placement"]["zone"]


@pytest.mark.parametrize("answered", [True, False])
async def test_old_and_new_addresses_of_webhooks(
    database_url: str, senlin: SenlinStore, capsys: pytest.CaptureFixture[str], answered: bool
) -> None:
    async with clustering(database_url, engine=False, clusters__senlin_webhooks=answered) as house:
        for table in ("profile", "policy", "cluster", "node", "receiver"):
            senlin.ask(f"UPDATE {table} SET project = ?", (await house.profile())["project"])
        await bring(house, senlin)
        printed = capsys.readouterr().out
        old = re.search(
            rf"old address, which {'is answered too' if answered else 'is not'}.*: (http://senlin.example:8777\S+)",
            printed,
        )
        new = re.search(r"new address: http://ROOST(/clustering\S+)", printed)
        assert old is not None
        assert new is not None
        path = "/clustering" + old[1].removeprefix("http://senlin.example:8777")
        answers = [await house.api.post(path, cloud=None), await house.api.post(path + "&token=guess", cloud=None)]
        assert [answer.status_code for answer in answers] == [202 if answered else 404, 404]
        shown = await house.get(f"/receivers/{senlin.id('receiver', 'out')}")
        assert shown["actor"] == {}, "Senlin's trust is none of Roost's"
        async with house.database.begin() as connection:
            await connection.exec_driver_sql("DELETE FROM actions")
        assert (await house.api.post(new[1], cloud=None)).status_code == 202
        [action] = await house.get("/actions")
        assert action["action"] == "CLUSTER_SCALE_OUT"


async def test_a_webhook_of_roost_never_does_without_its_token(database_url: str) -> None:
    async with clustering(database_url, clusters__senlin_webhooks=True) as house:
        cluster = await house.cluster(0)
        body = {"name": "own", "type": "webhook", "cluster_id": cluster["id"], "action": "CLUSTER_SCALE_OUT"}
        made = (await house.post("/receivers", {"receiver": body})).json()["receiver"]
        bare = f"/clustering/v1/webhooks/{made['id']}/trigger?V=2"
        assert (await house.api.post(bare, cloud=None)).status_code == 404


# The page and the stored copy


PAGES = {name: (Path(__file__).parents[2] / "docs" / name).read_text() for name in ("from-senlin.md", "openstack.md")}


def test_the_page_shows_what_a_dry_run_prints(senlin: SenlinStore, capsys: pytest.CaptureFixture[str]) -> None:
    run(senlin, "--dry-run")
    printed = capsys.readouterr().out.splitlines()
    block = PAGES["from-senlin.md"].partition("--dry-run\n")[2].partition("    ```")[0]
    shown = [line.removeprefix("    ") for line in block.splitlines() if line.strip() not in ("", "...")]
    assert len(shown) > 5
    assert [line for line in shown if line not in printed] == []


@pytest.mark.parametrize("page", PAGES)
def test_every_command_of_a_page_is_one(page: str) -> None:
    commands = re.findall(r"^ *\$ roost (.*?)(?: +#.*)?$", PAGES[page], re.MULTILINE)
    assert commands
    for command in commands:
        parser().parse_args(command.split())


def test_the_stored_copy_is_what_senlin_makes(senlin: SenlinStore, mariadb: str | None, tmp_path: Path) -> None:
    if mariadb is None:
        pytest.skip("there is no Senlin here: make senlin-import-test")
    stored = SenlinStore(load(tmp_path))
    assert sorted(stored.tables()) == sorted(senlin.tables())
    for table in stored.tables():
        ours, theirs = stored.ask(f"SELECT * FROM {table}"), senlin.ask(f"SELECT * FROM {table}")
        assert [sorted(row) for row in ours] == [sorted(row) for row in theirs], table
        assert {row.get("id") for row in ours} == {row.get("id") for row in theirs}, table
