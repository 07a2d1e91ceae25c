"""Policy scopes over HTTP: who sees what of them, and what may be done to them."""

import asyncio
import uuid
from typing import Any

import httpx
import pytest
import sqlalchemy as sa

from roost.store.tables.compute import aggregate_hosts, aggregates, fleet_changes
from roost.store.tables.servers import server_groups
from tests.conftest import Api

SCOPES = "/compute/v2.1/os-policy-scopes"
GROUPS = "/compute/v2.1/os-server-groups"
NAMESPACE = "6f72348f-df5d-4e0f-a043-4be92996dbfe"


async def create(api: Api, version: str = "2.1003", **scope: Any) -> httpx.Response:
    return await api.post(SCOPES, {"policy_scope": {"name": "maintenance_zone", **scope}}, version=version)


async def make(api: Api, **scope: Any) -> Any:
    answer = await create(api, **scope)
    assert answer.status_code == 200, answer.text
    return answer.json()["policy_scope"]


async def listed(api: Api, *, cloud: str = "roost-admin", version: str = "2.1003", **query: str) -> dict[str, Any]:
    """Every scope by its name."""
    answer = await api.get(SCOPES, cloud=cloud, version=version, params=query)
    assert answer.status_code == 200, answer.text
    return {scope["name"]: scope for scope in answer.json()["policy_scopes"]}


