"""Services, endpoints, regions, policies and limits: Roost's own are always there, and others stand beside them."""

import pytest

from tests.api.identity.test_grants import make
from tests.api.identity.test_projects_users_and_roles import V3, ids
from tests.api.identity.test_tokens import message
from tests.conftest import Api


async def test_what_is_added_is_in_the_catalogue_and_what_is_disabled_is_not(api: Api) -> None:
    service = await make(api, "services", type="weather", name="clouds", colour="grey")
    region = await make(api, "regions", id="north")
    url = "http://weather.test/v1"
    endpoint = await make(
        api, "endpoints", service_id=service["id"], interface="public", url=url, region_id=region["id"]
    )

    async def listed() -> dict[str, list[str]]:
        found = (await api.get(f"{V3}/auth/catalog")).json()["catalog"]
        return {row["type"]: [each["url"] for each in row["endpoints"]] for row in found}

    assert (await listed())["weather"] == [url]
    await api.patch(f"{V3}/endpoints/{endpoint['id']}", {"endpoint": {"enabled": False}})
    assert (await listed())["weather"] == []
    await api.patch(f"{V3}/services/{service['id']}", {"service": {"enabled": False}})
    assert "weather" not in await listed()
    assert (await api.delete(f"{V3}/services/{service['id']}")).status_code == 204
    assert (await message(await api.get(f"{V3}/endpoints/{endpoint['id']}")))[0] == 404


async def test_what_is_roosts_own_is_listed_and_stays(api: Api) -> None:
    services = (await api.get(f"{V3}/services", params={"type": "compute"})).json()["services"]
    assert [row["name"] for row in services] == ["nova"]
    query = {"service_id": services[0]["id"], "interface": "public"}
    (endpoint,) = (await api.get(f"{V3}/endpoints", params=query)).json()["endpoints"]
    assert endpoint["url"] == "http://roost.test/compute/v2.1"
    assert (await api.get(f"{V3}/endpoints/{endpoint['id']}")).json()["endpoint"] == endpoint
    assert (await api.get(f"{V3}/regions")).json()["regions"][0]["id"] == "RegionOne"
    for path, body in (
        (f"services/{services[0]['id']}", {"service": {"enabled": False}}),
        (f"endpoints/{endpoint['id']}", {"endpoint": {"url": "http://elsewhere"}}),
        ("regions/RegionOne", {"region": {"description": "x"}}),
    ):
        assert (await message(await api.patch(f"{V3}/{path}", body)))[0] == 403
        assert (await message(await api.delete(f"{V3}/{path}")))[0] == 403


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("endpoints", {"endpoint": {"service_id": "none", "interface": "public", "url": "x"}}, 400),
        ("endpoints", {"endpoint": {"service_id": "none", "interface": "side", "url": "x"}}, 400),
        ("services", {"service": {"name": "no type"}}, 400),
        ("policies", {"policy": {"type": "application/json"}}, 400),
        ("policies", {"policy": {"type": "application/json", "blob": {"rule": "role:admin"}}}, 400),
        ("regions", {"region": {"id": "RegionOne"}}, 409),
        ("regions", {"region": {"id": "x", "parent_region_id": "none"}}, 404),
        (
            "limits",
            {"limits": [{"service_id": "x", "resource_name": "y", "resource_limit": 1, "project_id": "z"}]},
            403,
        ),
    ],
)
async def test_what_refers_to_nothing_is_refused(api: Api, path: str, body: object, status: int) -> None:
    assert (await message(await api.post(f"{V3}/{path}", body)))[0] == status


async def test_a_region_with_others_below_it_stays(api: Api) -> None:
    await make(api, "regions", id="north")
    await make(api, "regions", id="far-north", parent_region_id="north")
    assert (await message(await api.delete(f"{V3}/regions/north")))[0] == 403
    assert (await api.delete(f"{V3}/regions/far-north")).status_code == 204
    assert (await api.delete(f"{V3}/regions/north")).status_code == 204


async def test_policies_are_kept_for_admins_as_they_were_given(api: Api) -> None:
    rules = '{"compute:start": "role:operator"}'
    made = await make(api, "policies", type="application/json", blob=rules, note="of the night shift")
    await make(api, "policies", type="text/plain", blob="")
    path = f"{V3}/policies/{made['id']}"
    assert (await api.get(path)).json()["policy"] == made
    assert (made["blob"], made["note"]) == (rules, "of the night shift")
    changed = (await api.patch(path, {"policy": {"blob": "{}", "note": "of the day"}})).json()["policy"]
    assert changed == {**made, "blob": "{}", "note": "of the day"}
    listed = (await api.get(f"{V3}/policies", params={"type": "application/json"})).json()["policies"]
    assert listed == [changed]
    assert (await message(await api.get(path, cloud="roost")))[0] == 403
    assert (await message(await api.delete(path, cloud="roost")))[0] == 403
    assert (await api.delete(path)).status_code == 204
    assert (await message(await api.get(path))) == (404, f"Could not find policy: {made['id']}.")


async def test_limits_are_registered_and_then_set_for_a_project(api: Api) -> None:
    service, projects = await make(api, "services", type="weather"), await ids(api, "projects")
    what = {"service_id": service["id"], "resource_name": "clouds"}
    made = await api.post(f"{V3}/registered_limits", {"registered_limits": [{**what, "default_limit": 5}]})
    (registered,) = made.json()["registered_limits"]
    again = await api.post(f"{V3}/registered_limits", {"registered_limits": [{**what, "default_limit": 6}]})
    assert (await message(again))[0] == 409
    mine = {**what, "project_id": projects["demo"], "resource_limit": 9}
    (limit,) = (await api.post(f"{V3}/limits", {"limits": [mine]})).json()["limits"]
    assert (await message(await api.delete(f"{V3}/registered_limits/{registered['id']}")))[0] == 403
    changed = await api.patch(f"{V3}/limits/{limit['id']}", {"limit": {"resource_limit": 7}})
    assert changed.json()["limit"]["resource_limit"] == 7
    assert len((await api.get(f"{V3}/limits", cloud="roost")).json()["limits"]) == 1
    assert (await api.get(f"{V3}/limits", cloud="roost-alt")).json()["limits"] == []
    assert (await message(await api.get(f"{V3}/limits/{limit['id']}", cloud="roost-alt")))[0] == 404
    assert (await api.delete(f"{V3}/limits/{limit['id']}")).status_code == 204
    assert (await api.delete(f"{V3}/registered_limits/{registered['id']}")).status_code == 204
