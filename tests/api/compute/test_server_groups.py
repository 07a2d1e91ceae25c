"""Server groups over HTTP: what each version takes, shows and refuses."""

import asyncio
import uuid
from typing import Any

import httpx
import pytest
import sqlalchemy as sa

from roost.store.tables.compute import quotas
from roost.store.tables.servers import outbox, project_usage
from roost.store.tables.servers import server_groups as table
from tests.compute.members import put_server
from tests.conftest import Api, without_names

GROUPS = "/compute/v2.1/os-server-groups"
SCOPES = "/compute/v2.1/os-policy-scopes"
TYPES = "['anti-affinity', 'affinity', 'soft-anti-affinity', 'soft-affinity']"


async def create(api: Api, version: str, *, cloud: str = "roost", **group: Any) -> httpx.Response:
    return await api.post(GROUPS, {"server_group": {"name": "g", **group}}, cloud=cloud, version=version)


async def make(api: Api, *policies: Any, cloud: str = "roost", version: str = "2.1002", name: str = "g") -> Any:
    """A group with these policies, as it is answered."""
    answer = await create(api, version, cloud=cloud, name=name, policies=list(policies))
    assert answer.status_code == 200, answer.text
    return answer.json()["server_group"]


async def show(api: Api, group_id: str, version: str, *, cloud: str = "roost") -> Any:
    answer = await api.get(f"{GROUPS}/{group_id}", cloud=cloud, version=version)
    assert answer.status_code == 200, answer.text
    return answer.json()["server_group"]


async def project(api: Api, cloud: str = "roost") -> str:
    name = {"roost": "demo", "roost-alt": "alt", "roost-admin": "admin"}[cloud]
    async with api.services.database.begin() as connection:
        query = sa.text("SELECT id FROM projects WHERE name = :name")
        return str((await connection.execute(query, {"name": name})).scalar_one())


async def scope_id(api: Api, name: str) -> str:
    listed = (await api.get(SCOPES, version="2.1003")).json()["policy_scopes"]
    return str(next(scope["id"] for scope in listed if scope["name"] == name))


async def configure(api: Api, scope: str, **values: Any) -> str:
    """Change a scope of the small topology; its id."""
    found = await scope_id(api, scope)
    answer = await api.post(f"{SCOPES}/{found}", {"policy_scope": values}, version="2.1003")
    assert answer.status_code == 200, answer.text
    return found


async def identifiers(api: Api, scope: str, *, cloud: str = "roost") -> list[str]:
    """What a tenant may call the aggregates of a scope, in the order in which the aggregates were made."""
    path, tenant = f"{SCOPES}/{await scope_id(api, scope)}", {"as_tenant_id": await project(api, cloud)}
    answer = await api.get(path, version="2.1003", params=tenant)
    return [aggregate["obfuscated_group_id"] for aggregate in answer.json()["policy_scope"]["aggregates"]]


async def obfuscated_zone(api: Api) -> list[str]:
    """The scope `zone`, with obfuscated identifiers: those of the tenant demo."""
    await configure(api, "switch", name="zone", allow_identifiers="true", obfuscate_identifiers="true")
    return await identifiers(api, "zone")


def message(answer: httpx.Response) -> str:
    ((_, error),) = answer.json().items()
    assert error["code"] == answer.status_code
    return without_names(error["message"])


async def count_groups(api: Api) -> int:
    async with api.services.database.begin() as connection:
        return int(await connection.scalar(sa.select(sa.func.count()).select_from(table)) or 0)


# The examples of the two proposals


async def test_the_complex_policy_example_is_created_shown_and_listed(api: Api) -> None:
    policy = {"name": "anti-affinity", "rules": {"max_server_per_host": 3}}
    created = await create(api, "2.1001", name="test", policy=policy)
    group = created.json()["server_group"]
    expected = {"id": group["id"], "name": "test", "policy": policy, "members": []}
    assert created.json() == {"server_group": expected}
    assert await show(api, group["id"], "2.1001") == expected
    listed = (await api.get(GROUPS, cloud="roost", version="2.1001")).json()
    owner = await show(api, group["id"], "2.64")
    assert listed == {
        "server_groups": [{**expected, "project_id": await project(api), "user_id": owner["user_id"]}],
    }


async def test_without_rules_the_rules_are_an_empty_object(api: Api) -> None:
    created = await create(api, "2.1001", policy={"name": "affinity"})
    assert created.json()["server_group"]["policy"] == {"name": "affinity", "rules": {}}


@pytest.mark.parametrize(
    ("policy", "why"),
    [
        ({"name": "affinity", "rules": {"max_server_per_host": 3}}, "Only anti-affinity policy supports rules."),
        ({"name": "affinity", "rules": {}}, "Only anti-affinity policy supports rules."),
        ({"name": "anti-affinity", "rules": {"max_server_per_host": 0}}, "0 is less than the minimum of 1"),
        ({"name": "anti-affinity", "rules": {"scope": "rack"}}, "'scope' is not a limit: max_server_per_host"),
        ({"name": "wrong"}, "'wrong' is not one of ['anti-affinity', 'affinity', 'soft-"),
        ({"rules": {}}, "'name' is a required property"),
        ("anti-affinity", "'anti-affinity' is not of type 'object'"),
    ],
)
async def test_the_complex_policy_refuses_what_it_does_not_name_and_says_why(api: Api, policy: Any, why: str) -> None:
    answer = await create(api, "2.1001", policy=policy)
    assert answer.status_code == 400
    assert why in message(answer)
    assert await count_groups(api) == 0


