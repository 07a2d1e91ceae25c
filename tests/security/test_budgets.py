"""Every route has so much time, by its kind, and then its statement ends in PostgreSQL, too.

The routes come from the route table: all of a kind are asked while every table is locked, so that whoever looks into
one waits for as long as it may.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import httpx
import psycopg
import pytest

from roost.api import budgets
from roost.api.app import App, all_routes
from roost.api.auth import RoostAuthenticator
from roost.api.budgets import RouteKind
from tests.conftest import Api
from tests.security import probes
from tests.security.probes import Probe
from tests.security.world import FEED, OPERATOR, Things, World, inhabited

SECONDS = 0.3
"""What the kind that is looked at has; all others have the whole of `request_seconds`."""
BEARABLE = 5.0
"""Far more than that on a busy machine, and far less than a statement or a request may take."""
AT_ONCE = 16
WAITING = """
    SELECT query FROM pg_stat_activity
    WHERE wait_event_type = 'Lock' AND datname = current_database() AND query NOT LIKE '%roost_look(%'
"""
"""What waits for a table, but for the scheduler's own: that decides for many requests at a time, and ends with the
patience of every statement for locks."""
KINDS_THAT_LOOK = set(RouteKind) - {RouteKind.PROBE}
"""All but what is the same for everybody; of that, only readiness looks at a table."""


@pytest.fixture(scope="module")
async def world(shared_database_url: str) -> AsyncIterator[World]:
    """Things to ask for."""
    async with inhabited(shared_database_url) as made:
        yield made


def test_all_that_changes_nothing_has_less_time_than_a_change() -> None:
    shares = budgets.SHARES
    assert shares[RouteKind.PROBE] <= shares[RouteKind.READ] < shares[RouteKind.LIST] < shares[RouteKind.WRITE] == 1
    for _, route in all_routes():
        assert (route.kind is RouteKind.ANSWER) >= route.expensive
        assert (route.method == "GET") >= (
            route.kind in (RouteKind.PROBE, RouteKind.READ, RouteKind.LIST, RouteKind.CLOUD)
        )


def of_kind(kind: RouteKind, things: Things) -> list[Probe]:
    """A request to every route of a kind."""
    rows = [(api, route) for api, route in probes.rows() if route.kind is kind]
    return [next(probes.probes(api, route, things, things)) for api, route in rows if api.prefix + route.path != FEED]


async def asked(api: Api, probe: Probe, places: asyncio.Semaphore) -> tuple[Probe, httpx.Response, float]:
    """The answer to one request, and how long it took."""
    request: dict[str, Any] = probe.request
    if probe.path.endswith("/file") and probe.method == "PUT":
        request = {**request, "headers": {"Content-Type": "application/octet-stream"}}
    async with places:
        started = time.monotonic()
        answer = await api.request(**request, cloud=OPERATOR)
        return probe, answer, time.monotonic() - started


@pytest.mark.parametrize("kind", RouteKind)
async def test_a_statement_ends_when_its_kind_of_request_has_had_its_time(
    world: World, kind: RouteKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    services = world.house.api.services
    settings = replace(services.settings, project_requests=AT_ONCE, project_questions=AT_ONCE)
    share = SECONDS / settings.request_seconds
    monkeypatch.setattr(budgets, "SHARES", MappingProxyType({**dict.fromkeys(RouteKind, 1.0), kind: share}))
    app = App(replace(services, settings=settings), RoostAuthenticator(services.database, 3600))
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://roost.test") as http:
        api = Api(services, http, dict(world.house.api.tokens))
        await api.get("/compute/v2.1/flavors", cloud=OPERATOR)  # the token is remembered
        with psycopg.connect(world.house.database.address.conninfo()) as holder:
            tables = holder.execute("SELECT quote_ident(tablename) FROM pg_tables WHERE schemaname = 'public'")
            holder.execute(f"LOCK TABLE {', '.join(name for (name,) in tables)}")
            places = asyncio.Semaphore(AT_ONCE)
            found = await asyncio.gather(*(asked(api, probe, places) for probe in of_kind(kind, world.owner)))
            assert holder.execute(WAITING).fetchall() == []
    assert [(str(probe), seconds) for probe, _, seconds in found if seconds > BEARABLE] == []
    statuses = [answer.status_code for _, answer, _ in found]
    assert 500 not in statuses
    assert all(answer.headers["retry-after"] for _, answer, _ in found if answer.status_code == 503)
    assert (503 in statuses) or kind not in KINDS_THAT_LOOK
