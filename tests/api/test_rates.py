"""A project and an address have a share of requests; the role service has no limit."""

import asyncio
import time
from dataclasses import replace

import httpx
import pytest
import sqlalchemy as sa

from roost.api.app import App, make_services
from roost.api.auth import RoostAuthenticator
from roost.api.compute import console
from roost.api.rates import RateLimit, TooFast
from roost.compute.scheduling.scheduler import Scheduler
from roost.config import Settings
from roost.identity.tokens import Caller
from roost.store.database import Database
from tests.compute.cloud import IMAGE, Cloud
from tests.conftest import Api


def test_a_share_is_a_rate_with_a_burst_of_two_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    limit = RateLimit(5)
    left = [limit.take("a").remaining for _ in range(10)]  # type: ignore[union-attr]
    assert left == [9, 8, 7, 6, 5, 4, 3, 2, 1, 0]
    with pytest.raises(TooFast) as refused:
        limit.take("a")
    assert refused.value.seconds == 1
    assert limit.take("b") is not None
    now += 0.21
    assert limit.take("a") is not None
    with pytest.raises(TooFast):
        limit.take("a")
    assert RateLimit(0).take("a") is None


async def test_a_project_that_asks_too_often_is_told_when_to_come_again(
    api: Api, settings: Settings, database: Database
) -> None:
    few = replace(settings, project_rate=2.0, address_rate=2.0)
    app = App(make_services(few, database), RoostAuthenticator(database, 60))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://roost.test") as http:

        async def ask(cloud: str | None) -> httpx.Response:
            headers = {"X-Auth-Token": await api.token(cloud) if cloud else "wrong"}
            return await http.get("/compute/v2.1/flavors", headers=headers)

        answers = [await ask("roost") for _ in range(12)]
        assert answers[0].status_code == 200
        assert answers[0].headers["RateLimit-Limit"] == "4"
        assert answers[-1].status_code == 429
        assert int(answers[-1].headers["Retry-After"]) >= 1
        assert answers[-1].headers["RateLimit-Remaining"] == "0"
        assert all(1 <= int(answer.headers["RateLimit-Reset"]) <= 3 for answer in answers)
        assert answers[-1].json()["overLimit"]["code"] == 429
        assert (await ask("roost-alt")).status_code == 200
        assert [(await ask(None)).status_code for _ in range(12)][-1] == 429
        assert (await ask("roost-admin")).status_code == 200


class _Service(RoostAuthenticator):
    """Whoever asks is a service."""

    async def authenticate(self, secret: str, service: str | None = None, address: str = "") -> Caller:
        return replace(await super().authenticate(secret, service, address), roles=("service",))


async def test_the_role_service_has_no_rate_and_takes_no_turn(api: Api, settings: Settings, database: Database) -> None:
    few = replace(settings, project_rate=2.0, address_rate=2.0, project_requests=1)
    app = App(make_services(few, database), _Service(database, 60))
    headers = {"X-Auth-Token": await api.token("roost")}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://roost.test") as http:
        validating = {**headers, "X-Subject-Token": await api.token("roost")}
        asked = (http.get("/identity/v3/auth/tokens", headers=validating) for _ in range(24))
        answers = await asyncio.gather(*asked)
    assert {answer.status_code for answer in answers} == {200}
    assert not any("RateLimit-Limit" in answer.headers for answer in answers)


async def test_requests_of_one_project_take_turns_and_others_do_not_wait_for_them(
    api: Api, settings: Settings, database: Database
) -> None:
    """What waits for a row that another transaction has locked holds up its own project alone."""
    few = replace(settings, project_requests=2, max_requests=16)
    app = App(make_services(few, database), RoostAuthenticator(database, 60))
    async with (
        httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://roost.test") as http,
        database.begin() as holding,
    ):

        async def ask(cloud: str, path: str) -> httpx.Response:
            headers = {"X-Auth-Token": await api.token(cloud), "OpenStack-API-Version": "compute 2.1003"}
            return await http.get(f"/compute/v2.1{path}", headers=headers)

        assert (await ask("roost", "/flavors")).status_code == 200
        await holding.execute(sa.text("LOCK TABLE server_groups IN ACCESS EXCLUSIVE MODE"))
        stuck = [asyncio.create_task(ask("roost", "/os-server-groups")) for _ in range(20)]
        await asyncio.sleep(0.5)
        refused = [task.result() for task in stuck if task.done()]
        assert {answer.status_code for answer in refused} == {429}
        assert len(refused) == 20 - 16 // 2
        assert all(answer.headers["Retry-After"] == "1" for answer in refused)
        async with asyncio.timeout(5):
            assert (await ask("roost-alt", "/flavors")).status_code == 200
        await holding.rollback()
        assert {(await task).status_code for task in stuck} == {200, 429}


async def test_what_is_made_while_it_is_sent_takes_a_turn_for_each_piece(
    api: Api, settings: Settings, database: Database, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "_ROWS_AT_A_TIME", 1)
    for _ in range(3):
        await cloud.boot()
    app = App(make_services(replace(settings, project_requests=1), database), RoostAuthenticator(database, 60))
    ended = list[str]()
    give_back = app._ordinary.give_back

    def count(owner: str) -> None:
        ended.append(owner)
        give_back(owner)

    monkeypatch.setattr(app._ordinary, "give_back", count)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://roost.test") as http:
        headers = {"X-Auth-Token": await api.token("roost"), "OpenStack-API-Version": "compute 2.1003"}
        path = "/compute/v2.1/os-exports/servers?format=json"
        answers = await asyncio.gather(*(http.get(path, headers=headers) for _ in range(3)))
    assert [len(answer.json()) for answer in answers] == [3, 3, 3]
    assert len(ended) >= 3 * 3
    assert not app._ordinary._working


async def test_a_server_that_is_being_placed_keeps_no_turn(api: Api, settings: Settings, database: Database) -> None:
    services = make_services(replace(settings, project_requests=1), database)
    app = App(services, RoostAuthenticator(database, 60))
    placing = asyncio.Event()

    async def create(_: object, request: object) -> None:
        placing.set()
        await asyncio.sleep(60)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Scheduler, "create", create)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://roost.test") as http:
            headers = {"X-Auth-Token": await api.token("roost"), "OpenStack-API-Version": "compute 2.1003"}
            wanted = {"name": "server", "flavorRef": "1", "imageRef": IMAGE, "networks": "none"}
            asked = asyncio.create_task(http.post("/compute/v2.1/servers", json={"server": wanted}, headers=headers))
            async with asyncio.timeout(30):
                await placing.wait()
                assert (await http.get("/compute/v2.1/flavors", headers=headers)).status_code == 200
            asked.cancel()
