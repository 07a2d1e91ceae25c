"""Two tenants who have one of everything, on hosts whose names cannot be guessed."""

import asyncio
import re
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import sqlalchemy as sa

from roost.network.addresses import PUBLIC
from tests.api.compute.test_fleet import following
from tests.clusters.house import House, clustering, working_engine
from tests.compute.cloud import IMAGE, NEWEST
from tests.conftest import Api

FEED = "/compute/v2.1/os-fleet/events"
OWNER, STRANGER, OPERATOR = "roost", "roost-alt", "roost-admin"
PUBLIC_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl somebody"

Things = Mapping[str, str]
"""What a tenant has, by the name that the path of a route, or a body, has for it."""

# What belongs to no tenant: the same word for all, and no secret.
SHARED = frozenset(
    {"domain_id", "role_id", "policy_scope_id", "volume_id", "profile_type", "policy_type", "path", "key", "scope"}
    | {"quota_class", "generation", "file", "tag", "registered_limit_id", "alias", "compute_alias"}
)


async def patiently(api: Api, method: str, path: str, **more: Any) -> httpx.Response:
    """One request; one that a busy machine refuses for now is repeated."""
    for _ in range(20):
        answer = await api.request(method, path, **more)
        if answer.status_code != 503:
            break
        await asyncio.sleep(1)
    return answer


@dataclass
class World:
    """The service, what each tenant has, and what no tenant may ever see."""

    house: House
    owner: Things
    stranger: Things
    hidden: Mapping[str, str]
    """Secrets of the operator, by what they are."""

    async def ask(self, method: str, path: str, *, cloud: str | None, **more: Any) -> Any:
        """One request, in the newest version unless another is asked for."""
        if path == FEED:
            return await self._first_events(cloud)
        version = more.pop("version", None) or {"compute": NEWEST, "clustering": "1.14"}.get(path.split("/")[1])
        return await patiently(self.house.api, method, path, cloud=cloud, version=version, **more)

    async def _first_events(self, cloud: str | None) -> httpx.Response:
        """What the feed of changes, which never ends, begins with: that everything may have changed."""
        async with following(self.house.api, str(cloud)) as events:
            heard = [await anext(events), await anext(events)]
        return httpx.Response(200, json=heard)


@asynccontextmanager
async def inhabited(database_url: str, **overrides: Any) -> AsyncIterator[World]:
    """A world in which nothing moves any more."""
    listening = {"notifications__driver": "messagingv2", "notifications__transport_url": "fake://"}
    async with clustering(database_url, engine=False, **listening, **overrides) as house:
        hidden = await _hide(house)
        async with working_engine(house.settings, house.database):
            owner = await _settle(house, OWNER)
            stranger = await _settle(house, STRANGER)
        yield World(house, owner, stranger, hidden)


async def _hide(house: House) -> dict[str, str]:
    """Give the hosts names that cannot be guessed, and put them into scopes that hide what they are divided into."""
    hidden: dict[str, str] = {}
    async with house.database.begin() as connection:
        await connection.execute(sa.text("DELETE FROM aggregate_hosts WHERE scope_id <> 0"))
        await connection.execute(sa.text("DELETE FROM aggregates WHERE scope_id <> 0"))
        for number, host in enumerate(
            (await connection.execute(sa.text("SELECT id FROM hosts ORDER BY id"))).scalars()
        ):
            name = hidden[f"name of host {number}"] = f"h-{secrets.token_hex(8)}"
            named = sa.text("UPDATE hosts SET name = :name WHERE id = :id RETURNING uuid")
            hidden[f"uuid of host {number}"] = str(await connection.scalar(named, {"name": name, "id": host}))
        start = secrets.randbelow(10**8) + 10**9
        await connection.execute(sa.text(f"ALTER SEQUENCE aggregates_id_seq RESTART WITH {start}"))
    for scope, allow, obfuscate in (("unnamed", False, False), ("veiled", True, True)):
        body = {"policy_scope": {"name": scope, "allow_identifiers": allow, "obfuscate_identifiers": obfuscate}}
        made = (await _good(house, "POST", "/compute/v2.1/os-policy-scopes", OPERATOR, body))["policy_scope"]
        hidden[f"namespace of {scope}"] = made["obfuscate_namespace_uuid"]
        for part in range(2):
            name = hidden[f"name of {scope} {part}"] = f"a-{secrets.token_hex(8)}"
            path = "/compute/v2.1/os-aggregates"
            aggregate = (await _good(house, "POST", path, OPERATOR, {"aggregate": {"name": name}}))["aggregate"]
            hidden[f"id of {scope} {part}"] = str(aggregate["id"])
            hidden[f"uuid of {scope} {part}"] = aggregate["uuid"]
            async with house.database.begin() as connection:
                halves = (
                    "INSERT INTO aggregate_hosts (aggregate_id, host_id) SELECT :id, id FROM hosts WHERE id % 2 = :part"
                )
                await connection.execute(sa.text(halves), {"id": aggregate["id"], "part": part})
            action = {"add_aggregate": {"aggregate_id": aggregate["id"]}}
            await _good(house, "POST", f"/compute/v2.1/os-policy-scopes/{made['id']}/action", OPERATOR, action)
    return hidden


