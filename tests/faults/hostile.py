"""A hostile tenant beside an ordinary one: `make load`, or `python -m tests.faults.hostile --minutes 30`.

A neighbour does ordinary things: first alone, then while attackers of another project send everything that is known to
be expensive, and afterwards alone again. Quiet is what the neighbour saw alone, before and after together. The
attackers are one process of low priority with its own address (127.0.0.2), so that what is measured is the
service and not the machine that it shares with them; that they are refused shows that they ask for more than they may
have. What was measured is printed, with the verdict at the end, and written to build/hostile.json.
"""

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from random import Random
from typing import Any

import httpx
import yaml

from tests.compute.cloud import IMAGE
from tests.conftest import PASSWORDS
from tests.faults.clients import PROFILE
from tests.faults.deployment import Deployment
from tests.faults.load import percentiles, thirds

PARTS, SCOPES, HOSTS = 200, 4, 1000
SETTINGS = """
[auth]
token_seconds = 86400
[quota]
instances = 3000
cores = -1
ram = -1
server_groups = -1
server_group_members = -1
[log]
level = WARNING
"""
TIMES_QUIET = 5.0
MOST_GROWTH, SLACK_MIB = 0.1, 20
"""By how much the memory of the service may be larger in the last third of the attack than in the one before."""
ATTACKER = "127.0.0.2"
WRITTEN = Path("build/hostile.json")
PAUSE = 0.02
CALM_SECONDS = 5.0
QUIET = ("alone", "alone again")
CPU_GROUPS = Path("/sys/fs/cgroup/cpu")
ANSWER_SECONDS = 60.0
LIMITED = ("explain", "plan", "repair")
"""What the attackers ask for more often than is answered."""


def topology() -> str:
    """Hosts in scopes that cut across each other, so that there are requests that only the exact search can place."""
    dice = Random(1)
    shuffled = [dice.sample(range(PARTS), PARTS) for _ in range(SCOPES)]
    rows = [[scope[at] for scope in shuffled] for at in range(PARTS)]
    rows += [[dice.randrange(PARTS) for _ in range(SCOPES)] for _ in range(HOSTS - PARTS)]
    hosts = [
        {"name": f"host{at}", "scopes": {f"scope{scope}": f"s{scope}p{part}" for scope, part in enumerate(row)}}
        for at, row in enumerate(rows)
    ]
    return yaml.safe_dump({"hosts": hosts, "simulation": {"boot_seconds": 0.05, "failure_rate": 0.0}})


def _sign_in_body(name: str, password: str, project: str) -> dict[str, Any]:
    user = {"name": name, "domain": {"id": "default"}, "password": password}
    scope = {"project": {"name": project, "domain": {"id": "default"}}}
    return {"auth": {"identity": {"methods": ["password"], "password": {"user": user}}, "scope": scope}}


def _server(name: str, group: str | None = None, **more: Any) -> dict[str, Any]:
    wanted = {"name": name, "flavorRef": "1", "imageRef": IMAGE, "networks": "none", **more}
    return {"server": wanted, **({"os:scheduler_hints": {"group": group}} if group else {})}


@dataclass
class Seen:
    """What was answered, how fast, and what must not have been."""

    latencies: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    statuses: dict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    failures: Counter[str] = field(default_factory=Counter)

    def note(self, kind: str, seconds: float, answer: httpx.Response) -> None:
        """Keep what is needed of an answer."""
        self.latencies[kind].append(seconds)
        self.statuses[kind][answer.status_code] += 1
        if answer.status_code in (429, 503) and "retry-after" not in answer.headers:
            self.failures[f"{kind}: {answer.status_code} without Retry-After"] += 1
        if answer.status_code >= 500 and answer.status_code != 503:
            self.failures[f"{kind}: {answer.status_code} {answer.text[:200]}"] += 1


