"""What Roost changes of a request that is Nova's, and of Nova's answer."""

from collections.abc import AsyncIterator

import pytest

from tests.clouds.conftest import NEWEST, Cloud, through
from tests.clouds.fault_proxy import FaultProxy
from tests.conftest import Served


@pytest.fixture
async def proxy(cloud: Cloud, served: Served) -> AsyncIterator[FaultProxy]:
    """Between Roost and its Nova."""
    async with FaultProxy(served.url).running() as proxy:
        nova, cloud.front.nova = cloud.front.nova, through(proxy, served)
        yield proxy
        cloud.front.nova.close()
        cloud.front.nova = nova


async def test_links_lead_through_roost_page_after_page(cloud: Cloud) -> None:
    servers = {await cloud.tenant.boot() for _ in range(3)}
    found: set[str] = set()
    address = "/servers?limit=1"
    for _ in range(3):
        answer = (await cloud.tenant.ask("GET", address, version="2.87")).json()
        [server] = answer["servers"]
        found.add(server["id"])
        assert all(link["href"].startswith("http://front.test/compute/") for link in server["links"])
        [following] = answer["servers_links"]
        assert following["href"].startswith("http://front.test/compute/v2.1/servers?")
        address = following["href"].removeprefix("http://front.test/compute/v2.1")
    assert found == servers


async def test_the_id_of_a_relayed_request_is_novas(cloud: Cloud, proxy: FaultProxy) -> None:
    own = "req-11111111-2222-3333-4444-555555555555"
    proxy.fail("GET", "/flavors", 200, body={"flavors": []}, headers={"X-OpenStack-Request-Id": own})
    answer = await cloud.tenant.ask("GET", "/flavors", version="2.61")
    assert answer.headers["X-OpenStack-Request-Id"] == own
    assert answer.headers["X-Compute-Request-Id"] == own
    assert proxy.heard[-1]["x-openstack-request-id"].startswith("req-"), "Nova's log has Roost's"
    other = await cloud.tenant.ask("GET", "/os-server-groups", version="2.61")
    assert other.headers["X-OpenStack-Request-Id"] not in (own, None)


async def test_a_server_is_found_in_its_history_by_the_id_of_its_request(cloud: Cloud) -> None:
    server = await cloud.tenant.boot()
    await cloud.host(server)
    stopped = await cloud.tenant.ask("POST", f"/servers/{server}/action", {"os-stop": None}, version="2.87")
    own = stopped.headers["X-OpenStack-Request-Id"]
    shown = await cloud.tenant.ask("GET", f"/servers/{server}/os-instance-actions/{own}", version="2.87")
    assert shown.json()["instanceAction"]["action"] == "stop"


@pytest.mark.parametrize(
    ("newest", "asked", "sent"),
    [
        ("2.93", "2.100", "compute latest"),
        ("2.93", "2.93", "compute 2.93"),
        ("2.93", NEWEST, "compute latest"),
        ("2.93", "latest", "compute latest"),
        ("2.104", "2.100", "compute 2.100"),
        ("2.104", "2.500", "compute 2.500"),
    ],
)
async def test_a_version_that_nova_does_not_have_is_asked_for_in_its_newest(
    cloud: Cloud, proxy: FaultProxy, newest: str, asked: str, sent: str
) -> None:
    document = {"version": {"version": newest, "min_version": "2.1", "status": "CURRENT", "links": []}}
    proxy.fail("GET", "/v2.1/$", 200, 9, body=document)
    proxy.fail("GET", "/flavors", 200, 9, body={"flavors": []})
    assert (await cloud.tenant.ask("GET", "/flavors", version=asked)).status_code == 200
    assert proxy.heard[-1]["openstack-api-version"] == sent


async def test_external_events_wait_for_no_other_request(cloud: Cloud, proxy: FaultProxy) -> None:
    proxy.fail("POST", "/os-server-external-events", 200, 9, body={"events": []})
    cloud.front.nova._threads.shutdown(wait=False)
    body: dict[str, list[str]] = {"events": []}
    with pytest.raises(RuntimeError, match="shutdown"):
        await cloud.front.nova.relay("GET", "/v2.1/flavors", {}, None)
    answer = await cloud.front.nova.relay("POST", "/v2.1/os-server-external-events", {}, b"{}", urgent=True)
    assert answer.json() == body


async def test_a_change_that_nova_made_is_not_an_error_where_roost_cannot_read_it(
    cloud: Cloud, proxy: FaultProxy
) -> None:
    proxy.fail("GET", "/os-aggregates", 500, body={})
    made = await cloud.operator.ask("POST", "/os-aggregates", {"aggregate": {"name": "made"}}, version="2.87")
    assert made.status_code == 200, made.text
    path = f"/os-aggregates/{made.json()['aggregate']['id']}"
    await cloud.front.follow()
    listed = (await cloud.operator.ask("GET", "/os-lists/aggregates?limit=50")).json()
    assert "made" in str(listed), "seen in the next round"
    assert (await cloud.operator.ask("DELETE", path, version="2.87")).status_code == 200
