"""What Roost asks of the Nova that it stands in front of: as its own user, or with the token of the caller.

openstacksdk blocks, so everything is asked in threads beside the event loop.
"""

import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import openstack
from keystoneauth1 import exceptions as keystone
from openstack import exceptions

from roost.clouds import inventory
from roost.clouds.base import CloudError, NodeServer
from roost.clouds.retries import make_patient
from roost.compute.fronting import mirror
from roost.compute.inventory.aggregates import SCOPE
from roost.errors import Conflict, Forbidden, Invalid, NotFound, RoostError, Unauthorized
from roost.placement.fleet import Resources
from roost.placement.rules import HOST, Kind, Rule

_AT_ONCE = 16
_URGENT_AT_ONCE = 4
_NEWEST_SECONDS = 60.0
"""How long it is remembered which microversions Nova has."""
_PAGE = 1000
VIA = "1.1 roost"
"""Marks each request to Nova as coming through Roost, so that a Roost that would call itself notices."""
PLACE = "roost_place"
"""The scheduler hint by which a server asks the plug-in for a place of an applied plan, and the key of its metadata by
which Roost finds the server where Nova's answer was lost."""
NODE_ID = "cluster_node_id"
"""The key of a server's metadata that names its node; profiles set it too."""
_VERSION = "2.87"
"""The version of Roost's own requests: with it, servers show the size of their flavor, and groups their rules."""
_PINS_VERSION = "2.96"
"""From this version on, servers show the zone that they were requested in."""
_REFUSALS: Mapping[int, type[RoostError]] = {
    400: Invalid,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
}

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of Nova."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """The body; what is not JSON makes no sense."""
        try:
            return json.loads(self.body)
        except ValueError as error:
            raise CloudError(f"Nova's answer is not JSON: {error}") from error

    def accepted(self) -> "Answer":
        """The same, if Nova did what it was asked to; else its refusal, in its own words."""
        if self.status < 400:
            return self
        kind = _REFUSALS.get(self.status)
        if kind is None:
            raise CloudError(f"Nova answered {self.status}.")
        ((_, fault),) = self.json().items()
        raise kind(fault["message"])


@dataclass(frozen=True, slots=True)
class NovaFlavor:
    """The size of a server, in the words of Roost's own flavors."""

    id: str
    vcpus: int
    memory_mb: int
    disk_gb: int
    ephemeral_gb: int


