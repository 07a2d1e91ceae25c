"""What would run inside a server: consoles, diagnostics, snapshots, rescue; and what is refused."""

from tests.api.compute.conftest import Compute
from tests.compute.cloud import IMAGE, Cloud

UNKNOWN = "00000000-0000-4000-8000-000000000000"


async def test_a_server_is_rescued_and_comes_back(cloud: Cloud) -> None:
    server = await cloud.boot()
    refused = await cloud.refusal("POST", f"/servers/{server}/action", {"rescue": {"rescue_image_ref": UNKNOWN}})
    assert refused == (400, f"Image {UNKNOWN} could not be found.")
    answer = await cloud.act(server, "rescue", {"adminPass": "secret", "rescue_image_ref": IMAGE})
    assert (answer.status_code, answer.json()) == (200, {"adminPass": "secret"})
    await cloud.settle()
    assert await cloud.status(server) == "RESCUE"
    assert (await cloud.refusal("POST", f"/servers/{server}/action", {"pause": None}))[0] == 409
    assert [each["id"] for each in (await cloud.ask("GET", "/servers?status=RESCUE")).json()["servers"]] == [server]
    await cloud.done(server, "unrescue")
    assert await cloud.status(server) == "ACTIVE"
    assert (await cloud.refusal("POST", f"/servers/{server}/action", {"unrescue": None}))[0] == 409


async def test_an_image_of_a_server_can_be_booted(cloud: Cloud) -> None:
    server = await cloud.boot()
    body = {"name": "snapshot", "metadata": {"why": "test"}}
    image = (await cloud.act(server, "createImage", body)).json()["image_id"]
    shown = (await cloud.api.get(f"/image/v2/images/{image}", cloud="roost")).json()
    assert (shown["name"], shown["status"], shown["visibility"]) == ("snapshot", "active", "private")
    assert (shown["image_type"], shown["instance_uuid"], shown["why"]) == ("snapshot", server, "test")
    assert shown["base_image_ref"] == IMAGE
    await cloud.boot(imageRef=image)
    old = await cloud.ask("POST", f"/servers/{server}/action", json={"createImage": {"name": "b"}}, version="2.1")
    assert old.headers["location"].startswith("http://roost.test/image/v2/images/")
    nothing = await cloud.api.get(f"/image/v2/images/{image}/file", cloud="roost")
    assert (nothing.status_code, "simulated" in nothing.text) == (404, True)
    history = (await cloud.ask("GET", f"/servers/{server}/os-instance-actions")).json()["instanceActions"]
    assert [each["action"] for each in history] == ["createImage", "createImage", "create"]


async def test_a_server_is_rebuilt_from_an_image_that_is_there(cloud: Cloud) -> None:
    server = await cloud.boot()
    refused = await cloud.refusal("POST", f"/servers/{server}/action", {"rebuild": {"imageRef": UNKNOWN}})
    assert refused == (400, f"Image {UNKNOWN} could not be found.")
    assert await cloud.status(server) == "ACTIVE"


async def test_consoles_say_that_they_are_simulated(cloud: Cloud) -> None:
    server = await cloud.boot()
    output = (await cloud.act(server, "os-getConsoleOutput", {})).json()["output"]
    assert output.startswith("[simulated] ")
    one = (await cloud.act(server, "os-getConsoleOutput", {"length": 1})).json()["output"]
    assert one == output.splitlines()[-1]
    assert (await cloud.act(server, "os-getConsoleOutput", {"length": "-1"})).json()["output"] == output
    assert (await cloud.act(server, "os-getConsoleOutput", {"length": 0})).json()["output"] == ""
    assert (await cloud.act(server, "os-getConsoleOutput", {"length": "many"})).status_code == 400
    path = f"/servers/{server}/remote-consoles"
    made = await cloud.ask("POST", path, json={"remote_console": {"protocol": "vnc", "type": "novnc"}})
    url = made.json()["remote_console"]["url"]
    assert url == f"http://roost.test/simulated-console/novnc?server={server}"
    wrong = await cloud.refusal("POST", path, {"remote_console": {"protocol": "vnc", "type": "serial"}})
    assert wrong == (400, "Unavailable console type serial of protocol vnc.")
    body = {"os-getVNCConsole": {"type": "novnc"}}
    old = await cloud.ask("POST", f"/servers/{server}/action", json=body, version="2.5")
    assert old.json() == {"console": {"type": "novnc", "url": url}}
    assert (await cloud.refusal("POST", f"/servers/{server}/action", body, version="2.6"))[0] == 400
    assert (await cloud.ask("POST", path, json={}, version="2.5")).status_code == 404


async def test_diagnostics_are_for_operators(cloud: Cloud) -> None:
    server = await cloud.boot(networks="auto")
    assert (await cloud.refusal("GET", f"/servers/{server}/diagnostics"))[0] == 403
    old = (await cloud.ask("GET", f"/servers/{server}/diagnostics", version="2.1", cloud="roost-admin")).json()
    assert old == {"memory": 512 * 1024, "cpu0_time": 0}
    new = (await cloud.ask("GET", f"/servers/{server}/diagnostics", cloud="roost-admin")).json()
    assert (new["state"], new["num_cpus"], new["num_nics"]) == ("running", 1, 1)
    assert new["nic_details"][0]["mac_address"].startswith("fa:16:3e:")
    await cloud.done(server, "shelve")
    assert (await cloud.refusal("GET", f"/servers/{server}/diagnostics", cloud="roost-admin"))[0] == 409


