"""The scheduler API where it is served: for the plug-in of a nova-scheduler alone, whatever is sent."""

import itertools
from collections.abc import AsyncIterator, Iterator
from copy import deepcopy
from typing import Any
from uuid import uuid4

import pytest
import sqlalchemy as sa

from roost.api.scheduler import SCHEDULER_API
from roost.api.versions import Version
from roost.cli.bootstrap import USERS
from roost.store.database import Database
from tests.api.test_scheduler import make_group, served_in_front, wanted
from tests.conftest import Api
from tests.security.probes import bodies, row_name
from tests.security.test_hostile_input import INJECTED, LONG

TENANTS = [user.cloud for user in USERS if user.role != "admin"]
HOSTILE: tuple[Any, ...] = (
    *INJECTED,
    10**30,
    -(10**30),
    2**63,
    2**31,
    -1,
    1.5,
    True,
    None,
    [],
    {},
    [[]],
    {"a": {}},
    "\x00",
)


@pytest.fixture
async def front(database: Database, database_url: str) -> AsyncIterator[Api]:
    async with served_in_front(database, database_url) as made:
        yield made


async def rows(front: Api) -> str:
    """Everything that a reservation could have changed."""
    query = "SELECT (SELECT string_agg(t::text, ',' ORDER BY t::text) FROM {} t)"
    async with front.services.database.begin() as connection:
        found = [
            await connection.scalar(sa.text(query.format(table))) for table in ("servers", "claims", "server_groups")
        ]
    return repr(found)


async def test_every_route_is_refused_to_tenants_whatever_exists(api: Api, front: Api) -> None:
    there, nowhere = (
        {"server_group_id": group, "loner_id": str(uuid4()), "project_id": "demo", "user_id": "user"}
        for group in (await make_group(api), str(uuid4()))
    )
    before = await rows(front)
    for route in SCHEDULER_API.table.routes:
        for body in bodies(SCHEDULER_API, route):
            answers = set()
            for cloud, things in itertools.product((*TENANTS, None), (there, nowhere)):
                path = "/scheduler" + route.path.format(group_id=things["server_group_id"])
                sent = {} if route.method == "GET" else {"json": body(things, Version(0, 0))}
                answer = await front.request(route.method, path, cloud=cloud, **sent)
                assert answer.status_code == (401 if cloud is None else 403), row_name(SCHEDULER_API, route)
                answers.add(answer.text)
            assert len(answers) == 2, answers
    assert await rows(front) == before


def spoilt(body: Any) -> Iterator[Any]:
    """A body with each of its parts, in turn, replaced by what it cannot be, left out, or joined by another."""
    yield from HOSTILE
    yield {**body, "more": 1}
    choice = body["choice"]
    for key, value in itertools.product(choice, HOSTILE):
        yield {"choice": {**choice, key: value}}
    for key in choice:
        yield {"choice": {name: value for name, value in choice.items() if name != key}}
    for part in ("resources", "hosts"):
        for name, value in itertools.product(choice[part], HOSTILE):
            for spoilt_value in (value, [value]):
                changed = deepcopy(body)
                changed["choice"][part][name] = spoilt_value
                yield changed


async def test_no_body_is_a_failure(api: Api, front: Api) -> None:
    group = await make_group(api)
    good = wanted(group, "zone1-rack1-host1", partition=None, count=1)
    failures, chosen = [], 0
    for body in spoilt(good):
        answer = await front.post("/scheduler/choices", body)
        if answer.status_code >= 500:
            failures.append(f"{str(body)[:300]}: {answer.text[:200]}")
        chosen += answer.status_code == 200
    assert chosen, "nothing got as far as a place"
    for word in (*INJECTED, LONG):
        address = "/scheduler/" + word.replace("\r\n", "%0d%0a").replace("\x00", "%00")
        answer = await front.http.get(address, headers={"X-Auth-Token": await front.token("roost-admin")})
        if answer.status_code not in (400, 404):
            failures.append(f"{word[:40]!r}: {answer.status_code}")
    assert not failures, "\n".join(failures)
    assert (await front.get("/scheduler/adopted")).status_code == 200
