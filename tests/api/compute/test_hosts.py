"""Hosts in the old words."""

from tests.api.compute.conftest import Compute


async def test_hosts_are_listed_by_zone_and_shown(compute: Compute) -> None:
    assert len((await compute.get("/os-hosts"))["hosts"]) == 48
    in_zone = (await compute.get("/os-hosts?zone=zone2"))["hosts"]
    assert in_zone[0] == {"host_name": "zone2-rack1-host1", "service": "compute", "zone": "zone2"}
    assert len(in_zone) == 16
    total, used, most = (await compute.get("/os-hosts/zone2-rack1-host1"))["host"]
    assert total["resource"] == {
        "host": "zone2-rack1-host1",
        "project": "(total)",
        "cpu": 64,
        "memory_mb": 262_144,
        "disk_gb": 2000,
    }
    assert used["resource"]["cpu"] == most["resource"]["cpu"] == 0


async def test_what_is_refused(compute: Compute) -> None:
    assert await compute.refusal("GET", "/os-hosts/none") == (404, "Compute host none could not be found.")
    assert await compute.refusal("GET", "/os-hosts", version="2.43") == (404, "The resource could not be found.")
    assert await compute.refusal("GET", "/os-hosts", cloud="roost") == (
        403,
        "Policy doesn't allow os_compute_api:os-hosts:list to be performed.",
    )


async def test_extensions_name_what_is_served(compute: Compute) -> None:
    aliases = {each["alias"] for each in (await compute.get("/extensions", cloud="roost"))["extensions"]}
    assert {"os-server-groups", "os-keypairs", "os-security-groups"} <= aliases
    assert (await compute.refusal("GET", "/extensions/none", cloud="roost"))[0] == 404