async def test_an_unknown_limit_or_scope_is_answered_with_the_nearest_one(api: Api) -> None:
    wrong = {"name": "anti-affinity", "rules": {"max_servers_per_host": 2}}
    answer = await create(api, "2.1003", policies=[wrong])
    limits = "max_server_per_aggregate, max_server_per_host, max_skew, partitions"
    assert f"'max_servers_per_host' is not a limit: {limits}; did you mean max_server_per_host?" in message(answer)
    answer = await create(api, "2.1003", policies=[{"name": "affinity", "scope": "rakc"}])
    assert "There is no policy scope 'rakc': " in message(answer)
    assert message(answer).endswith("; did you mean rack?")


async def test_an_obfuscated_identifier_may_be_written_in_upper_case(api: Api) -> None:
    zone, *_ = await obfuscated_zone(api)
    assert (await make(api, f"affinity:zone:{zone.upper()}"))["policies"] == [f"affinity:zone:{zone}"]


async def test_the_scoped_policy_example_is_created_with_the_tenants_own_identifier(api: Api) -> None:
    zone, *_ = await obfuscated_zone(api)
    created = await create(api, "2.1002", name="test", policies=[f"affinity:zone:{zone}"])
    assert created.json() == {
        "server_group": {
            "id": created.json()["server_group"]["id"],
            "name": "test",
            "policies": [f"affinity:zone:{zone}"],
            "members": [],
            "metadata": {},
        }
    }


async def test_the_update_example_changes_name_and_policies(api: Api) -> None:
    zone, *_ = await obfuscated_zone(api)
    group = await make(api, "affinity")
    change = {"name": "renamed test", "policies": [f"affinity:zone:{zone}", "anti-affinity:host"]}
    answer = await api.post(f"{GROUPS}/{group['id']}", {"server_group": change}, cloud="roost", version="2.1002")
    assert answer.status_code == 200
    assert answer.json()["server_group"] == {**group, **change} == await show(api, group["id"], "2.1002")


@pytest.mark.parametrize("change", [{"name": "other"}, {"policies": ["soft-affinity:rack"]}])
async def test_an_update_leaves_what_it_does_not_name(api: Api, change: dict[str, Any]) -> None:
    group = await make(api, "affinity")
    await api.post(f"{GROUPS}/{group['id']}", {"server_group": change}, cloud="roost", version="2.1002")
    assert await show(api, group["id"], "2.1002") == {**group, **change}


async def test_the_add_and_remove_examples_change_the_members(api: Api) -> None:
    group = await make(api, "anti-affinity:rack")
    server = await put_server(api.services.database, await project(api), host="zone1-rack1-host1")
    path = f"{GROUPS}/{group['id']}/action"
    added = await api.post(path, {"add_instance": {"instance_id": server}}, cloud="roost", version="2.1002")
    assert (added.status_code, added.json()["server_group"]["members"]) == (200, [server])
    assert (await show(api, group["id"], "2.1"))["members"] == [server]
    removed = await api.post(path, {"remove_instance": {"instance_id": server}}, cloud="roost", version="2.1002")
    assert (removed.status_code, removed.json()["server_group"]["members"]) == (200, [])


async def test_the_audit_example_shows_each_member_in_each_scope_of_the_policies(api: Api) -> None:
    zone, *_ = zones = await obfuscated_zone(api)
    group = await make(api, f"affinity:zone:{zone}", "anti-affinity:host")
    demo, database = await project(api), api.services.database
    one = await put_server(database, demo, host="zone1-rack1-host1", group=group["id"])
    other = await put_server(database, demo, host="zone3-rack4-host4", group=group["id"])
    answer = (await api.get(f"{GROUPS}/{group['id']}/audit", cloud="roost", version="2.1002")).json()
    hosts = [member["placements"]["host"] for member in answer["server_group_policy_audit"]["members"]]
    assert answer == {
        "server_group_policy_audit": {
            "server_group_id": group["id"],
            "members": [
                {"instance_id": one, "placements": {"zone": zone, "host": hosts[0]}},
                {"instance_id": other, "placements": {"zone": zones[-1], "host": hosts[1]}},
            ],
        }
    }
    assert len({uuid.UUID(host) for host in hosts}) == 2


# One group in all versions


@pytest.mark.parametrize(
    ("version", "shown"),
    [
        ("2.1", {"policies": ["anti-affinity", "soft-affinity"], "metadata": {}}),
        ("2.13", {"policies": ["anti-affinity", "soft-affinity"], "metadata": {}, "project_id": "P", "user_id": "U"}),
        (
            "2.64",
            {
                "policy": "anti-affinity",
                "rules": {"scope": "rack", "max_server_per_aggregate": 2},
                "project_id": "P",
                "user_id": "U",
            },
        ),
        ("2.1001", {"policy": {"name": "anti-affinity", "rules": {"scope": "rack", "max_server_per_aggregate": 2}}}),
        ("2.1002", {"policies": ["anti-affinity:rack", "soft-affinity:switch"], "metadata": {}}),
        (
            "2.1003",
            {
                "policies": [
                    {
                        "name": "anti-affinity",
                        "scope": "rack",
                        "identifier": None,
                        "rules": {"max_server_per_aggregate": 2},
                    },
                    {"name": "soft-affinity", "scope": "switch", "identifier": None, "rules": {}},
                ],
                "project_id": "P",
                "user_id": "U",
                "partitions": {},
            },
        ),
    ],
)
async def test_a_group_reads_sensibly_in_every_version(api: Api, version: str, shown: dict[str, Any]) -> None:
    made = await make(
        api,
        {"name": "anti-affinity", "scope": "rack", "rules": {"max_server_per_aggregate": "2"}},
        {"name": "soft-affinity", "scope": "switch"},
        version="2.1003",
    )
    owner = {"P": made["project_id"], "U": made["user_id"]}
    expected = {key: owner.get(value, value) if isinstance(value, str) else value for key, value in shown.items()}
    assert await show(api, made["id"], version) == {"id": made["id"], "name": "g", "members": [], **expected}


