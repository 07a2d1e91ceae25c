"""No tenant feels another: whatever one project sends, another's ordinary requests keep answering.

Every route has a declared cost, in `costs.txt`: measure a new route and add it there. Each route
that is `expensive` is attacked here by one project while a neighbour does ordinary things.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from roost.api.app import App, all_routes
from roost.api.auth import RoostAuthenticator
from roost.workers import WorkerPool
from tests.compute.cloud import NEWEST, Cloud
from tests.conftest import Api

COSTS = Path(__file__).with_name("costs.txt")
ATTACKERS = 31
TIMES_QUIET, SECONDS = 10, 1.0
"""The longest that a neighbour waits for an ordinary answer: so many times as long as alone, and so many
seconds."""
QUIET_AGAIN = 5.0
ROUNDS = 20
TRIES = 5
"""A machine that has more to do than this test is slow once; an attack that is felt is felt more often than not."""


def declared() -> dict[str, str]:
    """The cost of each route."""
    return dict(line.rsplit(" ", 1) for line in COSTS.read_text().splitlines() if line and not line.startswith("#"))


def test_every_route_has_a_declared_cost() -> None:
    table = {
        f"{route.method} {api.prefix}{route.path}": "expensive" if route.expensive else "ordinary"
        for api, route in all_routes()
    }
    assert declared() == table


@dataclass
class Attack:
    """What an attacker sends, over and over."""

    method: str
    path: str
    body: Any = None


async def _explain(cloud: Cloud, group: str) -> Attack:
    return Attack("POST", f"/os-server-groups/{group}/explain", {"explain": {"flavorRef": "1", "count": 1000}})


async def _compose(cloud: Cloud, group: str) -> Attack:
    policies = [{"name": "anti-affinity", "scope": "rack", "rules": {"max_server_per_aggregate": 2}}]
    body = {"explain": {"flavorRef": "1", "count": 1000, "policies": policies}}
    return Attack("POST", "/os-server-groups/explain", body)


async def _plan(cloud: Cloud, group: str) -> Attack:
    return Attack("POST", f"/os-server-groups/{group}/plan", {"plan": {"create": {"flavorRef": "1", "count": 1000}}})


async def _plan_all(cloud: Cloud, group: str) -> Attack:
    scopes = (await cloud.ask("GET", "/os-policy-scopes")).json()["policy_scopes"]
    zones = next(scope for scope in scopes if scope["name"] == "availability_zone")
    zone = zones["aggregates"][0]["group_id"]
    return Attack(
        "POST", "/os-server-groups/plan", {"plan": {"lose": {"scope": "availability_zone", "identifier": zone}}}
    )


async def _repair(cloud: Cloud, group: str) -> Attack:
    return Attack("POST", f"/os-server-groups/{group}/repairs", {"repair": {"dry_run": True}})


async def _explanation(cloud: Cloud, group: str) -> Attack:
    await cloud.hosts(0)
    server = await cloud.boot(group=group)
    return Attack("GET", f"/servers/{server}/explanation")


async def _resize(cloud: Cloud, group: str) -> Attack:
    return Attack("POST", f"/servers/{await cloud.boot(group=group)}/explain", {"explain": {"flavorRef": "2"}})


ATTACKS: dict[str, Callable[[Cloud, str], Awaitable[Attack]]] = {
    "POST /compute/v2.1/os-server-groups/{server_group_id}/explain": _explain,
    "POST /compute/v2.1/os-server-groups/explain": _compose,
    "POST /compute/v2.1/os-server-groups/{server_group_id}/plan": _plan,
    "POST /compute/v2.1/os-server-groups/plan": _plan_all,
    "POST /compute/v2.1/os-server-groups/{server_group_id}/repairs": _repair,
    "GET /compute/v2.1/servers/{server_id}/explanation": _explanation,
    "POST /compute/v2.1/servers/{server_id}/explain": _resize,
}


def test_every_expensive_route_is_attacked() -> None:
    assert ATTACKS.keys() == {route for route, cost in declared().items() if cost == "expensive"}


async def _neighbour(cloud: Cloud, until: Callable[[], bool]) -> float:
    """The longest that an ordinary request of another project takes."""
    slowest, rounds = 0.0, 0
    while not until() or rounds < ROUNDS:
        for path in ("/servers", "/os-server-groups", "/flavors"):
            started = time.perf_counter()
            answer = await _send(cloud, "roost-alt", "GET", path)
            slowest = max(slowest, time.perf_counter() - started)
            assert answer.status_code == 200, answer.text
        rounds += 1
        await asyncio.sleep(0.01)
    return slowest


async def _attack(cloud: Cloud, attack: Attack) -> list[httpx.Response]:
    asked = {"json": attack.body} if attack.body is not None else {}
    requests = (_send(cloud, "roost", attack.method, attack.path, **asked) for _ in range(ATTACKERS))
    return list(await asyncio.gather(*requests))


async def _send(cloud: Cloud, who: str, method: str, path: str, **more: Any) -> httpx.Response:
    """One request. Its answer is not held against its schema: that would take time of the loop that is measured."""
    headers = {"X-Auth-Token": await cloud.api.token(who), "OpenStack-API-Version": f"compute {NEWEST}"}
    return await cloud.api.http.request(method, f"/compute/v2.1{path}", headers=headers, **more)


@pytest.fixture
async def cloud(api: Api) -> AsyncIterator[Cloud]:
    """With tokens that are remembered, as they usually are."""
    app = App(api.services, RoostAuthenticator(api.services.database, api.services.settings.token_cache_seconds))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://roost.test") as http:
        yield Cloud(Api(api.services, http, api.tokens))


@pytest.mark.parametrize("route", ATTACKS)
async def test_a_neighbour_hardly_notices(cloud: Cloud, route: str) -> None:
    await cloud.quota(instances=-1, cores=-1, ram=-1, server_group_members=-1)
    group = await cloud.group({"name": "anti-affinity", "scope": "rack", "rules": {"max_server_per_aggregate": 2}})
    for _ in range(3):
        await cloud.boot(group=group)
    attack = await ATTACKS[route](cloud, group)
    await _neighbour(cloud, lambda: True)
    tries: list[Try] = []
    while max(felt := sum(each.is_felt for each in tries), len(tries) - felt) <= TRIES // 2:
        tries.append(await _tried(cloud, attack))
    assert felt <= TRIES // 2, tries


@pytest.mark.parametrize("route", ATTACKS)
async def test_nothing_is_held_while_an_answer_is_worked_out(
    cloud: Cloud, route: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """31 dry runs of repairs held every connection for as long as they were worked out."""
    held: list[int] = []
    run = WorkerPool.run

    async def look(self: WorkerPool, *question: Any, **more: Any) -> Any:
        held.append(cloud.database.connections_in_use)
        return await run(self, *question, **more)

    attack = await _without_room(cloud, route)
    monkeypatch.setattr(WorkerPool, "run", look)
    asked = {"json": attack.body} if attack.body is not None else {}
    answer = await _send(cloud, "roost", attack.method, attack.path, **asked)
    assert answer.status_code == 200, answer.text
    assert held
    assert set(held) == {0}


async def _without_room(cloud: Cloud, route: str) -> Attack:
    """An attack on a cloud that has no place for what is asked: that takes longest."""
    await cloud.quota(instances=-1, cores=-1, ram=-1, server_group_members=-1)
    group = await cloud.group({"name": "anti-affinity", "scope": "rack", "rules": {"max_server_per_aggregate": 1}})
    for _ in range(4):
        await cloud.boot(group=group)
    attack = await ATTACKS[route](cloud, group)
    await cloud.hosts(0)
    return attack


def _app(cloud: Cloud) -> App:
    transport = cloud.api.http._transport
    assert isinstance(transport, httpx.ASGITransport)
    assert isinstance(transport.app, App)
    return transport.app


@pytest.mark.parametrize("route", ATTACKS)
async def test_what_is_worked_out_for_a_client_ends_when_the_client_goes_away(
    cloud: Cloud, route: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def work(*_: Any, **__: Any) -> None:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    attack = await _without_room(cloud, route)
    monkeypatch.setattr(WorkerPool, "run", work)
    headers = {"X-Auth-Token": await cloud.api.token("roost"), "OpenStack-API-Version": f"compute {NEWEST}"}
    asked = {"json": attack.body} if attack.body is not None else {}
    request = cloud.api.http.build_request(attack.method, f"/compute/v2.1{attack.path}", headers=headers, **asked)
    sent = iter([{"type": "http.request", "body": request.content, "more_body": False}])

    async def receive() -> Any:
        if (piece := next(sent, None)) is not None and request.content:
            return piece
        await begun.wait()
        return {"type": "http.disconnect"}

    async def send(_: Any) -> None:
        """Nobody hears the answer."""

    raw = [(name.lower(), value) for name, value in request.headers.raw]
    scope = {"type": "http", "method": attack.method, "path": request.url.path, "query_string": b"", "headers": raw}
    async with asyncio.timeout(20):
        await _app(cloud)({**scope, "scheme": "http", "client": ("127.0.0.1", 1)}, receive, send)
    assert ended.is_set()


@dataclass
class Try:
    """What a neighbour waited at most: before and after an attack, and under it, in seconds."""

    before: float
    attacked: float
    after: float

    @property
    def is_felt(self) -> bool:
        """Whether the attack was more than hardly noticed, or went on after its end."""
        quiet = max(self.before, self.after)
        return self.attacked > min(TIMES_QUIET * quiet, SECONDS) or self.after > TIMES_QUIET * self.before


async def _tried(cloud: Cloud, attack: Attack) -> Try:
    before = await _neighbour(cloud, lambda: True)
    attacking = asyncio.create_task(_attack(cloud, attack))
    attacked = await _neighbour(cloud, attacking.done)
    answers = await attacking
    assert {answer.status_code for answer in answers} <= {200, 429, 503}
    assert all("retry-after" in answer.headers for answer in answers if answer.status_code != 200)
    assert any(answer.status_code == 200 for answer in answers)
    until = time.monotonic() + QUIET_AGAIN
    while (after := await _neighbour(cloud, lambda: True)) > TIMES_QUIET * before and time.monotonic() < until:
        pass
    return Try(before, attacked, after)