@dataclass(slots=True)
class Nova:
    """A Nova, by the cloud of clouds.yaml that this process signs in as."""

    cloud: str | None
    config: Mapping[str, Any] = field(default_factory=dict)
    _threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(_AT_ONCE, "nova"))
    _urgent: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(_URGENT_AT_ONCE, "nova-urgent"))
    _connected: Any = None
    _newest: tuple[str, float] | None = None

    async def ask(
        self,
        method: str,
        path: str,
        *,
        token: str | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> Answer:
        """One request under Nova's root, such as GET /v2.1/servers, with a caller's token or as Roost's own user."""
        own = {"X-Auth-Token": token} if token is not None else {}
        sent = {"OpenStack-API-Version": f"compute {_VERSION}", **own, **(headers or {})}
        return await self._send(method, path, sent, body, authenticated=token is None)

    async def relay(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes | None, *, urgent: bool = False
    ) -> Answer:
        """One request with only these headers of the caller's. An urgent one does not wait for others."""
        return await self._send(method, path, headers, body, authenticated=False, urgent=urgent)

    async def root(self) -> str:
        """Where Nova is, as its own links have it."""
        return await self._run(_root)

    async def newest_version(self) -> str:
        """The newest microversion that Nova has."""
        now = time.monotonic()
        if self._newest is None or self._newest[1] < now:
            document = (await self.ask("GET", "/v2.1/")).accepted().json()["version"]
            self._newest = (str(document["version"]), now + _NEWEST_SECONDS)
        return self._newest[0]

    async def _send(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes | None,
        *,
        authenticated: bool,
        urgent: bool = False,
    ) -> Answer:

        def call(connection: Any) -> Answer:
            response = connection.session.request(
                _root(connection) + path,
                method,
                authenticated=authenticated,
                headers={**headers, "Via": VIA},
                data=body,
                raise_exc=False,
                redirect=False,
                log=False,
            )
            return Answer(response.status_code, response.headers, response.content)

        return await self._run(call, self._urgent if urgent else self._threads)

    async def _run(self, work: Callable[[Any], T], threads: ThreadPoolExecutor | None = None) -> T:
        def call() -> T:
            if self._connected is None:
                self._connected = make_patient(openstack.connect(cloud=self.cloud, **self.config))
            return work(self._connected)

        try:
            return await asyncio.get_running_loop().run_in_executor(threads or self._threads, call)
        except (keystone.ClientException, exceptions.SDKException) as error:
            raise CloudError(f"Nova does not answer: {error}") from error

    async def _get(self, path: str, **query: Any) -> Any:
        given = {key: value for key, value in query.items() if value is not None}
        headers = await self._asking_for_servers() if path.startswith("/servers") else {}
        return (await self.ask("GET", f"/v2.1{path}?{urlencode(given)}", headers=headers)).accepted().json()

    async def _asking_for_servers(self) -> dict[str, str]:
        """The header with which servers show their zones, if this Nova supports it."""
        major, minor = map(int, (await self.newest_version()).split("."))
        known = (major, minor) >= tuple(map(int, _PINS_VERSION.split(".")))
        return {"OpenStack-API-Version": f"compute {_PINS_VERSION if known else _VERSION}"}

    async def _pages(self, path: str, key: str, **query: Any) -> list[dict[str, Any]]:
        """Every item of a list, however long. Nova gives fewer than asked for where its own limit is lower, so only an
        empty page is the last one."""
        found: dict[str, dict[str, Any]] = {}
        while True:
            marker = next(reversed(found), None)
            page = (await self._get(path, limit=_PAGE, marker=marker, **query))[key]
            new = {row["id"]: row for row in page if row["id"] not in found}
            if not new:
                return list(found.values())
            found |= new

    # What there is

    async def hosts(self) -> list[mirror.NovaHost]:
        """Every compute host, with what Placement says it has; where there is none, with what it says itself."""

        def ask_placement(connection: Any) -> Any:
            if not connection.has_service("placement"):
                return None
            query = {"resources": "VCPU:1,MEMORY_MB:1"}
            answer = connection.placement.get("/allocation_candidates", params=query, microversion="1.29")
            exceptions.raise_from_response(answer)
            return answer.json()["provider_summaries"]

        rooms = await self._run(ask_placement)
        found: dict[str, mirror.NovaHost] = {}
        for row in await self._pages("/os-hypervisors/detail", "hypervisors"):
            summary = None if rooms is None else rooms.get(row["id"])
            total, used = _own_room(row) if summary is None else _placement_room(summary)
            service = row["service"]
            found[service["host"]] = mirror.NovaHost(
                service["host"],
                row["host_ip"] or "",
                row["status"] == "enabled",
                service["disabled_reason"],
                row["state"] == "up",
                total,
                used,
                full=rooms is not None and summary is None,
            )
        return list(found.values())

    async def aggregates(self) -> list[mirror.NovaAggregate]:
        """Every aggregate."""
        return [
            mirror.NovaAggregate(
                row["id"],
                row["uuid"],
                row["name"],
                row["availability_zone"] or "",
                tuple(row["hosts"]),
                {key: value for key, value in row["metadata"].items() if key != "availability_zone"},
            )
            for row in (await self._get("/os-aggregates"))["aggregates"]
        ]

    async def groups(self) -> list[mirror.NovaGroup]:
        """The server groups of all projects."""
        found: dict[str, mirror.NovaGroup] = {}
        offset = 0
        while True:
            answer = await self._get("/os-server-groups", all_projects=True, limit=_PAGE, offset=offset)
            page = [_group(row) for row in answer["server_groups"]]
            if all(group.id in found for group in page):
                return list(found.values())
            found |= {group.id: group for group in page}
            offset += len(page)

    async def group(self, group_id: str) -> mirror.NovaGroup | None:
        """One server group."""
        answer = await self.ask("GET", f"/v2.1/os-server-groups/{quote(group_id, safe='')}")
        return None if answer.status == 404 else _group(answer.accepted().json()["server_group"])

    async def servers(self, changed_since: datetime | None) -> tuple[list[mirror.NovaServer], set[str]]:
        """All servers, or those that changed since a moment; and the ids of those that were deleted since then."""
        since = None if changed_since is None else changed_since.astimezone(UTC).isoformat()
        rows = await self._pages("/servers/detail", "servers", all_tenants=1, **{"changes-since": since})
        there = [_server(row) for row in rows if row["status"] not in _GONE and _is_complete(row)]
        return there, {row["id"] for row in rows if row["status"] in _GONE}

    async def servers_by_id(self, server_ids: Sequence[str]) -> tuple[list[mirror.NovaServer], set[str]]:
        """These servers, and the ids of those that no longer exist."""
        headers = await self._asking_for_servers() if server_ids else {}
        asked = [self.ask("GET", _server_path(server_id), headers=headers) for server_id in server_ids]
        answers = await asyncio.gather(*asked)
        gone = {server_id for server_id, answer in zip(server_ids, answers, strict=True) if answer.status == 404}
        rows = [answer.accepted().json()["server"] for answer in answers if answer.status != 404]
        gone |= {row["id"] for row in rows if row["status"] in _GONE}
        return [_server(row) for row in rows if row["id"] not in gone and _is_complete(row)], gone

    async def node_servers(self) -> list[NodeServer]:
        """The servers of all projects, with the nodes that their metadata name."""
        rows = await self._pages("/servers/detail", "servers", all_tenants=1)
        return [
            NodeServer(row["id"], row.get("name", ""), row["tenant_id"], row.get("metadata", {}).get(NODE_ID))
            for row in rows
            if row["status"] not in _GONE
        ]

    async def shows_server(self, token: str, server_id: str) -> bool:
        """Whether the owner of this token can see a server."""
        answer = await self.ask("GET", _server_path(server_id), token=token)
        return answer.status != 404 and bool(answer.accepted())

    async def flavor(self, token: str, flavor_id: str) -> NovaFlavor:
        """A flavor that the caller may use."""
        answer = await self.ask("GET", f"/v2.1/flavors/{quote(flavor_id, safe='')}", token=token)
        row = answer.accepted().json()["flavor"]
        return NovaFlavor(row["id"], row["vcpus"], row["ram"], row["disk"], row["OS-FLV-EXT-DATA:ephemeral"])

    # What the caller may do

    async def create_group(self, token: str, name: str, rules: Sequence[Rule]) -> str:
        """Make the group that a group of Roost's has underneath; its id."""
        policy, limits = nearest_policy(rules)
        body = {"server_group": {"name": name, "policy": policy, **({"rules": limits} if limits else {})}}
        answer = await self._post("/v2.1/os-server-groups", body, token)
        return str(answer.json()["server_group"]["id"])

    async def delete_group(self, token: str, group_id: str) -> None:
        """Delete a group, unless it is gone already."""
        answer = await self.ask("DELETE", f"/v2.1/os-server-groups/{quote(group_id, safe='')}", token=token)
        if answer.status != 404:
            answer.accepted()

    async def create_server(self, token: str, server: Mapping[str, Any], hints: Mapping[str, Any], place: str) -> str:
        """Ask for a server at a planned place, on the only network that its project can use, as Nova chooses it in its
        first version; its id."""
        marked = {"server": {**server, "metadata": {PLACE: place}}, "os:scheduler_hints": {**hints, PLACE: place}}
        content = json.dumps(marked).encode()
        headers = {"Content-Type": "application/json", "OpenStack-API-Version": "compute 2.1"}
        answer = await self.ask("POST", "/v2.1/servers", token=token, headers=headers, body=content)
        return str(answer.accepted().json()["server"]["id"])

    async def delete_server(self, token: str | None, server_id: str) -> None:
        """Delete a server, unless it is gone already, as the caller or as Roost's own user."""
        answer = await self.ask("DELETE", _server_path(server_id), token=token)
        if answer.status != 404:
            answer.accepted()

    async def set_scope(self, token: str, aggregate_id: int, scope: str | None) -> None:
        """Write into an aggregate's metadata which scope it belongs to."""
        body = {"set_metadata": {"metadata": {SCOPE: scope}}}
        await self._post(f"/v2.1/os-aggregates/{aggregate_id}/action", body, token)

    # What Roost does

    async def live_migrate(self, server_id: str, host: str) -> str:
        """Ask for a running server to be moved to a host, if the scheduler lets it; the id of the request."""
        body = {"os-migrateLive": {"host": host, "block_migration": "auto"}}
        answer = await self._post(f"{_server_path(server_id)}/action", body)
        return answer.headers["X-OpenStack-Request-ID"]

    async def disable(self, host: str, reason: str) -> None:
        """Disable a host for new servers; one that is disabled already keeps its reason."""
        for service in (await self._get("/os-services", host=host, binary="nova-compute"))["services"]:
            if service["status"] == "enabled":
                body = {"status": "disabled", "disabled_reason": reason}
                await self._send_json("PUT", f"/v2.1/os-services/{service['id']}", body)

    async def is_migrating(self, server_id: str) -> bool:
        """Whether a live migration of a server is under way: it may be where it goes, and not all of it gone."""
        answer = await self._get("/os-migrations", instance_uuid=server_id, migration_type="live-migration")
        return any(row["status"] in _MIGRATING for row in answer["migrations"])

    async def why_failed(self, server_id: str, request_id: str) -> str | None:
        """Nova's reason for a refusal, if it gives one."""
        answer = await self.ask("GET", f"{_server_path(server_id)}/os-instance-actions/{quote(request_id, safe='')}")
        events = [] if answer.status == 404 else answer.accepted().json()["instanceAction"]["events"]
        return next((event["details"] for event in events if event["result"] == "Error" and event["details"]), None)

    async def _post(self, path: str, body: Any, token: str | None = None) -> Answer:
        return await self._send_json("POST", path, body, token)

    async def _send_json(self, method: str, path: str, body: Any, token: str | None = None) -> Answer:
        content = json.dumps(body).encode()
        answer = await self.ask(method, path, token=token, headers={"Content-Type": "application/json"}, body=content)
        return answer.accepted()

    def close(self) -> None:
        """End the threads."""
        self._threads.shutdown(wait=False)
        self._urgent.shutdown(wait=False)


_MOST = 2**31 - 1
_GONE = ("DELETED", "SOFT_DELETED")
_MIGRATING = ("accepted", "queued", "preparing", "running", "post-migrating")


def nearest_policy(rules: Sequence[Rule]) -> tuple[str, dict[str, int]]:
    """Nova's own policy that comes nearest to some rules and is never stricter, with its limits.

    A host is in at most one aggregate of a scope, so a limit for aggregates holds for hosts as well.
    """
    limits = [rule.limit for rule in rules if rule.limit is not None]
    if limits:
        return "anti-affinity", {"max_server_per_host": min(limits)} if min(limits) > 1 else {}
    if any(rule.together and rule.scope == HOST for rule in rules):
        return "affinity", {}
    return "soft-affinity" if rules[0].kind is Kind.AFFINITY else "soft-anti-affinity", {}


def is_stricter(native: Rule, rules: Sequence[Rule]) -> bool:
    """Whether the policy of a Nova group forbids what these rules allow."""
    if native.soft:
        return False
    limits = [rule.limit for rule in rules if rule.limit is not None]
    if native.kind is Kind.ANTI_AFFINITY:
        return not limits or (native.limit or 1) < min(limits)
    return not any(rule.together and rule.scope == HOST for rule in rules)


def _root(connection: Any) -> str:
    """Where Nova is, without the version in its address."""
    endpoint: str = connection.compute.get_endpoint()
    return endpoint.rpartition("/v2")[0] or endpoint.rstrip("/")


def _own_room(row: Mapping[str, Any]) -> tuple[Resources, Resources]:
    names = ("vcpus", "memory_mb", "local_gb")
    return Resources(*(row[name] for name in names)), Resources(*(row[f"{name}_used"] for name in names))


def _placement_room(summary: Mapping[str, Any]) -> tuple[Resources, Resources]:
    total, free = inventory.room(summary)
    used = Resources(*(whole - left for whole, left in zip(total, free, strict=True)))
    return Resources(*(min(amount, _MOST) for amount in total)), used


def _server_path(server_id: str) -> str:
    return f"/v2.1/servers/{quote(server_id, safe='')}"


def _group(row: Mapping[str, Any]) -> mirror.NovaGroup:
    rule = Rule.parse(row["policy"], row["rules"] or {})
    return mirror.NovaGroup(row["id"], row["name"], row["project_id"], row["user_id"], rule, tuple(row["members"]))


def _is_complete(row: Mapping[str, Any]) -> bool:
    """Whether Nova knows where a server is: it does not while the server's cell does not answer."""
    return bool(row["status"] != "UNKNOWN")


def _server(row: Mapping[str, Any]) -> mirror.NovaServer:
    flavor, launched = row["flavor"], row["OS-SRV-USG:launched_at"]
    vm_state, task_state = row["OS-EXT-STS:vm_state"], row["OS-EXT-STS:task_state"]
    return mirror.NovaServer(
        id=row["id"],
        name=row["name"],
        project_id=row["tenant_id"],
        user_id=row["user_id"],
        host=row["OS-EXT-SRV-ATTR:host"],
        resources=Resources(flavor["vcpus"], flavor["ram"], flavor["disk"] + flavor["ephemeral"]),
        vm_state=vm_state,
        task_state=task_state,
        launched_at=None if launched is None else datetime.fromisoformat(launched).replace(tzinfo=UTC),
        settled=task_state is None and vm_state not in ("building", "resized"),
        zone=row.get("pinned_availability_zone"),
        place=row["metadata"].get(PLACE),
    )
