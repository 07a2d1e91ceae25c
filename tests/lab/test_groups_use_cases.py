"""The six use cases of scoped policies on a real Nova, with the plug-in in its scheduler: tenants ask Roost, Nova makes
the servers, and where they are is read from Nova."""

from collections import Counter

from tests.lab.conftest import SCOPES
from tests.lab.front import Person, part

ZONES = SCOPES["maintenance_zone"]


def zone(host: str) -> str:
    return part(ZONES, host)


def test_redundant_servers_are_never_in_one_maintenance_zone(somebody: Person) -> None:
    group = somebody.group("anti-affinity:maintenance_zone")
    servers = [somebody.boot(group) for _ in ZONES]
    assert {zone(host) for host in somebody.hosts(servers)} == set(ZONES)
    refused = somebody.begin(group)
    assert somebody.settled(refused).status == "ERROR"
    status, answer = somebody.ask("GET", f"/servers/{refused}/explanation")
    assert status == 200
    assert answer["explanation"]["verdict"] == "refused"
    assert "anti-affinity:maintenance_zone" in answer["explanation"]["sentence"]
    body = {"server_group": {"name": "targets", "policies": ["affinity:maintenance_zone:mz1"]}}
    assert somebody.ask("POST", "/os-server-groups", body, version="2.1002")[0] == 400, "zones cannot be chosen"


def test_servers_that_share_an_address_are_in_one_ip_zone(somebody: Person) -> None:
    group = somebody.group("affinity:ip_zone")
    servers = [somebody.boot(group) for _ in range(4)]
    assert len({part(SCOPES["ip_zone"], host) for host in somebody.hosts(servers)}) == 1


def test_a_database_is_on_different_hosts_and_if_it_can_be_on_one_switch(somebody: Person) -> None:
    group = somebody.group("anti-affinity:host", "soft-affinity:switch")
    servers = [somebody.boot(group) for _ in range(5)]
    hosts = somebody.hosts(servers)
    assert len(set(hosts)) == 5
    switches = [part(SCOPES["switch"], host) for host in hosts]
    assert len(set(switches[:3])) == 1, "three hosts are on a switch"
    assert sorted(Counter(switches).values()) == [2, 3], "and the build does not fail where it is full"


def test_a_server_that_was_there_first_is_added_and_counts(somebody: Person) -> None:
    alone = somebody.boot()
    group = somebody.group("anti-affinity:maintenance_zone")
    status, answer = somebody.ask("POST", f"/os-server-groups/{group}/action", {"add_instance": {"instance_id": alone}})
    assert status == 200, answer
    assert answer["server_group"]["members"] == [alone]
    servers = [alone, *(somebody.boot(group) for _ in range(2))]
    assert {zone(host) for host in somebody.hosts(servers)} == set(ZONES)
    assert somebody.settled(somebody.begin(group)).status == "ERROR"
    _, answer = somebody.ask("GET", f"/os-server-groups/{group}/audit")
    assert answer["server_group_policy_audit"]["violations"] == []


def test_many_servers_are_spread_evenly_where_there_are_fewer_zones(somebody: Person) -> None:
    group = somebody.group("soft-anti-affinity:maintenance_zone")
    somebody.begin(group, min_count=7, max_count=7)
    listed = [server.id for server in somebody.connection.compute.servers(details=False)]
    assert len(listed) == 7
    spread = Counter(zone(host) for host in somebody.hosts(listed))
    assert sorted(spread.values()) == [2, 2, 3]


def test_a_zone_is_targeted_by_an_identifier_of_the_tenants_own(somebody: Person, operator: Person) -> None:
    _, listed = operator.ask("GET", "/os-policy-scopes")
    [scope] = [each for each in listed["policy_scopes"] if each["name"] == "maintenance_zone"]
    path = f"/os-policy-scopes/{scope['id']}"
    hidden = {"policy_scope": {"allow_identifiers": True, "obfuscate_identifiers": True}}
    assert operator.ask("POST", path, hidden)[0] == 200
    try:
        _, shown = somebody.ask("GET", path)
        mine = [each["group_id"] for each in shown["policy_scope"]["aggregates"]]
        _, shown = operator.ask("GET", f"{path}?as_tenant_id={somebody.connection.current_project_id}")
        real = {each["obfuscated_group_id"]: each["name"] for each in shown["policy_scope"]["aggregates"]}
        assert set(mine) == set(real), "the tenant sees what the operator was shown that it sees"
        assert not set(mine) & {each["group_id"] for each in shown["policy_scope"]["aggregates"]}
        target = mine[1]
        group = somebody.group(f"affinity:maintenance_zone:{target}")
        servers = [somebody.boot(group) for _ in range(2)]
        assert {zone(host) for host in somebody.hosts(servers)} == {real[target]}
        somebody.clean_up()
    finally:
        closed = {"policy_scope": {"allow_identifiers": False, "obfuscate_identifiers": False}}
        assert operator.ask("POST", path, closed)[0] == 200