@pytest.mark.parametrize("policy", ["anti-affinity", "anti-affinity:host", "soft-affinity:availability_zone:zone2"])
async def test_a_policy_is_shown_as_it_was_written(api: Api, policy: str) -> None:
    assert (await make(api, policy))["policies"] == [policy]


async def test_the_stock_clients_rules_carry_scope_and_identifier(api: Api) -> None:
    rules = {"scope": "rack", "max_server_per_aggregate": "2", "max_skew": "1"}
    created = await create(api, "2.64", policy="anti-affinity", rules=rules)
    assert created.json()["server_group"]["rules"] == {
        "scope": "rack",
        "max_server_per_aggregate": 2,
        "max_skew": 1,
    }
    target = {"scope": "availability_zone", "identifier": "zone2"}
    created = await create(api, "2.104", policy="affinity", rules=target)
    assert created.json()["server_group"]["rules"] == target


async def test_names_need_not_be_unique_and_numbers_may_be_digits(api: Api) -> None:
    for _ in range(2):
        created = await create(api, "2.64", policy="anti-affinity", rules={"max_server_per_host": "3"})
        assert created.json()["server_group"]["rules"] == {"max_server_per_host": 3}
    assert await count_groups(api) == 2


# Refusals


FIELD = "Invalid input for field/attribute"


@pytest.mark.parametrize(
    ("version", "body", "said"),
    [
        ("2.64", {"policy": "wrong"}, f"{FIELD} policy. Value: wrong. 'wrong' is not one of {TYPES}"),
        ("2.63", {"policies": ["wrong"]}, f"{FIELD} 0. Value: wrong. 'wrong' is not one of {TYPES}"),
        (
            "2.14",
            {"policies": ["soft-affinity"]},
            f"{FIELD} 0. Value: soft-affinity. 'soft-affinity' is not one of ['anti-affinity', 'affinity']",
        ),
        ("2.64", {"policies": ["affinity"]}, "'policy' is a required property"),
        ("2.63", {"policy": "affinity"}, "'policies' is a required property"),
        (
            "2.63",
            {"policies": ["affinity"], "rules": {}},
            "Additional properties are not allowed ('rules' was unexpected)",
        ),
        ("2.1", {"policies": []}, f"{FIELD} policies. Value: []. [] should be non-empty"),
        ("2.1", {"policies": ["affinity", "anti-affinity"]}, "is too long"),
        ("2.1", {"policies": ["affinity", "affinity"]}, "has non-unique elements"),
        (
            "2.64",
            {"policy": "affinity", "rules": {"max_server_per_host": 2}},
            "Only anti-affinity policy supports rules.",
        ),
        (
            "2.64",
            {"policy": "soft-anti-affinity", "rules": {"max_server_per_host": 2}},
            "Only anti-affinity policy supports rules.",
        ),
        ("2.64", {"policy": "anti-affinity", "rules": {"max_server_per_host": 0}}, "0 is less than the minimum of 1"),
        ("2.64", {"policy": "anti-affinity", "rules": {"max_server_per_host": -1}}, "-1 is less than the minimum of 1"),
        ("2.64", {"policy": "anti-affinity", "rules": {"max_server_per_host": "a"}}, "'a' does not match '^[0-9]*$'"),
        ("2.64", {"policy": "anti-affinity", "rules": {"max_server_per_host": ""}}, "'' should be non-empty"),
        (
            "2.64",
            {"policy": "anti-affinity", "rules": {"max_server_per_host": 1.5}},
            "1.5 is not of type 'integer', 'string'",
        ),
        (
            "2.64",
            {"policy": "anti-affinity", "rules": {"max_server_per_host": True}},
            "True is not of type 'integer', 'string'",
        ),
        (
            "2.64",
            {"policy": "anti-affinity", "rules": {"foo": 3}},
            f"{FIELD} rules. Value: {{'foo': 3}}. Additional properties are not allowed ('foo' was unexpected)",
        ),
        ("2.64", {"policy": "anti-affinity", "rules": None}, "None is not of type 'object'"),
        (
            "2.64",
            {"policy": "anti-affinity:maintenance_zone"},
            f"{FIELD} policy. Value: anti-affinity:maintenance_zone. 'anti-affinity:maintenance_zone' is not one of "
            f"{TYPES}",
        ),
        (
            "2.64",
            {"policy": "anti-affinity", "rules": {"scope": "moon"}},
            "There is no policy scope 'moon': availability_zone, host",
        ),
        (
            "2.64",
            {"policy": "anti-affinity", "rules": {"scope": "rack", "max_server_per_host": 2}},
            "The policy 'anti-affinity:rack' cannot be used: max_server_per_host cannot stand here: the scope is rack; "
            "use max_server_per_aggregate.",
        ),
        ("2.64", {"policy": "affinity", "rules": {"identifier": "7"}}, "single hosts cannot be targeted"),
        ("2.64", {"policy": "anti-affinity", "rules": {"max_server_per_host": "0"}}, "max_server_per_host of 0"),
        ("2.1002", {"policies": ["wrong"]}, "The policy 'wrong' cannot be used: 'wrong' is not a type of rule"),
        ("2.1002", {"policies": ["affinity:"]}, "the scope of 'affinity:' is empty"),
        ("2.1002", {"policies": ["affinity: rack"]}, "the scope of 'affinity: rack' is empty or has blanks around it"),
        ("2.1002", {"policies": ["affinity:rack:"]}, "the identifier of 'affinity:rack:' is empty"),
        ("2.1002", {"policies": ["affinity:host:h1"]}, "single hosts cannot be targeted"),
        (
            "2.1002",
            {"policies": ["affinity:moon"]},
            "There is no policy scope 'moon': availability_zone, host",
        ),
        ("2.1002", {"policies": ["affinity:ra\nck"]}, "A policy has characters that cannot be printed."),
        (
            "2.1002",
            {"policies": ["affinity:rack:4"]},
            "The policy scope 'rack' does not allow identifiers: leave out '4'.",
        ),
        (
            "2.1002",
            {"policies": ["affinity:availability_zone:zone9"]},
            "The policy scope 'availability_zone' has no 'zone9': zone1, zone2, zone3; did you mean zone",
        ),
        ("2.1002", {"policies": []}, "[] should be non-empty"),
        ("2.1002", {"policies": ["affinity", "affinity"]}, "has non-unique elements"),
        ("2.1002", {"policies": ["affinity", "affinity:host"]}, "The policy 'affinity' is given twice."),
        ("2.1002", {"policies": [f"affinity:rack:{number}" for number in range(17)]}, "is too long"),
        ("2.1002", {"policies": [{"name": "affinity"}]}, "is not of type 'string'"),
        ("2.1002", {"policy": "affinity"}, "'policies' is a required property"),
        ("2.1003", {"policies": ["affinity"]}, "'affinity' is not of type 'object'"),
        ("2.1003", {"policies": [{"name": "affinity", "rules": {"max_skew": 1}}]}, "only anti-affinity takes limits"),
        ("2.1003", {"policies": [{"name": "affinity", "scope": ""}]}, "the scope of 'affinity:' is empty"),
        ("2.1002", {"name": " x", "policies": ["affinity"]}, "An invalid 'name' value was provided."),
        ("2.1002", {"name": "x" * 256, "policies": ["affinity"]}, "is too long"),
    ],
)
async def test_a_bad_group_is_refused_in_plain_words(api: Api, version: str, body: dict[str, Any], said: str) -> None:
    answer = await create(api, version, **body)
    assert answer.status_code == 400, answer.text
    assert said in message(answer)
    assert await count_groups(api) == 0


