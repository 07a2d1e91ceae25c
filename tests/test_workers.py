"""Work in other processes: it comes back, it can be ended, and it cannot take everything."""

import asyncio
import os
import subprocess
import time

import pytest

from roost import workers
from roost.errors import TooManyRequests, Unavailable
from roost.workers import WorkerPool


async def test_a_result_and_an_error_come_back_from_another_process() -> None:
    pool = WorkerPool(processes=1, each=2)
    first, second = await pool.run("a", os.getpid), await pool.run("b", os.getpid)
    assert first == second != os.getpid()
    with pytest.raises(ZeroDivisionError):
        await pool.run("a", divmod, 1, 0)
    assert await pool.run("a", os.getpid) == first


async def test_work_that_nobody_waits_for_is_ended() -> None:
    pool = WorkerPool(processes=1, each=2)
    busy = await pool.run("a", os.getpid)
    asking = asyncio.create_task(pool.run("a", time.sleep, 60))
    await asyncio.sleep(0.2)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert await pool.run("a", os.getpid) != busy
    with pytest.raises(ProcessLookupError):
        os.kill(busy, 0)


async def test_work_ends_at_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_SECONDS", 0.5)
    pool = WorkerPool(processes=1, each=2)
    started = time.monotonic()
    with pytest.raises(Unavailable):
        await pool.run("a", time.sleep, 60)
    assert time.monotonic() - started < 5


async def test_the_start_of_a_process_is_not_taken_from_the_time_of_a_question(monkeypatch: pytest.MonkeyPatch) -> None:
    start = workers._Worker._start

    def late(worker: workers._Worker) -> "subprocess.Popen[bytes]":
        time.sleep(1.5)
        return start(worker)

    monkeypatch.setattr(workers._Worker, "_start", late)
    monkeypatch.setattr(workers, "_SECONDS", 1.0)
    pool = WorkerPool(processes=1, each=2)
    assert await pool.run("a", os.getpid) != os.getpid()
    with pytest.raises(Unavailable):
        await pool.run("a", time.sleep, 60)
    monkeypatch.setattr(workers, "_START_SECONDS", 0.1)
    monkeypatch.setattr(workers, "_SECONDS", 0.1)
    with pytest.raises(Unavailable):
        await pool.run("a", os.getpid)


async def test_an_owner_has_a_share_and_memory_is_bounded() -> None:
    pool = WorkerPool(processes=1, each=2)
    asking = [asyncio.create_task(pool.run("a", time.sleep, 1)) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(TooManyRequests):
        await pool.run("a", time.sleep, 0)
    await pool.run("b", os.getpid)
    await asyncio.gather(*asking)
    with pytest.raises((MemoryError, Unavailable)):
        await pool.run("a", bytes, 8 << 30)
