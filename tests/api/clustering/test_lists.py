"""Lists, names and versions: what all nouns of the clustering API share."""

from typing import Any

import pytest

from tests.clusters.house import House, clustering


async def test_pages_follow_each_other_until_an_empty_one(house: House) -> None:
    profile = await house.profile()
    names = [f"c{number}" for number in range(5)]
    for name in names:
        await house.cluster(0, profile=profile, name=name)
    seen: list[str] = []
    marker = ""
    while page := await house.get(f"/clusters?sort=name:desc&limit=2{marker}"):
        seen += [cluster["name"] for cluster in page]
        marker = f"&marker={page[-1]['id']}"
    assert seen == names[::-1]


async def test_nothing_comes_first_and_last_in_the_other_direction(house: House) -> None:
    changed, fresh = await house.profile("changed"), await house.profile("fresh")
    await house.call("PATCH", f"/profiles/{changed['id']}", {"profile": {"metadata": {"a": "b"}}})
    for direction, expected in (("asc", ["fresh", "changed"]), ("desc", ["changed", "fresh"])):
        first = await house.get(f"/profiles?sort=updated_at:{direction}&limit=1")
        rest = await house.get(f"/profiles?sort=updated_at:{direction}&marker={first[0]['id']}")
        assert [profile["name"] for profile in (*first, *rest)] == expected
    assert fresh["updated_at"] is None


async def test_a_filter_given_twice_means_either(house: House) -> None:
    for name in ("a", "b", "c"):
        await house.profile(name)
    assert [found["name"] for found in await house.get("/profiles?name=a&name=c&sort=name")] == ["a", "c"]


async def test_a_thing_is_found_by_id_name_and_short_id(house: House) -> None:
    profile = await house.profile("mine")
    for identity in (profile["id"], "mine", profile["id"][:8]):
        assert (await house.get(f"/profiles/{identity}"))["id"] == profile["id"]
    assert (await house.call("GET", "/profiles/%25")).status_code == 404
    assert (await house.call("GET", "/profiles/m_ne")).status_code == 404


async def test_a_project_sees_its_own_and_an_administrator_all(house: House) -> None:
    profile = await house.profile("mine")
    assert await house.get("/profiles", cloud="roost-alt") == []
    assert (await house.call("GET", f"/profiles/{profile['id']}", cloud="roost-alt")).status_code == 404
    assert await house.get("/profiles", cloud="roost-admin") == []
    assert len(await house.get("/profiles?global_project=True", cloud="roost-admin")) == 1
    assert (await house.get(f"/profiles/{profile['id']}", cloud="roost-admin"))["name"] == "mine"
    assert (await house.get("/profiles?global_project=False"))[0]["name"] == "mine"


async def test_readers_read_and_do_not_change(house: House) -> None:
    cluster = await house.cluster(0)
    assert await house.get("/clusters", cloud="roost-reader")
    for method, path, body in (
        ("POST", "/clusters", {"cluster": {}}),
        ("PATCH", f"/clusters/{cluster['id']}", {"cluster": {}}),
        ("DELETE", f"/clusters/{cluster['id']}", None),
        ("POST", f"/clusters/{cluster['id']}/actions", {"check": {}}),
    ):
        answer = await house.call(method, path, body, cloud="roost-reader")
        assert answer.status_code == 403
        assert answer.json()["error"]["message"] == "You are not authorized to complete this operation."


VERSIONS: list[tuple[str | None, int, str | None]] = [
    (None, 200, "clustering 1.0"),
    ("1.5", 200, "clustering 1.5"),
    ("latest", 200, "clustering 1.14"),
    ("1.99", 406, None),
    ("x", 400, None),
]


