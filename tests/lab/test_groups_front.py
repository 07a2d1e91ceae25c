"""Roost in front of a real Nova: what is its own, what it relays, and that both sides agree; seen by real clients."""

import threading
from typing import Any

import oslo_messaging
import pytest
from oslo_config import cfg

from lab.settings import Settings
from tests.lab.deployment import until
from tests.lab.front import Front, Person


def test_a_group_has_novas_own_id_and_its_nearest_policy(somebody: Person) -> None:
    nearest = {
        "anti-affinity:maintenance_zone": "anti-affinity",
        "affinity": "affinity",
        "affinity:ip_zone": "soft-affinity",
        "soft-anti-affinity:switch": "soft-anti-affinity",
    }
    for policy, native in nearest.items():
        group = somebody.group(policy)
        found = somebody.admin.compute.get_server_group(group)
        assert (found.id, found.policy) == (group, native)
        assert found.project_id == somebody.connection.current_project_id
        assert somebody.ask("DELETE", f"/os-server-groups/{group}")[0] == 204
        assert somebody.admin.compute.find_server_group(group, all_projects=True) is None


def test_what_roost_refuses_leaves_nothing_in_nova(somebody: Person) -> None:
    for policies in (["affinity:no_such_scope"], ["affinity", "anti-affinity"]):
        body = {"server_group": {"name": "left behind", "policies": policies}}
        assert somebody.ask("POST", "/os-server-groups", body, version="2.1002")[0] == 400
    assert not [
        group for group in somebody.admin.compute.server_groups(all_projects=True) if group.name == "left behind"
    ]


def test_policies_change_as_far_as_nova_lets_them(somebody: Person) -> None:
    group = somebody.group("anti-affinity")
    wider = {"server_group": {"policies": ["anti-affinity:maintenance_zone"]}}
    assert somebody.ask("POST", f"/os-server-groups/{group}", wider, version="2.1002")[0] == 200
    weaker = {"server_group": {"policies": ["soft-anti-affinity"]}}
    status, answer = somebody.ask("POST", f"/os-server-groups/{group}", weaker, version="2.1002")
    assert status == 409
    assert "make a new group" in answer["conflictingRequest"]["message"]


def test_everything_else_is_novas(somebody: Person, operator: Person) -> None:
    compute = somebody.connection.compute
    assert {flavor.name for flavor in compute.flavors()} >= {"m1.lab", "m2.lab"}
    server = somebody.boot()
    assert compute.get_server(server).status == "ACTIVE"
    assert compute.get_server(server).compute_host is None, "a tenant sees as little as in Nova"
    assert somebody.ask("GET", f"/servers/{server}")[1]["server"]["id"] == server, "in Nova's newest version"
    assert somebody.ask("GET", "/servers/no-such-server")[0] == 404
    assert somebody.ask("GET", "/os-hypervisors")[0] == 403
    assert len(operator.ask("GET", "/os-hypervisors")[1]["hypervisors"]) == len(
        list(somebody.admin.compute.hypervisors())
    )
    somebody.delete(server)


def test_scopes_and_novas_aggregates_are_one(operator: Person, somebody: Person) -> None:
    compute = operator.connection.compute
    aggregate = compute.create_aggregate(name="feed1")
    try:
        compute.set_aggregate_metadata(aggregate, {"policy_scope": "power_feed"})
        compute.add_host_to_aggregate(aggregate, "fake-1")
        scope = named(operator, "power_feed")
        assert [each["aggregate_id"] for each in scope["aggregates"]] == [aggregate.id], (
            "known as soon as Nova answered"
        )
        path = f"/os-policy-scopes/{scope['id']}"
        assert operator.ask("POST", path, {"policy_scope": {"name": "feed"}})[0] == 200
        assert metadata(operator, aggregate) == {"policy_scope": "feed"}
        assert operator.ask("POST", f"{path}/action", {"remove_aggregate": {"aggregate_id": aggregate.id}})[0] == 200
        assert metadata(operator, aggregate) == {}
        assert operator.ask("POST", f"{path}/action", {"add_aggregate": {"aggregate_id": aggregate.id}})[0] == 200
        assert metadata(operator, aggregate) == {"policy_scope": "feed"}
        assert somebody.ask("POST", f"{path}/action", {"remove_aggregate": {"aggregate_id": aggregate.id}})[0] == 403
        compute.remove_host_from_aggregate(aggregate, "fake-1")
    finally:
        compute.delete_aggregate(aggregate)
    assert operator.ask("DELETE", path)[0] == 204


def named(operator: Person, name: str) -> Any:
    [scope] = [each for each in operator.ask("GET", "/os-policy-scopes")[1]["policy_scopes"] if each["name"] == name]
    return scope


def metadata(operator: Person, aggregate: Any) -> dict[str, str]:
    return dict(operator.admin.compute.get_aggregate(aggregate.id).metadata)


def test_where_new_members_would_go_is_explained_with_novas_flavors(somebody: Person) -> None:
    group = somebody.group("anti-affinity:maintenance_zone")
    flavor = somebody.connection.compute.find_flavor("m1.lab").id
    for count, verdict in ((3, "placed"), (4, "refused")):
        asked = {"explain": {"flavorRef": flavor, "count": count}}
        status, answer = somebody.ask("POST", f"/os-server-groups/{group}/explain", asked)
        assert status == 200, answer
        assert answer["explanation"]["verdict"] == verdict
    unknown = {"explain": {"flavorRef": "no-such-flavor"}}
    assert somebody.ask("POST", f"/os-server-groups/{group}/explain", unknown)[0] == 400


def test_what_happens_to_groups_is_told_on_the_message_bus(lab: Settings, front: Front, somebody: Person) -> None:
    heard: list[tuple[str, dict[str, Any]]] = []

    class Endpoint:
        def info(self, context: Any, publisher: str, event: str, payload: dict[str, Any], metadata: Any) -> None:
            heard.append((event, payload["nova_object.data"]))

    transport = oslo_messaging.get_notification_transport(cfg.ConfigOpts(), url=lab.message_bus)
    target = oslo_messaging.Target(exchange="nova", topic=front.topic)
    listener = oslo_messaging.get_notification_listener(transport, [target], [Endpoint()], executor="threading")
    listening = threading.Thread(target=listener.start, daemon=True)
    listening.start()
    listening.join(30)
    try:
        group = somebody.group("anti-affinity:maintenance_zone")
        server = somebody.boot(group)
        somebody.delete(server)
        until(lambda: somebody.ask("GET", f"/os-server-groups/{group}")[1]["server_group"]["members"] == [])
        assert somebody.ask("DELETE", f"/os-server-groups/{group}")[0] == 204
        wanted = ["server_group.create", "server_group.add_member", "server_group.remove_member", "server_group.delete"]
        until(lambda: [event for event, data in heard if data["uuid"] == group] == wanted)
    finally:
        listener.stop()
        listener.wait()
    ours = [(event, data) for event, data in heard if data["uuid"] == group]
    assert [event for event, _ in ours] == wanted
    assert ours[0][1]["policies"] == ["anti-affinity:maintenance_zone"]
    assert ours[1][1]["members"] == ours[2][1]["members"] == [server]


@pytest.mark.parametrize("path", ["/os-server-groups/no-such-group", "/os-server-groups/no-such-group/audit"])
def test_what_is_not_there_is_not_there(somebody: Person, path: str) -> None:
    assert somebody.ask("GET", path)[0] == 404