@pytest.mark.parametrize(
    ("policies", "said"),
    [
        (
            ["affinity:rack", "anti-affinity:rack"],
            "'affinity:rack' keeps 2 servers in one rack and 'anti-affinity:rack' allows 1",
        ),
        (
            ["affinity", "anti-affinity:rack"],
            "'affinity' keeps 2 servers in one rack and 'anti-affinity:rack' allows 1",
        ),
        (
            ["affinity:availability_zone:zone1", "affinity:availability_zone:zone2"],
            "'affinity:availability_zone:zone1' and 'affinity:availability_zone:zone2' name two targets in one scope",
        ),
        (
            ["affinity:availability_zone:zone1", "anti-affinity:availability_zone:zone1"],
            "require and forbid the same target",
        ),
    ],
)
async def test_contradictory_policies_are_refused_with_both_sides(api: Api, policies: list[str], said: str) -> None:
    answer = await create(api, "2.1002", policies=policies)
    assert answer.status_code == 400
    assert message(answer).startswith("These policies contradict each other: ")
    assert said in message(answer)
    group = await make(api, "affinity")
    change = {"server_group": {"name": "other", "policies": policies}}
    answer = await api.post(f"{GROUPS}/{group['id']}", change, cloud="roost", version="2.1002")
    assert (answer.status_code, said in message(answer)) == (400, True)
    assert await show(api, group["id"], "2.1002") == group


async def test_two_names_of_one_target_contradict_as_one(api: Api) -> None:
    await configure(api, "rack", allow_identifiers=True)
    answer = await create(api, "2.1002", policies=["affinity:rack:zone1-rack1", "anti-affinity:rack:4"])
    assert "require and forbid the same target" in message(answer)


@pytest.mark.parametrize("identifier", ["4", "zone1-rack1"])
async def test_where_nothing_is_hidden_a_target_may_be_named_too(api: Api, identifier: str) -> None:
    await configure(api, "rack", allow_identifiers=True)
    assert (await make(api, f"affinity:rack:{identifier}"))["policies"] == ["affinity:rack:4"]