async def show(api: Api, scope_id: str, *, cloud: str = "roost-admin", version: str = "2.1003", **query: str) -> Any:
    answer = await api.get(f"{SCOPES}/{scope_id}", cloud=cloud, version=version, params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()["policy_scope"]


async def act(api: Api, scope_id: str, action: str, aggregate_id: Any, **more: Any) -> httpx.Response:
    body = {action: {"aggregate_id": aggregate_id}}
    return await api.post(f"{SCOPES}/{scope_id}/action", body, **{"version": "2.1003", **more})


async def new_aggregate(api: Api, name: str, *host_ids: int) -> int:
    async with api.services.database.begin() as connection:
        added = aggregates.insert().values(name=name).returning(aggregates.c.id)
        aggregate_id = int((await connection.execute(added)).scalar_one())
        if host_ids:
            rows = [{"aggregate_id": aggregate_id, "host_id": host_id} for host_id in host_ids]
            await connection.execute(aggregate_hosts.insert(), rows)
    return aggregate_id


def message(answer: httpx.Response) -> str:
    ((_, error),) = answer.json().items()
    return str(error["message"])


async def test_the_create_example_with_booleans_as_strings(api: Api) -> None:
    body = {"allow_identifiers": "true", "obfuscate_identifiers": "true"}
    created = (await create(api, "2.1002", **body)).json()["policy_scope"]
    assert created == {
        "id": str(uuid.UUID(created["id"])),
        "name": "maintenance_zone",
        **body,
        "obfuscate_namespace_uuid": str(uuid.UUID(created["obfuscate_namespace_uuid"])),
        "aggregates": [],
    }
    assert await show(api, created["id"], version="2.1002") == created


async def test_from_2_1003_on_booleans_are_booleans(api: Api) -> None:
    created = await make(api, allow_identifiers=True, obfuscate_namespace_uuid=NAMESPACE)
    assert (created["allow_identifiers"], created["obfuscate_identifiers"]) == (True, False)
    assert created["obfuscate_namespace_uuid"] == NAMESPACE


async def test_the_built_in_scopes_come_first_and_cannot_be_changed(api: Api) -> None:
    scopes = await listed(api, cloud="roost")
    assert list(scopes)[:2] == ["host", "availability_zone"]
    assert scopes["host"] == {
        "id": "host",
        "name": "host",
        "allow_identifiers": False,
        "obfuscate_identifiers": False,
        "aggregates": [],
    }
    assert scopes["availability_zone"]["aggregates"] == [{"group_id": f"zone{number}"} for number in (1, 2, 3)]
    for answer in (
        await api.post(f"{SCOPES}/host", {"policy_scope": {"allow_identifiers": True}}, version="2.1003"),
        await act(api, "host", "add_aggregate", 4),
        await api.delete(f"{SCOPES}/host", version="2.1003"),
    ):
        assert (answer.status_code, message(answer)) == (
            409,
            "The policy scope 'host' is built in and cannot be changed.",
        )


async def test_obfuscated_identifiers_are_the_tenants_own_in_two_passes(api: Api) -> None:
    scope = await make(api, allow_identifiers=True, obfuscate_identifiers=True, obfuscate_namespace_uuid=NAMESPACE)
    number = await new_aggregate(api, "mz1", 1, 2)
    assert (await act(api, scope["id"], "add_aggregate", number)).status_code == 200
    projects = {row["name"]: row["id"] for row in (await api.get("/identity/v3/projects")).json()["projects"]}
    for cloud, project in (("roost", "demo"), ("roost-alt", "alt")):
        expected = str(uuid.uuid5(uuid.uuid5(uuid.UUID(NAMESPACE), projects[project]), str(number)))
        seen = await show(api, scope["id"], cloud=cloud)
        assert seen["aggregates"] == [{"group_id": expected}]
        assert "obfuscate_namespace_uuid" not in seen
        as_admin = await show(api, scope["id"], as_tenant_id=projects[project])
        assert as_admin["aggregates"] == [
            {"group_id": str(number), "name": "mz1", "aggregate_id": number, "obfuscated_group_id": expected}
        ]
    assert "obfuscated_group_id" not in (await show(api, scope["id"]))["aggregates"][0]


async def test_only_an_admin_looks_through_another_tenants_eyes(api: Api) -> None:
    scope = await make(api)
    for path in (SCOPES, f"{SCOPES}/{scope['id']}"):
        answer = await api.get(path, cloud="roost", version="2.1002", params={"as_tenant_id": "x"})
        assert answer.status_code == 403


@pytest.mark.parametrize(("allowed", "seen"), [(False, []), (True, [{"group_id": "4"}])])
async def test_a_tenant_sees_only_the_identifiers_it_can_use(api: Api, allowed: bool, seen: list[Any]) -> None:
    rack = (await listed(api))["rack"]
    body = {"policy_scope": {"allow_identifiers": allowed}}
    assert (await api.post(f"{SCOPES}/{rack['id']}", body, version="2.1003")).status_code == 200
    assert (await show(api, rack["id"], cloud="roost"))["aggregates"][:1] == seen
    assert len((await show(api, rack["id"]))["aggregates"]) == 12


async def test_scopes_come_with_2_1002(api: Api) -> None:
    for version in ("2.1", "2.104", "2.1001"):
        assert (await api.get(SCOPES, version=version)).status_code == 404


async def test_only_an_admin_changes_scopes(api: Api) -> None:
    scope = await make(api)
    rule = "Policy doesn't allow os_compute_api:os-policy-scopes:{} to be performed."
    path = f"{SCOPES}/{scope['id']}"
    body = {"policy_scope": {"name": "other"}}
    refused = {
        "create": await api.post(SCOPES, body, cloud="roost", version="2.1002"),
        "update": await api.post(path, body, cloud="roost", version="2.1002"),
        "delete": await api.delete(path, cloud="roost", version="2.1002"),
        "add_aggregate": await act(api, scope["id"], "add_aggregate", 4, cloud="roost"),
        "remove_aggregate": await act(api, scope["id"], "remove_aggregate", 4, cloud="roost"),
    }
    for verb, answer in refused.items():
        assert (answer.status_code, message(answer)) == (403, rule.format(verb))
    assert await show(api, scope["id"]) == scope


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ({"name": "host"}, 409, "The policy scope 'host' is built in."),
        ({"name": "availability_zone"}, 409, "The policy scope 'availability_zone' is built in."),
        ({"name": "rack"}, 409, "Policy scope rack already exists."),
        ({"name": "a:b"}, 400, "it must have no colons, commas or spaces"),
        ({"name": "a b"}, 400, "it must have no colons, commas or spaces"),
        ({"name": "a,b"}, 400, "it must have no colons, commas or spaces"),
        ({"name": ""}, 400, "should be non-empty"),
        ({"allow_identifiers": "maybe"}, 400, "'maybe' is not one of"),
        ({"obfuscate_namespace_uuid": "no-uuid"}, 400, "'no-uuid' is not a 'uuid'"),
        ({"foo": 1}, 400, "Additional properties are not allowed ('foo' was unexpected)"),
    ],
)
async def test_a_bad_scope_is_refused(api: Api, body: dict[str, Any], status: int, said: str) -> None:
    answer = await create(api, **body)
    assert (answer.status_code, said in message(answer)) == (status, True), answer.text
    assert list(await listed(api)) == ["host", "availability_zone", "rack", "switch"]
    other = (await listed(api))["switch"]
    answer = await api.post(f"{SCOPES}/{other['id']}", {"policy_scope": body}, version="2.1003")
    assert (answer.status_code, said in message(answer)) == (status, True), answer.text