async def test_what_a_server_without_a_guest_has(cloud: Cloud) -> None:
    server = await cloud.boot()
    path = f"/servers/{server}"
    assert (await cloud.ask("GET", f"{path}/topology")).json() == {"nodes": [], "pagesize_kb": None}
    assert (await cloud.ask("GET", f"{path}/os-server-password")).json() == {"password": ""}
    assert (await cloud.ask("DELETE", f"{path}/os-server-password")).status_code == 204
    assert (await cloud.ask("GET", f"{path}/os-volume_attachments")).json() == {"volumeAttachments": []}
    assert (await cloud.ask("GET", f"{path}/os-volume_attachments/{UNKNOWN}")).status_code == 404
    attach = {"volumeAttachment": {"volumeId": UNKNOWN}}
    assert (await cloud.refusal("POST", f"{path}/os-volume_attachments", attach))[0] == 404
    assert (await cloud.act(server, "trigger_crash_dump", None)).status_code == 202
    assert (await cloud.refusal("POST", f"{path}/action", {"trigger_crash_dump": None}, version="2.16"))[0] == 400
    for part in ("topology", "os-server-password", "os-volume_attachments", "tags", "diagnostics"):
        assert (await cloud.refusal("GET", f"{path}/{part}", cloud="roost-alt"))[0] == 404, part


async def test_tags_of_a_server(cloud: Cloud) -> None:
    server = await cloud.boot()
    tags = f"/servers/{server}/tags"
    assert (await cloud.ask("PUT", tags, json={"tags": ["a", "b", "a"]})).json() == {"tags": ["a", "b"]}
    added = await cloud.ask("PUT", f"{tags}/c")
    assert (added.status_code, added.headers["location"]) == (201, f"http://roost.test/compute/v2.1{tags}/c")
    assert (await cloud.ask("PUT", f"{tags}/c")).status_code == 204
    assert (await cloud.ask("GET", f"{tags}/c")).status_code == 204
    assert (await cloud.ask("DELETE", f"{tags}/a")).status_code == 204
    assert (await cloud.ask("DELETE", f"{tags}/a")).status_code == 404
    assert (await cloud.ask("GET", tags)).json() == {"tags": ["b", "c"]}
    for wrong in ("x" * 61, "a,b"):
        assert (await cloud.ask("PUT", f"{tags}/{wrong}")).status_code == 400
    many = {"tags": [str(number) for number in range(51)]}
    assert (await cloud.refusal("PUT", tags, many))[0] == 400
    assert (await cloud.ask("PUT", tags, json={"tags": many["tags"][:50]})).status_code == 200
    assert (await cloud.ask("PUT", f"{tags}/one-more")).status_code == 400
    assert (await cloud.ask("DELETE", tags)).status_code == 204
    assert (await cloud.show(server))["tags"] == []
    assert (await cloud.ask("GET", tags, version="2.25")).status_code == 404


async def test_live_migrations_are_listed_while_they_are_under_way(cloud: Cloud) -> None:
    server = await cloud.boot()
    assert (await cloud.refusal("GET", f"/servers/{server}/migrations"))[0] == 403
    await cloud.act(server, "os-migrateLive", {"host": None, "block_migration": "auto"}, cloud="roost-admin")
    path = f"/servers/{server}/migrations"
    (going,) = (await cloud.ask("GET", path, cloud="roost-admin")).json()["migrations"]
    assert (going["server_uuid"], going["status"]) == (server, "running")
    one = await cloud.ask("GET", f"{path}/{going['id']}", cloud="roost-admin", version="2.23")
    assert "uuid" not in one.json()["migration"]
    await cloud.settle()
    assert (await cloud.ask("GET", path, cloud="roost-admin")).json() == {"migrations": []}
    assert (await cloud.ask("GET", f"{path}/{going['id']}", cloud="roost-admin")).status_code == 404


async def test_events_are_answered_one_by_one(cloud: Cloud) -> None:
    server = await cloud.boot()
    path = "/os-server-external-events"
    plugged = {"name": "network-vif-plugged", "server_uuid": server, "tag": "port"}
    assert (await cloud.refusal("POST", path, {"events": [plugged]}))[0] == 403
    done = await cloud.ask("POST", path, json={"events": [plugged]}, cloud="roost-admin")
    assert done.json() == {"events": [{**plugged, "status": "completed", "code": 200}]}
    missing = {**plugged, "server_uuid": UNKNOWN}
    other = {"name": "volume-extended", "server_uuid": server}
    mixed = await cloud.ask("POST", path, json={"events": [plugged, missing, other]}, cloud="roost-admin")
    assert mixed.status_code == 207
    assert [(each["code"], each["status"]) for each in mixed.json()["events"]] == [
        (200, "completed"),
        (404, "failed"),
        (400, "failed"),
    ]
    assert (await cloud.refusal("POST", path, {"events": [missing]}, cloud="roost-admin"))[0] == 404
    bad = {"events": [{"name": "earthquake", "server_uuid": server}]}
    assert (await cloud.refusal("POST", path, bad, cloud="roost-admin"))[0] == 400


