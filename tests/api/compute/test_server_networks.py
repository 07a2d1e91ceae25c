"""The ports, addresses and security groups of servers, as the compute API shows and changes them."""

from roost.network.addresses import PRIVATE
from tests.api.network.test_network import listed, make, network
from tests.compute.cloud import Cloud
from tests.conftest import Api


async def test_a_server_has_the_default_security_group_unless_it_names_another(api: Api, cloud: Cloud) -> None:
    await make(api, "security-groups", name="web")
    plain, named = (
        await cloud.boot(networks="auto"),
        await cloud.boot(networks="auto", security_groups=[{"name": "web"}, {"name": "default"}]),
    )
    for server, names in ((plain, ["default"]), (named, ["default", "web"]), (await cloud.boot(), [])):
        shown = (await cloud.ask("GET", f"/servers/{server}/os-security-groups")).json()["security_groups"]
        assert [group["name"] for group in shown] == names
    assert (await cloud.ask("GET", f"/servers/{plain}/os-security-groups", cloud="roost-alt")).status_code == 404


async def test_a_server_is_plugged_in_and_out(api: Api, cloud: Cloud) -> None:
    server, mine = await cloud.boot(), await network(api)
    path = f"/servers/{server}/os-interface"
    assert (await cloud.ask("GET", path)).json() == {"interfaceAttachments": []}
    answer = await cloud.ask("POST", path, json={"interfaceAttachment": {"net_id": mine["id"]}})
    assert answer.status_code == 200, answer.text
    port = answer.json()["interfaceAttachment"]
    (address,) = [each["ip_address"] for each in port["fixed_ips"]]
    addresses = (await cloud.ask("GET", f"/servers/{server}/ips")).json()["addresses"]
    assert addresses == {"mine": [{"addr": address, "version": 4}]}
    assert (await cloud.ask("GET", f"{path}/{port['port_id']}")).json()["interfaceAttachment"] == port
    assert (await cloud.ask("DELETE", f"{path}/{port['port_id']}")).status_code == 202
    assert (await cloud.show(server))["addresses"] == {}
    assert await listed(api, "ports") == []
    assert (await cloud.ask("DELETE", f"{path}/{port['port_id']}")).status_code == 404
    own = await make(api, "ports", network_id=mine["id"])
    await cloud.ask("POST", path, json={"interfaceAttachment": {"port_id": own["id"]}})
    again = await cloud.ask("POST", path, json={"interfaceAttachment": {"port_id": own["id"]}})
    assert again.status_code == 409
    await cloud.ask("DELETE", f"{path}/{own['id']}")
    (kept,) = await listed(api, "ports")
    assert (kept["id"], kept["device_id"]) == (own["id"], "")


async def test_what_cannot_be_plugged_in_is_refused(cloud: Cloud) -> None:
    path = f"/servers/{await cloud.boot()}/os-interface"
    for asked in (
        {"net_id": "00000000-0000-4000-8000-00000000dead"},
        {"port_id": "00000000-0000-4000-8000-00000000dead"},
        {"net_id": PRIVATE, "port_id": PRIVATE},
        {"fixed_ips": [{"ip_address": "10.0.0.7"}]},
        {"net_id": PRIVATE, "tag": "eth1"},
    ):
        answer = await cloud.ask("POST", path, json={"interfaceAttachment": asked})
        assert answer.status_code == 400, asked