@pytest.mark.parametrize(("version", "status", "echo"), VERSIONS)
async def test_versions_are_negotiated(house: House, version: str | None, status: int, echo: str | None) -> None:
    answer = await house.api.request("GET", "/clustering/v1/clusters", cloud="roost", version=version)
    assert answer.status_code == status
    if echo is not None:
        assert answer.headers["openstack-api-version"] == echo
        assert "OpenStack-API-Version" in answer.headers["vary"]
    if status == 406:
        sentence = "Version '1.99' is not supported by the API. Minimum is '1.0' and maximum is '1.14'."
        assert answer.json()["error"]["message"] == sentence


async def test_fields_that_a_version_does_not_have_are_left_out_of_account(house: House) -> None:
    cluster = await house.cluster(0)
    answer = await house.call("PATCH", f"/clusters/{cluster['id']}", {"cluster": {"config": {"a": 1}}}, version="1.6")
    assert "No property needs an update." in answer.text
    forced = await house.call("DELETE", f"/clusters/{cluster['id']}?force=true", version="1.7")
    assert (await house.done(forced))["inputs"] == {}


async def test_an_accepted_request_says_where_its_action_is(house: House) -> None:
    profile = await house.profile()
    answer = await house.post("/clusters", {"cluster": {"name": "c", "profile_id": profile["name"]}})
    assert answer.headers["location"].startswith("http://roost.test/clustering/v1/actions/")
    action: dict[str, Any] = await house.done(answer)
    assert (action["action"], action["cause"]) == ("CLUSTER_CREATE", "RPC Request")
    assert action["start_time"] <= action["end_time"]
    deleted = await house.call("DELETE", f"/clusters/{answer.json()['cluster']['id']}")
    assert deleted.json() is None


async def test_a_project_may_have_so_many_clusters(house: House) -> None:
    profile = await house.profile()
    many = {"cluster": {"name": "c", "profile_id": profile["id"]}}
    async with clustering(str(house.settings.database_url), engine=False, clusters__max_clusters=1) as small:
        assert (await small.post("/clusters", many)).status_code == 202
        answer = await small.post("/clusters", many)
        assert answer.status_code == 403
        assert answer.json()["error"]["message"] == "Quota exceeded for clusters: a project may have 1."


LISTS = ("actions", "clusters", "events", "nodes", "policies", "profiles", "receivers")


@pytest.mark.parametrize("noun", LISTS)
async def test_a_limit_beyond_any_number_is_refused(house: House, noun: str) -> None:
    for limit in (2**63, 10**30):
        answer = await house.call("GET", f"/{noun}?limit={limit}")
        assert answer.status_code == 400, answer.text
    assert await house.get(f"/{noun}?limit={2**63 - 1}") == []


async def test_no_list_is_longer_than_the_operator_allows(house: House) -> None:
    """60,000 events were one answer of 32 MB."""
    for _ in range(2):
        cluster = await house.cluster(1)
        await house.policy("senlin.policy.scaling", event="CLUSTER_SCALE_IN")
        hook = {"name": "hook", "type": "webhook", "cluster_id": cluster["id"], "action": "CLUSTER_SCALE_OUT"}
        assert (await house.post("/receivers", {"receiver": hook})).status_code == 201
    object.__setattr__(house.api.services.settings, "max_limit", 1)
    for noun in LISTS:
        for asked in ("", "?limit=1000"):
            answer = await house.call("GET", f"/{noun}{asked}")
            assert (noun, len(answer.json()[noun])) == (noun, 1)
            assert "next" in answer.links


async def test_a_page_has_at_most_max_limit_items_and_says_where_the_next_is(house: House) -> None:
    object.__setattr__(house.api.services.settings, "max_limit", 2)
    for name in ("a", "b", "c"):
        await house.profile(name)
    for asked in ("", "&limit=1000"):
        answer = await house.call("GET", f"/profiles?sort=name{asked}")
        assert [found["name"] for found in answer.json()["profiles"]] == ["a", "b"]
        following = answer.links["next"]["url"].partition("/clustering/v1")[2]
        rest = await house.call("GET", following)
        assert [found["name"] for found in rest.json()["profiles"]] == ["c"]
        assert "next" not in rest.links