@dataclass
class Tenant:
    """A project's client of one API after the other."""

    http: httpx.AsyncClient
    apis: list[str]
    token: str = ""
    seen: Seen = field(default_factory=Seen)

    def __post_init__(self) -> None:
        self._next = cycle(self.apis)

    async def ask(self, kind: str, method: str, path: str, **more: Any) -> httpx.Response | None:
        """One request, measured; None if there was no answer."""
        version = {"compute": "compute 2.1003", "clustering": "clustering 1.14"}.get(path.split("/")[1], "")
        headers = {"X-Auth-Token": self.token, "OpenStack-API-Version": version, **more.pop("headers", {})}
        begun = time.perf_counter()
        try:
            answer = await self.http.request(method, next(self._next) + path, headers=headers, **more)
        except httpx.HTTPError as error:
            self.seen.failures[f"{kind}: no answer, {type(error).__name__}"] += 1
            return None
        self.seen.note(kind, time.perf_counter() - begun, answer)
        return answer

    async def must(self, method: str, path: str, body: Any) -> Any:
        """One request that has to be granted."""
        answer = await self.ask("set-up", method, path, json=body)
        assert answer is not None
        assert answer.is_success, (path, answer.text)
        return next(iter(answer.json().values()))

    async def sign_in(self, name: str) -> None:
        """Get a token."""
        body = _sign_in_body(name, PASSWORDS[name], name)
        answer = await self.http.post(f"{self.apis[0]}/identity/v3/auth/tokens", json=body)
        self.token = answer.headers["X-Subject-Token"]


