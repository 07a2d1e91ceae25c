"""Addresses with secrets in them cannot be guessed or used again; addresses that users name lead nowhere private."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import sqlalchemy as sa

from roost.clusters import urls
from tests.clusters.house import House, clustering


@pytest.fixture
async def house(database_url: str) -> AsyncIterator[House]:
    """Clusters without an engine: what is triggered stays an action that waits."""
    async with clustering(database_url, engine=False) as made:
        yield made


async def _hook(house: House) -> tuple[str, str]:
    """A webhook: its id and its secret."""
    profile = await house.profile()
    cluster = (await house.post("/clusters", {"cluster": {"name": "c", "profile_id": profile["id"]}})).json()["cluster"]
    body = {"name": "h", "type": "webhook", "cluster_id": cluster["id"], "action": "CLUSTER_SCALE_OUT"}
    made = (await house.post("/receivers", {"receiver": body})).json()["receiver"]
    async with house.database.begin() as connection:
        await connection.execute(sa.text("UPDATE actions SET status = 'SUCCEEDED'"))
    return made["id"], parse_qs(urlsplit(made["channel"]["alarm_url"]).query)["token"][0]


async def _trigger(house: House, receiver: str, secret: str | None) -> int:
    query = {"V": "2", **({} if secret is None else {"token": secret})}
    path = f"/clustering/v1/webhooks/{receiver}/trigger"
    return (await house.api.request("POST", path, params=query, cloud=None)).status_code


async def _scalings(house: House) -> int:
    async with house.database.begin() as connection:
        query = sa.text("SELECT count(*) FROM actions WHERE action = 'CLUSTER_SCALE_OUT'")
        return int(await connection.scalar(query) or 0)


async def test_a_secret_is_long_random_and_the_whole_of_it_is_needed(house: House) -> None:
    (receiver, secret), (_, other) = await _hook(house), await _hook(house)
    assert len(secret) == 32
    assert secret != other
    for guess in (None, "", secret[:-1], secret + "A", secret.swapcase(), other, receiver, "%", "'' OR 1=1"):
        assert await _trigger(house, receiver, guess) == 404
    assert await _trigger(house, receiver[:8], secret) == 404
    assert await _scalings(house) == 0
    assert await _trigger(house, receiver, secret) == 202
    assert await _scalings(house) == 1


async def test_an_address_leads_nowhere_once_its_receiver_is_gone(house: House) -> None:
    receiver, secret = await _hook(house)
    assert (await house.call("DELETE", f"/receivers/{receiver}")).status_code == 204
    assert await _trigger(house, receiver, secret) == 404
    assert await _scalings(house) == 0


async def test_a_guess_is_answered_like_an_address_that_never_was(house: House) -> None:
    receiver, _ = await _hook(house)
    unknown = receiver[:-4] + ("0000" if receiver[-4:] != "0000" else "1111")
    answers = []
    for each in (receiver, unknown):
        path = f"/clustering/v1/webhooks/{each}/trigger?V=2&token=guess"
        answers.append((await house.api.request("POST", path, cloud=None)).text.replace(each, "ID"))
    assert answers[0] == answers[1]


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "169.254.169.254",
        "::1",
        "::ffff:169.254.169.254",
        "::127.0.0.1",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::1",
        "2002:a9fe:a9fe::",
        "2001:0:7f00:1::1",
        "fec0::1",
        "fe80::1%eth0",
        "fd00:ec2::254",
        "0.0.0.0",
        "::",
        "255.255.255.255",
        "240.0.0.1",
        "192.0.0.170",
        "198.18.0.1",
        "ff02::1",
    ],
)
def test_no_way_to_write_a_private_address_makes_it_public(address: str) -> None:
    assert not urls.is_public(address)


@pytest.mark.parametrize(
    "host", ["127.1", "0x7f.1", "0177.0.0.1", "017700000001", "0x7f000001", "2130706433", "localhost", "[::1]", "0"]
)
async def test_nothing_is_sent_to_this_machine_however_it_is_called(host: str) -> None:
    async with _listening() as (port, heard):
        with pytest.raises((urls.ForbiddenAddress, OSError)) as refused:
            await urls.fetch(f"http://{host}:{port}/", owner="a", private=False)
        assert "refused" not in str(refused.value)
    assert heard == []


@asynccontextmanager
async def _listening(head: bytes = b"HTTP/1.1 200 OK", address: str = "127.0.0.1") -> AsyncIterator[tuple[int, Any]]:
    heard: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(head + b"\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, address, 0) as server:
        yield server.sockets[0].getsockname()[1], heard


@pytest.fixture
def neighbour(monkeypatch: pytest.MonkeyPatch) -> str:
    """An address of this machine that counts as one of the Internet, for the length of a test."""
    really = urls.is_public
    monkeypatch.setattr(urls, "is_public", lambda address: address == "127.0.0.2" or really(address))
    return "127.0.0.2"


async def test_a_redirection_into_a_private_network_is_not_followed(neighbour: str) -> None:
    async with _listening() as (inside, heard):
        head = f"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:{inside}/".encode()
        async with _listening(head, neighbour) as (port, _):
            with pytest.raises(urls.ForbiddenAddress):
                await urls.fetch(f"http://{neighbour}:{port}/", owner="a", private=False)
    assert heard == []


async def test_the_address_that_was_checked_is_the_one_that_is_called(
    neighbour: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that leads to a public address when it is looked at, and to a private one when it is called."""
    async with _listening(address=neighbour) as (port, heard):
        really, answers = socket.getaddrinfo, iter([neighbour, "127.0.0.1", "127.0.0.1"])

        def rebinding(host: str, *more: Any, **named: Any) -> Any:
            return really(next(answers) if host == "rebinding.test" else host, *more, **named)

        monkeypatch.setattr(socket, "getaddrinfo", rebinding)
        assert await urls.fetch(f"http://rebinding.test:{port}/", owner="a", private=False) == "ok"
    assert len(heard) == 1


async def test_a_name_with_one_private_address_is_refused_whichever_comes_first(
    neighbour: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 1)) for address in (neighbour, "10.0.0.1")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    with pytest.raises(urls.ForbiddenAddress):
        await urls.fetch("http://both.test/", owner="a", private=False)


async def test_an_answer_that_never_ends_is_ended() -> None:
    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        with suppress(ConnectionError):
            while True:
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(0.05)

    async with await asyncio.start_server(drip, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        began = time.monotonic()
        answered = await urls.fetch(f"http://127.0.0.1:{port}/", owner="a", private=True, seconds=0.5)
        assert set(answered) <= {"x"}
        assert time.monotonic() - began < 30
