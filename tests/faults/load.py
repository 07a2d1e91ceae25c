"""Sustained traffic, for as long as LOAD_SECONDS says: `make load`.

Some clients make, look at, list and delete servers, others scale a cluster, each as fast as it is answered. Meanwhile
the memory of every process and the connections to the database are looked at; at the end far more clients come at once
than can be served. What was measured is printed, and written to build/load.json.
"""

import asyncio
import json
import os
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, quantiles
from typing import Any

import httpx

from tests.faults.clients import PROFILE, Clients, server_body
from tests.faults.deployment import Deployment

SECONDS = float(os.environ.get("LOAD_SECONDS") or 600)
CLIENTS, CROWD = 10, 300
"""Clients all the time, and at the end."""
MOST_AT_WORK = 32
SETTINGS = f"""
[api]
max_requests = {MOST_AT_WORK}
[quota]
instances = -1
cores = -1
ram = -1
server_groups = -1
server_group_members = -1
"""
TOPOLOGY = """
generate: {zones: 3, racks_per_zone: 4, hosts_per_rack: 10}
simulation: {boot_seconds: 0.05, failure_rate: 0.0}
"""
ANSWER_SECONDS = 60.0
MOST_GROWTH = 0.1
"""How much more memory a process may have in the last third of the time than in the one before."""
WRITTEN = Path("build/load.json")