async def test_a_scope_that_is_not_there_is_not_found(api: Api) -> None:
    for unknown in ("rack", str(uuid.uuid4())):
        for answer in (
            await api.get(f"{SCOPES}/{unknown}", version="2.1002"),
            await api.post(f"{SCOPES}/{unknown}", {"policy_scope": {"name": "x"}}, version="2.1002"),
            await api.delete(f"{SCOPES}/{unknown}", version="2.1002"),
            await act(api, unknown, "add_aggregate", 4),
        ):
            assert (answer.status_code, message(answer)) == (404, f"Policy scope {unknown} could not be found.")


async def test_aggregates_come_and_go_and_the_fleet_is_told(api: Api) -> None:
    scope = await make(api)
    number = await new_aggregate(api, "mz1", 1, 2)
    for _ in range(2):
        added = await act(api, scope["id"], "add_aggregate", str(number))
        assert [row["aggregate_id"] for row in added.json()["policy_scope"]["aggregates"]] == [number]
    async with api.services.database.begin() as connection:
        newest = sa.select(fleet_changes.c.host_ids).order_by(fleet_changes.c.generation.desc()).limit(1)
        assert (await connection.execute(newest)).scalar_one() == [1, 2]
    removed = await act(api, scope["id"], "remove_aggregate", number)
    assert removed.json()["policy_scope"]["aggregates"] == []
    again = await act(api, scope["id"], "remove_aggregate", number)
    said = f"Aggregate {number} is not in policy scope maintenance_zone."
    assert (again.status_code, message(again)) == (404, said)


@pytest.mark.parametrize("aggregate_id", [4711, 2**31, 10**30])
async def test_an_aggregate_that_is_not_there_is_not_found(api: Api, aggregate_id: int) -> None:
    answer = await act(api, (await make(api))["id"], "add_aggregate", aggregate_id)
    assert (answer.status_code, message(answer)) == (404, f"Aggregate {aggregate_id} could not be found.")


@pytest.mark.parametrize("aggregate_id", [0, -1, True, None, "x", 1.5])
async def test_an_aggregate_is_named_by_its_number(api: Api, aggregate_id: Any) -> None:
    assert (await act(api, (await make(api))["id"], "add_aggregate", aggregate_id)).status_code == 400


async def test_a_host_is_in_one_aggregate_of_a_scope_even_if_all_are_added_at_once(api: Api) -> None:
    scope = await make(api)
    numbers = [await new_aggregate(api, f"mz{number}", 1, number + 2) for number in range(4)]
    answers = await asyncio.gather(*(act(api, scope["id"], "add_aggregate", number) for number in numbers))
    assert sorted(answer.status_code for answer in answers) == [200, 409, 409, 409]
    winner = next(n for n, answer in zip(numbers, answers, strict=True) if answer.status_code == 200)
    loser = next(n for n in numbers if n != winner)
    said = (
        f"Host zone1-rack1-host1 of aggregate {loser} is in aggregate {winner}, which is in policy scope "
        "maintenance_zone already; a host is in at most one aggregate of a scope."
    )
    assert message(answers[numbers.index(loser)]) == said


async def test_an_aggregate_is_in_one_scope_at_most(api: Api) -> None:
    answer = await act(api, (await make(api))["id"], "add_aggregate", 4)
    said = "Aggregate 4 is in another policy scope; remove it from there first."
    assert (answer.status_code, message(answer)) == (409, said)


async def use(api: Api, policy: str) -> None:
    body = {"server_group": {"name": "a secret name", "policies": [policy]}}
    assert (await api.post(GROUPS, body, cloud="roost", version="2.1002")).status_code == 200