async def test_another_tenants_identifier_is_as_unknown_as_none(api: Api) -> None:
    own = await obfuscated_zone(api)
    other, *_ = await identifiers(api, "zone", cloud="roost-alt")
    assert other not in own
    for foreign in (other, str(uuid.uuid4()), "5", "zone1-switch1"):
        answer = await create(api, "2.1002", policies=[f"affinity:zone:{foreign}"])
        assert answer.status_code == 400
        assert message(answer) == f"The policy scope 'zone' has no '{foreign}': {', '.join(sorted(own))}"
    assert await count_groups(api) == 0


async def test_an_admin_reads_a_tenants_group_in_the_tenants_words(api: Api) -> None:
    zone, *_ = await obfuscated_zone(api)
    group = await make(api, f"affinity:zone:{zone}")
    assert await show(api, group["id"], "2.1002", cloud="roost-admin") == group


async def test_a_real_identifier_never_reaches_the_tenant_of_an_obfuscated_scope(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    zone, *_ = await obfuscated_zone(api)
    async with api.services.database.begin() as connection:
        # A number that nothing else in an answer could be taken for.
        for statement in (
            "ALTER TABLE aggregate_hosts DROP CONSTRAINT fk_aggregate_hosts_aggregate",
            "UPDATE aggregates SET id = id + 777777000 WHERE scope_id = 2",
            "UPDATE aggregate_hosts SET aggregate_id = aggregate_id + 777777000 WHERE scope_id = 2",
        ):
            await connection.execute(sa.text(statement))
    zone, *_ = await identifiers(api, "zone")
    caplog.set_level("DEBUG")
    answers = [await create(api, "2.1002", policies=[f"affinity:zone:{zone}", "anti-affinity"])]
    group = answers[0].json()["server_group"]["id"]
    for host in ("zone1-rack1-host1", "zone3-rack4-host4"):
        await put_server(api.services.database, await project(api), host=host, group=group)
    for version in ("2.1", "2.64", "2.1001", "2.1002", "2.1003"):
        answers.append(await api.get(f"{GROUPS}/{group}", cloud="roost", version=version))
        answers.append(await api.get(GROUPS, cloud="roost", version=version))
    for version in ("2.1002", "2.1003"):
        answers.append(await api.get(f"{GROUPS}/{group}/audit", cloud="roost", version=version))
        answers.append(await api.get(SCOPES, cloud="roost", version=version))
        answers.append(await api.get(f"{SCOPES}/{await scope_id(api, 'zone')}", cloud="roost", version=version))
    answers.append(await create(api, "2.1002", policies=[f"affinity:zone:{zone}", f"anti-affinity:zone:{zone}"]))
    assert {answer.status_code for answer in answers} == {200, 400}
    for answer in answers:
        assert "777777" not in answer.text + str(answer.headers)
    assert "777777" not in "".join(record.getMessage() for record in caplog.records if record.name.startswith("roost"))


# Lists


async def names(api: Api, *, cloud: str = "roost", version: str = "2.64", **query: Any) -> list[str]:
    answer = await api.get(GROUPS, cloud=cloud, version=version, params=query)
    assert answer.status_code == 200, answer.text
    return [group["name"] for group in answer.json()["server_groups"]]


async def test_a_list_is_in_the_order_of_creation_and_goes_page_by_page(api: Api) -> None:
    made = [await make(api, "affinity", name=f"g{number}") for number in range(5)]
    assert await names(api) == ["g0", "g1", "g2", "g3", "g4"]
    assert await names(api, limit=2) == ["g0", "g1"]
    assert await names(api, limit=2, offset=3) == ["g3", "g4"]
    assert await names(api, limit=2, marker=made[1]["id"]) == ["g2", "g3"]
    assert await names(api, limit=0, offset=1, marker=made[1]["id"]) == ["g3", "g4"]
    assert await names(api, offset=9) == []
    assert await names(api, offset="9" * 18, marker=made[4]["id"]) == []
    assert await names(api, limit="") == await names(api)


async def test_a_list_has_the_project_only_unless_an_admin_asks_for_all(api: Api) -> None:
    own = await make(api, "affinity", name="demo's")
    await make(api, "affinity", cloud="roost-alt", name="alt's")
    assert await names(api, all_projects="1") == ["demo's"]
    assert await names(api, cloud="roost-admin") == []
    assert await names(api, cloud="roost-admin", all_projects="False") == ["demo's", "alt's"]
    assert await names(api, cloud="roost-admin", all_projects="", marker=own["id"]) == ["alt's"]


@pytest.mark.parametrize(
    ("version", "query", "said"),
    [
        (
            "2.1",
            {"limit": "abc"},
            "Invalid input for query parameters limit. Value: abc. 'abc' does not match '^[0-9]*$'",
        ),
        ("2.1", {"offset": "-1"}, "'-1' does not match '^[0-9]*$'"),
        ("2.1", {"limit": "9" * 5000}, "is too long"),
        ("2.75", {"foo": "1"}, "Additional properties are not allowed ('foo' was unexpected)"),
        ("2.64", {"marker": "nothing"}, "marker [nothing] not found"),
    ],
)
async def test_a_bad_page_is_refused(api: Api, version: str, query: dict[str, str], said: str) -> None:
    answer = await api.get(GROUPS, cloud="roost", version=version, params=query)
    assert (answer.status_code, said in message(answer)) == (400, True), answer.text


async def test_a_marker_of_another_project_is_unknown(api: Api) -> None:
    other = await make(api, "affinity", cloud="roost-alt")
    answer = await api.get(GROUPS, cloud="roost", version="2.64", params={"marker": other["id"]})
    assert (answer.status_code, message(answer)) == (400, f"marker [{other['id']}] not found")


async def test_queries_that_nobody_knows_are_ignored_until_2_75_and_2_102(api: Api) -> None:
    group = await make(api, "affinity")
    for path, until in ((GROUPS, "2.74"), (f"{GROUPS}/{group['id']}", "2.101")):
        assert (await api.get(path, cloud="roost", version=until, params={"foo": "1"})).status_code == 200
        answer = await api.get(path, cloud="roost", version="2.102", params={"foo": "1"})
        assert message(answer) == "Additional properties are not allowed ('foo' was unexpected)"


async def test_a_list_takes_as_many_queries_for_many_groups_as_for_one(api: Api) -> None:
    statements = []
    engine = api.services.database._engine.sync_engine
    sa.event.listen(engine, "before_cursor_execute", lambda *event: statements.append(event[2]))

    async def queries() -> int:
        statements.clear()
        await names(api, version="2.1003")
        return len(statements)

    await set_quota(api, "server_groups", -1)
    first = await make(api, "affinity:rack")
    await put_server(api.services.database, await project(api), group=first["id"])
    one = await queries()
    for number in range(30):
        group = await make(api, "affinity:switch", "soft-anti-affinity")
        if number % 3:
            await put_server(api.services.database, await project(api), group=group["id"])
    assert await queries() == one <= 8


# Who may, and on what


async def test_a_group_of_another_project_does_not_exist(api: Api) -> None:
    group = await make(api, "affinity", cloud="roost-alt")
    path = f"{GROUPS}/{group['id']}"
    server = await put_server(api.services.database, await project(api))
    answers = [
        await api.get(path, cloud="roost", version="2.64"),
        await api.delete(path, cloud="roost"),
        await api.post(path, {"server_group": {"name": "mine"}}, cloud="roost", version="2.1002"),
        await api.post(path + "/action", {"add_instance": {"instance_id": server}}, cloud="roost", version="2.1002"),
        await api.get(path + "/audit", cloud="roost", version="2.1002"),
        await api.delete(path, cloud="roost-reader"),
    ]
    for answer in answers[:-1]:
        assert (answer.status_code, message(answer)) == (404, f"Instance group {group['id']} could not be found.")
    assert answers[-1].status_code == 403
    assert await show(api, group["id"], "2.1002", cloud="roost-alt") == group
    assert (await api.delete(path)).status_code == 204


@pytest.mark.parametrize("identifier", ["no-uuid", "8f0ae7c5-4b0e-4a7e-9d63-0f6c2d1b5a11", "g"])
async def test_a_group_that_is_not_there_is_not_found(api: Api, identifier: str) -> None:
    await make(api, "affinity", name="g")
    for answer in (
        await api.get(f"{GROUPS}/{identifier}", cloud="roost"),
        await api.delete(f"{GROUPS}/{identifier}", cloud="roost"),
    ):
        assert answer.status_code == 404
        assert message(answer).startswith("Instance group ")


async def test_a_reader_reads_and_changes_nothing(api: Api) -> None:
    group = await make(api, "affinity")
    path, rule = f"{GROUPS}/{group['id']}", "Policy doesn't allow os_compute_api:os-server-groups:{} to be performed."
    subject = {"instance_id": str(uuid.uuid4())}
    refused = {
        "create": await create(api, "2.1", cloud="roost-reader", policies=["affinity"]),
        "delete": await api.delete(path, cloud="roost-reader"),
        "update": await api.post(path, {"server_group": {"name": "x"}}, cloud="roost-reader", version="2.1002"),
        "add_instance": await api.post(
            path + "/action", {"add_instance": subject}, cloud="roost-reader", version="2.1002"
        ),
        "remove_instance": await api.post(
            path + "/action", {"remove_instance": subject}, cloud="roost-reader", version="2.1002"
        ),
    }
    for verb, answer in refused.items():
        assert (answer.status_code, message(answer)) == (403, rule.format(verb))
    assert await show(api, group["id"], "2.1002", cloud="roost-reader") == group
    assert (await api.get(path + "/audit", cloud="roost-reader", version="2.1002")).status_code == 200
    assert await names(api, cloud="roost-reader") == ["g"]


@pytest.mark.parametrize("version", ["2.1", "2.104", "2.1001"])
async def test_update_action_and_audit_come_with_2_1002(api: Api, version: str) -> None:
    group = await make(api, "affinity")
    path = f"{GROUPS}/{group['id']}"
    for answer in (
        await api.post(path, {"server_group": {"name": "x"}}, cloud="roost", version=version),
        await api.post(path + "/action", {}, cloud="roost", version=version),
        await api.get(path + "/audit", cloud="roost", version=version),
    ):
        assert (answer.status_code, message(answer)) == (404, "The resource could not be found.")


async def test_a_deleted_group_leaves_its_members_and_is_gone(api: Api) -> None:
    group = await make(api, "affinity")
    server = await put_server(api.services.database, await project(api), group=group["id"])
    assert (await api.delete(f"{GROUPS}/{group['id']}", cloud="roost")).status_code == 204
    assert (await api.delete(f"{GROUPS}/{group['id']}", cloud="roost")).status_code == 404
    async with api.services.database.begin() as connection:
        query = sa.text("SELECT group_id FROM servers WHERE id = :id")
        assert (await connection.execute(query, {"id": server})).scalar_one() is None


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "{} should be non-empty"),
        ({"server_group": {}}, "{} should be non-empty"),
        ({"server_group": {"name": ""}}, "should be non-empty"),
        ({"server_group": {"policies": []}}, "should be non-empty"),
        ({"server_group": {"policies": ["nothing"]}}, "'nothing' is not a type of rule"),
        ({"server_group": {"policy": "affinity"}}, "Additional properties are not allowed ('policy' was unexpected)"),
    ],
)
async def test_a_bad_update_changes_nothing(api: Api, body: dict[str, Any], said: str) -> None:
    group = await make(api, "affinity")
    answer = await api.post(f"{GROUPS}/{group['id']}", body, cloud="roost", version="2.1002")
    assert answer.status_code == 400
    assert said in message(answer) or body == {}
    assert await show(api, group["id"], "2.1002") == group


