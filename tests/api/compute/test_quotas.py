"""Quotas and limits."""

from typing import Any

from roost.store.database import Database
from roost.store.tables.servers import project_usage
from tests.api.compute.conftest import Compute
from tests.api.compute.test_flavors import project_of

LIMITS = {
    "instances": 10,
    "cores": 20,
    "ram": 51200,
    "metadata_items": 128,
    "key_pairs": 100,
    "server_groups": 10,
    "server_group_members": 10,
}
FILES = {"injected_files": 5, "injected_file_content_bytes": 10240, "injected_file_path_bytes": 255}
NETWORK = {"fixed_ips": -1, "floating_ips": -1, "security_groups": -1, "security_group_rules": -1}


async def used(database: Database, project: str, **amounts: int) -> None:
    """Let a project use this much."""
    async with database.begin() as connection:
        await connection.execute(project_usage.insert().values(project_id=project, **amounts))


async def test_quotas_lose_what_nova_dropped(compute: Compute) -> None:
    project = await project_of(compute, "demo")
    for version, expected in (("2.1", {**LIMITS, **FILES, **NETWORK}), ("2.36", {**LIMITS, **FILES}), ("2.57", LIMITS)):
        for path in ("", "/defaults"):
            answer = await compute.get(f"/os-quota-sets/{project}{path}", version=version, cloud="roost")
            assert answer == {"quota_set": {"id": project, **expected}}
    for version, expected in (
        ("2.1", {**LIMITS, **FILES, **NETWORK}),
        ("2.50", {**LIMITS, **FILES}),
        ("2.57", LIMITS),
    ):
        shown = dict(expected)
        if version == "2.1":
            del shown["server_groups"], shown["server_group_members"]
        answer = await compute.get("/os-quota-class-sets/default", version=version)
        assert answer == {"quota_class_set": {"id": "default", **shown}}


async def test_details_say_what_is_used(compute: Compute, database: Database) -> None:
    project = await project_of(compute, "demo")
    await used(database, project, instances=3, cores=6, ram=1024, server_groups=2)
    shown = (await compute.get(f"/os-quota-sets/{project}/detail", version="2.57"))["quota_set"]
    assert shown["cores"] == {"in_use": 6, "limit": 20, "reserved": 0}
    assert shown["server_groups"] == {"in_use": 2, "limit": 10, "reserved": 0}
    assert shown["server_group_members"] == {"in_use": 0, "limit": 10, "reserved": 0}


async def test_a_projects_quota_is_set_and_reset(compute: Compute, database: Database) -> None:
    project = await project_of(compute, "demo")
    path, body = f"/os-quota-sets/{project}", {"quota_set": {"server_groups": 20, "cores": "30"}}
    answer = await compute.put(path, body, version="2.57")
    assert answer == {"quota_set": {**LIMITS, "server_groups": 20, "cores": 30}}
    await used(database, project, cores=10)
    low = {"quota_set": {"cores": 5}}
    assert await compute.refusal("PUT", path, low, version="2.57") == (
        400,
        "Quota limit 5 for cores must be greater than or equal to already used and reserved 10.",
    )
    low["quota_set"]["force"] = True
    assert (await compute.put(path, low, version="2.57"))["quota_set"]["cores"] == 5
    assert (await compute.get(path, version="2.57", cloud="roost"))["quota_set"]["cores"] == 5
    await compute.delete(path)
    assert (await compute.get(path, version="2.57"))["quota_set"] == {"id": project, **LIMITS}


async def test_a_users_quota_is_within_the_projects(compute: Compute) -> None:
    path = f"/os-quota-sets/{await project_of(compute, 'demo')}"
    answer = await compute.put(f"{path}?user_id=u", {"quota_set": {"ram": 2048}}, version="2.57")
    assert answer["quota_set"]["ram"] == 2048
    assert (await compute.get(f"{path}?user_id=u", version="2.57"))["quota_set"]["ram"] == 2048
    assert (await compute.get(path, version="2.57"))["quota_set"]["ram"] == 51200
    for limit in (51201, -1):
        assert await compute.refusal("PUT", f"{path}?user_id=u", {"quota_set": {"ram": limit}}) == (
            400,
            f"Quota limit {limit} for ram must be less than or equal to 51200.",
        )
    await compute.delete(f"{path}?user_id=u")
    assert (await compute.get(f"{path}?user_id=u", version="2.57"))["quota_set"]["ram"] == 51200


async def test_the_default_class_changes_the_defaults(compute: Compute) -> None:
    project = await project_of(compute, "demo")
    body = {"quota_class_set": {"instances": 5}}
    answer = await compute.put("/os-quota-class-sets/default", body, version="2.57")
    assert answer == {"quota_class_set": {**LIMITS, "instances": 5}}
    for path in ("", "/defaults"):
        shown = await compute.get(f"/os-quota-sets/{project}{path}", version="2.57")
        assert shown["quota_set"]["instances"] == 5


