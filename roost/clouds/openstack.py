"""A real OpenStack, through openstacksdk, which blocks: all calls run in threads beside the event loop.

Nova cannot recognise a repeated request. A server carries its node's id as
a tag; before servers are made those that exist are looked up, and where two were made the older one stays.

Roost chooses the host of each server itself, from what Nova and Placement say of the hosts now, and asks Nova for that
host; Nova checks it once more. Where the cloud does not show its hosts, or a server asks for more than Roost knows of,
Nova chooses.
"""

import asyncio
import contextlib
import functools
import re
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import openstack
import sqlalchemy as sa
from keystoneauth1 import exceptions as keystone
from openstack import exceptions
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.clouds import host_choice, ports
from roost.clouds.base import (
    CloudError,
    CloudGroup,
    CloudRefused,
    CloudResource,
    CloudServer,
    CloudZone,
    Hypervisor,
    LoadBalancer,
    LoadBalancerRequest,
    ServerOutcome,
    ServerRequest,
)
from roost.clouds.host_choice import ChosenHost
from roost.clouds.inventory import Demand
from roost.clouds.nova import NODE_ID, nearest_policy
from roost.clouds.octavia import Octavia
from roost.clouds.retries import make_patient
from roost.clouds.server_groups import OwnGroups
from roost.compute.groups.groups import GroupPolicy
from roost.config import Settings
from roost.placement.rules import HOST, Limit, Rule
from roost.store.database import Database, patient

_AT_ONCE = 16
_IN_A_QUESTION = 50
"""How many tags one request names: its address must not become too long."""
_BUILD_SECONDS = 600.0
_CUT_SECONDS = 2.0
"""How long Nova may still work on a request whose connection was cut."""
_ATTEMPTS = 4
"""How often a server's creation is tried: a connection may be cut, and a host may be taken by somebody else."""
_HOSTS_TRIED = 40
"""How often, where Nova must not choose by itself because it does not know the rules, and may refuse a host."""
_NO_HOST = re.compile("No valid host|Exceeded max|exhausted|violat", re.IGNORECASE)
_OWN_MICROVERSION = "2.1003"
"""Several policies in one group can only be asked of Roost's own compute API."""
_MESSAGE_SECONDS = 300
_TURN_SECONDS = 0.5
"""Between two checks for a turn in a group."""
_SILENT_SECONDS = 15.0
"""How long a transaction that holds a turn is silent: less than a patient one may be."""

T = TypeVar("T")


@dataclass(slots=True)
class OpenStackClouds:
    """The clouds of all projects of an OpenStack, by the cloud of clouds.yaml that this process signs in as."""

    cloud: str | None
    config: Mapping[str, Any] = field(default_factory=dict)
    database: Database | None = None
    """Where engines take turns; without one, only those of this process do."""
    settings: Settings | None = None
    """With these and a database, Roost stands in front of Nova: server groups are its own, Nova's are underneath."""
    _threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(_AT_ONCE, "openstack"))
    _connections: dict[str, Any] = field(default_factory=dict)
    _turns: dict[str, asyncio.Lock] = field(default_factory=dict)

    def of(self, project_id: str, user_id: str, *, privileged: bool = False) -> "OpenStackCloud":
        """The cloud as one project sees it."""
        connect = functools.partial(self._connection, project_id)
        own = None
        if self.database is not None and self.settings is not None:
            own = OwnGroups(self.database, self.settings, project_id, user_id)
        return OpenStackCloud(self._threads, connect, project_id, user_id, self._turn, own, privileged)

    def _connection(self, project_id: str) -> Any:
        """Signed in to the project; in a thread, since it asks the identity service."""
        if project_id not in self._connections:
            own = make_patient(openstack.connect(cloud=self.cloud, **self.config))
            if own.current_project_id != project_id:
                own = make_patient(own.connect_as_project({"id": project_id}))
            try:
                own.session.get_token()
            except keystone.Unauthorized as error:
                raise CloudRefused(
                    f"Roost's user cannot sign in to project {project_id}: has it a role there?"
                ) from error
            self._connections[project_id] = own
        return self._connections[project_id]

    @asynccontextmanager
    async def _turn(self, group: str) -> AsyncIterator[None]:
        """One creation at a time in a group, so that each sees where the members of the one before it are."""
        async with AsyncExitStack() as held:
            await held.enter_async_context(self._turns.setdefault(group, asyncio.Lock()))
            if self.database is not None:
                await held.enter_async_context(_lasting_lock(self.database, sa.func.hashtextextended(group, 0)))
            yield

    def close(self) -> None:
        """End the threads."""
        self._threads.shutdown(wait=False)


