"""Images: the three reads that the clients make."""

from roost.compute.inventory.images import USUAL
from tests.conftest import Api

CIRROS, OTHER = USUAL


async def test_images_are_found_by_name_and_by_ids(api: Api) -> None:
    for query, expected in (
        ("", [OTHER.name, CIRROS.name]),
        (f"?name={CIRROS.name}", [CIRROS.name]),
        ("?name=none", []),
        (f"?id=in:{CIRROS.id},{OTHER.id}", [OTHER.name, CIRROS.name]),
        (f"?id={CIRROS.id}", [CIRROS.name]),
        ("?limit=1", [OTHER.name]),
        (f"?limit=1&marker={OTHER.id}", [CIRROS.name]),
        (f"?marker={CIRROS.id}", []),
    ):
        answer = await api.get(f"/image/v2/images{query}", cloud="roost")
        assert answer.status_code == 200
        assert [image["name"] for image in answer.json()["images"]] == expected


async def test_an_image_is_shown_by_its_id_only(api: Api) -> None:
    shown = (await api.get(f"/image/v2/images/{CIRROS.id}", cloud="roost-reader")).json()
    assert (shown["name"], shown["status"], shown["size"]) == (CIRROS.name, "active", CIRROS.size)
    for missing in (CIRROS.name, "00000000-0000-0000-0000-000000000000"):
        answer = await api.get(f"/image/v2/images/{missing}", cloud="roost")
        assert answer.status_code == 404
        assert answer.json()["error"]["message"] == f"No image found with ID {missing}"


async def test_a_bad_limit_or_marker_is_refused(api: Api) -> None:
    for query, status in (
        ("?limit=x", 400),
        ("?limit=-1", 400),
        (f"?limit={'9' * 5000}", 400),
        ("?marker=none", 400),
    ):
        assert (await api.get(f"/image/v2/images{query}", cloud="roost")).status_code == status


async def test_the_version_document_needs_no_token(api: Api) -> None:
    answer = await api.get("/image", cloud=None)
    assert answer.status_code == 300
    assert answer.json()["versions"][0]["links"] == [{"rel": "self", "href": "http://roost.test/image/v2/"}]
