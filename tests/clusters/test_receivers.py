"""Receivers: the address lets its holder do what it is for, and nothing else."""

import asyncio
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import sqlalchemy as sa

from tests.clusters.house import PROPERTIES, House


async def webhook(house: House, cluster: dict[str, Any], action: str, **params: Any) -> dict[str, Any]:
    body = {"name": "hook", "type": "webhook", "cluster_id": cluster["id"], "action": action, "params": params}
    answer = await house.post("/receivers", {"receiver": body})
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()["receiver"]
    return made


def address(receiver: dict[str, Any]) -> str:
    parts = urlsplit(receiver["channel"]["alarm_url"])
    return f"{parts.path}?{parts.query}"


async def test_whoever_knows_the_address_may_trigger_without_a_token(house: House) -> None:
    cluster = await house.cluster(0)
    hook = await webhook(house, cluster, "CLUSTER_SCALE_OUT", count=2)
    answer = await house.api.request("POST", address(hook), cloud=None)
    assert (await house.done(answer))["status"] == "SUCCEEDED"
    assert len((await house.show(cluster))["nodes"]) == 2


async def test_what_the_body_says_more_becomes_inputs_and_numbers_may_be_text(house: House) -> None:
    cluster = await house.cluster(0)
    hook = await webhook(house, cluster, "CLUSTER_SCALE_OUT", count=1)
    answer = await house.api.request("POST", address(hook), json={"count": "3"}, cloud=None)
    await house.done(answer)
    assert len((await house.show(cluster))["nodes"]) == 3
    old = address(hook).replace("V=2", "V=1")
    await house.done(await house.api.request("POST", old, json={"params": {"count": "1"}}, cloud=None))
    assert len((await house.show(cluster))["nodes"]) == 4


def alert(status: str) -> dict[str, Any]:
    """What Prometheus' Alertmanager sends."""
    each = {"status": status, "labels": {"alertname": "Busy"}, "annotations": {}, "startsAt": "2026-11-16T03:00:00Z"}
    named = {"receiver": "scale-out", "groupKey": '{}:{alertname="Busy"}', "truncatedAlerts": 0}
    labels = {"groupLabels": {"alertname": "Busy"}, "commonLabels": {"count": "9"}, "commonAnnotations": {}}
    return {"version": "4", "status": status, "alerts": [each], "externalURL": "http://am", **named, **labels}


async def test_a_webhook_acts_at_the_status_of_an_alert_that_it_names(house: House) -> None:
    """A resolved alert scaled out as well."""
    cluster = await house.cluster(0)
    hook = await webhook(house, cluster, "CLUSTER_SCALE_OUT", count=2, alert_status="firing")
    resolved = await house.api.request("POST", address(hook), json=alert("resolved"), cloud=None)
    assert (resolved.status_code, resolved.content) == (204, b"")
    fired = await house.done(await house.api.request("POST", address(hook), json=alert("firing"), cloud=None))
    assert (fired["status"], fired["inputs"]) == ("SUCCEEDED", {"count": 2})
    assert len((await house.show(cluster))["nodes"]) == 2
    calm = await webhook(house, cluster, "CLUSTER_SCALE_IN", alert_status="resolved")
    assert (await house.api.request("POST", address(calm), json=alert("firing"), cloud=None)).status_code == 204
    await house.done(await house.api.request("POST", address(calm), json=alert("resolved"), cloud=None))
    assert len((await house.show(cluster))["nodes"]) == 1


async def test_nobody_overrides_the_status_and_what_is_no_alert_is_refused(house: House) -> None:
    cluster = await house.cluster(0)
    hook = await webhook(house, cluster, "CLUSTER_SCALE_OUT", alert_status="firing")
    other = address(hook).replace("alert_status=firing", "alert_status=resolved")
    assert (await house.api.request("POST", other, json=alert("resolved"), cloud=None)).status_code == 204
    for body in (None, {}, {"status": "pending"}, {"status": ["firing"]}):
        answer = await house.api.request("POST", address(hook), json=body, cloud=None)
        assert answer.status_code == 400
        expected = "This webhook is for alerts: the body must have a 'status', which is firing or resolved."
        assert answer.json()["error"]["message"] == expected
    assert (await house.show(cluster))["nodes"] == []