@asynccontextmanager
async def _lasting_lock(database: Database, key: Any) -> AsyncIterator[None]:
    """An advisory lock of all processes, waited for and held for longer than PostgreSQL lets a statement wait or a
    transaction be silent: a creation takes as long as servers take to boot."""
    async with AsyncExitStack() as held:
        while True:
            async with AsyncExitStack() as attempt:
                connection = await attempt.enter_async_context(database.begin())
                if await connection.scalar(sa.select(sa.func.pg_try_advisory_xact_lock(key))):
                    await held.enter_async_context(attempt.pop_all())
                    break
            await asyncio.sleep(_TURN_SECONDS)
        await patient(connection)
        ended = asyncio.Event()
        talking = asyncio.create_task(_keep_talking(connection, ended))
        try:
            yield
        finally:
            ended.set()
            await talking


async def _keep_talking(connection: AsyncConnection, ended: asyncio.Event) -> None:
    while not ended.is_set():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), _SILENT_SECONDS)
        await connection.execute(sa.select(1))


@dataclass(frozen=True, slots=True)
class OpenStackCloud:
    """An OpenStack, for one project.

    It is signed in to as an administrator, who is shown what belongs to other projects. What a tenant names by its id
    is therefore held against the tenant's own project here.
    """

    threads: ThreadPoolExecutor
    connect: Callable[[], Any]
    project_id: str
    user_id: str
    turn: Callable[[str], Any]
    groups: OwnGroups | None
    privileged: bool = False

    @property
    def batch_size(self) -> int:
        """Enough for a few rounds of concurrent requests."""
        return 50

    async def _ask(self, work: Callable[[Any], T]) -> T:
        """Do something with the connection, in a thread: what the cloud refuses is `Refused`, and that it did not
        answer is a `CloudError`."""

        def call() -> T:
            return work(self.connect())

        try:
            return await asyncio.get_running_loop().run_in_executor(self.threads, call)
        except (exceptions.DuplicateResource, exceptions.HttpException, keystone.ClientException) as error:
            raise (CloudRefused if _is_refusal(error) else CloudError)(_message(error)) from error
        except exceptions.SDKException as error:
            raise CloudError(str(error)) from error

    async def _reason(self, work: Callable[[Any], Any]) -> str | None:
        """The reason if this is refused."""
        try:
            await self._ask(work)
        except CloudRefused as error:
            return error.message
        return None

    # Servers

    async def create_servers(self, requests: Sequence[ServerRequest]) -> list[ServerOutcome]:
        """Side by side; those that exist are kept. What a cut connection leaves unknown is looked for before it is
        asked for again, and a server whose host was taken by somebody else gets another."""
        async with AsyncExitStack() as turns:
            for group in sorted({request.server_group for request in requests if request.server_group}):
                await turns.enter_async_context(self.turn(group))
            return await _Creation(self, requests).run()

    async def delete_servers(self, server_ids: Sequence[str], *, force: bool = False) -> dict[str, str]:
        """Side by side, then wait until they are gone. Nova lets an administrator delete locked servers: we do not."""
        there = await self.show_servers(server_ids)
        refused = {
            server.id: f"Instance {server.id} is locked"
            for server in there.values()
            if server.details.get("locked") and not force
        }

        def delete(server: CloudServer) -> Callable[[Any], Any]:
            def work(connection: Any) -> None:
                if server.details.get("locked"):
                    connection.compute.unlock_server(server.id)
                connection.compute.delete_server(server.id, ignore_missing=True, force=force)

            return work

        going = [server_id for server_id in there if server_id not in refused]
        reasons = await _gathered(self._reason(delete(there[server_id])) for server_id in going)
        refused |= {server_id: reason for server_id, reason in zip(going, reasons, strict=True) if reason}
        until = time.monotonic() + _BUILD_SECONDS
        for pause in _pauses():
            there = await self.show_servers([server_id for server_id in going if server_id not in refused])
            if not there or time.monotonic() > until:
                break
            await asyncio.sleep(pause)
        return refused | dict.fromkeys(there, "The server is still there.")

    async def show_servers(self, server_ids: Sequence[str]) -> dict[str, CloudServer]:
        """From one list, whatever their number."""
        wanted = set(server_ids)
        return {server.id: server for server in await self._list() if server.id in wanted} if wanted else {}

    async def find_port_problem(self, wanted: Mapping[str, Any]) -> str | None:
        """Look up all that it names."""
        return await self._reason(lambda connection: ports.check(connection, self.project_id, wanted))

    async def release_ports(self, node_ids: Sequence[str], others: Sequence[str] = ()) -> None:
        """By their names."""
        await self._ask(lambda connection: ports.release(connection, self.project_id, node_ids, others))

    async def find_servers(self, node_ids: Sequence[str]) -> dict[str, CloudServer]:
        """By the tag that is the node's id; of two with the same, the older one stays and the other goes."""
        parts = [node_ids[start : start + _IN_A_QUESTION] for start in range(0, len(node_ids), _IN_A_QUESTION)]
        found: dict[str, CloudServer] = {}
        surplus = []
        for rows in await _gathered(self._list(any_tags=",".join(part)) for part in parts):
            for server in rows:
                if server.node_id is None or found.setdefault(server.node_id, server).id != server.id:
                    surplus.append(server.id)
        if surplus:
            await self.delete_servers(surplus, force=True)
        return found

    async def _list(self, **query: Any) -> list[CloudServer]:
        """The servers of the project, the oldest first."""
        rows = await self._ask(lambda connection: list(connection.compute.servers(details=True, **query)))
        tags = set(str(query.get("any_tags", "")).split(","))
        oldest_first = sorted(rows, key=lambda row: (str(row.created_at), row.id))
        return [_server(row, next((tag for tag in row.tags or () if tag in tags), None)) for row in oldest_first]

    async def update_server(
        self, server_id: str, *, name: str | None = None, metadata: Mapping[str, str | None] | None = None
    ) -> str | None:
        """Name and metadata are two requests, removed keys a third."""

        def change(connection: Any) -> None:
            if name is not None:
                connection.compute.update_server(server_id, name=name)
            given = {key: value for key, value in (metadata or {}).items() if value is not None}
            if given:
                connection.compute.set_server_metadata(server_id, **given)
            removed = [key for key, value in (metadata or {}).items() if value is None]
            present = connection.compute.get_server_metadata(server_id).metadata if removed else {}
            if set(removed) & set(present):
                connection.compute.delete_server_metadata(server_id, [key for key in removed if key in present])

        return await self._reason(change)

    async def operate(self, server_id: str, operation: str, params: Mapping[str, Any]) -> str | None:
        """Ask for it, and wait until the server is at rest again; what an earlier attempt began is finished first."""
        try:
            before = await self._at_rest(server_id)
            flavor = await self._ask(lambda connection: _flavor_name(connection, operation, params))
            if flavor is not None and _flavor_of(before) == flavor:
                return None
            try:
                await self._ask(lambda connection: _OPERATIONS[operation](connection.compute, server_id, params))
            except CloudError:
                # The answer was lost, maybe not the question.
                if (await self._at_rest(server_id)).status != _EFFECTS.get(operation):
                    raise
            after = await self._at_rest(server_id)
        except CloudRefused as error:
            return error.message
        if after.status == "ERROR" and before.status != "ERROR":
            return str((after.fault or {}).get("message") or "The server is in error.")
        if flavor is not None and _flavor_of(after) != flavor:
            return "The server could not be resized: its events say why."
        return None

    async def _at_rest(self, server_id: str) -> Any:
        """The server once nothing happens to it, kept as it was moved or resized."""
        until = time.monotonic() + _BUILD_SECONDS
        confirmed = False
        for pause in _pauses():
            server = await self._ask(lambda connection: connection.compute.get_server(server_id))
            resting = server.task_state is None and server.status != "BUILD"
            if resting and server.status == "VERIFY_RESIZE":
                # Nova shows this status for a while after it was confirmed, and refuses a second confirmation.
                if not confirmed:
                    await self._ask(lambda connection: connection.compute.confirm_server_resize(server_id))
                confirmed = True
            elif resting or time.monotonic() > until:
                return server
            await asyncio.sleep(pause)

    # Server groups

    async def find_server_group(self, name_or_id: str) -> CloudGroup | None:
        """By id, else by name; one that Roost does not know yet as Nova has it."""
        own = await self.groups.find(name_or_id) if self.groups is not None else None
        if own is not None:
            return own
        found = await self._ask(lambda connection: connection.compute.find_server_group(name_or_id))
        return None if found is None or found.project_id != self.project_id else _group(found)

    async def create_server_group(self, name: str, rules: Sequence[Rule]) -> CloudGroup:
        """Roost's own with Nova's underneath; or Nova's alone, which has room for one policy, its scope among the rules
        where the other side is a Roost."""
        if self.groups is not None:
            return await self.groups.create(name, rules, self._make_nova_group, self._delete_nova_group)

        def create(connection: Any) -> CloudGroup:
            if len(rules) == 1:
                policy = GroupPolicy(rules[0])
                made = connection.compute.create_server_group(name=name, policy=policy.name, rules=policy.flat_rules)
                return _group(made)
            body = {"server_group": {"name": name, "policies": [_policy(rule) for rule in rules]}}
            answer = connection.compute.post("/os-server-groups", json=body, microversion=_OWN_MICROVERSION)
            exceptions.raise_from_response(answer)
            return CloudGroup(answer.json()["server_group"]["id"], name, tuple(rules))

        return await self._ask(create)

    async def _make_nova_group(self, name: str, rules: Sequence[Rule]) -> str:
        policy, limits = nearest_policy(rules)
        given = {"name": name, "policy": policy, **({"rules": limits} if limits else {})}
        return str((await self._ask(lambda connection: connection.compute.create_server_group(**given))).id)

    async def _delete_nova_group(self, group_id: str) -> None:
        await self._ask(lambda connection: connection.compute.delete_server_group(group_id, ignore_missing=True))

    async def delete_server_group(self, group_id: str) -> None:
        """Its members stay."""
        await self._delete_nova_group(group_id)
        if self.groups is not None:
            await self.groups.delete(group_id)

    # What there is

    async def availability_zones(self) -> list[CloudZone]:
        """As Nova reports them."""
        zones = await self._ask(lambda connection: list(connection.compute.availability_zones()))
        return [CloudZone(zone.name, bool((zone.state or {}).get("available"))) for zone in zones]

    async def hypervisors(self) -> list[Hypervisor]:
        """For administrators only."""
        rows = await self._ask(lambda connection: list(connection.compute.hypervisors(details=True)))
        found = await self._ask(lambda connection: list(connection.compute.services(binary="nova-compute")))
        services = {service.host: service for service in found}
        hosts = [(row, (row.service_details or {}).get("host") or row.name) for row in rows]
        return [
            Hypervisor(row.name, host, services[host].availability_zone if host in services else None, _up(row))
            for row, host in hosts
        ]

    async def regions(self) -> list[str]:
        """The one that this process signs in to."""
        return [await self._ask(lambda connection: str(connection.config.get_region_name() or "RegionOne"))]

    async def find_flavor(self, name_or_id: str) -> CloudResource | None:
        """One that the project may use."""

        def find(connection: Any) -> Any:
            found = connection.compute.find_flavor(name_or_id)
            return found if found is None or usable_flavor(connection, found, self.project_id) else None

        return await self._named(find)

    async def find_image(self, name_or_id: str) -> CloudResource | None:
        """One that the project may see."""

        def find(connection: Any) -> Any:
            found = connection.image.find_image(name_or_id)
            return found if found is None or usable_image(connection, found, self.project_id) else None

        return await self._named(find)

    async def find_network(self, name_or_id: str) -> CloudResource | None:
        """One that the project may use; none in a cloud without a network service."""

        def find(connection: Any) -> Any:
            found = connection.network.find_network(name_or_id) if connection.has_service("network") else None
            return found if found is None or usable_network(found, self.project_id) else None

        return await self._named(find)

    async def find_keypair(self, name: str) -> CloudResource | None:
        """One of the cluster's owner, whom an administrator may ask for."""
        return await self._named(lambda connection: _keypair(connection, self.user_id, name))

    async def _named(self, find: Callable[[Any], Any]) -> CloudResource | None:
        found = await self._ask(find)
        return None if found is None else CloudResource(found.id, found.name)

    # Load balancers

    async def create_load_balancer(self, request: LoadBalancerRequest) -> LoadBalancer:
        """Continue where an earlier attempt was cut off."""
        return await Octavia(self._ask).create(request)

    async def delete_load_balancer(self, balancer: LoadBalancer) -> None:
        """With all that belongs to it."""
        await Octavia(self._ask).delete(balancer)

    async def add_member(
        self, balancer: LoadBalancer, server_id: str, port: int, subnet: str | None = None, weight: int = 1
    ) -> str:
        """By the server's address."""
        return await Octavia(self._ask).add_member(balancer, server_id, port, subnet, weight)

    async def remove_member(self, balancer: LoadBalancer, member_id: str) -> None:
        """And wait until Octavia has done it."""
        await Octavia(self._ask).remove_member(balancer, member_id)

    # Messages

    async def post_message(self, queue: str, body: Mapping[str, Any]) -> None:
        """Into a queue of Zaqar, for as long as a consumer may take to fetch it."""

        def post(connection: Any) -> None:
            connection.message.post_message(queue, [{"body": dict(body), "ttl": _MESSAGE_SECONDS}])

        await self._ask(post)


