"""Periodic work: one engine at a time, in spite of failures, and under numbers that no other lock has."""

import asyncio
import re
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import psycopg
import pytest

import roost
from roost.compute.answers import audit
from roost.compute.answers.violations import Violations
from roost.compute.inventory.live_fleet import LiveFleet
from roost.config import Settings
from roost.errors import Unavailable
from roost.store import rounds as rounds_module
from roost.store.database import Database
from roost.store.locks import AdvisoryLock
from roost.store.rounds import Rounds


@pytest.fixture
async def engines(database: Database) -> AsyncIterator[tuple[Rounds, Rounds]]:
    """Two engines on one database."""
    pair = Rounds(database), Rounds(database)
    yield pair
    for each in pair:
        await each.close()


async def _run(seconds: float, *loops: "asyncio.Task[None]") -> None:
    await asyncio.wait(loops, timeout=seconds)
    for loop in loops:
        loop.cancel()
    await asyncio.gather(*loops, return_exceptions=True)


async def test_a_turn_is_held_by_one_engine_and_free_again_after(engines: tuple[Rounds, Rounds]) -> None:
    one, other = engines
    audits, repairs = AdvisoryLock.AUDIT, AdvisoryLock.REPAIRS
    async with one.turn(audits) as first, other.turn(audits) as second, other.turn(repairs) as elsewhere:
        assert (first, second, elsewhere) == (True, False, True)
    async with other.turn(AdvisoryLock.AUDIT) as now:
        assert now


async def test_a_turn_ends_with_the_connection_of_an_engine_that_dies(
    engines: tuple[Rounds, Rounds], database_url: str
) -> None:
    one, other = engines
    async with one.turn(AdvisoryLock.AUDIT):
        with psycopg.connect(database_url, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE application_name LIKE '%% turns' AND datname = current_database()"
            )
        async with other.turn(AdvisoryLock.AUDIT) as taken:
            assert taken
    async with one.turn(AdvisoryLock.AUDIT) as again:
        assert again


async def test_two_engines_do_not_audit_at_the_same_time(
    database: Database, settings: Settings, engines: tuple[Rounds, Rounds], monkeypatch: pytest.MonkeyPatch
) -> None:
    at_work, most, done = 0, 0, 0
    look = audit.look

    async def watched() -> None:
        nonlocal at_work, most, done
        at_work += 1
        most = max(most, at_work)
        await look(database, settings, Violations(LiveFleet()))
        await asyncio.sleep(0.02)
        at_work, done = at_work - 1, done + 1

    loops = [asyncio.create_task(each.every(0.01, watched, turn=AdvisoryLock.AUDIT)) for each in engines]
    await _run(2, *loops)
    assert most == 1
    assert done > 3


async def test_a_failure_is_logged_and_the_work_goes_on(
    engines: tuple[Rounds, Rounds], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds_module, "_LONGEST_PAUSE", 0.05)
    reasons: list[Exception] = [RuntimeError("a defect"), Unavailable("Nova does not answer.")]
    done = asyncio.Event()

    async def work(_: str) -> None:
        if reasons:
            raise reasons.pop(0)
        done.set()

    loop = asyncio.create_task(engines[0].every(0.01, partial(work, "given")))
    await asyncio.wait_for(done.wait(), 10)
    await _run(0, loop)
    defect, passing = [record for record in caplog.records if record.name == "roost.store.rounds"]
    assert (defect.levelname, bool(defect.exc_info)) == ("ERROR", True)
    assert (passing.levelname, bool(passing.exc_info)) == ("WARNING", False)
    assert passing.message.endswith("<locals>.work failed, trying again")


async def test_work_is_done_at_once_when_it_is_woken_or_asks_for_it(engines: tuple[Rounds, Rounds]) -> None:
    woken, times = asyncio.Event(), 0

    async def work() -> float | None:
        nonlocal times
        times += 1
        return 0.0 if times == 1 else None

    loop = asyncio.create_task(engines[0].every(600, work, woken=woken))
    await asyncio.sleep(0.2)
    assert times == 2
    woken.set()
    await asyncio.sleep(0.2)
    assert times == 3
    await _run(0, loop)


async def test_never_is_never(engines: tuple[Rounds, Rounds]) -> None:
    await asyncio.wait_for(engines[0].every(0, partial(asyncio.sleep, 600)), 1)


def test_every_advisory_lock_with_a_number_is_in_the_enumeration() -> None:
    sources = Path(roost.__file__).parent.rglob("*.py")
    numbered = re.compile(r"advisory\w*\(\s*\d")
    assert [str(path) for path in sources if numbered.search(path.read_text())] == []
    assert len({int(lock) for lock in AdvisoryLock}) == len(AdvisoryLock)
