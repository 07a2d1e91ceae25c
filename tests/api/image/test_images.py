"""Images: whose they are, who sees them, what is said about them, and their data."""

import hashlib
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa

from roost import config
from roost.clouds.lookups import Lookups, ProjectName
from roost.compute.inventory import images
from roost.compute.inventory.image_files import ImageFiles
from roost.compute.inventory.images import USUAL
from roost.config import Settings
from tests.compute.cloud import Cloud
from tests.conftest import Api

CIRROS, OTHER = USUAL
PATCH = "application/openstack-images-v2.1-json-patch"
DATA = {"Content-Type": "application/octet-stream"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "images"


@pytest.fixture
def settings(database_url: str, folder: Path) -> Settings:
    """Small enough that a test reaches the limits."""
    loaded = config.load(
        images__folder=str(folder), images__max_bytes=1000, images__project_bytes=1500, images__project_images=4
    )
    return config.with_database(loaded, database_url)


def held(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


async def make(api: Api, *, cloud: str = "roost", **said: Any) -> dict[str, Any]:
    answer = await api.post("/image/v2/images", {"disk_format": "raw", "container_format": "bare", **said}, cloud=cloud)
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


async def upload(api: Api, image_id: str, data: Any, *, cloud: str = "roost") -> httpx.Response:
    return await api.request("PUT", f"/image/v2/images/{image_id}/file", content=data, headers=DATA, cloud=cloud)


async def shown(api: Api, image_id: str, *, cloud: str = "roost") -> Any:
    answer = await api.get(f"/image/v2/images/{image_id}", cloud=cloud)
    return answer.json() if answer.is_success else answer.status_code


async def names(api: Api, query: str = "", *, cloud: str = "roost") -> list[str]:
    answer = await api.get(f"/image/v2/images{query}", cloud=cloud)
    assert answer.status_code == 200, answer.text
    return [image["name"] for image in answer.json()["images"]]


async def patch(api: Api, image_id: str, *operations: tuple[Any, ...], cloud: str = "roost") -> httpx.Response:
    body = [dict(zip(("op", "path", "value"), each, strict=False)) for each in operations]
    return await api.patch(f"/image/v2/images/{image_id}", body, headers={"Content-Type": PATCH}, cloud=cloud)


async def test_images_are_found_by_name_and_by_ids(api: Api) -> None:
    for query, expected in (
        ("?sort=name:asc", [OTHER.name, CIRROS.name]),
        ("?sort_key=name&sort_dir=desc", [CIRROS.name, OTHER.name]),
        (f"?name={CIRROS.name}", [CIRROS.name]),
        ("?name=none", []),
        (f"?id=in:{CIRROS.id},{OTHER.id}&sort=name:asc", [OTHER.name, CIRROS.name]),
        (f"?id={CIRROS.id}", [CIRROS.name]),
        (f'?name=in:"{CIRROS.name}",x', [CIRROS.name]),
        ("?limit=1&sort=name:asc", [OTHER.name]),
        (f"?limit=1&marker={OTHER.id}&sort=name:asc", [CIRROS.name]),
        (f"?marker={CIRROS.id}&sort=name:asc", []),
        ("?size_min=20000000", [CIRROS.name]),
        ("?size_max=20000000", [OTHER.name]),
        ("?created_at=lt:2000-01-01T00:00:00Z", []),
        ("?visibility=private", []),
        ("?os_hidden=true", []),
        ("?tag=none", []),
        ("?anything=else", []),
    ):
        assert await names(api, query) == expected, query
    first = (await api.get("/image/v2/images?limit=1&sort=name:asc", cloud="roost")).json()
    assert [image["name"] for image in (await api.get(f"/image{first['next']}")).json()["images"]] == [CIRROS.name]


async def test_an_image_is_shown_by_its_id_only(api: Api) -> None:
    cirros = await shown(api, CIRROS.id, cloud="roost-reader")
    assert (cirros["name"], cirros["status"], cirros["size"]) == (CIRROS.name, "active", CIRROS.size)
    for missing in (CIRROS.name, "00000000-0000-0000-0000-000000000000"):
        answer = await api.get(f"/image/v2/images/{missing}", cloud="roost")
        assert answer.status_code == 404
        assert answer.json()["error"]["message"] == f"No image found with ID {missing}"


async def test_a_bad_query_is_refused(api: Api) -> None:
    for query in (
        *("?limit=x", "?limit=-1", f"?limit={'9' * 5000}", "?marker=none", "?sort=colour", "?sort=name:up"),
        *("?visibility=secret", "?created_at=soon", "?size_min=x", "?protected=maybe"),
    ):
        assert (await api.get(f"/image/v2/images{query}", cloud="roost")).status_code == 400, query


async def test_versions_schemas_and_imports(api: Api) -> None:
    answer = await api.get("/image", cloud=None)
    assert answer.status_code == 300
    assert answer.json()["versions"][0]["links"] == [{"rel": "self", "href": "http://roost.test/image/v2/"}]
    for name in ("image", "images", "member", "members"):
        assert (await api.get(f"/image/v2/schemas/{name}", cloud="roost")).json()["name"] == name
    assert (await api.get("/image/v2/info/import", cloud="roost")).json()["import-methods"]["value"] == []


async def test_an_image_is_made_filled_used_and_deleted(api: Api, cloud: Cloud, folder: Path) -> None:
    made = await make(api, name="mine", min_ram=1, tags=["a"], colour="red")
    assert (made["status"], made["size"], made["visibility"]) == ("queued", None, "shared")
    assert (made["colour"], made["tags"], made["checksum"]) == ("red", ["a"], None)
    file = f"/image/v2/images/{made['id']}/file"
    assert (await api.get(file, cloud="roost")).status_code == 204
    assert await cloud.refusal("POST", "/servers", _server(made["id"])) == (400, "Can not find requested image")

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(4):
            yield b"x" * 100

    assert (await upload(api, made["id"], pieces())).status_code == 204
    active = await shown(api, made["id"])
    assert (active["status"], active["size"]) == ("active", 400)
    assert active["checksum"] == hashlib.md5(b"x" * 400).hexdigest()
    assert active["os_hash_value"] == hashlib.sha512(b"x" * 400).hexdigest()
    assert (await api.get(file, cloud="roost")).content == b"x" * 400
    assert (await upload(api, made["id"], b"again")).status_code == 409
    await cloud.boot(imageRef=made["id"])
    assert (await api.delete(f"/image/v2/images/{made['id']}", cloud="roost")).status_code == 204
    assert await shown(api, made["id"]) == 404
    assert held(folder) == set()


def _server(image_id: str) -> dict[str, Any]:
    return {"server": {"name": "s", "flavorRef": "1", "imageRef": image_id, "networks": "none"}}


async def test_data_that_is_too_large_or_ends_early_leaves_nothing(api: Api, folder: Path) -> None:
    image = await make(api, name="mine")
    refused = await upload(api, image["id"], b"x" * 1001)
    assert (refused.status_code, refused.json()["error"]["message"]) == (
        413,
        "The data is larger than the 1000 bytes that are left for it.",
    )
    assert held(folder) == set()
    json = await api.put(f"/image/v2/images/{image['id']}/file", {"some": "json"}, cloud="roost")
    assert json.status_code == 415
    assert (await upload(api, image["id"], b"x" * 1000)).status_code == 204
    second = await make(api, name="second")
    assert (await upload(api, second["id"], b"x" * 501)).status_code == 413
    assert (await upload(api, second["id"], b"x" * 500)).status_code == 204
    assert (await shown(api, second["id"]))["status"] == "active"


async def test_a_project_has_so_many_images_and_no_more(api: Api) -> None:
    for number in range(4):
        await make(api, name=str(number))
    assert (await api.post("/image/v2/images", {"name": "fifth"}, cloud="roost")).status_code == 403
    await make(api, name="of another", cloud="roost-alt")


async def test_where_no_folder_is_named_uploads_are_refused(api: Api, folder: Path) -> None:
    image = await make(api, name="mine")
    api.http._transport.app._services = _without_folder(api)  # type: ignore[attr-defined]
    refused = await upload(api, image["id"], b"x")
    assert refused.status_code == 400
    assert "has not set [images] folder" in refused.text


def _without_folder(api: Api) -> Any:
    return replace(api.services, image_files=ImageFiles(None))


async def test_who_sees_and_changes_an_image(api: Api, cloud: Cloud) -> None:
    private = await make(api, name="private", visibility="private")
    assert (await upload(api, private["id"], b"x")).status_code == 204
    path = f"/image/v2/images/{private['id']}"
    assert await shown(api, private["id"], cloud="roost-alt") == 404
    assert "private" not in await names(api, cloud="roost-alt")
    assert (await patch(api, private["id"], ("replace", "/name", "theirs"), cloud="roost-alt")).status_code == 404
    assert (await api.delete(path, cloud="roost-alt")).status_code == 404
    boot = await cloud.refusal("POST", "/servers", _server(private["id"]), cloud="roost-alt")
    assert boot == (400, "Can not find requested image")
    assert (await patch(api, private["id"], ("replace", "/visibility", "public"))).status_code == 403
    published = await patch(api, private["id"], ("replace", "/visibility", "public"), cloud="roost-admin")
    assert published.status_code == 200
    assert (await shown(api, private["id"], cloud="roost-alt"))["visibility"] == "public"
    for attempt in (
        api.delete(path, cloud="roost-alt"),
        patch(api, private["id"], ("replace", "/name", "theirs"), cloud="roost-alt"),
        api.put(f"{path}/tags/theirs", cloud="roost-alt"),
        api.delete(f"/image/v2/images/{CIRROS.id}", cloud="roost"),
    ):
        assert (await attempt).status_code == 403
    assert (await api.post("/image/v2/images", {"visibility": "public"}, cloud="roost")).status_code == 403
    assert (await api.post("/image/v2/images", {"name": "x"}, cloud="roost-reader")).status_code == 403
    community = await make(api, name="community", visibility="community")
    assert "community" not in await names(api, cloud="roost-alt")
    assert "community" in await names(api, "?visibility=community", cloud="roost-alt")
    assert (await shown(api, community["id"], cloud="roost-alt"))["name"] == "community"


async def test_an_image_is_shared_with_a_project_that_accepts_it(api: Api) -> None:
    image = await make(api, name="shared")
    members = f"/image/v2/images/{image['id']}/members"
    async with api.services.database.begin() as connection:
        alt = str(await connection.scalar(sa.text("SELECT id FROM projects WHERE name = 'alt'")))
    assert await shown(api, image["id"], cloud="roost-alt") == 404
    assert (await api.post(members, {"member": ""}, cloud="roost")).status_code == 400
    shared = await api.post(members, {"member": alt}, cloud="roost")
    assert (shared.status_code, shared.json()["status"]) == (200, "pending")
    assert (await api.post(members, {"member": alt}, cloud="roost")).status_code == 409
    assert (await shown(api, image["id"], cloud="roost-alt"))["name"] == "shared"
    assert "shared" not in await names(api, cloud="roost-alt")
    assert "shared" in await names(api, "?member_status=pending", cloud="roost-alt")
    assert (await api.put(f"{members}/{alt}", {"status": "accepted"}, cloud="roost")).status_code == 403
    assert (await api.put(f"{members}/{alt}", {"status": "maybe"}, cloud="roost-alt")).status_code == 400
    assert (await api.put(f"{members}/{alt}", {"status": "accepted"}, cloud="roost-alt")).json()["member_id"] == alt
    assert "shared" in await names(api, cloud="roost-alt")
    assert [each["status"] for each in (await api.get(members, cloud="roost")).json()["members"]] == ["accepted"]
    assert (await api.get(f"{members}/{alt}", cloud="roost-alt")).json()["status"] == "accepted"
    assert (await api.delete(f"{members}/{alt}", cloud="roost-alt")).status_code == 403
    assert (await api.delete(f"{members}/{alt}", cloud="roost")).status_code == 204
    assert await shown(api, image["id"], cloud="roost-alt") == 404
    private = await make(api, name="p", visibility="private")
    assert (await api.get(f"/image/v2/images/{private['id']}/members", cloud="roost")).status_code == 403


async def test_what_is_said_about_an_image_changes(api: Api) -> None:
    image = await make(api, name="before", colour="red")
    answer = await patch(
        *(api, image["id"], ("replace", "/name", "after"), ("add", "/shape", "round"), ("remove", "/colour")),
        *(("add", "/tags", ["a", "b", "a"]), ("replace", "/min_disk", 2), ("replace", "/protected", True)),
    )
    changed = answer.json()
    assert (changed["name"], changed["shape"], changed["tags"]) == ("after", "round", ["a", "b"])
    assert ("colour" in changed, changed["min_disk"], changed["protected"]) == (False, 2, True)
    for operation, status in (
        (("replace", "/nothing", "x"), 409),
        (("remove", "/nothing"), 409),
        (("remove", "/name"), 403),
        (("replace", "/status", "active"), 403),
        (("replace", "/id", "x"), 403),
        (("add", "/number", 5), 400),
        (("replace", "/min_disk", "x"), 400),
        (("replace", "/min_disk", 2**40), 400),
        (("replace", "/name"), 400),
        (("move", "/name", "x"), 400),
        (("add", "/a/b", "x"), 400),
    ):
        assert (await patch(api, image["id"], operation)).status_code == status, operation
    path = f"/image/v2/images/{image['id']}"
    assert (await api.put(f"{path}/tags/c", cloud="roost")).status_code == 204
    assert (await api.delete(f"{path}/tags/a", cloud="roost")).status_code == 204
    assert (await api.delete(f"{path}/tags/a", cloud="roost")).status_code == 404
    assert (await shown(api, image["id"]))["tags"] == ["b", "c"]
    assert (await api.delete(path, cloud="roost")).status_code == 403, "it is protected"
    await patch(api, image["id"], ("replace", "/protected", False))
    assert (await api.post(f"{path}/actions/deactivate", cloud="roost")).status_code == 403, "it waits for its data"
    await upload(api, image["id"], b"x")
    assert (await api.post(f"{path}/actions/deactivate", cloud="roost")).status_code == 204
    assert (await api.get(f"{path}/file", cloud="roost")).status_code == 403
    assert (await api.post(f"{path}/actions/reactivate", cloud="roost")).status_code == 204
    assert (await shown(api, image["id"]))["status"] == "active"
    hidden = await patch(api, image["id"], ("replace", "/os_hidden", True))
    assert hidden.json()["os_hidden"]
    assert "after" not in await names(api)
    assert "after" in await names(api, "?os_hidden=true")


async def test_a_bad_image_is_refused(api: Api) -> None:
    for body, status in (
        ({"disk_format": "tape"}, 400),
        ({"name": "x" * 256}, 400),
        ({"number": 5}, 400),
        ({"id": "x"}, 400),
        ({"size": 5}, 403),
        ({"owner": "another"}, 403),
        ({f"property {number}": "x" for number in range(images.MOST + 1)}, 413),
        ({"id": CIRROS.id}, 409),
        ([], 400),
    ):
        assert (await api.post("/image/v2/images", body, cloud="roost")).status_code == status, body


async def test_the_sweep_removes_what_belongs_to_no_image(api: Api, folder: Path) -> None:
    image = await make(api, name="mine")
    await upload(api, image["id"], b"x")
    for name in ("forgotten.part", "00000000-0000-0000-0000-000000000000", "new.part"):
        (folder / name).write_bytes(b"x")
        if name != "new.part":
            os.utime(folder / name, (0, 0))
    os.utime(folder / image["id"], (0, 0))
    async with api.services.database.begin() as connection:
        known = await images.ids(connection)
    assert ImageFiles(folder).sweep(known) == 2
    assert held(folder) == {image["id"], "new.part"}


async def test_a_cluster_finds_the_images_that_its_project_sees(api: Api) -> None:
    lookups = Lookups(api.services.database)
    mine = await make(api, name="mine", visibility="private")

    async def found(cloud: str, name: str) -> bool:
        async with api.services.database.begin() as connection:
            query = sa.text("SELECT id FROM projects WHERE name = :name")
            project = str(await connection.scalar(query, {"name": cloud}))
        return await lookups.images(ProjectName(project, name)) is not None

    assert not await found("demo", "mine"), "it has no data yet"
    await upload(api, mine["id"], b"x")
    assert [await found("demo", "mine"), await found("alt", "mine"), await found("alt", mine["id"])] == [
        True,
        False,
        False,
    ]
    assert await found("alt", CIRROS.name)
    await patch(api, mine["id"], ("replace", "/visibility", "shared"))
    assert not await found("alt", "mine")