async def test_a_status_that_no_alert_has_is_refused(house: House) -> None:
    cluster = await house.cluster(0)
    body = {"name": "hook", "type": "webhook", "cluster_id": cluster["id"], "action": "CLUSTER_SCALE_OUT"}
    refused = await house.post("/receivers", {"receiver": body | {"params": {"alert_status": "fireing"}}})
    expected = (400, "'fireing' is not an alert_status: firing, resolved; did you mean firing?")
    assert (refused.status_code, refused.json()["error"]["message"]) == expected
    hook = await webhook(house, cluster, "CLUSTER_SCALE_OUT")
    change = {"receiver": {"params": {"alert_status": 1}}}
    assert (await house.call("PATCH", f"/receivers/{hook['id']}", change)).status_code == 400


async def test_a_wrong_secret_leads_nowhere(house: House) -> None:
    cluster = await house.cluster(0)
    hook = await webhook(house, cluster, "CLUSTER_SCALE_OUT")
    path, _, query = address(hook).partition("?")
    for attempt in ("V=2", "V=2&token=", "V=2&token=x" + query.rpartition("=")[2]):
        assert (await house.api.request("POST", f"{path}?{attempt}", cloud=None)).status_code == 404
    assert (await house.show(cluster))["nodes"] == []


async def test_readers_do_not_learn_the_secret_and_others_see_nothing(house: House) -> None:
    cluster = await house.cluster(0)
    hook = await webhook(house, cluster, "CLUSTER_SCALE_OUT")
    seen = await house.get(f"/receivers/{hook['id']}", cloud="roost-reader")
    assert "token" not in seen["channel"]["alarm_url"]
    assert seen["actor"] == {}
    assert (await house.call("GET", f"/receivers/{hook['id']}", cloud="roost-alt")).status_code == 404


async def test_a_receiver_is_changed_and_keeps_when_it_was_made(house: House) -> None:
    cluster = await house.cluster(2)
    hook = await webhook(house, cluster, "CLUSTER_SCALE_OUT", count=1)
    change = {"name": "other", "action": "CLUSTER_SCALE_IN", "params": {"count": 2}}
    changed = (await house.call("PATCH", f"/receivers/{hook['id']}", {"receiver": change})).json()["receiver"]
    assert changed["created_at"] == hook["created_at"]
    secret = parse_qs(urlsplit(hook["channel"]["alarm_url"]).query)["token"][0]
    there = f"{address(changed)}&token={secret}"
    await house.done(await house.api.request("POST", there, cloud=None))
    assert (await house.show(cluster))["nodes"] == []
    assert (await house.call("DELETE", f"/receivers/{hook['id']}")).status_code == 204
    assert (await house.api.request("POST", there, cloud=None)).status_code == 404


async def test_a_message_receiver_takes_messages(house: House) -> None:
    cluster = await house.cluster(0)
    made = await house.post("/receivers", {"receiver": {"name": "queue", "type": "message"}})
    receiver = made.json()["receiver"]
    assert receiver["channel"] == {"queue_name": f"senlin-receiver-{receiver['id']}"}
    message = {"cluster": cluster["name"], "action": "CLUSTER_SCALE_OUT", "params": {"count": 1}}
    assert (await house.post(f"/receivers/{receiver['id']}/notify", message)).status_code == 204
    await house.until(f"/clusters/{cluster['id']}", lambda found: len(found["nodes"]) == 1)
    assert (await house.post(f"/receivers/{receiver['id']}/notify")).status_code == 204


async def test_deleting_a_cluster_deletes_its_receivers(house: House) -> None:
    cluster = await house.cluster(0)
    hook = await webhook(house, cluster, "CLUSTER_SCALE_OUT")
    await house.done(await house.call("DELETE", f"/clusters/{cluster['id']}"))
    assert (await house.call("GET", f"/receivers/{hook['id']}")).status_code == 404