async def test_limits_in_their_own_words(compute: Compute, database: Database) -> None:
    project = await project_of(compute, "demo")
    await used(database, project, instances=3, cores=6, ram=1024, server_groups=2)
    newest = {
        "maxServerMeta": 128,
        "maxTotalInstances": 10,
        "maxTotalCores": 20,
        "maxTotalRAMSize": 51200,
        "maxTotalKeypairs": 100,
        "maxServerGroups": 10,
        "maxServerGroupMembers": 10,
        "totalInstancesUsed": 3,
        "totalCoresUsed": 6,
        "totalRAMUsed": 1024,
        "totalServerGroupsUsed": 2,
    }
    since_2_39 = {**newest, "maxPersonality": 5, "maxPersonalitySize": 10240}
    since_2_36 = {**since_2_39, "maxImageMeta": 128}
    oldest = {
        **since_2_36,
        "maxTotalFloatingIps": -1,
        "totalFloatingIpsUsed": 0,
        "maxSecurityGroups": -1,
        "totalSecurityGroupsUsed": 0,
        "maxSecurityGroupRules": -1,
    }
    for version, expected in (("2.1", oldest), ("2.36", since_2_36), ("2.39", since_2_39), ("2.57", newest)):
        answer = await compute.get("/limits?reserved=False", version=version, cloud="roost")
        assert answer == {"limits": {"rate": [], "absolute": expected}}
    other = await compute.get(f"/limits?tenant_id={project}", version="2.75")
    assert other["limits"]["absolute"]["totalCoresUsed"] == 6


async def test_what_is_refused(compute: Compute) -> None:
    own, other = await project_of(compute, "demo"), await project_of(compute, "alt")

    def denied(rule: str) -> tuple[int, str]:
        return 403, f"Policy doesn't allow os_compute_api:{rule} to be performed."

    change: dict[str, Any] = {"quota_set": {"cores": 1}}
    for method, path, body, cloud, version, expected in (
        ("GET", f"/os-quota-sets/{other}", None, "roost", "2.1", denied("os-quota-sets:show")),
        ("GET", f"/os-quota-sets/{other}/detail", None, "roost", "2.1", denied("os-quota-sets:detail")),
        ("PUT", f"/os-quota-sets/{own}", change, "roost", "2.1", denied("os-quota-sets:update")),
        ("DELETE", f"/os-quota-sets/{own}", None, "roost", "2.1", denied("os-quota-sets:delete")),
        ("GET", "/os-quota-class-sets/default", None, "roost", "2.1", denied("os-quota-class-sets:show")),
        ("GET", f"/limits?tenant_id={other}", None, "roost", "2.1", denied("limits:other_project")),
        ("GET", "/os-quota-sets/none", None, "roost-admin", "2.1", (400, "Project ID none is not a valid project.")),
        ("PUT", "/os-quota-sets/none", change, "roost-admin", "2.1", (400, "Project ID none is not a valid project.")),
        (
            "PUT",
            f"/os-quota-sets/{own}",
            {"quota_set": {"cores": "x"}},
            "roost-admin",
            "2.1",
            (400, "Invalid input for field/attribute cores. Value: x. 'x' does not match '^-?[0-9]+$'"),
        ),
        (
            "PUT",
            f"/os-quota-sets/{own}",
            {"quota_set": {"cores": "-2"}},
            "roost-admin",
            "2.1",
            (400, "Invalid input for field/attribute cores. Value: -2. -2 is less than the minimum of -1"),
        ),
        (
            "PUT",
            f"/os-quota-sets/{own}",
            {"quota_set": {"cores": 2**31}},
            "roost-admin",
            "2.1",
            (
                400,
                "Invalid input for field/attribute cores. Value: 2147483648. 2147483648 is greater than the maximum "
                "of 2147483647",
            ),
        ),
        (
            "PUT",
            f"/os-quota-sets/{own}",
            {"quota_set": {"floating_ips": 1}},
            "roost-admin",
            "2.36",
            (
                400,
                "Invalid input for field/attribute quota_set. Value: {'floating_ips': 1}. Additional properties are "
                "not allowed ('floating_ips' was unexpected)",
            ),
        ),
        (
            "GET",
            "/limits?reserved=1",
            None,
            "roost",
            "2.75",
            (400, "Additional properties are not allowed ('reserved' was unexpected)"),
        ),
    ):
        assert await compute.refusal(method, path, body, cloud=cloud, version=version) == expected
