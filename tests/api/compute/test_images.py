"""Images through compute, before 2.36."""

from tests.compute.cloud import IMAGE, Cloud


async def test_old_clients_find_images_in_compute(cloud: Cloud) -> None:
    listed = (await cloud.ask("GET", "/images", version="2.1")).json()["images"]
    assert IMAGE in [each["id"] for each in listed]
    found = (await cloud.ask("GET", "/images/detail", version="2.35")).json()["images"]
    one = (await cloud.ask("GET", f"/images/{IMAGE}", version="2.1")).json()["image"]
    assert one in found
    assert (one["status"], one["OS-EXT-IMG-SIZE:size"]) == ("ACTIVE", 21_430_272)
    first = (await cloud.ask("GET", "/images?limit=1", version="2.1")).json()
    assert (len(first["images"]), first["images_links"][0]["rel"]) == (1, "next")


async def test_they_are_gone_since_and_a_projects_own_are_its_own(cloud: Cloud) -> None:
    assert (await cloud.refusal("GET", "/images", version="2.36"))[0] == 404
    assert (await cloud.refusal("GET", "/images/nothing", version="2.1"))[0] == 404
    body = {"name": "mine", "disk_format": "raw", "container_format": "bare"}
    made = (await cloud.api.post("/image/v2/images", body, cloud="roost")).json()["id"]
    assert (await cloud.ask("GET", f"/images/{made}", version="2.1")).json()["image"]["status"] == "SAVING"
    assert (await cloud.refusal("GET", f"/images/{made}", version="2.1", cloud="roost-alt"))[0] == 404