class _Creation:
    """Servers on their way: what is known of each, from attempt to attempt."""

    def __init__(self, cloud: OpenStackCloud, requests: Sequence[ServerRequest]) -> None:
        self.cloud = cloud
        self.requests = {request.node_id: request for request in requests}
        self.refused: dict[str, str] = {}
        self.placed: dict[str, str] = {}
        self.keys: dict[str, str] = {}
        self.rules: dict[str, tuple[Rule, ...]] = {}
        self.avoided: dict[tuple[Demand, str | None], set[str]] = defaultdict(set)
        """The hosts that Nova refused, for all servers that are alike."""
        self.found: dict[str, CloudServer] = {}

    async def run(self) -> list[ServerOutcome]:
        """One outcome a request, in order."""
        groups = {request.server_group for request in self.requests.values() if request.server_group}
        if groups and self.cloud.groups is not None:
            self.rules = await self.cloud.groups.rules(groups)
        self.found = await self.cloud.find_servers(list(self.requests))
        most = _ATTEMPTS if all(map(self._is_novas, self.requests.values())) else _HOSTS_TRIED
        cuts = 0
        for attempt in range(1, most + 1):
            lost = await self._create_missing(leave_it_to_nova=attempt >= _ATTEMPTS)
            if lost is not None:
                cuts += 1
                await asyncio.sleep(_CUT_SECONDS)
            await self._settle()
            last = attempt == most or cuts == _ATTEMPTS
            if not last:
                await self._take_back()
            if last and lost is not None and self._missing():
                raise lost
            if last or not self._missing():
                break
        return [_outcome(node_id, self.found.get(node_id), self.refused) for node_id in self.requests]

    def _missing(self) -> list[ServerRequest]:
        return [
            request
            for node_id, request in self.requests.items()
            if node_id not in self.found and node_id not in self.refused
        ]

    async def _create_missing(self, *, leave_it_to_nova: bool) -> CloudError | None:
        """Ask for those that are not there; an error where it is not known whether some of them were made."""
        missing = self._missing()
        if not missing:
            return None
        await self._place([request for request in missing if not (leave_it_to_nova and self._is_novas(request))])
        await self._bring_keys(missing)
        asked = [request for request in missing if request.node_id not in self.refused]
        answers = await asyncio.gather(*map(self._create, asked), return_exceptions=True)
        lost: CloudError | None = None
        for request, answer in zip(asked, answers, strict=True):
            if isinstance(answer, CloudRefused):
                self.refused[request.node_id] = answer.message
            elif isinstance(answer, CloudError):
                lost = answer
            elif isinstance(answer, BaseException):
                raise answer
        return lost

    async def _place(self, missing: Sequence[ServerRequest]) -> None:
        """Choose the host of each server that Roost can choose one for, or learn that there is none. Servers with hints
        are Nova's to place, unless it would break rules that it does not know: then it judges each host that Roost
        chose."""
        self.placed = {}
        missing = [
            request
            for request in missing
            if not host_choice.names_a_host(request) and (host_choice.is_known(request) or not self._is_novas(request))
        ]
        avoided = {request.node_id: self.avoided[_alike(request)] for request in missing}
        places = await self.cloud._ask(
            lambda connection: host_choice.place(connection, missing, avoided, self.rules, self.cloud.project_id)
        )
        for node_id, place in places.items():
            if isinstance(place, ChosenHost):
                self.placed[node_id] = place.host
            else:
                number = len(avoided[node_id])
                self.refused[node_id] = f"{place} Nova refused {number} of them." if number else place

    def _is_novas(self, request: ServerRequest) -> bool:
        """Whether Nova by itself would keep to all rules of the server's group."""
        rules = self.rules.get(request.server_group or "", ())
        return len(rules) < 2 and all(rule.scope == HOST and rule.max_skew is None for rule in rules)

    async def _bring_keys(self, missing: Sequence[ServerRequest]) -> None:
        """Have each key pair that servers ask for, or learn that there is none."""
        for name in {request.key_name for request in missing if request.key_name} - self.keys.keys():
            try:
                own = functools.partial(_own_keypair, user_id=self.cloud.user_id, name=name)
                self.keys[name] = await self.cloud._ask(own)
            except CloudRefused as error:
                self.refused |= {request.node_id: error.message for request in missing if request.key_name == name}

    async def _create(self, request: ServerRequest) -> None:
        def create(connection: Any) -> None:
            attributes = _attributes(connection, self.cloud.project_id, request)
            if request.key_name is not None:
                attributes["key_name"] = self.keys[request.key_name]
            if request.node_id in self.placed:
                attributes["host"] = self.placed[request.node_id]
            connection.compute.create_server(**attributes)

        await self.cloud._ask(create)

    async def _settle(self) -> None:
        """Wait until no server is being built."""
        awaited = [node_id for node_id in self.requests if node_id not in self.refused]
        until = time.monotonic() + _BUILD_SECONDS
        for pause in _pauses():
            self.found = await self.cloud.find_servers(awaited)
            building = any(server.status == "BUILD" for server in self.found.values())
            if not building or time.monotonic() > until:
                return
            await asyncio.sleep(pause)

    async def _take_back(self) -> None:
        """Servers for which the host that Roost chose had no place any more are deleted, to be created elsewhere."""
        misplaced = {
            node_id: server
            for node_id, server in self.found.items()
            if server.status == "ERROR" and node_id in self.placed and _NO_HOST.search(server.fault or "")
        }
        for node_id in misplaced:
            self.avoided[_alike(self.requests[node_id])].add(self.placed[node_id])
            del self.found[node_id]
        if misplaced:
            await self.cloud.delete_servers([server.id for server in misplaced.values()], force=True)