@dataclass
class Load:
    """Traffic on a deployment, and what was seen of it."""

    deployment: Deployment
    token: str
    http: httpx.AsyncClient
    latencies: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    statuses: dict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    without_advice: int = 0
    """Refusals that do not say when to come again."""
    failures: list[str] = field(default_factory=list)
    memory: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    connections: list[int] = field(default_factory=list)

    async def ask(self, kind: str, number: int, method: str, path: str, body: Any = None) -> httpx.Response | None:
        """One request, measured; None if there was no answer."""
        api = self.deployment.apis[number % 2]
        headers = {"X-Auth-Token": self.token, "OpenStack-API-Version": "compute 2.1003"}
        begun = time.perf_counter()
        try:
            answer = await self.http.request(method, f"http://{api.command[-1]}{path}", json=body, headers=headers)
        except httpx.HTTPError as error:
            self.failures.append(f"{kind}: {type(error).__name__} after {time.perf_counter() - begun:.1f} s")
            return None
        self.latencies[kind].append(time.perf_counter() - begun)
        self.statuses[kind][answer.status_code] += 1
        self.without_advice += answer.status_code in (429, 503) and "retry-after" not in answer.headers
        return answer

    # The clients

    async def traffic(self, seconds: float, clients: int) -> None:
        """So many clients for so long, two of them on clusters."""
        until = time.monotonic() + seconds
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch(until))
            for number in range(clients):
                group.create_task(self._scale(number, until) if number < 2 else self._serve(number, until))

    async def _serve(self, number: int, until: float) -> None:
        while time.monotonic() < until:
            body = server_body(f"load{number}", "1", None, None, 1)
            made = await self.ask("create server", number, "POST", "/compute/v2.1/servers", body)
            if made is None or made.status_code != 202:
                await asyncio.sleep(1)
                continue
            path = f"/compute/v2.1/servers/{made.json()['server']['id']}"
            await self.ask("show server", number + 1, "GET", path)
            await self.ask("list servers", number, "GET", "/compute/v2.1/servers/detail?limit=50")
            await self.ask("delete server", number, "DELETE", path)

    async def _insist(self, kind: str, number: int, path: str, body: Any) -> httpx.Response:
        """Ask until it is granted, and wait in between as long as the answer says."""
        while True:
            answer = await self.ask(kind, number, "POST", path, body)
            if answer is not None and answer.is_success:
                return answer
            await asyncio.sleep(1)

    async def _scale(self, number: int, until: float) -> None:
        wanted: dict[str, Any] = {"profile": {"name": "load", "spec": PROFILE}}
        profile = await self._insist("create profile", number, "/clustering/v1/profiles", wanted)
        wanted = {"cluster": {"name": f"load{number}", "profile_id": profile.json()["profile"]["id"]}}
        made = await self._insist("create cluster", number, "/clustering/v1/clusters", wanted)
        cluster = f"/clustering/v1/clusters/{made.json()['cluster']['id']}"
        await self._ended(number, made)
        while time.monotonic() < until:
            for action in ("scale_out", "scale_in"):
                begun = time.perf_counter()
                await self._ended(
                    number, await self._insist(action, number, f"{cluster}/actions", {action: {"count": 2}})
                )
                self.latencies[f"{action}, until done"].append(time.perf_counter() - begun)
        await self._ended(number, await self.ask("delete cluster", number, "DELETE", cluster))

    async def _ended(self, number: int, accepted: httpx.Response | None) -> None:
        if accepted is None or accepted.status_code != 202:
            return
        path = f"/clustering/v1/actions/{accepted.headers['location'].rpartition('/')[2]}"
        until = time.monotonic() + ANSWER_SECONDS
        while time.monotonic() < until:
            shown = await self.ask("show action", number, "GET", path)
            if shown is not None and shown.status_code == 200 and shown.json()["action"]["status"] in _ENDED:
                return
            await asyncio.sleep(0.05)
        self.failures.append(f"{path} did not end")

    async def crowd(self, clients: int, each: int) -> None:
        """Everybody at once, on connections of their own, and again at once whatever the answer was."""
        async with asyncio.TaskGroup() as group:
            for number in range(clients):
                group.create_task(self._insist_in_a_crowd(number, each))

    async def _insist_in_a_crowd(self, number: int, times: int) -> None:
        # Not through a client library, which would be the slowest of all that is measured here.
        host, _, port = self.deployment.apis[number % 2].command[-1].partition(":")
        path = "/compute/v2.1/servers/detail?limit=50"
        request = f"GET {path} HTTP/1.1\r\nHost: x\r\nX-Auth-Token: {self.token}\r\nConnection: close\r\n\r\n"
        for _ in range(times):
            begun = time.perf_counter()
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    reader, writer = await asyncio.open_connection(host, int(port))
                    writer.write(request.encode())
                    answer = await reader.read()
                    writer.close()
            except (OSError, TimeoutError) as error:
                self.failures.append(f"in a crowd: {type(error).__name__} after {time.perf_counter() - begun:.1f} s")
                continue
            status = int(answer.split(b" ", 2)[1])
            self.latencies[f"in a crowd, {status}"].append(time.perf_counter() - begun)
            self.statuses["in a crowd"][status] += 1
            self.without_advice += status in (429, 503) and b"retry-after:" not in answer.lower()

    async def _watch(self, until: float) -> None:
        while time.monotonic() < until:
            self._look()
            await asyncio.sleep(max(0.2, min(5.0, SECONDS / 100)))

    def _look(self) -> None:
        for process in self.deployment.processes:
            if process.running is not None:
                pages = int(Path(f"/proc/{process.running.pid}/statm").read_text().split()[1])
                self.memory[process.name].append(pages * os.sysconf("SC_PAGE_SIZE") / 2**20)
        with self.deployment.sql() as connection:
            row = connection.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = 'roost'").fetchone()
            self.connections.append(int(row[0]) if row else 0)

    # What it came to

    def wrong(self, *, flat: bool) -> Iterator[str]:
        """What must not be so; whether memory is `flat` is to be seen only after some minutes."""
        yield from self.failures
        if self.without_advice:
            yield f"{self.without_advice} refusals did not say when to come again"
        for kind, statuses in self.statuses.items():
            bad = {status: n for status, n in statuses.items() if status >= 400 and status not in _EXPECTED}
            if bad:
                yield f"{kind} was answered with {bad}"
        if self.statuses["in a crowd"] and not self.statuses["in a crowd"][200]:
            yield "in a crowd no request was served"
        for name, samples in self.memory.items() if flat else ():
            before, after = thirds(samples)
            if after > before * (1 + MOST_GROWTH):
                yield f"the memory of {name} grew from {before:.0f} to {after:.0f} MiB"
        if flat:
            before, after = thirds([float(each) for each in self.connections])
            if after > before * (1 + MOST_GROWTH) + 2:
                yield f"connections to the database grew from {before:.0f} to {after:.0f}"

    def summary(self) -> dict[str, Any]:
        """What was measured."""
        return {
            "requests": sum(statuses.total() for statuses in self.statuses.values()),
            "milliseconds": {kind: percentiles(values) for kind, values in sorted(self.latencies.items())},
            "statuses": {kind: dict(statuses) for kind, statuses in sorted(self.statuses.items())},
            "memory_mib": {name: [round(each) for each in thirds(samples)] for name, samples in self.memory.items()},
            "connections": [round(each) for each in thirds([float(each) for each in self.connections])],
            "most_connections": max(self.connections, default=0),
        }