async def _good(house: House, method: str, path: str, cloud: str, body: Any = None) -> Any:
    version = NEWEST if path.startswith("/compute") else None
    answer = await house.api.request(method, path, cloud=cloud, version=version, json=body)
    assert answer.is_success, (method, path, answer.text)
    return answer.json() if answer.content else None


async def _settle(house: House, cloud: str) -> dict[str, str]:
    """One of everything for a tenant."""
    token = await house.api.token(cloud)
    shown = await house.api.request("GET", "/identity/v3/auth/tokens", cloud=cloud, headers={"X-Subject-Token": token})
    signed_in = shown.json()["token"]
    mark = secrets.token_hex(6)
    things = {
        "token": token,
        "user_id": signed_in["user"]["id"],
        "project_id": signed_in["project"]["id"],
        "role_id": signed_in["roles"][0]["id"],
        "domain_id": "default",
        "mark": mark,
        "file": "index.html",
        "quota_class": "default",
        "tag": "tagged",
        "alias": "quotas",
        "compute_alias": "os-keypairs",
    }
    things |= await _identity(house, cloud, things) | await _network(house, cloud, things)
    things |= await _image(house, cloud, things) | await _volume(house, cloud, things)
    return things | await _compute(house, cloud, things) | await _clusters(house, cloud, things)


async def _identity(house: House, cloud: str, things: Things) -> dict[str, str]:
    path, operated = f"/identity/v3/users/{things['user_id']}/application_credentials", "/identity/v3"
    rules = [{"service": "compute", "method": "GET", "path": f"/v2.1/{things['mark']}"}]
    body = {"application_credential": {"name": f"credential-{things['mark']}", "access_rules": rules}}
    made = (await _good(house, "POST", path, cloud, body))["application_credential"]
    await _good(house, "PUT", f"{operated}/projects/{things['project_id']}/tags/tagged", OPERATOR)
    service = (await _good(house, "POST", f"{operated}/services", OPERATOR, {"service": {"type": "probe"}}))["service"]
    what = {"service_id": service["id"], "resource_name": "probes"}
    registered = {"registered_limits": [{**what, "default_limit": 1}]}
    (default,) = (await _good(house, "POST", f"{operated}/registered_limits", OPERATOR, registered))[
        "registered_limits"
    ]
    limits = {"limits": [{**what, "project_id": things["project_id"], "resource_limit": 2}]}
    (limit,) = (await _good(house, "POST", f"{operated}/limits", OPERATOR, limits))["limits"]
    rule_id = made["access_rules"][0]["id"]
    shared = {"registered_limit_id": default["id"]}
    return {"credential_id": made["id"], "rule_id": rule_id, "limit_id": limit["id"], **shared}


async def _network(house: House, cloud: str, things: Things) -> dict[str, str]:
    async def post(plural: str, **values: Any) -> str:
        singular = plural[:-1].replace("-", "_")
        made = await _good(house, "POST", f"/network/v2.0/{plural}", cloud, {singular: values})
        return str(made[singular]["id"])

    network = await post("networks", name=f"network-{things['mark']}")
    subnet = await post("subnets", network_id=network, ip_version=4, cidr="192.168.9.0/24")
    group = await post("security-groups", name=f"secure-{things['mark']}")
    rule = await post("security-group-rules", security_group_id=group, direction="ingress", protocol="tcp")
    return {
        "network": f"network-{things['mark']}",
        "network_id": network,
        "subnet_id": subnet,
        "port_id": await post("ports", network_id=network),
        "floatingip_id": await post("floatingips", floating_network_id=PUBLIC),
        "router_id": await post("routers", name=f"router-{things['mark']}"),
        "security_group_id": group,
        "security_group_rule_id": rule,
    }