async def test_what_is_in_use_stays_and_says_by_what(api: Api) -> None:
    rack = (await listed(api))["rack"]["id"]
    await api.post(f"{SCOPES}/{rack}", {"policy_scope": {"allow_identifiers": True}}, version="2.1003")
    await use(api, "affinity:rack:4")
    await use(api, "anti-affinity:rack")
    refused = {
        "Policy scope rack is in use by 2 server groups and 12 aggregates.": await api.delete(
            f"{SCOPES}/{rack}", version="2.1002"
        ),
        "Aggregate 4 is in use by the policies of 1 server group.": await act(api, rack, "remove_aggregate", 4),
        "Policy scope rack: identifiers are in use by 1 server group.": await api.post(
            f"{SCOPES}/{rack}", {"policy_scope": {"allow_identifiers": "false"}}, version="2.1002"
        ),
    }
    for said, answer in refused.items():
        assert (answer.status_code, message(answer)) == (409, said)
    assert len((await show(api, rack))["aggregates"]) == 12


async def test_a_targeted_aggregate_keeps_its_scope_and_its_existence_from_the_other_side_too(api: Api) -> None:
    scope = await make(api, allow_identifiers=True)
    number = await new_aggregate(api, "mz1")
    await act(api, scope["id"], "add_aggregate", number)
    await use(api, f"affinity:maintenance_zone:{number}")
    path = f"/compute/v2.1/os-aggregates/{number}"
    for answer in (
        await api.post(f"{path}/action", {"set_metadata": {"metadata": {"policy_scope": None}}}),
        await api.delete(path),
    ):
        said = f"Aggregate {number} is in use by the policies of 1 server group."
        assert (answer.status_code, message(answer)) == (409, said)


async def test_an_unused_scope_is_deleted(api: Api) -> None:
    scope = await make(api)
    assert (await api.delete(f"{SCOPES}/{scope['id']}", version="2.1002")).status_code == 204
    assert "maintenance_zone" not in await listed(api)


async def test_a_renamed_scope_keeps_its_groups(api: Api) -> None:
    await use(api, "anti-affinity:rack")
    rack = (await listed(api))["rack"]["id"]
    await api.post(f"{SCOPES}/{rack}", {"policy_scope": {"name": "shelf"}}, version="2.1002")
    (group,) = (await api.get(GROUPS, cloud="roost", version="2.1002")).json()["server_groups"]
    assert group["policies"] == ["anti-affinity:shelf"]
    async with api.services.database.begin() as connection:
        newest = sa.select(fleet_changes.c.host_ids).order_by(fleet_changes.c.generation.desc()).limit(1)
        assert len((await connection.execute(newest)).scalar_one()) == 48
        assert (await connection.execute(sa.select(server_groups.c.version))).scalar_one() == 2


async def test_each_project_lists_obfuscated_identifiers_in_an_order_of_its_own(api: Api) -> None:
    scope = await make(api, allow_identifiers=True, obfuscate_identifiers=True)
    for number in range(8):
        await act(api, scope["id"], "add_aggregate", await new_aggregate(api, f"zone {number}"))
    projects = {row["name"]: row["id"] for row in (await api.get("/identity/v3/projects")).json()["projects"]}
    orders = []
    for cloud, project in (("roost", "demo"), ("roost-alt", "alt")):
        seen = await show(api, scope["id"], as_tenant_id=projects[project])
        real = {each["obfuscated_group_id"]: each["group_id"] for each in seen["aggregates"]}
        own = [each["group_id"] for each in (await show(api, scope["id"], cloud=cloud))["aggregates"]]
        assert own == sorted(own)
        orders.append([real[each] for each in own])
    assert orders[0] != orders[1]


async def test_what_a_project_sees_is_shown_only_for_a_project_that_exists(api: Api) -> None:
    scope = await make(api, allow_identifiers=True, obfuscate_identifiers=True)
    for wrong in ("demo", "nonsense"):
        for path in (SCOPES, f"{SCOPES}/{scope['id']}"):
            answer = await api.get(path, version="2.1003", params={"as_tenant_id": wrong})
            assert answer.status_code == 400
            assert f"no project with the ID '{wrong}'" in message(answer)
