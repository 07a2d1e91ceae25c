"""Processes of one machine that have one of them decide: what is handed over, and what happens without an answer."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import fields, replace
from typing import Any
from uuid import uuid4

import pytest
import sqlalchemy as sa

from roost import quick_json
from roost.compute.scheduling import handover
from roost.compute.scheduling.handover import socket_name
from roost.compute.scheduling.request import CreatedServers, CreateRequest, NewServer
from roost.compute.scheduling.scheduler import Scheduler
from roost.config import Settings
from roost.errors import Invalid, OverQuota
from roost.store.addresses import Address
from roost.store.database import Database
from tests.compute.cloud import Cloud
from tests.compute.scheduling.test_scheduler import boot, states


@pytest.fixture(autouse=True)
def name(monkeypatch: pytest.MonkeyPatch) -> str:
    """A name for this test alone, and a scheduler that is given up soon."""
    name = f"\0roost-{uuid4()}"
    monkeypatch.setattr(handover, "socket_name", lambda settings, database: name)
    monkeypatch.setattr(handover, "_RETRY", 0.02)
    monkeypatch.setattr(handover, "_BEAT", 0.05)
    monkeypatch.setattr(handover, "_SILENCE", 0.3)
    return name


@asynccontextmanager
async def sharing(*schedulers: Scheduler) -> AsyncIterator[None]:
    """Processes that share a scheduler: the first is it, and the others hand over to it."""
    tasks = []
    for scheduler in schedulers:
        tasks.append(asyncio.create_task(scheduler.share()))
        await until(lambda: len(tasks) == 1 or scheduler.handover.takes_more)  # noqa: B023
    yield
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def until(holds: Callable[[], bool]) -> None:
    """Wait until something holds."""
    async with asyncio.timeout(10):
        await asyncio.sleep(0)
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


@pytest.fixture
def first(settings: Settings, database: Database) -> Scheduler:
    return Scheduler(database, replace(settings, quota={**settings.quota, "instances": 5}))


@pytest.fixture
def second(settings: Settings, database: Database) -> Scheduler:
    return Scheduler(database, replace(settings, quota={**settings.quota, "instances": 5}))


@pytest.fixture
def decided(first: Scheduler) -> list[CreateRequest]:
    """What the first has decided for others."""
    asked: list[CreateRequest] = []
    decide = first.handover.decide

    def noting(request: CreateRequest, trace: str | None) -> "asyncio.Future[CreatedServers]":
        asked.append(request)
        return decide(request, trace)

    first.handover.decide = noting
    return asked


def test_nothing_of_a_request_is_lost_on_the_way() -> None:
    new = NewServer("s", {"a": "b"}, {"net": [{"addr": "10.0.0.1", "version": 4}]}, "h", str(uuid4()), "token")
    request = CreateRequest(
        project_id="p", user_id="u", request_id="r", servers=(new, replace(new, id=str(uuid4()))), flavor_id="1",
        least=2, image_id="i", key_name="k", user_data="d", description="ö", config_drive=True, tags=("t",), zone="z",
        target="t", target_must_exist=True, hints={"group": "g", "more": [1, {"deep": None}]}, group_id="g",
        same_host=("s",), different_host=("d",), may_see_all=True, seed=7, expected=((1, None), (2, 3)),
    )  # fmt: skip
    bare = CreateRequest(project_id="p", user_id="u", request_id="r", servers=(NewServer("s"),), flavor_id="1")
    assert not [each.name for each in fields(new) if getattr(new, each.name) == getattr(NewServer("s2"), each.name)]
    same = [each.name for each in fields(request) if getattr(request, each.name) == getattr(bare, each.name)]
    assert same == ["project_id", "user_id", "request_id", "flavor_id"], "the test tries every other field too"
    for each in (request, bare):
        assert handover._request(quick_json.loads(quick_json.dumps(each))) == each


async def test_one_decides_for_the_other(
    first: Scheduler, second: Scheduler, decided: list[CreateRequest], cloud: Cloud
) -> None:
    async with sharing(first, second):
        assert not first.handover.takes_more
        answers = await second.create_all([boot() for _ in range(4)])
    made = [answer.server_ids[0] for answer in answers if isinstance(answer, CreatedServers)]
    assert made == [request.servers[0].id for request in decided]
    assert len(set(made)) == 4
    await cloud.settle()
    await cloud.check()


async def test_refusals_come_back_as_what_they_are(
    first: Scheduler, second: Scheduler, decided: list[CreateRequest], cloud: Cloud
) -> None:
    async with sharing(first, second):
        with pytest.raises(Invalid, match="Flavor absent could not be found") as refused:
            await second.create(boot(flavor_id="absent"))
        assert type(refused.value) is Invalid
        with pytest.raises(OverQuota, match="instances"):
            await second.create(boot(6))
    assert len(decided) == 2
    assert await states(cloud.database) == {}


async def test_what_fails_at_the_scheduler_is_decided_here(
    first: Scheduler, second: Scheduler, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(together: Any) -> None:
        raise RuntimeError("a mistake in the scheduler's process")

    monkeypatch.setattr(
        type(first), "_carry_out", lambda self, *args: fail(args) if self is first else real(self, *args)
    )
    async with sharing(first, second):
        made = await second.create(boot())
    assert len(made.server_ids) == 1
    await cloud.settle()
    assert await states(cloud.database) == {"active": 1}


real = Scheduler._carry_out


async def test_what_cannot_be_written_as_json_is_decided_here(
    first: Scheduler, second: Scheduler, decided: list[CreateRequest], cloud: Cloud
) -> None:
    async with sharing(first, second):
        await second.create(boot(hints={"large": 10**30}))
    assert decided == []
    assert sum((await states(cloud.database)).values()) == 1


@pytest.mark.parametrize("number", [1, 3])
async def test_servers_that_were_made_before_the_scheduler_died_are_found(
    first: Scheduler, second: Scheduler, cloud: Cloud, number: int
) -> None:
    """The claim is committed, and the answer never sent."""
    decide = first.handover.decide
    ids: list[str] = []

    def dying(request: CreateRequest, trace: str | None) -> "asyncio.Future[CreatedServers]":
        async def work() -> CreatedServers:
            made = await decide(request, trace)
            ids.extend(made.server_ids)
            die(first)
            return made

        return asyncio.ensure_future(work())

    first.handover.decide = dying
    async with sharing(first, second):
        made = await second.create(boot(number))
    assert list(made.server_ids) == ids
    await cloud.settle()
    assert await states(cloud.database) == {"active": number}
    async with cloud.database.begin() as connection:
        query = sa.text("SELECT DISTINCT reservation_id FROM servers")
        assert await connection.scalar(query) == made.reservation_id


async def test_servers_that_a_dead_scheduler_did_not_make_are_made_here(
    first: Scheduler, second: Scheduler, cloud: Cloud
) -> None:
    def dying(request: CreateRequest, trace: str | None) -> "asyncio.Future[CreatedServers]":
        die(first)
        return asyncio.get_running_loop().create_future()

    first.handover.decide = dying
    async with sharing(first, second):
        await asyncio.gather(*(second.create(boot()) for _ in range(3)))
    await cloud.settle()
    assert await states(cloud.database) == {"active": 3}


async def test_what_a_scheduler_claims_late_is_not_made_twice(
    first: Scheduler, second: Scheduler, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is given up, and claims at last: after the look at what it has made, and before the claim made here."""
    handed: list[CreateRequest] = []

    def silent(request: CreateRequest, trace: str | None) -> "asyncio.Future[CreatedServers]":
        handed.append(request)
        die(first)
        return asyncio.get_running_loop().create_future()

    look = Scheduler._made

    async def late(self: Scheduler, request: CreateRequest) -> CreatedServers | None:
        found = await look(self, request)
        if found is None:
            await first.create(handed[0])
        return found

    first.handover.decide = silent
    monkeypatch.setattr(Scheduler, "_made", late)
    async with sharing(first, second):
        made = await second.create(boot(2))
    assert made.server_ids == tuple(new.id for new in handed[0].servers)
    await cloud.settle()
    assert await states(cloud.database) == {"active": 2}