async def _image(house: House, cloud: str, things: Things) -> dict[str, str]:
    said = {"name": f"image-{things['mark']}", "tags": ["tagged"], "of": things["mark"]}
    image = (await _good(house, "POST", "/image/v2/images", cloud, said))["id"]
    await _good(house, "POST", f"/image/v2/images/{image}/members", cloud, {"member": f"member-{things['mark']}"})
    namespace, base = f"namespace-{things['mark']}", "/image/v2/metadefs/namespaces"
    await _good(house, "POST", base, OPERATOR, {"namespace": namespace, "owner": things["project_id"]})
    definition = {"name": f"key-{things['mark']}"}
    typed = {**definition, "title": "kept", "type": "string"}
    for kind, body in (("objects", definition), ("properties", typed), ("resource_types", definition)):
        await _good(house, "POST", f"{base}/{namespace}/{kind}", OPERATOR, body)
    await _good(house, "POST", f"{base}/{namespace}/tags", OPERATOR, {"tags": [definition]})
    return {"image_id": image, "member": f"member-{things['mark']}", "namespace": namespace}


async def _volume(house: House, cloud: str, things: Things) -> dict[str, str]:
    async def post(plural: str, as_cloud: str = cloud, **values: Any) -> str:
        singular = "volume_type" if plural == "types" else plural[:-1]
        made = await _good(house, "POST", f"/volume/v3/{plural}", as_cloud, {singular: values})
        return str(made[singular]["id"])

    mark = things["mark"]
    volume = await post("volumes", name=f"volume-{mark}", size=1, metadata={"kept": mark})
    source = await post("volumes", name=f"source-{mark}", size=1)
    kept = await post("snapshots", name=f"snapshot-{mark}", volume_id=source, metadata={"kept": mark})
    hidden = {"os-volume-type-access:is_public": False, "extra_specs": {"kept": mark}}
    kind = await post("types", OPERATOR, name=f"type-{mark}", **hidden)
    allow = {"addProjectAccess": {"project": things["project_id"]}}
    await _good(house, "POST", f"/volume/v3/types/{kind}/action", OPERATOR, allow)
    return {"volume_id": volume, "source_volume_id": source, "snapshot_id": kept, "type_id": kind}


async def _compute(house: House, cloud: str, things: Things) -> dict[str, str]:
    async def post(path: str, body: Any, as_cloud: str = cloud) -> Any:
        return await _good(house, "POST", f"/compute/v2.1{path}", as_cloud, body)

    mark, project = things["mark"], things["project_id"]
    sized = {"name": f"flavor-{mark}", "id": f"flavor-{mark}", "vcpus": 1, "ram": 64, "disk": 1}
    await post("/flavors", {"flavor": {**sized, "os-flavor-access:is_public": False}}, OPERATOR)
    await post(f"/flavors/flavor-{mark}/action", {"addTenantAccess": {"tenant": project}}, OPERATOR)
    await post("/os-keypairs", {"keypair": {"name": f"key-{mark}", "public_key": PUBLIC_KEY}})
    scopes = (await _good(house, "GET", "/compute/v2.1/os-policy-scopes", cloud))["policy_scopes"]
    veiled = next(scope for scope in scopes if scope["name"] == "veiled")
    inside = veiled["aggregates"][0]["group_id"]
    policies = [
        {"name": "anti-affinity", "scope": "veiled", "identifier": inside},
        {"name": "soft-anti-affinity", "scope": "unnamed"},
        {"name": "soft-affinity"},
    ]
    group = (await post("/os-server-groups", {"server_group": {"name": f"group-{mark}", "policies": policies}}))[
        "server_group"
    ]["id"]
    ids = []
    for number in range(3):
        server = {
            "name": f"server-{mark}-{number}",
            "flavorRef": "1",
            "imageRef": IMAGE,
            "networks": "none",
            "key_name": f"key-{mark}",
            "metadata": {"kept": mark},
            "tags": ["tagged"],
        }
        hints = {"os:scheduler_hints": {"group": group}} if number < 2 else {}
        ids.append((await post("/servers", {"server": server, **hints}))["server"]["id"])
        await until_at_rest(house, ids[-1])
    await post(f"/servers/{ids[0]}/os-interface", {"interfaceAttachment": {"port_id": things["port_id"]}})
    history = await _good(house, "GET", f"/compute/v2.1/servers/{ids[0]}/os-instance-actions", cloud)
    repair = (await post(f"/os-server-groups/{group}/repairs", {"repair": {}}, OPERATOR))["repair"]["id"]
    plan = await post(
        f"/os-server-groups/{group}/plan", {"plan": {"create": {"flavorRef": "1", "count": 1, "imageRef": IMAGE}}}
    )
    return {
        "server_id": ids[0],
        "member_id": ids[1],
        "loner_id": ids[2],
        "key": "kept",
        "request_id": history["instanceActions"][0]["request_id"],
        "reservation_id": "r-unknown",
        "server_group_id": group,
        "group_name": f"group-{mark}",
        "identifier": inside,
        "repair_id": repair,
        "generation": plan["plan"]["generation"],
        "flavor_id": f"flavor-{mark}",
        "name": f"key-{mark}",
        "policy_scope_id": veiled["id"],
        "scope": "veiled",
    }


