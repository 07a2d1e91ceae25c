"""Lists, search, what is wrong, what happened: all for the operator, a project's own for everyone else."""

import csv
import io
import re
from typing import Any
from urllib.parse import quote

import pytest

from roost.api.compute import console
from roost.compute.answers import history, lists
from roost.compute.scheduling.servers import STATUSES
from roost.store.pages import PageRequest
from roost.store.tables.servers import servers
from tests.api.compute.conftest import Compute
from tests.compute.cloud import NEWEST, Cloud

ADMIN, DEMO, ALT = "roost-admin", "roost", "roost-alt"


async def listed(compute: Compute, kind: str, query: str = "", cloud: str = ADMIN) -> dict[str, Any]:
    body = await compute.get(f"/os-lists/{kind}{query}", version=NEWEST, cloud=cloud)
    return dict(body["list"])


async def names(compute: Compute, kind: str, query: str = "", cloud: str = ADMIN) -> list[str]:
    return [row["name"] for row in (await listed(compute, kind, query, cloud))["rows"]]


async def found(compute: Compute, query: str, cloud: str = ADMIN) -> dict[str, list[str]]:
    body = await compute.get("/os-search", version=NEWEST, cloud=cloud, params={"q": query})
    return {each["kind"]: [row["name"] for row in each["rows"]] for each in body["search"]["results"]}


async def troubles(compute: Compute, cloud: str = ADMIN) -> dict[str, Any]:
    return dict((await compute.get("/os-troubles", version=NEWEST, cloud=cloud))["troubles"])


async def events(compute: Compute, query: str = "", cloud: str = ADMIN) -> list[dict[str, Any]]:
    return list((await compute.get(f"/os-history{query}", version=NEWEST, cloud=cloud))["events"])


async def fail_one(cloud: Cloud, **more: Any) -> str:
    """A server in ERROR, since no host has room for it."""
    await cloud.hosts(1, vcpus=1, memory_mb=512)
    return await cloud.boot(name="giant", flavorRef="5", **more)


async def test_lists_are_filtered_sorted_and_paged(compute: Compute, cloud: Cloud) -> None:
    for name in ("web", "app", "xdb"):
        await cloud.boot(name=name)
    assert await names(compute, "servers") == ["app", "web", "xdb"]
    assert await names(compute, "servers", "?sort=name:desc&limit=2") == ["xdb", "web"]
    page = await listed(compute, "servers", "?limit=2")
    assert page["total"] == 3
    assert await names(compute, "servers", f"?limit=2&marker={page['rows'][-1]['id']}") == ["xdb"]
    assert await names(compute, "servers", "?status=ACTIVE&q=we") == ["web"]
    assert await names(compute, "servers", "?status=ERROR") == []
    assert len(await names(compute, "hosts", "?zone=zone1&sort=load:desc")) == 16


@pytest.mark.parametrize(
    "kind", ["servers", "groups", "hosts", "aggregates", "scopes", "clusters", "nodes", "actions", "projects"]
)
async def test_every_list_can_be_sorted_by_every_column(compute: Compute, cloud: Cloud, kind: str) -> None:
    await cloud.boot(group=await cloud.group("anti-affinity"))
    columns = (await listed(compute, kind))["columns"]
    for column in columns:
        first = (await listed(compute, kind, f"?sort={column}:desc&limit=1"))["rows"]
        if first:
            await listed(compute, kind, f"?sort={column}:desc&limit=1&marker={first[0]['id']}")
    answer = await compute.ask("GET", f"/os-exports/{kind}?format=json", version=NEWEST, cloud=ADMIN)
    assert answer.is_success, answer.text


@pytest.mark.parametrize("descends", [False, True])
async def test_pages_of_a_sorted_list_are_the_whole_list_in_order(
    compute: Compute, cloud: Cloud, descends: bool
) -> None:
    """By columns of the host, the group and the project too, whether a server has one of them or not."""
    first, second = await cloud.group("anti-affinity"), await cloud.group("anti-affinity")
    for number in range(3):
        await cloud.boot(name=f"in-first-{number}", group=first)
        await cloud.boot(name=f"in-second-{number}", group=second)
        await cloud.boot(name=f"alone-{number}")
    await cloud.boot(name="of-alt-10", cloud=ALT)
    await cloud.boot(name="of-alt-9", cloud=ALT)
    async with cloud.database.begin() as connection:
        for state, name in (("resized", "in-first-0"), ("rescued", "in-second-1"), ("stopped", "alone-2")):
            await connection.execute(servers.update().where(servers.c.name == name).values(vm_state=state))
    await fail_one(cloud)
    for kind, query in (("servers", ""), ("servers", "&q=in"), ("servers", "&q=demo"), ("groups", "")):
        page = await listed(compute, kind, f"?limit=100{query}")
        for column in page["columns"]:
            asked = f"?sort={column}{':desc' if descends else ''}{query}"
            seen = await all_pages(compute, kind, asked, 2)
            assert sorted(row["id"] for row in seen) == sorted(row["id"] for row in page["rows"]), asked
            values = [row[column] for row in seen]
            key = counted if column in ("name", "host", "zone", "group") else None
            assert values == sorted(values, key=key, reverse=descends), asked