async def test_networks_through_compute_before_2_36(compute: Compute) -> None:
    brief = (await compute.get("/os-tenant-networks", cloud="roost"))["networks"]
    assert {"label": "private", "cidr": "10.0.0.0/8", "id": brief[0]["id"]} in brief
    full = (await compute.get("/os-networks", cloud="roost"))["networks"]
    assert {each["label"] for each in full} == {"private", "public"}
    one = (await compute.get(f"/os-networks/{brief[0]['id']}", cloud="roost"))["network"]
    assert (one["gateway"], one["vlan"]) == ("10.0.0.1", None)
    for path in ("/os-networks/x", f"/os-tenant-networks/{UNKNOWN}"):
        assert (await compute.refusal("GET", path, cloud="roost"))[0] == 404
    assert (await compute.refusal("GET", "/os-networks", version="2.36"))[0] == 404


async def test_usage_counts_servers_that_are_gone_too(cloud: Cloud) -> None:
    kept, gone = await cloud.boot(name="kept"), await cloud.boot(name="gone", flavorRef="2")
    await cloud.ask("DELETE", f"/servers/{gone}")
    await cloud.settle()
    project = (await cloud.show(kept))["tenant_id"]
    usage = (await cloud.ask("GET", f"/os-simple-tenant-usage/{project}")).json()["tenant_usage"]
    by_name = {each["name"]: each for each in usage["server_usages"]}
    assert {name: each["state"] for name, each in by_name.items()} == {"kept": "active", "gone": "terminated"}
    assert by_name["gone"]["memory_mb"] == 2048
    expected = sum(each["hours"] * each["memory_mb"] for each in by_name.values())
    assert abs(usage["total_memory_mb_usage"] - expected) < 1e-9
    assert usage["total_hours"] > 0
    for version in ("2.1", "2.40"):
        path = "/os-simple-tenant-usage"
        (every,) = (await cloud.ask("GET", path, version=version, cloud="roost-admin")).json()["tenant_usages"]
        assert (every["tenant_id"], "server_usages" in every) == (project, False)
        assert abs(every["total_hours"] - usage["total_hours"]) < 0.01
    first = (await cloud.ask("GET", f"/os-simple-tenant-usage/{project}?limit=1")).json()
    following = first["tenant_usage_links"][0]["href"].partition("/v2.1")[2]
    second = (await cloud.ask("GET", following)).json()["tenant_usage"]
    pages = [*first["tenant_usage"]["server_usages"], *second["server_usages"]]
    assert {each["name"] for each in pages} == {"kept", "gone"}
    past = f"/os-simple-tenant-usage/{project}?start=2001-01-01T00:00:00&end=2001-02-01T00:00:00"
    assert (await cloud.ask("GET", past)).json() == {"tenant_usage": {}}
    for query in ("?start=soon", "?start=2030-01-01T00:00:00&end=2029-01-01T00:00:00", "?marker=x"):
        assert (await cloud.ask("GET", f"/os-simple-tenant-usage/{project}{query}")).status_code == 400, query
    assert (await cloud.ask("GET", "/os-simple-tenant-usage")).status_code == 403
    assert (await cloud.ask("GET", f"/os-simple-tenant-usage/{project}", cloud="roost-alt")).status_code == 403


async def test_a_server_shows_the_security_groups_that_its_ports_have(cloud: Cloud) -> None:
    made = await cloud.api.post("/network/v2.0/security-groups", {"security_group": {"name": "web"}}, cloud="roost")
    assert made.status_code == 201
    server, bare = await cloud.boot(networks="auto"), await cloud.boot()
    path = f"/servers/{server}/action"
    assert (await cloud.show(server))["security_groups"] == [{"name": "default"}]
    assert "security_groups" not in await cloud.show(bare)
    assert (await cloud.act(server, "addSecurityGroup", {"name": "web"})).status_code == 202
    both = [{"name": "default"}, {"name": "web"}]
    assert (await cloud.show(server))["security_groups"] == both
    listed = (await cloud.ask("GET", "/servers/detail")).json()["servers"]
    assert {each["id"]: each.get("security_groups") for each in listed} == {server: both, bare: None}
    assert (await cloud.act(server, "removeSecurityGroup", {"name": "default"})).status_code == 202
    assert (await cloud.show(server))["security_groups"] == [{"name": "web"}]
    for action in ("addSecurityGroup", "removeSecurityGroup"):
        assert (await cloud.refusal("POST", path, {action: {"name": "none"}}))[0] == 404
    assert (await cloud.refusal("POST", path, {"removeSecurityGroup": {"name": "default"}}))[0] == 404