def _alike(request: ServerRequest) -> tuple[Demand, str | None]:
    """What servers share that Nova's filters judge alike."""
    return host_choice.demand(request), request.availability_zone


async def _gathered(work: Iterator[Any]) -> list[Any]:
    """All answers, once all have come, so that nothing is left running when one of them is an error."""
    answers = await asyncio.gather(*work, return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    return answers


def _pauses() -> Iterator[float]:
    """Seconds between two looks: soon at first, and rarely in the end."""
    pause = 0.2
    while True:
        yield pause
        pause = min(pause * 1.4, 3.0)


def usable_flavor(connection: Any, flavor: Any, project_id: str) -> bool:
    """Whether a flavor is public, or was given to the project."""
    if flavor.is_public:
        return True
    try:
        return any(row["tenant_id"] == project_id for row in connection.compute.get_flavor_access(flavor.id))
    except exceptions.ForbiddenException:
        return True  # A user who may not ask is shown only its own.


def usable_image(connection: Any, image: Any, project_id: str) -> bool:
    """Whether an image is public, the project's own, or shared with it."""
    if image.visibility in ("public", "community") or image.owner_id == project_id:
        return True
    shared = image.visibility == "shared"
    return shared and any(member.member_id == project_id for member in connection.image.members(image.id))


def usable_network(network: Any, project_id: str) -> bool:
    """Whether a network is shared with all, or the project's own."""
    return bool(network.is_shared or network.is_router_external or network.project_id == project_id)


def _is_refusal(error: Exception) -> bool:
    """Whether the cloud understood and said no, rather than not answering."""
    if isinstance(error, exceptions.DuplicateResource):
        return True
    status = getattr(error, "status_code", None) or getattr(error, "http_status", None)
    return status is not None and 400 <= int(status) < 500 and int(status) not in (401, 408, 429)


def _message(error: Exception) -> str:
    return str(getattr(error, "details", None) or getattr(error, "message", None) or error)


def _attributes(connection: Any, project_id: str, request: ServerRequest) -> dict[str, Any]:
    here = connection.config.get_region_name()
    if request.region is not None and here and request.region != here:
        raise CloudRefused(f"Servers are made in region '{here}', and not in '{request.region}'.")
    hints = dict(request.scheduler_hints)
    if request.server_group is not None:
        hints["group"] = request.server_group
    given: dict[str, Any] = {
        "name": request.name,
        "flavor_id": request.flavor,
        "image_id": request.image,
        "networks": ports.plugs(connection, project_id, request) or _default_networks(connection),
        "metadata": {**request.metadata, NODE_ID: request.node_id},
        "tags": [request.node_id],
        "user_data": request.user_data,
        "availability_zone": request.availability_zone,
        "scheduler_hints": hints,
        "security_groups": [{"name": name} for name in request.security_groups],
        "admin_password": request.admin_pass,
        "has_config_drive": request.config_drive,
        "disk_config": None if request.auto_disk_config is None else "AUTO" if request.auto_disk_config else "MANUAL",
        "block_device_mapping": [dict(device) for device in request.block_devices],
        "personality": [dict(file) for file in request.personality],
    }
    return {key: value for key, value in given.items() if value not in (None, [], {})}


def _default_networks(connection: Any) -> Any:
    """For a server that names none: the only network that there is, as Nova itself would choose before 2.37."""
    if not connection.has_service("network"):
        return "auto"
    usable = [network for network in connection.network.networks() if not network.is_router_external]
    return [{"uuid": usable[0].id}] if len(usable) == 1 else "auto" if usable else "none"


def _keypair(connection: Any, user_id: str, name: str) -> Any:
    """A key pair of the cluster's owner."""
    own = connection.current_user_id == user_id
    return connection.compute.find_keypair(name, **({} if own else {"user_id": user_id}))


def _own_keypair(connection: Any, user_id: str, name: str) -> str:
    """The owner's key under a name of Roost's own user: Nova gives a server only keys of the user that creates it."""
    if connection.current_user_id == user_id:
        return name
    key = _keypair(connection, user_id, name)
    if key is None:
        raise CloudRefused(f"The key pair '{name}' could not be found.")
    copy = f"{user_id}-{name}"[:255]
    there = connection.compute.find_keypair(copy)
    if there is not None and there.fingerprint != key.fingerprint:
        connection.compute.delete_keypair(there)
        there = None
    if there is None:
        # Another engine may be quicker.
        with contextlib.suppress(exceptions.ConflictException):
            connection.compute.create_keypair(name=copy, public_key=key.public_key, type=key.type or "ssh")
    return copy


def _outcome(node_id: str, server: CloudServer | None, refused: Mapping[str, str]) -> ServerOutcome:
    if server is None:
        return ServerOutcome(node_id, None, refused.get(node_id) or "The server was not made.")
    if server.status == "ACTIVE":
        return ServerOutcome(node_id, server.id, None, server.zone)
    return ServerOutcome(node_id, server.id, server.fault or f"The server is in status {server.status}.")


def _server(row: Any, node_id: str | None) -> CloudServer:
    return CloudServer(
        id=row.id,
        name=row.name,
        status=row.status,
        zone=row.availability_zone or None,
        host=row.compute_host,
        node_id=node_id or (row.metadata or {}).get(NODE_ID),
        fault=(row.fault or {}).get("message"),
        details=row.to_dict(computed=False, original_names=True),
    )


def _group(row: Any) -> CloudGroup:
    given = dict((row.rules or {}).items())
    scope = [str(given[key]) for key in ("scope", "identifier") if key in given]
    limits: dict[str, object] = {limit: int(given[limit]) for limit in Limit if limit in given}
    policies = tuple(row.policies or ()) or (":".join([row.policy, *scope]),)
    rules = (Rule.parse(policy, limits if place == 0 else {}) for place, policy in enumerate(policies))
    return CloudGroup(row.id, row.name, tuple(rules))


def _policy(rule: Rule) -> dict[str, Any]:
    target = {} if rule.identifier is None else {"identifier": rule.identifier}
    return {"name": GroupPolicy(rule).name, "scope": rule.scope, **target, "rules": dict(rule.limits)}


def _flavor_name(connection: Any, operation: str, params: Mapping[str, Any]) -> str | None:
    """The name of the flavor to resize to: Nova shows only the name of a server's flavor."""
    return str(connection.compute.get_flavor(params["flavor"]).name) if operation == "resize" else None


def _flavor_of(server: Any) -> str:
    flavor = server.flavor
    return str(flavor.original_name or flavor.name)


_EFFECTS = {
    "stop": "SHUTOFF",
    "start": "ACTIVE",
    "pause": "PAUSED",
    "unpause": "ACTIVE",
    "suspend": "SUSPENDED",
    "resume": "ACTIVE",
    "rescue": "RESCUE",
    "unrescue": "ACTIVE",
}
"""The status in which an operation leaves a server."""

_OPERATIONS: Mapping[str, Callable[[Any, str, Mapping[str, Any]], Any]] = {
    "reboot": lambda compute, server, given: compute.reboot_server(server, str(given.get("type") or "HARD").upper()),
    "rebuild": lambda compute, server, given: compute.rebuild_server(server, image=_image_of(compute, server, given)),
    "resize": lambda compute, server, given: compute.resize_server(server, given["flavor"]),
    "migrate": lambda compute, server, given: compute.migrate_server(server, host=given.get("host")),
    "change_password": lambda compute, server, given: compute.change_server_password(server, given["admin_pass"]),
    "pause": lambda compute, server, given: compute.pause_server(server),
    "unpause": lambda compute, server, given: compute.unpause_server(server),
    "suspend": lambda compute, server, given: compute.suspend_server(server),
    "resume": lambda compute, server, given: compute.resume_server(server),
    "lock": lambda compute, server, given: compute.lock_server(server),
    "unlock": lambda compute, server, given: compute.unlock_server(server),
    "start": lambda compute, server, given: compute.start_server(server),
    "stop": lambda compute, server, given: compute.stop_server(server),
    "rescue": lambda compute, server, given: compute.rescue_server(server, image_ref=given.get("image_ref")),
    "unrescue": lambda compute, server, given: compute.unrescue_server(server),
    "evacuate": lambda compute, server, given: compute.evacuate_server(server, host=given.get("host")),
}


def _image_of(compute: Any, server_id: str, given: Mapping[str, Any]) -> str:
    return str(given.get("image") or compute.get_server(server_id).image.id)


def _up(hypervisor: Any) -> bool:
    return (hypervisor.state or "up", hypervisor.status or "enabled") == ("up", "enabled")