_EXPECTED = (409, 429, 503)
_ENDED = ("SUCCEEDED", "FAILED", "CANCELLED")


def thirds(samples: list[float]) -> tuple[float, float]:
    """The mean of the second third of the time, when everything is warm, and of the last."""
    size = max(len(samples) // 3, 1)
    return fmean(samples[size : 2 * size] or samples), fmean(samples[-size:])


def percentiles(seconds: list[float]) -> dict[str, float]:
    """How long requests took, in milliseconds."""
    if not seconds:
        return {"number": 0}
    cuts = quantiles(seconds, n=100) if len(seconds) > 1 else seconds * 99
    ranks = {"p50": cuts[49], "p95": cuts[94], "p99": cuts[98], "max": max(seconds)}
    return {"number": len(seconds)} | {name: round(value * 1000, 1) for name, value in ranks.items()}


async def put_on(deployment: Deployment, token: str, seconds: float, clients: int, crowd: int) -> Load:
    """Put load on a deployment, and in the end a crowd."""
    limits = httpx.Limits(max_connections=clients + crowd)
    async with httpx.AsyncClient(timeout=ANSWER_SECONDS, limits=limits) as http:
        load = Load(deployment, token, http)
        await load.traffic(seconds, clients)
        await load.crowd(crowd, 5)
        return load


def main() -> int:
    """Load a deployment."""
    deployment = Deployment(Path(tempfile.mkdtemp(prefix="roost-load-")) / "load", SETTINGS, TOPOLOGY, proxied=False)
    deployment.start()
    try:
        clients = Clients(deployment, 0)
        load = deployment.await_(put_on(deployment, clients.token("admin"), SECONDS, CLIENTS, CROWD))
        clients.close()
    finally:
        failed = deployment.stop()
    wrong = [*load.wrong(flat=True), *failed, *deployment.fell]
    summary = {"seconds": SECONDS, **load.summary(), "wrong": wrong}
    WRITTEN.parent.mkdir(exist_ok=True)
    WRITTEN.write_text(json.dumps(summary, indent=2) + "\n")
    print(_told(summary))
    return 1 if wrong else 0


def _told(summary: dict[str, Any]) -> str:
    lines = [f"{summary['seconds']:g} seconds, {summary['requests']} requests", ""]
    lines += ["| request | number | p50 ms | p95 ms | p99 ms | max ms |", "|---|---|---|---|---|---|"]
    lines += [
        f"| {kind} | " + " | ".join(map(str, row.values())) + " |" for kind, row in summary["milliseconds"].items()
    ]
    lines += ["", "| process | MiB, second third | MiB, last third |", "|---|---|---|"]
    lines += [f"| {name} | {before} | {after} |" for name, (before, after) in summary["memory_mib"].items()]
    lines += ["", f"connections to the database: {summary['connections']}, at most {summary['most_connections']}"]
    lines += [f"answers: {summary['statuses']}", f"wrong: {summary['wrong']}"]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
