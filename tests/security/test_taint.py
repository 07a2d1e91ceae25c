"""What is hidden from tenants never reaches them: every byte that they are answered is searched for it.

Hosts and aggregates have names and numbers that cannot be guessed, so whatever is found came from where it must not.
What goes wrong is made to go wrong first, since errors, faults and histories talk the most.
"""

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest
import sqlalchemy as sa

from roost.compute.answers import audit
from tests.clusters.house import working_engine
from tests.compute.cloud import IMAGE
from tests.security import probes
from tests.security.probes import Probe
from tests.security.world import OPERATOR, OWNER, World, inhabited, own, until_at_rest

# These want what is not in the path (a token in a header, the secret of an address, a password), or an operator, or are
# served to a Nova only, or want a volume to be attached before it is, or free while a locked server has it.
NEVER = {
    "GET /compute/v2.1/servers/{server_id}/os-volume_attachments/{volume_id}",
    "DELETE /volume/v3/volumes/{volume_id}",
    "GET /identity/v3/auth/tokens",
    "DELETE /identity/v3/auth/tokens",
    "POST /identity/v3/auth/tokens",
    "POST /identity/v3/users/{user_id}/password",
    "POST /clustering/v1/webhooks/{webhook_id}/trigger",
    "GET /clustering/v1/clusters/{cluster_id}/attrs",
    "GET /compute/v2.1/flavors/{flavor_id}/os-extra_specs/{key}",
    "PUT /compute/v2.1/os-server-groups/{server_group_id}/repair",
    "DELETE /compute/v2.1/os-server-groups/{server_group_id}/repairs/{repair_id}",
    "PUT /compute/v2.1/os-server-groups/{server_group_id}/repairs/{repair_id}",
    "GET /scheduler/adopted",
    "POST /scheduler/choices",
}
WIDER = [query for query in probes.QUERIES if "<" not in str(query)]
READER, MANAGER = "roost-reader", "roost-manager"


@pytest.fixture(scope="module")
async def world(shared_database_url: str) -> AsyncIterator[World]:
    """Two tenants, one of whom has had trouble."""
    async with inhabited(shared_database_url) as made:
        async with working_engine(made.house.settings, made.house.database):
            await _trouble(made)
        yield made


async def _trouble(world: World) -> None:
    """Refused boots, failed actions, moves and repairs, a dead host, broken rules."""
    house, things = world.house, world.owner

    async def post(path: str, body: Any, cloud: str = OWNER) -> httpx.Response:
        answer: httpx.Response = await world.ask("POST", path, cloud=cloud, json=body)
        return answer

    huge = {"name": "huge", "id": "huge", "vcpus": 4000, "ram": 1, "disk": 1}
    assert (await post("/compute/v2.1/flavors", {"flavor": huge}, OPERATOR)).is_success
    await world.house.api.request(
        "PUT",
        f"/compute/v2.1/os-quota-sets/{things['project_id']}",
        cloud=OPERATOR,
        json={"quota_set": {"cores": -1, "force": True}},
    )
    server = {"name": "refused", "flavorRef": "huge", "imageRef": IMAGE, "networks": "none"}
    hints = {"group": things["server_group_id"]}
    assert (await post("/compute/v2.1/servers", {"server": server, "os:scheduler_hints": hints})).status_code == 202
    hosts = [name for kind, name in world.hidden.items() if kind.startswith("name of host")]
    where = [f"zone1:{hosts[0]}", "zone1"]
    for number, zone in enumerate(where):
        spec = {"type": "os.nova.server", "version": "1.0", "properties": {"flavor": "huge", "image": IMAGE}}
        spec["properties"] |= {"availability_zone": zone}  # type: ignore[operator]
        profile = await house.call("POST", "/profiles", {"profile": {"name": f"p{number}", "spec": spec}})
        if zone == "zone1":
            body = {"name": "failing", "profile_id": profile.json()["profile"]["id"], "desired_capacity": 1}
            made = await house.call("POST", "/clusters", {"cluster": body})
            assert (await house.done(made))["status"] == "FAILED"
        else:
            assert profile.status_code == 400
    # Members that the operator puts where the rules do not want them, and a repair that mends it.
    # The rule forbids one half of the hosts, so the wrong half is the one that the server is not in.
    shown = await world.ask("GET", f"/compute/v2.1/servers/{things['server_id']}", cloud=OPERATOR)
    aggregates = (await world.ask("GET", "/compute/v2.1/os-aggregates", cloud=OPERATOR)).json()["aggregates"]
    halves = [
        each["hosts"]
        for each in aggregates
        if str(each["id"]) in (world.hidden["id of veiled 0"], world.hidden["id of veiled 1"])
    ]
    wrong = next(half for half in halves if shown.json()["server"]["OS-EXT-SRV-ATTR:host"] not in half)[0]
    group = f"/compute/v2.1/os-server-groups/{things['server_group_id']}"
    everywhere = {"server_group": {"policies": [{"name": "soft-anti-affinity", "scope": "unnamed"}]}}
    ruled = (await world.ask("GET", group, cloud=OWNER)).json()["server_group"]["policies"]
    assert (await post(group, everywhere)).is_success
    move = {"os-migrateLive": {"host": wrong, "block_migration": "auto"}}
    moved = await post(f"/compute/v2.1/servers/{things['server_id']}/action", move, OPERATOR)
    assert moved.status_code == 202, moved.text
    await until_at_rest(house, things["server_id"])
    assert (await post(group, {"server_group": {"policies": ruled}})).is_success
    assert await audit.look(house.database, house.settings, house.api.services.violations)
    mended = await post(f"{group}/repairs", {"repair": {}}, OPERATOR)
    assert mended.json()["repair"]["moves"], mended.text
    # A host dies under a node, whose health is looked at, and which its owner tries to save.
    node = await house.get(f"/nodes/{things['node_id']}")
    shown = await world.ask("GET", f"/compute/v2.1/servers/{node['physical_id']}", cloud=OPERATOR)
    services = (await world.ask("GET", "/compute/v2.1/os-services", cloud=OPERATOR)).json()["services"]
    service = next(each for each in services if each["host"] == shown.json()["server"]["OS-EXT-SRV-ATTR:host"])
    for body in ({"forced_down": True}, {"status": "disabled", "disabled_reason": hosts[1]}):
        path = f"/compute/v2.1/os-services/{service['id']}"
        assert (await world.ask("PUT", path, cloud=OPERATOR, json=body)).is_success
    for path, body in (
        ("actions", {"check": {}}),
        ("ops", {"evacuate": {}}),
        ("ops", {"evacuate": {"host": "elsewhere"}}),
    ):
        await house.done(await house.call("POST", f"/nodes/{things['node_id']}/{path}", body))