# Members


async def act(api: Api, group: Any, action: str, server: str, *, cloud: str = "roost") -> httpx.Response:
    body = {action: {"instance_id": server}}
    return await api.post(f"{GROUPS}/{group['id']}/action", body, cloud=cloud, version="2.1003")


async def test_a_server_may_be_added_where_it_breaks_the_policies(api: Api) -> None:
    group = await make(api, "anti-affinity")
    for _ in range(2):
        server = await put_server(api.services.database, await project(api), host="zone1-rack1-host1")
        assert (await act(api, group, "add_instance", server)).status_code == 200
    assert len((await show(api, group["id"], "2.1"))["members"]) == 2


async def test_adding_a_member_again_is_no_error(api: Api) -> None:
    group = await make(api, "affinity")
    server = await put_server(api.services.database, await project(api), group=group["id"])
    answer = await act(api, group, "add_instance", server)
    assert (answer.status_code, answer.json()["server_group"]["members"]) == (200, [server])


async def test_only_a_server_of_the_groups_project_can_be_a_member(api: Api) -> None:
    group = await make(api, "affinity")
    theirs = await put_server(api.services.database, await project(api, "roost-alt"))
    for cloud in ("roost", "roost-admin"):
        for stranger in (theirs, str(uuid.uuid4())):
            answer = await act(api, group, "add_instance", stranger, cloud=cloud)
            assert (answer.status_code, message(answer)) == (404, f"Instance {stranger} could not be found.")


