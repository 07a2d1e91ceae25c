"""Volumes are a project's own, are kept within its quotas, and are not deleted while a server has them."""

import asyncio
from typing import Any

import pytest

from tests.compute.cloud import IMAGE, Cloud
from tests.conftest import Api, refusal_of

V3 = "/volume/v3"
UNKNOWN = "00000000-0000-4000-8000-00000000dead"


async def make(api: Api, cloud: str = "roost", plural: str = "volumes", **values: Any) -> dict[str, Any]:
    """Make a volume or a snapshot."""
    asked = {"size": 1, **values} if plural == "volumes" else values
    answer = await api.post(f"{V3}/{plural}", {plural[:-1]: asked}, cloud=cloud)
    assert answer.status_code == 202, answer.text
    body: dict[str, Any] = answer.json()[plural[:-1]]
    return body


async def names(api: Api, query: str = "", cloud: str = "roost", plural: str = "volumes") -> list[str]:
    """What is listed."""
    answer = await api.get(f"{V3}/{plural}/detail{query}", cloud=cloud)
    assert answer.status_code == 200, answer.text
    return [each["name"] for each in answer.json()[plural]]


async def refused(api: Api, method: str, path: str, body: Any = None, cloud: str = "roost") -> int:
    """The status of a request that must fail, in Cinder's form."""
    answer = await api.request(method, V3 + path, cloud=cloud, **({"json": body} if body is not None else {}))
    return refusal_of(answer)[0]


async def test_the_versions_are_found_and_the_project_may_stand_in_the_path(api: Api, cloud: Cloud) -> None:
    for path in ("/volume/", V3, f"{V3}/"):
        (version,) = (await api.get(path, cloud=None)).json()["versions"]
        assert (version["id"], version["min_version"], version["version"]) == ("v3.0", "3.0", "3.71")
    made = await make(api, name="mine")
    demo = await cloud.project()
    assert (await api.get(f"{V3}/{demo}/volumes/{made['id']}", cloud="roost")).json()["volume"]["name"] == "mine"
    assert (await api.get(f"{V3}/{UNKNOWN}/volumes", cloud="roost")).status_code == 400
    assert (await api.get(f"{V3}/volumes", cloud="roost", version="3.72")).status_code == 406


async def test_a_volume_is_shown_listed_changed_and_deleted(api: Api) -> None:
    made = await make(api, name="one", size=2, metadata={"a": "b"})
    assert (made["status"], made["bootable"], made["volume_type"]) == ("available", "false", "__DEFAULT__")
    await make(api, name="two")
    path = f"{V3}/volumes/{made['id']}"
    assert await names(api) == ["two", "one"]
    assert await names(api, "?sort=name:asc") == ["one", "two"]
    assert await names(api, "?name=one") == ["one"]
    assert await names(api, "?status=in-use") == []
    assert await names(api, "?metadata={'a': 'b'}") == ["one"]
    first = (await api.get(f"{V3}/volumes?limit=1", cloud="roost")).json()
    assert [each["name"] for each in first["volumes"]] == ["two"]
    following = first["volumes_links"][0]["href"].removeprefix("http://roost.test")
    assert [each["name"] for each in (await api.get(following, cloud="roost")).json()["volumes"]] == ["one"]
    changed = (await api.put(path, {"volume": {"name": "new", "description": "x"}}, cloud="roost")).json()["volume"]
    assert (changed["name"], changed["description"], changed["size"]) == ("new", "x", 2)
    await api.post(f"{path}/metadata", {"metadata": {"c": "d"}}, cloud="roost")
    await api.delete(f"{path}/metadata/a", cloud="roost")
    assert (await api.get(f"{path}/metadata", cloud="roost")).json() == {"metadata": {"c": "d"}}
    assert (await api.delete(f"{path}/metadata/a", cloud="roost")).status_code == 404
    assert (await api.post(f"{path}/action", {"os-extend": {"new_size": 5}}, cloud="roost")).status_code == 202
    newest = (await api.get(path, cloud="roost", version="3.71")).json()["volume"]
    assert (newest["size"], newest["consumes_quota"]) == (5, True)
    assert await refused(api, "POST", f"/volumes/{made['id']}/action", {"os-extend": {"new_size": 5}}) == 400
    assert (await api.delete(path, cloud="roost")).status_code == 202
    assert (await api.get(path, cloud="roost")).status_code == 404