async def test_servers_are_sorted_by_the_status_that_is_shown(compute: Compute, cloud: Cloud) -> None:
    """It is the one that clients see, and not what the state is called inside."""
    states = [state for state in STATUSES if state != "deleted"]
    for state in states:
        await cloud.boot(name=f"in-{state}")
    async with cloud.database.begin() as connection:
        for state in states:
            await connection.execute(servers.update().where(servers.c.name == f"in-{state}").values(vm_state=state))
    wanted = sorted(STATUSES[state][""] for state in states)
    for query in ("", "&q=in"):
        seen = await all_pages(compute, "servers", f"?sort=status{query}", 3)
        assert [row["status"] for row in seen] == wanted, query
        seen = await all_pages(compute, "servers", f"?sort=status:desc{query}", 3)
        assert [row["status"] for row in seen] == wanted[::-1], query
    for state in states:
        shown = STATUSES[state][""]
        assert await names(compute, "servers", f"?status={shown}") == [f"in-{state}"]
    assert (await found(compute, "verify_resize"))["servers"] == ["in-resized"]
    assert (await found(compute, "rescue"))["servers"] == ["in-rescued"]


def counted(value: str) -> list[Any]:
    """What people sort a name by: the numbers in it are numbers."""
    return [(part.isdigit(), int(part) if part.isdigit() else part) for part in re.split(r"(\d+)", value)]


async def all_pages(compute: Compute, kind: str, query: str, limit: int) -> list[dict[str, Any]]:
    """The rows of a list, read page by page."""
    rows: list[dict[str, Any]] = []
    while True:
        marker = f"&marker={rows[-1]['id']}" if rows else ""
        page = await listed(compute, kind, f"{query}&limit={limit}{marker}")
        rows += page["rows"]
        if len(page["rows"]) < limit:
            assert page["total"] == len(rows), query
            return rows


async def test_a_search_that_names_a_project_finds_each_server_once(compute: Compute, cloud: Cloud) -> None:
    await cloud.boot(name="demo")
    await cloud.boot(name="other")
    await cloud.boot(name="demo-of-alt", cloud=ALT)
    page = await listed(compute, "servers", "?q=Demo")
    assert [row["name"] for row in page["rows"]] == ["demo", "demo-of-alt", "other"]
    assert (await listed(compute, "servers", "?q=demo&limit=1"))["total"] == 3
    assert await names(compute, "servers", "?q=demo", DEMO) == ["demo", "other"]
    assert (await found(compute, "demo"))["servers"][0] == "demo"


async def test_the_order_of_a_project_does_not_tell_its_hosts(cloud: Cloud, compute: Compute) -> None:
    for _ in range(6):
        await cloud.boot()
    page = await listed(compute, "servers", "?sort=zone", DEMO)
    rows = [(row["zone"], row["id"]) for row in page["rows"]]
    assert rows == sorted(rows)


async def test_a_project_lists_its_own_and_not_where_it_is(compute: Compute, cloud: Cloud) -> None:
    await cloud.boot(name="mine")
    await cloud.boot(name="theirs", cloud=ALT)
    page = await listed(compute, "servers", cloud=DEMO)
    assert [row["name"] for row in page["rows"]] == ["mine"]
    assert "host" not in page["columns"]
    for query in ("?host=zone1-rack1-host1", "?sort=host"):
        status, _ = await compute.refusal("GET", f"/os-lists/servers{query}", version=NEWEST, cloud=DEMO)
        assert status == 400, query
    for kind in ("hosts", "aggregates", "scopes", "projects"):
        status, _ = await compute.refusal("GET", f"/os-lists/{kind}", version=NEWEST, cloud=DEMO)
        assert status == 403, kind