async def test_a_server_is_in_one_group_at_most(api: Api) -> None:
    group, other = await make(api, "affinity"), await make(api, "affinity")
    server = await put_server(api.services.database, await project(api), group=other["id"])
    answer = await act(api, group, "add_instance", server)
    said = f"Instance {server} is in server group {other['id']}; remove it from there first."
    assert (answer.status_code, message(answer)) == (409, said)
    answer = await act(api, group, "remove_instance", server)
    assert (answer.status_code, message(answer)) == (409, f"Instance {server} is not in server group {group['id']}.")


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"add_instance": {}},
        {"add_instance": {"instance_id": "no-uuid"}},
        {"add_instance": {"instance_id": None}},
        {"explode": {"instance_id": str(uuid.uuid4())}},
        {name: {"instance_id": str(uuid.uuid4())} for name in ("add_instance", "remove_instance")},
    ],
)
async def test_a_bad_action_is_refused(api: Api, body: dict[str, Any]) -> None:
    group = await make(api, "affinity")
    answer = await api.post(f"{GROUPS}/{group['id']}/action", body, cloud="roost", version="2.1002")
    assert answer.status_code == 400


# Quotas


async def set_quota(api: Api, resource: str, limit: int) -> None:
    async with api.services.database.begin() as connection:
        await connection.execute(quotas.insert().values(project_id=await project(api), resource=resource, limit=limit))


async def test_a_project_has_no_more_groups_than_its_quota_however_many_ask_at_once(api: Api) -> None:
    await set_quota(api, "server_groups", 3)
    await api.token("roost")
    answers = await asyncio.gather(*(create(api, "2.64", policy="affinity") for _ in range(12)))
    assert sorted(answer.status_code for answer in answers) == [200] * 3 + [403] * 9
    refused = {message(answer) for answer in answers if answer.status_code == 403}
    assert refused == {"Quota exceeded, too many server groups."}
    made = next(answer.json()["server_group"]["id"] for answer in answers if answer.status_code == 200)
    await api.delete(f"{GROUPS}/{made}", cloud="roost")
    assert (await create(api, "2.64", policy="affinity")).status_code == 200
    async with api.services.database.begin() as connection:
        assert await connection.scalar(sa.select(project_usage.c.server_groups)) == 3


async def test_a_group_has_no_more_members_of_a_user_than_the_quota(api: Api) -> None:
    await set_quota(api, "server_group_members", 1)
    group, demo = await make(api, "affinity"), await project(api)
    for user_id, status in (("one", 200), ("one", 403), ("other", 200), ("other", 403)):
        server = await put_server(api.services.database, demo, user_id=user_id)
        answer = await act(api, group, "add_instance", server)
        assert answer.status_code == status
    assert message(answer) == "Quota exceeded, too many servers in group"
    assert len((await show(api, group["id"], "2.1"))["members"]) == 2


# The audit


async def audit(api: Api, group: Any, version: str = "2.1003") -> Any:
    path = f"{GROUPS}/{group['id']}/audit"
    answer = await api.get(path, cloud="roost", version=version)
    assert answer.status_code == 200, answer.text
    return answer.json()["server_group_policy_audit"]


