"""A project and an address have a share of requests; the role service has no limit."""

import time
from dataclasses import replace

import httpx
import pytest

from roost.api.app import App, make_services
from roost.api.auth import RoostAuthenticator
from roost.api.rates import RateLimit, TooFast
from roost.config import Settings
from roost.store.database import Database
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
        assert answers[-1].json()["overLimit"]["code"] == 429
        assert (await ask("roost-alt")).status_code == 200
        assert [(await ask(None)).status_code for _ in range(12)][-1] == 429
        assert (await ask("roost-admin")).status_code == 200
