"""The volumes of servers: attached, booted from, and given back or deleted with the server."""

import asyncio
from typing import Any

import pytest
import sqlalchemy as sa

from roost.clouds.base import ServerOutcome, ServerRequest
from roost.volume import block_devices
from tests.api.volume.test_volumes import UNKNOWN, V3, make, names
from tests.compute.cloud import IMAGE, Cloud
from tests.conftest import Api


async def volume(api: Api, volume_id: str) -> dict[str, Any]:
    """A volume as its project sees it."""
    found: dict[str, Any] = (await api.get(f"{V3}/volumes/{volume_id}", cloud="roost")).json()["volume"]
    return found


def root(**more: Any) -> dict[str, Any]:
    """A server that boots from a new volume of an image."""
    device = {"source_type": "image", "destination_type": "volume", "uuid": IMAGE, "boot_index": 0, "volume_size": 1}
    return {"imageRef": "", "block_device_mapping_v2": [{**device, **more}]}


async def test_a_volume_is_attached_and_detached(api: Api, cloud: Cloud) -> None:
    server, made = await cloud.boot(), await make(api, name="data")
    path = f"/servers/{server}/os-volume_attachments"
    answer = await cloud.ask("POST", path, json={"volumeAttachment": {"volumeId": made["id"], "tag": "bar"}})
    assert answer.status_code == 200, answer.text
    held = answer.json()["volumeAttachment"]
    assert (held["volumeId"], held["serverId"], held["device"], held["tag"]) == (made["id"], server, "/dev/vdb", "bar")
    shown = await volume(api, made["id"])
    assert (shown["status"], shown["attachments"][0]["server_id"]) == ("in-use", server)
    attached = (await cloud.show(server))["os-extended-volumes:volumes_attached"]
    assert attached == [{"id": made["id"], "delete_on_termination": False}]
    old = (await cloud.ask("GET", f"{path}/{made['id']}", version="2.1")).json()["volumeAttachment"]
    assert old == {"id": made["id"], "volumeId": made["id"], "serverId": server, "device": "/dev/vdb"}
    assert (await api.delete(f"{V3}/volumes/{made['id']}", cloud="roost")).status_code == 400
    again = {"volumeAttachment": {"volumeId": made["id"]}}
    assert (await cloud.refusal("POST", path, again))[0] == 400
    assert (await cloud.refusal("DELETE", f"{path}/{made['id']}", cloud="roost-alt"))[0] == 404
    assert (await cloud.ask("DELETE", f"{path}/{made['id']}")).status_code == 202
    assert (await volume(api, made["id"]))["status"] == "available"
    assert (await cloud.ask("GET", path)).json() == {"volumeAttachments": []}
    history = (await cloud.ask("GET", f"/servers/{server}/os-instance-actions")).json()["instanceActions"]
    assert [each["action"] for each in history] == ["detach_volume", "attach_volume", "create"]


async def test_what_is_not_the_projects_is_not_attached(api: Api, cloud: Cloud) -> None:
    path = f"/servers/{await cloud.boot()}/os-volume_attachments"
    theirs = await make(api, cloud="roost-alt")
    for who in ("roost", "roost-admin"):
        body = {"volumeAttachment": {"volumeId": theirs["id"]}}
        assert (await cloud.refusal("POST", path, body, cloud=who))[0] == 404
    mine = await make(api)
    for device in ("/dev/vda", "not a device"):
        body = {"volumeAttachment": {"volumeId": mine["id"], "device": device}}
        assert (await cloud.refusal("POST", path, body))[0] in (400, 409)
    assert (await volume(api, mine["id"]))["status"] == "available"


async def test_of_many_servers_that_want_a_volume_one_has_it(api: Api, cloud: Cloud) -> None:
    servers, made = [await cloud.boot() for _ in range(4)], await make(api)
    body = {"volumeAttachment": {"volumeId": made["id"]}}
    answers = await asyncio.gather(
        *(cloud.ask("POST", f"/servers/{server}/os-volume_attachments", json=body) for server in servers)
    )
    assert sorted(answer.status_code for answer in answers) == [200, 400, 400, 400]


async def test_a_server_boots_from_a_volume_that_stays_or_goes_with_it(api: Api, cloud: Cloud) -> None:
    staying, going = await cloud.boot(**root()), await cloud.boot(**root(delete_on_termination=True))
    shown = await cloud.show(staying)
    assert shown["image"] == ""
    ((kept,), (gone,)) = [
        (await cloud.show(server))["os-extended-volumes:volumes_attached"] for server in (staying, going)
    ]
    path = f"/servers/{staying}/os-volume_attachments/{kept['id']}"
    assert (await cloud.refusal("DELETE", path))[0] == 403
    assert (await cloud.refused(staying, "rebuild", {"imageRef": IMAGE}))[0] == 400
    update = {"volumeAttachment": {"volumeId": kept["id"], "delete_on_termination": True}}
    assert (await cloud.ask("PUT", path, json=update)).status_code == 202
    update["volumeAttachment"]["delete_on_termination"] = False
    assert (await cloud.ask("PUT", path, json=update)).status_code == 202
    await cloud.delete(staying, going)
    assert (await volume(api, kept["id"]))["status"] == "available"
    assert (await api.get(f"{V3}/volumes/{gone['id']}", cloud="roost")).status_code == 404