async def test_surrogates_agree_within_one_answer_and_differ_in_the_next(api: Api) -> None:
    group = await make(api, "anti-affinity:rack", "soft-affinity")
    for host in ("zone1-rack1-host1", "zone1-rack1-host2", "zone1-rack2-host1"):
        await put_server(api.services.database, await project(api), host=host, group=group["id"])
    first, second = [[member["placements"] for member in (await audit(api, group))["members"]] for _ in range(2)]
    for racks in ([places["rack"] for places in answer] for answer in (first, second)):
        assert racks[0] == racks[1] != racks[2]
    assert len({places["host"] for places in first}) == 3
    assert not {value for places in first for value in places.values()} & {
        value for places in second for value in places.values()
    }


async def test_an_operator_is_shown_hosts_and_real_identifiers_from_2_1003_on(api: Api) -> None:
    zone, *_ = await obfuscated_zone(api)
    group = await make(api, f"affinity:zone:{zone}", "anti-affinity:rack", "soft-affinity")
    await put_server(api.services.database, await project(api), host="zone3-rack4-host1", group=group["id"])
    path = f"{GROUPS}/{group['id']}/audit"
    answers = [
        (await api.get(path, cloud=cloud, version=version)).json()["server_group_policy_audit"]
        for cloud, version in (("roost-admin", "2.1003"), ("roost-admin", "2.1002"), ("roost", "2.1003"))
    ]
    seen, as_proposed, tenants = [answer["members"][0]["placements"] for answer in answers]
    assert seen["host"] == "zone3-rack4-host1"
    aggregates = (await api.get("/compute/v2.1/os-aggregates", cloud="roost-admin")).json()["aggregates"]
    inside = {str(each["id"]) for each in aggregates if "zone3-rack4-host1" in each["hosts"]}
    assert {seen["rack"], seen["zone"]} <= inside
    (violation,) = answers[0]["violations"]
    assert violation["policy"]["identifier"] == violation["aggregate"] in {str(each["id"]) for each in aggregates}
    for hidden in (as_proposed, tenants):
        assert not set(hidden.values()) & ({*seen.values()} | inside)
    assert zone in answers[2]["violations"][0]["message"]


async def test_a_violation_says_which_policy_where_who_and_by_how_much(api: Api) -> None:
    await configure(api, "rack", allow_identifiers=True)
    group = await make(
        api,
        {"name": "anti-affinity", "scope": "rack", "rules": {"max_server_per_aggregate": 1}},
        {"name": "soft-anti-affinity"},
        version="2.1003",
    )
    crowd = [
        await put_server(api.services.database, await project(api), host=f"zone1-rack1-host{number}", group=group["id"])
        for number in (1, 2, 3)
    ]
    elsewhere = await put_server(api.services.database, await project(api), host="zone2-rack1-host1", group=group["id"])
    found = await audit(api, group)
    assert [member["placements"]["rack"] for member in found["members"]] == ["4", "4", "4", "10"]
    assert elsewhere not in crowd
    assert found["violations"] == [
        {
            "breach": "too_many",
            "policy": {
                "name": "anti-affinity",
                "scope": "rack",
                "identifier": None,
                "rules": {"max_server_per_aggregate": 1},
            },
            "aggregate": "4",
            "members": crowd,
            "excess": 2,
            "message": "3 members are in one rack, 2 more than 'anti-affinity:rack' allows",
            "since": None,
        }
    ]
    assert "violations" not in await audit(api, group, "2.1002")


async def test_a_violated_target_is_told_in_the_tenants_words(api: Api) -> None:
    zone, *_ = await obfuscated_zone(api)
    group = await make(api, f"affinity:zone:{zone}")
    server = await put_server(api.services.database, await project(api), host="zone3-rack4-host1", group=group["id"])
    (violation,) = (await audit(api, group))["violations"]
    assert (violation["aggregate"], violation["members"]) == (zone, [server])
    assert violation["policy"]["identifier"] == zone
    assert violation["message"] == f"1 member is outside the zone that 'affinity:zone:{zone}' names"


async def test_a_skew_is_measured_against_all_aggregates(api: Api) -> None:
    policy = {"name": "anti-affinity", "scope": "availability_zone", "rules": {"max_skew": 1}}
    group = await make(api, policy, version="2.1003")
    for host in ("zone1-rack1-host1", "zone1-rack1-host2", "zone2-rack1-host1"):
        await put_server(api.services.database, await project(api), host=host, group=group["id"])
    (violation,) = (await audit(api, group))["violations"]
    assert (violation["breach"], violation["aggregate"], violation["excess"]) == ("skewed", "zone1", 1)


async def test_a_member_without_a_host_is_nowhere_and_breaks_nothing(api: Api) -> None:
    group = await make(api, "anti-affinity:rack", "anti-affinity")
    server = await put_server(api.services.database, await project(api), group=group["id"])
    found = await audit(api, group)
    assert found["members"] == [{"instance_id": server, "placements": {"rack": None, "host": None}}]
    assert found["violations"] == []


async def test_nothing_is_announced_unless_somebody_is_to_be_told(api: Api) -> None:
    await make(api, "affinity")
    async with api.services.database.begin() as connection:
        assert (await connection.execute(sa.select(outbox))).all() == []