async def test_a_scheduler_that_stands_still_is_given_up(second: Scheduler, cloud: Cloud, name: str) -> None:
    """A process that is stopped keeps its connections, and says nothing."""
    heard: list[bytes] = []

    async def stand_still(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"\n")
        with suppress(ConnectionError):
            heard.append(await reader.readline())
            await reader.read()
        writer.close()

    async with await asyncio.start_unix_server(stand_still, name), sharing_with(second):
        await asyncio.wait_for(second.create(boot()), 5)
        assert not second.handover.takes_more
        await second.create(boot())
    assert len(heard) == 1
    await cloud.settle()
    assert await states(cloud.database) == {"active": 2}


async def test_a_scheduler_that_takes_its_time_is_not_given_up(
    first: Scheduler, second: Scheduler, cloud: Cloud
) -> None:
    decide = first.handover.decide
    asked = 0

    def slow(request: CreateRequest, trace: str | None) -> "asyncio.Future[CreatedServers]":
        async def work() -> CreatedServers:
            nonlocal asked
            asked += 1
            await asyncio.sleep(3 * handover._SILENCE)
            return await decide(request, trace)

        return asyncio.ensure_future(work())

    first.handover.decide = slow
    async with sharing(first, second):
        await second.create(boot())
        assert second.handover.takes_more
    assert asked == 1