async def test_a_volume_with_snapshots_outlives_its_server(api: Api, cloud: Cloud) -> None:
    server = await cloud.boot(**root(delete_on_termination=True))
    (held,) = (await cloud.show(server))["os-extended-volumes:volumes_attached"]
    await make(api, plural="snapshots", volume_id=held["id"], force=True)
    await cloud.delete(server)
    assert (await volume(api, held["id"]))["status"] == "available"


async def test_a_server_has_volumes_that_are_there_and_ones_made_for_it(api: Api, cloud: Cloud) -> None:
    boot, data = await make(api, imageRef=IMAGE, name="boot"), await make(api, name="data")
    devices = [
        {"source_type": "volume", "destination_type": "volume", "uuid": boot["id"], "boot_index": 0},
        {"source_type": "volume", "destination_type": "volume", "uuid": data["id"], "device_name": "vdc"},
        {"source_type": "blank", "destination_type": "volume", "volume_size": 2, "delete_on_termination": True},
    ]
    server = await cloud.boot(imageRef="", block_device_mapping_v2=devices)
    held = (await cloud.ask("GET", f"/servers/{server}/os-volume_attachments")).json()["volumeAttachments"]
    assert [each["device"] for each in held] == ["/dev/vda", "/dev/vdb", "/dev/vdc"]
    assert [held[0]["volumeId"], held[2]["volumeId"]] == [boot["id"], data["id"]]
    await cloud.delete(server)
    assert sorted(await names(api)) == ["boot", "data"]
    assert {each["status"] for each in (await volume(api, boot["id"]), await volume(api, data["id"]))} == {"available"}


@pytest.mark.parametrize(
    "asked",
    [
        {"imageRef": IMAGE, "block_device_mapping_v2": root()["block_device_mapping_v2"]},
        {"imageRef": "", "block_device_mapping_v2": [{"source_type": "blank", "destination_type": "volume"}]},
        {"imageRef": "", "block_device_mapping_v2": [{"source_type": "volume", "uuid": UNKNOWN, "boot_index": 0}]},
        {"block_device_mapping": [{"volume_id": UNKNOWN}]},
        {**root(), "flavorRef": "no such flavor"},
        root(volume_size=2000),
        root(uuid=UNKNOWN),
        root(nonsense=1),
    ],
)
async def test_what_cannot_be_booted_is_refused_and_leaves_nothing(
    api: Api, cloud: Cloud, asked: dict[str, Any]
) -> None:
    answer = await cloud.create(**asked)
    assert answer.status_code in (400, 403), answer.text
    assert await names(api) == []
    assert (await cloud.ask("GET", "/servers")).json()["servers"] == []


async def test_an_empty_volume_is_not_booted_from_and_stays_free(api: Api, cloud: Cloud) -> None:
    empty = await make(api)
    device = {"source_type": "volume", "destination_type": "volume", "uuid": empty["id"], "boot_index": 0}
    assert (await cloud.create(imageRef="", block_device_mapping_v2=[device])).status_code == 400
    assert (await volume(api, empty["id"]))["status"] == "available"


async def test_nodes_of_clusters_boot_from_volumes_as_servers_do(api: Api, cloud: Cloud) -> None:
    own = api.services.clouds.of(await cloud.project(), "user")

    async def make_node(node_id: str, **device: Any) -> ServerOutcome:
        devices = tuple({**each, **device} for each in root(delete_on_termination=True)["block_device_mapping_v2"])
        making = asyncio.create_task(own.create_servers([ServerRequest(node_id, "node", "1", block_devices=devices)]))
        while not making.done():
            await cloud.settle()
            await asyncio.sleep(0.01)
        return making.result()[0]

    made = await make_node("00000000-0000-4000-8000-000000000001")
    assert made.error is None
    assert len((await cloud.show(made.server_id or ""))["os-extended-volumes:volumes_attached"]) == 1
    refused = await make_node("00000000-0000-4000-8000-000000000002", uuid=UNKNOWN)
    assert (refused.server_id, "image" in (refused.error or "")) == (None, True)
    await cloud.delete(made.server_id or "")
    assert await names(api) == []


async def test_what_was_reserved_for_servers_that_never_came_is_given_back(api: Api, cloud: Cloud) -> None:
    server, mine = await cloud.boot(**root()), await make(api, name="mine")
    missing = sa.text(
        "UPDATE volumes SET server_id = gen_random_uuid(), attached_at = now() - interval '1 hour', of_server = :made, "
        "device = '/dev/vdb' WHERE id = :id"
    )
    lost = (await make(api, name="lost"))["id"]
    async with cloud.database.begin() as connection:
        await connection.execute(missing, {"id": mine["id"], "made": False})
        await connection.execute(missing, {"id": lost, "made": True})
        await connection.execute(sa.text("UPDATE volumes SET attached_at = now() - interval '1 hour'"))
        await block_devices.forget_pending(connection)
    assert (await volume(api, mine["id"]))["status"] == "available"
    assert sorted(await names(api)) == ["", "mine"], "the one made for a server that never came is gone"
    assert len((await cloud.show(server))["os-extended-volumes:volumes_attached"]) == 1