def _text(answer: httpx.Response) -> str:
    return "\n".join([*(f"{name}: {value}" for name, value in answer.headers.items()), answer.text])


def _requests(world: World) -> Iterator[Probe]:
    """All that a tenant can ask of what is its own, and lists that are to show more than that."""
    searched = set()
    for api, route in probes.rows():
        for probe in probes.probes(api, route, world.owner, world.owner):
            yield probe
            if route.method == "GET" and not route.public and probe.path not in searched:
                searched.add(probe.path)
                yield from probes.searches(probe, world.owner, WIDER)


async def test_no_tenant_is_told_a_host_an_aggregate_or_what_is_anothers(world: World) -> None:
    hidden = {**world.hidden, **{f"a stranger's {kind}": value for kind, value in own(world.stranger).items()}}
    leaks: list[str] = []
    seen: set[tuple[str, str, str]] = set()
    answered: dict[str, set[int]] = {}
    for probe in _requests(world):
        # What differs between roles is the same in all versions.
        again = (probe.method, probe.path, str(probe.body)) in seen
        seen.add((probe.method, probe.path, str(probe.body)))
        for tenant in (OWNER,) if again else (READER, MANAGER, OWNER):
            answer = await world.ask(cloud=tenant, **probe.request)
            text = _text(answer)
            secret = {"secret of a webhook": world.owner["secret"]} if tenant == READER else {}
            leaks += [
                f"{tenant}: {probe}: {kind}\n{text}"
                for kind, value in {**hidden, **secret}.items()
                if value in text and value not in str(probe)
            ]
            if tenant != READER:
                answered.setdefault(probe.row, set()).add(answer.status_code)
    assert not leaks, "\n".join(leaks)
    # The test means something only if the owner may read and change what it owns.
    vain = {row for row, statuses in answered.items() if statuses <= {400, 401, 404, 405, 406}}
    assert sorted(vain) == sorted(NEVER)


async def test_nobody_is_told_it_in_a_notification(world: World) -> None:
    async with world.house.database.begin() as connection:
        rows = (await connection.execute(sa.text("SELECT event_type, payload FROM outbox"))).all()
    assert {"server_group.create", "server_group.violation"} <= {row.event_type for row in rows}
    for row in rows:
        text = json.dumps(row.payload)
        assert [kind for kind, value in world.hidden.items() if value in text] == [], text


async def test_who_does_not_sign_in_is_told_nothing_of_anybody(world: World) -> None:
    hidden = {**world.hidden, **own(world.owner), **own(world.stranger)}
    for path in (
        "/",
        "/metrics",
        "/healthcheck",
        "/readiness",
        "/identity",
        "/compute",
        "/compute/openapi.json",
        "/clustering",
    ):
        text = _text(await world.house.api.request("GET", path, cloud=None))
        assert [kind for kind, value in hidden.items() if value in text] == []
