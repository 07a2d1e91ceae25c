"""The addresses that users name: where they may lead, and what is sent there."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from roost.clusters import urls


@asynccontextmanager
async def answering(head: str, heard: list[bytes]) -> AsyncIterator[int]:
    """Something that keeps what it hears and gives one answer: its port."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.read(65536))
        writer.write(head.encode() + b"\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(handle, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("127.0.0.1", False),
        ("127.1.0.9", False),
        ("0.0.0.0", False),
        ("10.1.2.3", False),
        ("172.16.0.1", False),
        ("192.168.0.1", False),
        ("100.64.0.1", False),
        ("169.254.169.254", False),
        ("224.0.0.1", False),
        ("::1", False),
        ("fe80::1%eth0", False),
        ("fd00::1", False),
        ("::ffff:10.0.0.1", False),
        ("2002:7f00:1::", False),
        ("::ffff:0:10.0.0.1", False),
        ("3fff::1", False),
        ("9.9.9.9", True),
        ("2620:fe::fe", True),
    ],
)
def test_which_addresses_are_public(address: str, public: bool) -> None:
    assert urls.is_public(address) is public


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "2130706433", "[::ffff:127.0.0.1]"])
async def test_nothing_is_sent_to_a_private_address_however_it_is_written(host: str) -> None:
    heard: list[bytes] = []
    async with answering("HTTP/1.1 200 OK", heard) as port:
        with pytest.raises(urls.ForbiddenAddress, match="which the operator does not allow"):
            await urls.fetch(f"http://{host}:{port}/", owner="a", private=False)
    assert heard == []


async def test_the_operator_may_allow_it() -> None:
    heard: list[bytes] = []
    async with answering("HTTP/1.1 200 OK", heard) as port:
        assert await urls.fetch(f"http://localhost:{port}/x", b"{}", owner="a", private=True) == "ok"
    assert heard[0].startswith(b"POST /x HTTP/1.1")
    assert b"Content-Type: application/json" in heard[0]


async def test_a_redirection_leads_no_further_than_http() -> None:
    async with answering("HTTP/1.1 302 Found\r\nLocation: ftp://127.0.0.1/x", []) as port:
        with pytest.raises(OSError, match="ftp"):
            await urls.fetch(f"http://127.0.0.1:{port}/", owner="a", private=True)


async def test_a_name_that_nobody_resolves_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ten seconds are those of the whole call: a look-up cannot be ended, and was not counted."""
    resolved = threading.Event()
    monkeypatch.setattr(urls, "_look_up", lambda *_: resolved.wait(60) and [])
    begun = time.monotonic()
    with pytest.raises(TimeoutError):
        await urls.fetch("http://nowhere.example/", owner="a", private=False, seconds=0.3)
    assert time.monotonic() - begun < 10
    resolved.set()


async def test_a_project_whose_urls_hang_keeps_no_other_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names that do not resolve held all threads, for all projects."""
    resolved, look_up = threading.Event(), urls._look_up

    def slowly(host: str, port: int) -> list[str]:
        if host.endswith(".example"):
            resolved.wait(60)
        return look_up(host, port)

    monkeypatch.setattr(urls, "_look_up", slowly)
    url = "http://nowhere.example/"
    hostile = [asyncio.create_task(urls.fetch(url, owner="hostile", private=False, seconds=0.1)) for _ in range(40)]
    try:
        await asyncio.sleep(1)  # by now none of the first is waited for, and all of their threads still hang
        async with asyncio.timeout(20), answering("HTTP/1.1 200 OK", []) as port:
            assert await urls.fetch(f"http://127.0.0.1:{port}/", owner="modest", private=True) == "ok"
        assert sum(not task.done() for task in hostile) == 40 - urls._OF_A_PROJECT
    finally:
        resolved.set()
        outcomes = await asyncio.gather(*hostile, return_exceptions=True)
    assert all(isinstance(outcome, OSError) for outcome in outcomes)