@pytest.mark.parametrize(
    "path", ["/os-lists/planets", "/os-lists/servers?sort=colour", "/os-lists/hosts?status=ACTIVE"]
)
async def test_what_cannot_be_listed_is_refused(compute: Compute, path: str) -> None:
    status, message = await compute.refusal("GET", path, version=NEWEST, cloud=ADMIN)
    assert status in (400, 404)
    assert message


async def test_things_are_found_by_their_state(compute: Compute, cloud: Cloud) -> None:
    await fail_one(cloud)
    assert (await found(compute, "Error"))["servers"] == ["giant"]
    assert await names(compute, "servers", "?q=error") == ["giant"]
    assert await names(compute, "servers", "?q=active") == []
    assert "servers" not in await found(compute, "error", ALT)
    assert len((await found(compute, "up"))["hosts"]) == 1


async def test_an_export_goes_on_when_the_last_of_a_page_is_deleted_meanwhile(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "_PAGE_OF_EXPORT", 2)
    made = [await cloud.boot(name=f"server{number}", settle=False) for number in range(5)]
    whole, gone = lists.ids, list[str]()

    async def deleting(reading: Any, asked: Any, page: PageRequest) -> Any:
        ids = await whole(reading, asked, page)
        if page.marker is None:
            gone.append(str(ids[-1]))
            async with cloud.database.begin() as connection:
                await connection.execute(servers.delete().where(servers.c.id == gone[-1]))
        return ids

    monkeypatch.setattr(lists, "ids", deleting)
    answer = await cloud.ask("GET", "/os-exports/servers?format=json")
    assert len(gone) == 1
    assert sorted(row["id"] for row in answer.json()) == sorted({*made} - {*gone})


async def test_a_list_is_exported_whole_and_safely(compute: Compute, cloud: Cloud) -> None:
    await cloud.boot(name="=1+1")
    await cloud.boot(name="b,c")
    headers = {"X-Auth-Token": await compute.api.token(ADMIN), "OpenStack-API-Version": f"compute {NEWEST}"}
    answer = await compute.api.http.get("/compute/v2.1/os-exports/servers?format=csv", headers=headers)
    assert answer.headers["content-disposition"] == 'attachment; filename="servers.csv"'
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert [row["name"] for row in rows] == ["'=1+1", "b,c"]
    answer = await compute.ask("GET", "/os-exports/servers?format=json", version=NEWEST, cloud=DEMO)
    assert answer.is_success, answer.text
    assert [row["name"] for row in answer.json()] == ["=1+1", "b,c"]


async def test_an_export_of_groups_says_their_rules_and_which_are_broken(compute: Compute, cloud: Cloud) -> None:
    await cloud.group("anti-affinity:rack")
    answer = await compute.ask("GET", "/os-exports/groups?format=json", version=NEWEST, cloud=ADMIN)
    (row,) = answer.json()
    assert (row["rules"], row["broken"]) == ("Never two in one rack", 0)


async def test_anything_is_found_by_a_word_an_id_or_an_address(compute: Compute, cloud: Cloud) -> None:
    server = await cloud.boot(name="Shop-web-1", networks="auto")
    group = await cloud.group("anti-affinity")
    assert (await found(compute, "web"))["servers"] == ["Shop-web-1"]
    assert (await found(compute, server))["servers"] == ["Shop-web-1"]
    assert (await found(compute, server[:8]))["servers"] == ["Shop-web-1"]
    shown = await cloud.show(server)
    address = next(each["addr"] for network in shown["addresses"].values() for each in network)
    assert (await found(compute, address))["servers"] == ["Shop-web-1"]
    assert (await found(compute, group))["groups"] == ["group"]
    assert "zone1-rack1-host1" in (await found(compute, "zone1-rack1"))["hosts"]
    assert "zone1-rack1" in (await found(compute, "zone1-rack1"))["aggregates"]
    assert "demo" in (await found(compute, "demo"))["projects"]
    assert (await found(compute, "demo"))["servers"] == ["Shop-web-1"]
    assert (await found(compute, "rack"))["scopes"] == ["rack"]
    assert await found(compute, "'; DROP TABLE servers; --") == {}
    assert await found(compute, "-") == {}


async def test_names_that_begin_with_the_query_are_found_first(compute: Compute, cloud: Cloud) -> None:
    await cloud.boot(name="a-web-7")
    await cloud.boot(name="7-web")
    await cloud.boot(name="web-77")
    await cloud.boot(name="Web-7")
    assert (await found(compute, "web-7"))["servers"] == ["Web-7", "web-77", "a-web-7", "7-web"]