async def test_of_a_secret_only_the_digest_is_stored_and_it_is_shown_once(house: House) -> None:
    cluster = await house.cluster(0)
    hook = await webhook(house, cluster, "CLUSTER_SCALE_OUT")
    secret = parse_qs(urlsplit(hook["channel"]["alarm_url"]).query)["token"][0]
    async with house.database.begin() as connection:
        (stored,) = (await connection.execute(sa.text("SELECT secret FROM receivers"))).one()
    assert secret not in stored
    assert "token" not in (await house.get(f"/receivers/{hook['id']}"))["channel"]["alarm_url"]
    assert (await house.api.request("POST", address(hook), cloud=None)).status_code == 202


async def test_a_receiver_does_not_do_what_its_maker_or_its_owner_may_not(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a policy that keeps members from deleting clusters, a receiver still deleted them."""
    cluster = await house.cluster(0)
    before = await webhook(house, cluster, "CLUSTER_DELETE")
    body = {"receiver": {"name": "r", "type": "message", "cluster_id": cluster["id"]}}
    message = (await house.post("/receivers", body)).json()["receiver"]
    allows = house.api.services.permissions.allows
    monkeypatch.setattr(
        type(house.api.services.permissions),
        "allows",
        lambda self, rule, caller, target: rule != "clusters:delete" and allows(rule, caller, target),
    )
    forbidden = {"name": "hook", "type": "webhook", "cluster_id": cluster["id"], "action": "CLUSTER_DELETE"}
    assert (await house.post("/receivers", {"receiver": forbidden})).status_code == 403
    change = {"receiver": {"action": "CLUSTER_DELETE"}}
    assert (await house.call("PATCH", f"/receivers/{message['id']}", change)).status_code == 403
    message_sent = {"cluster": cluster["id"], "action": "CLUSTER_DELETE"}
    assert (await house.post(f"/receivers/{message['id']}/notify", message_sent)).status_code == 403
    assert (await house.api.request("POST", address(before), cloud=None)).status_code == 403
    assert (await house.show(cluster))["id"] == cluster["id"]


async def test_many_clusters_at_once_stay_within_the_limit(house: House) -> None:
    """107 of 100 were made, since each creation counted before the others had written."""
    object.__setattr__(house.settings.clusters, "max_clusters", 3)
    profile = await house.profile()
    body = {"cluster": {"name": "c", "profile_id": profile["id"], "desired_capacity": 0}}
    answers = await asyncio.gather(*(house.post("/clusters", body) for _ in range(10)))
    assert sorted(answer.status_code for answer in answers) == [202] * 3 + [403] * 7


async def test_the_password_that_a_node_gets_is_not_shown(house: House, caplog: pytest.LogCaptureFixture) -> None:
    """Readers of actions saw it in the inputs of the one that changes it."""
    caplog.set_level("DEBUG")
    profile = await house.profile()
    made = await house.post("/nodes", {"node": {"name": "n", "profile_id": profile["id"]}})
    await house.done(made)
    node = made.json()["node"]["id"]
    asked = await house.post(f"/nodes/{node}/ops", {"change_password": {"admin_pass": "hunter2"}})
    assert asked.status_code == 202, asked.text
    await house.done(asked)
    for cloud in ("roost", "roost-reader"):
        seen = await house.call("GET", "/actions", cloud=cloud)
        assert '"admin_pass":"******"' in seen.text
        assert "hunter2" not in seen.text + (await house.call("GET", "/events", cloud=cloud)).text
    assert "hunter2" not in caplog.text


async def test_the_password_of_a_profile_is_not_shown(house: House) -> None:
    spec = {"type": "os.nova.server", "version": "1.0", "properties": {**PROPERTIES, "admin_pass": "hunter2"}}
    made = await house.post("/profiles", {"profile": {"name": "p", "spec": spec}})
    assert made.status_code == 201, made.text
    for cloud in ("roost", "roost-reader"):
        seen = await house.call("GET", f"/profiles/{made.json()['profile']['id']}", cloud=cloud)
        assert "hunter2" not in seen.text + (await house.call("GET", "/profiles", cloud=cloud)).text
    assert "hunter2" not in made.text