async def until_at_rest(house: House, server_id: str) -> None:
    """Wait until the engine has nothing more to do with a server."""
    query = sa.text("SELECT due_at IS NULL FROM servers WHERE id = CAST(:id AS uuid)")
    async with asyncio.timeout(60):
        while True:
            async with house.database.begin() as connection:
                if await connection.scalar(query, {"id": server_id}):
                    return
            await asyncio.sleep(0.02)


async def _clusters(house: House, cloud: str, things: Things) -> dict[str, str]:
    mark = things["mark"]

    async def post(path: str, body: Any) -> Any:
        answer = await house.call("POST", path, body, cloud=cloud)
        assert answer.is_success, answer.text
        if "location" in answer.headers:
            action_id = answer.headers["location"].rpartition("/")[2]
            await house.until(f"/actions/{action_id}", lambda found: found["status"] == "SUCCEEDED", cloud=cloud)
        return next(iter(answer.json().values()))

    properties = {"flavor": "1", "image": IMAGE, "key_name": f"key-{mark}", "metadata": {"of": mark}}
    spec = {"type": "os.nova.server", "version": "1.0", "properties": properties}
    profile = await post("/profiles", {"profile": {"name": f"profile-{mark}", "spec": spec}})
    spare = await post("/profiles", {"profile": {"name": f"spare-{mark}", "spec": spec}})
    rule = {"type": "senlin.policy.deletion", "version": "1.0", "properties": {"criteria": "OLDEST_FIRST"}}
    policy = await post("/policies", {"policy": {"name": f"policy-{mark}", "spec": rule}})
    loose = await post("/policies", {"policy": {"name": f"loose-{mark}", "spec": rule}})
    body = {"name": f"cluster-{mark}", "profile_id": profile["id"], "desired_capacity": 1}
    cluster = await post("/clusters", {"cluster": body})
    await post(f"/clusters/{cluster['id']}/actions", {"policy_attach": {"policy_id": policy["id"]}})
    alone = await post("/nodes", {"node": {"name": f"node-{mark}", "profile_id": profile["id"]}})
    hook = {"type": "webhook", "cluster_id": cluster["id"], "action": "CLUSTER_SCALE_OUT"}
    receiver = await post("/receivers", {"receiver": {"name": f"hook-{mark}", **hook}})
    queue = await post("/receivers", {"receiver": {"name": f"queue-{mark}", "type": "message"}})
    members = await house.get(f"/clusters/{cluster['id']}", cloud=cloud)
    actions = await house.get(f"/actions?target={cluster['id']}", cloud=cloud)
    events = await house.get(f"/events?cluster_id={cluster['id']}", cloud=cloud)
    return {
        "profile_type": "os.nova.server-1.0",
        "policy_type": "senlin.policy.deletion-1.0",
        "profile_id": profile["id"],
        "spare_profile_id": spare["id"],
        "policy_id": policy["id"],
        "loose_policy_id": loose["id"],
        "cluster_id": cluster["id"],
        "cluster_name": f"cluster-{mark}",
        "path": "details",
        "member_node_id": members["nodes"][0],
        "node_id": alone["id"],
        "action_id": actions[0]["id"],
        "event_id": events[0]["id"],
        "receiver_id": receiver["id"],
        "queue_id": queue["id"],
        "webhook_id": receiver["id"],
        "secret": parse_qs(urlsplit(receiver["channel"]["alarm_url"]).query)["token"][0],
    }


def own(things: Things) -> dict[str, str]:
    """What no other project has, and is long enough to be recognised anywhere."""
    return {kind: value for kind, value in things.items() if kind not in SHARED and len(value) > 10}


def nobodys(things: Things) -> dict[str, str]:
    """The same things, had they never been: ids and names of the same form that mean nothing."""
    made: dict[str, str] = {}
    for kind, value in things.items():
        made[kind] = (
            value if kind in SHARED else re.sub("[0-9a-f]", lambda _: secrets.choice("0123456789abcdef"), value)
        )
    # What is one thing under two names stays one, and a digit that says the kind of a uuid stays.
    made["webhook_id"] = made["receiver_id"]
    return made
