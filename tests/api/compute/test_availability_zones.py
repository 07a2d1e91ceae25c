"""Availability zones."""

from tests.api.compute.conftest import Compute

PATH = "/os-availability-zone"


async def disable(compute: Compute, *hosts: str) -> None:
    """Disable the services of these hosts."""
    for host in hosts:
        await compute.put("/os-services/disable", {"host": host, "binary": "nova-compute"})


async def test_anyone_sees_the_zones_by_name(compute: Compute) -> None:
    for cloud in ("roost", "roost-reader", "roost-admin"):
        for version in ("2.1", "2.102"):
            assert await compute.get(PATH, cloud=cloud, version=version) == {
                "availabilityZoneInfo": [
                    {"zoneName": name, "zoneState": {"available": True}, "hosts": None}
                    for name in ("zone1", "zone2", "zone3")
                ]
            }


async def test_the_operator_sees_the_hosts(compute: Compute) -> None:
    await compute.put(
        "/os-services/force-down",
        {"host": "zone1-rack1-host1", "binary": "nova-compute", "forced_down": True},
        version="2.11",
    )
    await disable(compute, "zone1-rack1-host2")
    internal, first, *_ = (await compute.get(f"{PATH}/detail"))["availabilityZoneInfo"]
    assert internal == {"zoneName": "internal", "zoneState": {"available": True}, "hosts": {}}
    assert len(first["hosts"]) == 15
    assert "zone1-rack1-host2" not in first["hosts"]
    state = first["hosts"]["zone1-rack1-host1"]["nova-compute"]
    assert (state["available"], state["active"]) == (False, True)


async def test_a_zone_without_enabled_hosts_is_not_available(compute: Compute) -> None:
    await disable(compute, *(f"zone1-rack{rack}-host{host}" for rack in range(1, 5) for host in range(1, 5)))
    for path in (PATH, f"{PATH}/detail"):
        zones = (await compute.get(path))["availabilityZoneInfo"]
        zones = [zone for zone in zones if zone["zoneName"] != "internal"]
        assert [zone["zoneName"] for zone in zones] == ["zone2", "zone3", "zone1"]
        assert zones[-1] == {"zoneName": "zone1", "zoneState": {"available": False}, "hosts": None}


async def test_hosts_of_no_zone_are_in_nova_and_a_zone_without_hosts_is_not_listed(compute: Compute) -> None:
    await compute.post("/os-aggregates", {"aggregate": {"name": "a", "availability_zone": "empty"}})
    await compute.post("/os-aggregates/1/action", {"remove_host": {"host": "zone1-rack1-host1"}})
    names = [zone["zoneName"] for zone in (await compute.get(PATH))["availabilityZoneInfo"]]
    assert names == ["nova", "zone1", "zone2", "zone3"]


async def test_what_is_refused(compute: Compute) -> None:
    assert await compute.refusal("GET", f"{PATH}/detail", cloud="roost") == (
        403,
        "Policy doesn't allow os_compute_api:os-availability-zone:detail to be performed.",
    )
    for path in (PATH, f"{PATH}/detail"):
        assert await compute.refusal("GET", f"{path}?foo=1", version="2.102") == (
            400,
            "Additional properties are not allowed ('foo' was unexpected)",
        )