async def test_the_next_process_takes_over(
    first: Scheduler, second: Scheduler, settings: Settings, database: Database, cloud: Cloud
) -> None:
    third = Scheduler(database, settings)
    leading = asyncio.create_task(first.share())
    await asyncio.sleep(0.02)
    async with sharing_with(second, third):
        leading.cancel()
        await until(lambda: not (second.handover.takes_more and third.handover.takes_more))
        await until(lambda: second.handover.takes_more or third.handover.takes_more)
        await asyncio.gather(second.create(boot()), third.create(boot()))
        assert not (second.handover.takes_more and third.handover.takes_more)
    await cloud.settle()
    assert await states(cloud.database) == {"active": 2}


async def test_a_caller_that_goes_away_is_not_decided_for(first: Scheduler, second: Scheduler, cloud: Cloud) -> None:
    begun: list[asyncio.Future[CreatedServers]] = []

    def never(request: CreateRequest, trace: str | None) -> "asyncio.Future[CreatedServers]":
        begun.append(asyncio.get_running_loop().create_future())
        return begun[-1]

    first.handover.decide = never
    async with sharing(first, second):
        asking = asyncio.create_task(second.create(boot()))
        await until(lambda: bool(begun))
        asking.cancel()
        await until(begun[0].cancelled)
        assert second.handover.takes_more
    assert await states(cloud.database) == {}


async def test_more_than_a_scheduler_should_hold_is_decided_here(
    first: Scheduler, second: Scheduler, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handover, "_MOST", 2)
    held: list[CreateRequest] = []

    def never(request: CreateRequest, trace: str | None) -> "asyncio.Future[CreatedServers]":
        held.append(request)
        return asyncio.get_running_loop().create_future()

    first.handover.decide = never
    async with sharing(first, second):
        waiting = [asyncio.create_task(second.create(boot())) for _ in range(2)]
        await until(lambda: len(held) == 2)
        await second.create(boot())
        assert len(held) == 2
        for each in waiting:
            each.cancel()
        await asyncio.wait(waiting)
    assert sum((await states(cloud.database)).values()) == 1


async def test_a_process_of_another_user_is_not_trusted(
    first: Scheduler, second: Scheduler, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever binds the name first could otherwise read what all are asked for, and answer it."""
    own = handover._user_at
    monkeypatch.setattr(handover, "_user_at", lambda connected: own(connected) + 1)
    tasks = [asyncio.create_task(each.share()) for each in (first, second)]
    await asyncio.sleep(0.2)
    assert not first.handover.takes_more
    assert not second.handover.takes_more
    await second.create(boot())
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


def test_only_processes_alike_share_a_scheduler(settings: Settings) -> None:
    here = Address.parse("postgresql://roost:secret@db/roost")
    own = socket_name(settings, here)
    assert socket_name(replace(settings, listen="127.0.0.1:1", engine_listen="127.0.0.1:2"), here) == own
    assert socket_name(settings, Address.parse("postgresql://roost:other@db/roost")) == own
    assert socket_name(settings, Address.parse("postgresql://roost:secret@db/other")) != own
    assert socket_name(replace(settings, group_max_members=3), here) != own
    assert socket_name(replace(settings, quota={**settings.quota, "cores": 3}), here) != own


def die(scheduler: Scheduler) -> None:
    """End the connections of a process as its death would."""
    for taker in scheduler.handover._takers:
        taker.transport.abort()


@asynccontextmanager
async def sharing_with(*schedulers: Scheduler) -> AsyncIterator[None]:
    """Processes that share a scheduler which is there already."""
    tasks = [asyncio.create_task(scheduler.share()) for scheduler in schedulers]
    await until(lambda: all(scheduler.handover.takes_more for scheduler in schedulers))
    yield
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