async def test_other_projects_neither_see_nor_touch_a_volume(api: Api) -> None:
    made = await make(api, name="mine")
    kept = await make(api, plural="snapshots", volume_id=made["id"], name="kept")
    for method, path, body in (
        ("GET", f"/volumes/{made['id']}", None),
        ("PUT", f"/volumes/{made['id']}", {"volume": {"name": "x"}}),
        ("DELETE", f"/volumes/{made['id']}", None),
        ("POST", f"/volumes/{made['id']}/action", {"os-extend": {"new_size": 5}}),
        ("POST", "/snapshots", {"snapshot": {"volume_id": made["id"]}}),
        ("POST", "/volumes", {"volume": {"size": 1, "source_volid": made["id"]}}),
        ("POST", "/volumes", {"volume": {"size": 1, "snapshot_id": kept["id"]}}),
        ("GET", f"/snapshots/{kept['id']}", None),
        ("DELETE", f"/snapshots/{kept['id']}", None),
    ):
        assert await refused(api, method, path, body, cloud="roost-alt") == 404, (method, path)
    assert await names(api, cloud="roost-alt") == []
    assert await refused(api, "GET", "/volumes?all_tenants=1", cloud="roost-alt") == 403
    assert await names(api, "?all_tenants=1", cloud="roost-admin") == ["mine"]


async def test_volumes_are_made_of_images_snapshots_and_volumes(api: Api) -> None:
    of_image = await make(api, imageRef=IMAGE, name="image")
    assert (of_image["bootable"], of_image["volume_image_metadata"]["image_id"]) == ("true", IMAGE)
    kept = await make(api, plural="snapshots", volume_id=of_image["id"], name="kept")
    assert (kept["size"], kept["status"]) == (1, "available")
    of_snapshot = await make(api, size=3, snapshot_id=kept["id"])
    assert (of_snapshot["size"], of_snapshot["bootable"], of_snapshot["snapshot_id"]) == (3, "true", kept["id"])
    copy = await make(api, size=None, source_volid=of_snapshot["id"])
    assert (copy["size"], copy["bootable"], copy["source_volid"]) == (3, "true", of_snapshot["id"])
    assert await refused(api, "DELETE", f"/volumes/{of_image['id']}") == 400
    assert (await api.delete(f"{V3}/snapshots/{kept['id']}", cloud="roost")).status_code == 202
    assert (await api.delete(f"{V3}/volumes/{of_image['id']}", cloud="roost")).status_code == 202


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        ({}, 400),
        ({"size": 0}, 400),
        ({"size": -1}, 400),
        ({"size": 1, "imageRef": UNKNOWN}, 400),
        ({"size": 1, "snapshot_id": UNKNOWN}, 404),
        ({"size": 1, "volume_type": "none"}, 404),
        ({"size": 1, "availability_zone": "mars"}, 400),
        ({"size": 1, "multiattach": True}, 400),
        ({"size": 1, "imageRef": IMAGE, "source_volid": UNKNOWN}, 400),
        ({"size": 2000}, 413),
    ],
)
async def test_what_cannot_be_made_is_refused(api: Api, asked: dict[str, Any], status: int) -> None:
    assert await refused(api, "POST", "/volumes", {"volume": asked}) == status
    assert await names(api) == []