class Connections(httpx.AsyncBaseTransport):
    """A connection for each request, with as little around it as HTTP allows: attackers have no CPU to waste."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send it, and read until the server closes the connection."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await self._exchange(request)
        except (OSError, TimeoutError, IndexError, ValueError) as error:
            raise httpx.ReadError(repr(error)) from None

    async def _exchange(self, request: httpx.Request) -> httpx.Response:
        host, port = request.url.host, request.url.port
        reader, writer = await asyncio.open_connection(host, port, local_addr=(ATTACKER, 0))
        try:
            headers = {**request.headers, "connection": "close"}
            lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
            writer.write(f"{request.method} {request.url.raw_path.decode()} HTTP/1.1\r\n{lines}\r\n".encode())
            assert isinstance(request.stream, httpx.AsyncByteStream)
            async for part in request.stream:
                chunked = "transfer-encoding" in request.headers
                writer.write(b"%x\r\n%s\r\n" % (len(part), part) if chunked else part)
                await writer.drain()
            head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        finally:
            writer.close()
        status, *fields = head.decode("latin-1").split("\r\n")
        parsed = {name: value for name, _, value in (line.partition(": ") for line in fields)}
        parsed.pop("transfer-encoding", None)
        return httpx.Response(int(status.split()[1]), headers=parsed, content=body)


@asynccontextmanager
async def tenant(
    apis: list[str], name: str, transport: httpx.AsyncBaseTransport | None = None
) -> AsyncIterator[Tenant]:
    """A client of a project, signed in."""
    async with httpx.AsyncClient(transport=transport, timeout=ANSWER_SECONDS) as http:
        made = Tenant(http, apis)
        await made.sign_in(name)
        yield made


# The neighbour


async def live(neighbour: Tenant, until: float) -> None:
    """Ordinary things, one after the other, with pauses: look around, make a server and delete it, sign in."""
    turn = 0
    while time.monotonic() < until:
        for kind, path in (
            ("list servers", "/compute/v2.1/servers"),
            ("list flavors", "/compute/v2.1/flavors/detail"),
            ("list groups", "/compute/v2.1/os-server-groups"),
            ("list clusters", "/clustering/v1/clusters"),
            ("list ports", "/network/v2.0/ports"),
        ):
            await neighbour.ask(kind, "GET", path)
            await asyncio.sleep(PAUSE)
        made = await neighbour.ask("create server", "POST", "/compute/v2.1/servers", json=_server("mine"))
        if made is not None and made.is_success:
            path = f"/compute/v2.1/servers/{made.json()['server']['id']}"
            await neighbour.ask("show server", "GET", path)
            await asyncio.sleep(PAUSE)
            await neighbour.ask("delete server", "DELETE", path)
        await asyncio.sleep(PAUSE)
        turn += 1
        if turn % 10 == 0:
            body = _sign_in_body("alt", PASSWORDS["alt"], "alt")
            await neighbour.ask("sign in", "POST", "/identity/v3/auth/tokens", json=body)


# The attackers


@dataclass
class Attackers:
    """Everything that is known to be expensive, over and over, from many connections."""

    tenant: Tenant
    groups: dict[str, str] = field(default_factory=dict)
    profile: str = ""

    async def set_up(self, servers: int) -> None:
        """What the attacks are about: servers to list, a group to search in, a group that is broken, a profile."""
        must, compute = self.tenant.must, "/compute/v2.1"

        async def group(*policies: str) -> str:
            body = {"server_group": {"name": "g", "policies": [_policy(each) for each in policies]}}
            return str((await must("POST", f"{compute}/os-server-groups", body))["id"])

        crossing = [f"anti-affinity:scope{number}" for number in range(SCOPES)]
        self.groups = {"search": await group(*crossing), "broken": await group("soft-affinity:scope0")}
        name = "a" * 30 + "b" + "a" * 30 + "!"
        for wanted in range(0, servers, 100):
            hostile = _server(name, max_count=min(100, servers - wanted), min_count=1, return_reservation_id=True)
            await must("POST", f"{compute}/servers", hostile)
        body = _server("broken", self.groups["broken"], min_count=60, max_count=60, return_reservation_id=True)
        await must("POST", f"{compute}/servers", body)
        policies = {"server_group": {"policies": [_policy(each) for each in crossing[:2]]}}
        await must("POST", f"{compute}/os-server-groups/{self.groups['broken']}", policies)
        spec = {"profile": {"name": "hostile", "spec": PROFILE}}
        self.profile = (await must("POST", "/clustering/v1/profiles", spec))["id"]

    async def attack(self, until: float) -> None:
        """All attacks at once."""
        async with asyncio.TaskGroup() as group:
            for attackers, attack in self._attacks():
                for _ in range(attackers):
                    group.create_task(self._repeat(attack, until))

    async def _repeat(self, attack: Callable[[], Awaitable[Any]], until: float) -> None:
        while time.monotonic() < until:
            await attack()
            await asyncio.sleep(0)

    def _attacks(self) -> Iterator[tuple[int, Callable[[], Awaitable[Any]]]]:
        yield 31, self._regular_expressions
        yield 8, self._explain
        yield 8, self._plan
        yield 8, self._repair
        yield 4, self._search
        yield 8, self._clusters
        yield 16, self._sign_in
        yield 8, self._wrong_tokens
        yield 8, self._huge_lists
        yield 4, self._export
        yield 8, self._big_bodies
        yield 4, self._slow_body
        yield 16, self._flood

    async def _regular_expressions(self) -> None:
        bomb = random.choice([r"^(a*)(a*)(a*)(a*)(a*)(a*)b\1\2\3\4\5\6!$", "[^a]" * 60 + "(", ".*a.*a.*a.*a.*b!$"])
        await self.tenant.ask("regular expression", "GET", "/compute/v2.1/servers", params={"name": bomb})

    async def _explain(self) -> None:
        path = f"/compute/v2.1/os-server-groups/{self.groups['search']}/explain"
        await self.tenant.ask("explain", "POST", path, json={"explain": {"flavorRef": "1", "count": 1000}})

    async def _plan(self) -> None:
        path = f"/compute/v2.1/os-server-groups/{self.groups['search']}/plan"
        await self.tenant.ask("plan", "POST", path, json={"plan": {"create": {"flavorRef": "1", "count": 190}}})

    async def _repair(self) -> None:
        path = f"/compute/v2.1/os-server-groups/{self.groups['broken']}/repairs"
        await self.tenant.ask("repair", "POST", path, json={"repair": {"dry_run": True}})

    async def _search(self) -> None:
        """Servers that only the exact search can place; then they are deleted, so that the next can be."""
        body = _server("fit", self.groups["search"], min_count=190, max_count=190, return_reservation_id=True)
        made = await self.tenant.ask("exact search", "POST", "/compute/v2.1/servers", json=body)
        if made is None or not made.is_success:
            return
        query = {"reservation_id": made.json()["reservation_id"], "limit": "1000"}
        found = await self.tenant.ask("list for deletion", "GET", "/compute/v2.1/servers", params=query)
        for server in found.json()["servers"] if found is not None and found.is_success else ():
            await self.tenant.ask("delete", "DELETE", f"/compute/v2.1/servers/{server['id']}")

    async def _clusters(self) -> None:
        metadata = {"simulated_wait_time": 600}
        wanted = {"name": "hostile", "profile_id": self.profile, "desired_capacity": 20, "metadata": metadata}
        made = await self.tenant.ask("create cluster", "POST", "/clustering/v1/clusters", json={"cluster": wanted})
        if made is not None and made.is_success:
            path = f"/clustering/v1/clusters/{made.json()['cluster']['id']}"
            await self.tenant.ask("scale out", "POST", f"{path}/actions", json={"scale_out": {"count": 500}})
            await self.tenant.ask("delete cluster", "DELETE", path, params={"force": "true"})

    async def _sign_in(self) -> None:
        body = _sign_in_body(random.choice(["demo-reader", f"nobody{random.random()}"]), "wrong", "demo")
        await self.tenant.ask("sign in", "POST", "/identity/v3/auth/tokens", json=body)

    async def _wrong_tokens(self) -> None:
        headers = {"X-Auth-Token": f"wrong{random.random()}"}
        await self.tenant.ask("wrong token", "GET", "/compute/v2.1/flavors", headers=headers)

    async def _huge_lists(self) -> None:
        for path in ("/compute/v2.1/servers/detail", "/clustering/v1/events", "/clustering/v1/actions"):
            await self.tenant.ask("huge list", "GET", path, params={"limit": str(2**63)})
        await self.tenant.ask("huge list", "GET", "/compute/v2.1/servers/detail", params={"limit": "1000"})
        await self.tenant.ask("huge list", "GET", "/network/v2.0/ports")

    async def _export(self) -> None:
        await self.tenant.ask("export", "GET", "/compute/v2.1/os-exports/servers", params={"format": "json"})

    async def _big_bodies(self) -> None:
        json_type = {"Content-Type": "application/json"}
        million = b"[" + b"[]," * 340_000 + b"[]]"
        for path, body in (
            ("/compute/v2.1/os-server-groups", million),
            ("/compute/v2.1/os-server-groups", b"x" * (5 << 20)),
            ("/identity/v3/auth/tokens", b'{"auth": {"identity": {"methods": [' + b'"x",' * 100_000 + b'"x"]}}}'),
        ):
            await self.tenant.ask("big body", "POST", path, content=body, headers=json_type)

    async def _slow_body(self) -> None:
        async def drops() -> AsyncIterator[bytes]:
            for _ in range(10):
                yield b" "
                await asyncio.sleep(0.5)

        headers = {"Content-Type": "application/json"}
        await self.tenant.ask("slow body", "POST", "/compute/v2.1/servers", content=drops(), headers=headers)

    async def _flood(self) -> None:
        await self.tenant.ask("flood", "GET", "/compute/v2.1/flavors/detail")


def _policy(text: str) -> dict[str, str]:
    name, _, scope = text.partition(":")
    return {"name": name, "scope": scope}


async def attack(apis: list[str], seconds: float, servers: int, group: str | None) -> None:
    """The process of the attackers, in a group of its own: says when it begins, and at the end what it saw."""
    async with tenant(apis, "demo", Connections()) as hostile:
        attackers = Attackers(hostile)
        await attackers.set_up(servers)
        hostile.seen = Seen()
        if group is not None:
            (Path(group) / "cgroup.procs").write_text(str(os.getpid()))
        if sys.platform == "linux":
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        print("attacking", flush=True)
        await attackers.attack(time.monotonic() + seconds)
    seen = hostile.seen
    print(json.dumps({"latencies": seen.latencies, "statuses": seen.statuses, "failures": seen.failures}), flush=True)


# What it came to


def _memory(deployment: Deployment) -> dict[str, float]:
    """The memory of each process of the service and of those that it started, in MiB."""
    parents = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(status.parent.name)] = (int(fields[1]), int(fields[21]) * os.sysconf("SC_PAGE_SIZE") / 2**20)
    sizes: dict[str, float] = {}
    for process in deployment.processes:
        assert process.running is not None
        sizes[process.name] = parents.get(process.running.pid or 0, (0, 0.0))[1]
        children = [size for parent, size in parents.values() if parent == process.running.pid]
        sizes[f"workers of {process.name}"] = sum(children)
    return sizes


@dataclass
class Trial:
    """A neighbour alone, under attack, and alone again."""

    deployment: Deployment
    apart: Path | None = None
    """Where the attackers are weighed, apart from the service."""
    phases: dict[str, Seen] = field(default_factory=dict)
    attackers: Seen = field(default_factory=Seen)
    memory: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    async def run(self, quiet: float, attacked: float, servers: int) -> None:
        """So many seconds alone, before and after, and so many under attack."""
        apis = [f"http://{api.command[-1]}" for api in self.deployment.apis]
        apart = None if self.apart is None else str(self.apart)
        asked = json.dumps({"apis": apis, "seconds": attacked, "servers": servers, "group": apart})
        with suppress(PermissionError):  # the neighbour has its own machine, as far as that can be had
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), -15)
        async with tenant(apis, "alt") as neighbour:
            await self._phase("warming up", neighbour, 3)
            await self._phase("alone", neighbour, quiet)
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tests.faults.hostile", "--attack", asked),
                stdout=subprocess.PIPE,
                limit=1 << 28,
            )
            assert process.stdout is not None
            try:
                assert await process.stdout.readline() == b"attacking\n"
                await self._phase("under attack", neighbour, attacked)
                reported = json.loads(await process.stdout.readline())
            finally:
                if process.returncode is None:
                    process.kill()
                await process.wait()
            await asyncio.sleep(CALM_SECONDS)
            await self._phase("alone again", neighbour, quiet)
        statuses = {kind: {int(each): n for each, n in seen.items()} for kind, seen in reported["statuses"].items()}
        self.attackers = Seen(reported["latencies"], defaultdict(Counter, statuses), Counter(reported["failures"]))

    async def _phase(self, name: str, neighbour: Tenant, seconds: float) -> None:
        neighbour.seen = self.phases[name] = Seen()
        watching = asyncio.create_task(self._watch()) if name == "under attack" else None
        await live(neighbour, time.monotonic() + seconds)
        if watching is not None:
            watching.cancel()

    async def _watch(self) -> None:
        while True:
            for name, size in (await asyncio.to_thread(_memory, self.deployment)).items():
                self.memory[name].append(size)
            await asyncio.sleep(1)

    def wrong(self, *, flat: bool, bearable: float = 0.0) -> Iterator[str]:
        """What must not be so; whether memory is `flat` is to be seen only after some minutes. A machine that has more
        to do than this bears up to so many milliseconds."""
        for name, seen in self.phases.items():
            yield from (f"{name}: {what} ({times} times)" for what, times in seen.failures.items())
            bad = sum((seen.statuses[kind] for kind in seen.statuses), Counter[int]())
            if any(status >= 400 for status in bad):
                yield f"{name}: the neighbour was answered with {dict(bad)}"
        # An attacker that does not read on until it is answered is not waited for.
        for what, times in self.attackers.failures.items():
            if "no answer" not in what:
                yield f"attackers: {what} ({times} times)"
        for kind in LIMITED:
            if not self.attackers.statuses[kind].keys() & {429, 503}:
                yield f"attackers: {kind} was never refused, {dict(self.attackers.statuses[kind])}"
        for name, compared in (("under attack", QUIET), ("alone again", ("alone",))):
            now, quiet = self._p99(name), self._p99(*compared)
            if now > max(TIMES_QUIET * quiet, bearable):
                yield f"{name}, 99 % of the neighbour's answers took up to {now} ms; in quiet {quiet} ms"
        for name, (before, after) in self._growth().items() if flat else ():
            if after > before * (1 + MOST_GROWTH) + SLACK_MIB:
                yield f"the memory of {name} grew from {before:.0f} to {after:.0f} MiB"

    def _p99(self, *phases: str) -> float:
        return percentiles([each for name in phases for each in _all(self.phases[name])])["p99"]

    def _growth(self) -> dict[str, tuple[float, float]]:
        return {name: thirds(samples) for name, samples in self.memory.items()}

    def verdict(self) -> Iterator[str]:
        """What the bars are about, in a few lines."""
        quiet, attacked = self._p99(*QUIET), self._p99("under attack")
        numbers = {name: sum(map(len, seen.latencies.values())) for name, seen in self.phases.items()}
        attacks = sum(sum(statuses.values()) for statuses in self.attackers.statuses.values())
        yield f"answers to the neighbour: {numbers}; to the attackers: {attacks}"
        yield f"quiet, 99 %: {quiet} ms ({', '.join(f'{name} {self._p99(name)}' for name in QUIET)})"
        yield f"under attack, 99 %: {attacked} ms"
        yield f"ratio: {attacked / quiet:.1f} (bar {TIMES_QUIET:g})"
        grown = [f"{name} {before:.0f} to {after:.0f}" for name, (before, after) in self._growth().items()]
        yield f"memory, MiB, from the second third of the attack to the last: {', '.join(grown)}"
        for who, seen in (("neighbour", self.phases["under attack"]), ("attackers", self.attackers)):
            failed: Counter[str] = Counter()
            for kind, statuses in seen.statuses.items():
                failed.update({f"{kind} {status}": n for status, n in statuses.items() if status >= 500})
            yield f"5xx to the {who}: {dict(failed) or 'none'}"

    def summary(self) -> dict[str, Any]:
        """What was measured."""
        return {
            "neighbour_ms": {name: percentiles(_all(seen)) for name, seen in self.phases.items()},
            "neighbour_kinds_ms": {
                kind: {
                    name: percentiles(seen.latencies[kind])
                    for name, seen in self.phases.items()
                    if kind in seen.latencies
                }
                for kind in self.phases["alone"].latencies
            },
            "attackers_ms": {kind: percentiles(each) for kind, each in self.attackers.latencies.items()},
            "attackers": self.attackers.statuses,
            "attackers_without_answers": self.attackers.failures,
            "memory_mib": {name: [round(each) for each in sizes] for name, sizes in self._growth().items()},
        }


def _all(seen: Seen) -> list[float]:
    return [each for kind, times in seen.latencies.items() if kind != "sign in" for each in times]


def try_it(
    folder: Path, *, quiet: float, attacked: float, servers: int, apart: Path | None = None
) -> tuple[Trial, list[str]]:
    """A deployment, with the limits that everybody gets who sets none."""
    deployment = Deployment(folder, SETTINGS, topology(), proxied=False)
    deployment.start()
    trial = Trial(deployment, apart)
    try:
        deployment.await_(trial.run(quiet, attacked, servers))
    finally:
        failed = deployment.stop()
    return trial, [*failed, *deployment.fell]


@contextmanager
def one_machine() -> Iterator[Path | None]:
    """Let the kernel weigh all processes of the trial together, and the attackers apart, since they belong to another
    machine: in the same group, what they use would be taken from the service when others want the CPU too. Where it
    groups tasks by session, as for desktops, it gives each backend of PostgreSQL as much as all of Roost, and
    priorities mean nothing between them."""
    if not os.access(CPU_GROUPS, os.W_OK):
        yield None
        return
    service, apart = (CPU_GROUPS / f"roost-hostile-{os.getpid()}{more}" for more in ("", "-attackers"))
    for group, shares in ((service, 1024 * (os.cpu_count() or 1) * 4), (apart, 1024)):
        group.mkdir()
        (group / "cpu.shares").write_text(str(shares))
    (service / "cgroup.procs").write_text(str(os.getpid()))
    priority = os.getpriority(os.PRIO_PROCESS, 0)
    with suppress(PermissionError):  # in the group, priorities are to be as far apart as they are where Roost runs
        os.setpriority(os.PRIO_PROCESS, 0, 0)
    try:
        yield apart
    finally:
        os.setpriority(os.PRIO_PROCESS, 0, priority)
        for group in (service, apart):
            for left in (group / "cgroup.procs").read_text().split():
                with suppress(OSError):  # it has ended meanwhile
                    (CPU_GROUPS / "cgroup.procs").write_text(left)
            group.rmdir()


def main() -> int:
    """Try it for some minutes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30, help="of attack")
    parser.add_argument("--attack", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.attack:
        asyncio.run(attack(**json.loads(given.attack)))
        return 0
    seconds = given.minutes * 60
    folder = Path(tempfile.mkdtemp(prefix="roost-hostile-")) / "hostile"
    with one_machine() as apart:
        quiet = max(30, min(150, seconds / 4))
        trial, failed = try_it(folder, quiet=quiet, attacked=seconds, servers=1000, apart=apart)
    wrong = [*trial.wrong(flat=seconds >= 300), *failed]
    summary = {"minutes": given.minutes, **trial.summary(), "wrong": wrong}
    WRITTEN.parent.mkdir(exist_ok=True)
    WRITTEN.write_text(json.dumps(summary, indent=2) + "\n")
    print(json.dumps(summary, indent=2))
    print(*trial.verdict(), f"wrong: {wrong or 'nothing'}", sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