async def test_a_search_finds_nothing_of_others(compute: Compute, cloud: Cloud) -> None:
    server = await cloud.boot(name="theirs", cloud=ALT)
    for query in ("theirs", server, "zone1"):
        assert await found(compute, query, DEMO) == {}, query


async def test_a_server_in_error_is_the_trouble_of_its_project(compute: Compute, cloud: Cloud) -> None:
    server = await fail_one(cloud)
    for whose in (ADMIN, DEMO):
        seen = [each for each in (await troubles(compute, whose))["items"] if each["kind"] == "server_failed"]
        assert [(each["name"], each["subject"]) for each in seen] == [("giant", {"kind": "servers", "id": server})]
        assert seen[0]["sentence"]
        assert f"openstack server explain {server}" in [each["command"] for each in seen[0]["remedies"]]
    assert (await troubles(compute, ALT))["total"] == 0


async def test_a_host_that_is_down_comes_before_everything_of_its_servers(compute: Compute, cloud: Cloud) -> None:
    server = await cloud.boot()
    host = await cloud.host(server)
    assert host is not None
    await cloud.change_host(host, forced_down=True)
    kinds = [each["kind"] for each in (await troubles(compute))["items"]]
    assert "host_down" in kinds
    assert "host_down" not in [each["kind"] for each in (await troubles(compute, DEMO))["items"]]
    assert "host_down" in [each["kind"] for each in await events(compute, f"?host={host}")]


async def test_what_happened_is_told_to_whom_it_concerns(compute: Compute, cloud: Cloud) -> None:
    server = await cloud.boot(name="mover")
    first = await cloud.host(server)
    await cloud.done(server, "migrate")
    assert [each["host"] for each in await events(compute, f"?server_id={server}&kind=placed")] == [first]
    moved = await events(compute, f"?server_id={server}&kind=moved")
    assert moved
    assert all(each["source"] != each["host"] for each in moved)
    own = await events(compute, f"?server_id={server}", DEMO)
    assert {"placed", "moved"} <= {each["kind"] for each in own}
    assert {each["host"] for each in own} == {None}
    assert await events(compute, f"?server_id={server}", ALT) == []
    await cloud.delete(server)
    assert "deleted" in [each["kind"] for each in await events(compute, f"?server_id={server}")]
    status, _ = await compute.refusal("GET", "/os-history?host=zone1-rack1-host1", version=NEWEST, cloud=DEMO)
    assert status == 403
    status, _ = await compute.refusal("GET", "/os-history?before=yesterday", version=NEWEST, cloud=ADMIN)
    assert status == 400


async def test_the_feed_leaves_nothing_out_between_its_pages(compute: Compute, cloud: Cloud) -> None:
    """Servers that are made together begin in one moment."""
    await cloud.boot(name="many", min_count=7, max_count=7)
    await cloud.boot(name="later")
    seen: list[str] = []
    page = await events(compute, "?kind=placed&limit=3")
    while page:
        seen += [each["name"] for each in page]
        page = await events(compute, "?kind=placed&limit=3&before=" + quote(page[-1]["at"]))
    assert sorted(seen) == sorted(["later", *(f"many-{number}" for number in range(1, 8))])


async def test_a_broken_rule_begins_and_ends_in_the_history(compute: Compute, cloud: Cloud) -> None:
    group = await cloud.group("anti-affinity:rack")
    for _ in range(2):
        await cloud.boot(group=group)
    async with cloud.database.begin() as connection:
        await connection.exec_driver_sql(
            "INSERT INTO violations (group_id, breach, policy, aggregate, excess) "
            f"VALUES ('{group}', 'over_limit', 'anti-affinity:rack', '1', 1)"
        )
        await connection.exec_driver_sql("DELETE FROM violations")
    kinds = [each["kind"] for each in await events(compute, f"?group_id={group}")]
    assert kinds[:2] == ["rule_mended", "rule_broken"]


async def test_figures_are_taken_once_a_minute(compute: Compute, cloud: Cloud) -> None:
    await cloud.boot()
    for _ in range(2):
        async with cloud.database.begin() as connection:
            await history.take_sample(connection)
    body = await compute.get("/os-figures", version=NEWEST, cloud=ADMIN)
    assert len(body["figures"]["servers"]) in (1, 2)
    assert body["figures"]["servers"][-1][1] == 1
    status, _ = await compute.refusal("GET", "/os-figures", version=NEWEST, cloud=DEMO)
    assert status == 403