async def test_quotas_hold_however_many_ask_at_once(api: Api, cloud: Cloud) -> None:
    demo = await cloud.project()
    body = {"quota_set": {"volumes": 3, "gigabytes": 10}}
    assert await refused(api, "PUT", f"/os-quota-sets/{demo}", body) == 403
    assert (await api.put(f"{V3}/os-quota-sets/{demo}", body)).json()["quota_set"]["volumes"] == 3
    asked = {"volume": {"size": 1}}
    answers = await asyncio.gather(*(api.post(f"{V3}/volumes", asked, cloud="roost") for _ in range(8)))
    assert sorted(answer.status_code for answer in answers) == [202] * 3 + [413] * 5
    shown = (await api.get(f"{V3}/os-quota-sets/{demo}?usage=true", cloud="roost")).json()["quota_set"]
    assert shown["volumes"] == {"limit": 3, "in_use": 3, "reserved": 0, "allocated": 0}
    made = answers[0].json()["volume"]["id"] if answers[0].is_success else (await names(api))[0]
    limits = (await api.get(f"{V3}/limits", cloud="roost")).json()["limits"]["absolute"]
    assert (limits["maxTotalVolumeGigabytes"], limits["totalGigabytesUsed"]) == (10, 3)
    assert await refused(api, "POST", f"/volumes/{made}/action", {"os-extend": {"new_size": 9}}) == 413
    await cloud.quota(instances=1)
    assert (await api.delete(f"{V3}/os-quota-sets/{demo}")).status_code == 200
    assert (await api.get(f"{V3}/os-quota-sets/{demo}", cloud="roost")).json()["quota_set"]["volumes"] == 10
    compute = (await cloud.ask("GET", f"/os-quota-sets/{demo}")).json()["quota_set"]
    assert compute["instances"] == 1, "the quotas of volumes are set and reset apart from those of servers"
    assert await refused(api, "GET", f"/os-quota-sets/{demo}", cloud="roost-alt") == 403


async def test_the_class_default_changes_the_quotas_of_all(api: Api, cloud: Cloud) -> None:
    await api.put(f"{V3}/os-quota-class-sets/default", {"quota_class_set": {"snapshots": 43}})
    demo = await cloud.project()
    for path in (f"/os-quota-sets/{demo}/defaults", f"/os-quota-sets/{demo}"):
        assert (await api.get(V3 + path, cloud="roost")).json()["quota_set"]["snapshots"] == 43


async def test_there_are_no_backups_which_clients_that_clear_a_project_look_for(api: Api) -> None:
    for path in ("backups", "backups/detail"):
        assert (await api.get(f"{V3}/{path}", cloud="roost")).json() == {"backups": []}
    assert await refused(api, "POST", "/backups", {"backup": {"volume_id": UNKNOWN}}) == 404


async def test_admins_add_types_for_all_or_for_some(api: Api, cloud: Cloud) -> None:
    asked = {"volume_type": {"name": "fast", "os-volume-type-access:is_public": False, "extra_specs": {"a": "b"}}}
    assert await refused(api, "POST", "/types", asked) == 403
    made = (await api.post(f"{V3}/types", asked)).json()["volume_type"]
    assert await refused(api, "POST", "/types", asked, cloud="roost-admin") == 409

    async def seen(by: str) -> list[str]:
        return [each["name"] for each in (await api.get(f"{V3}/types", cloud=by)).json()["volume_types"]]

    assert (await seen("roost"), await seen("roost-admin")) == (["__DEFAULT__"], ["__DEFAULT__", "fast"])
    assert await refused(api, "POST", "/volumes", {"volume": {"size": 1, "volume_type": "fast"}}) == 404
    allow = {"addProjectAccess": {"project": await cloud.project()}}
    assert (await api.post(f"{V3}/types/{made['id']}/action", allow)).status_code == 202
    assert (await make(api, volume_type="fast"))["volume_type"] == "fast"
    assert await refused(api, "DELETE", f"/types/{made['id']}", cloud="roost-admin") == 400
    default = (await api.get(f"{V3}/types/default", cloud="roost")).json()["volume_type"]
    assert await refused(api, "DELETE", f"/types/{default['id']}", cloud="roost-admin") == 400
