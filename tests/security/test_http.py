"""One request is one request, whatever its framing says: what a proxy and Roost could read differently is refused."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from roost.api.app import make_services
from roost.cli import processes
from roost.config import Settings
from roost.store.database import Database

HOST = b"Host: roost.test\r\n"
LAST = HOST + b"Connection: close\r\n"
SMUGGLED = b"GET /smuggled HTTP/1.1\r\n" + LAST + b"\r\n"


@asynccontextmanager
async def _served(settings: Settings, database: Database) -> AsyncIterator[int]:
    """The server as `roost api` has it, in this process: its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server, _ = processes._server(make_services(settings, database))
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        await server.accepting.wait()
        try:
            yield int(listener.getsockname()[1])
        finally:
            server.should_exit = True
            await serving


@pytest.fixture
async def port(settings: Settings, database: Database) -> AsyncIterator[int]:
    """Where a server listens."""
    async with _served(settings, database) as made:
        yield made


async def _answers(port: int, sent: bytes) -> list[bytes]:
    """The status lines of all that is answered to these bytes until the server ends the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(sent)
        heard = await asyncio.wait_for(reader.read(), 60)
    except ConnectionError:
        heard = b""
    finally:
        writer.close()
    return [line for line in heard.split(b"\r\n") if line.startswith(b"HTTP/1.1 ")]


AMBIGUOUS = {
    "a length and chunks": b"POST /a HTTP/1.1\r\n%bContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks and a length": b"POST /a HTTP/1.1\r\n%bTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    "two lengths": b"POST /a HTTP/1.1\r\n%bContent-Length: 0\r\nContent-Length: 44\r\n\r\n",
    "a list of lengths": b"POST /a HTTP/1.1\r\n%bContent-Length: 0, 44\r\n\r\n",
    "a signed length": b"POST /a HTTP/1.1\r\n%bContent-Length: +0\r\n\r\n",
    "a hexadecimal length": b"POST /a HTTP/1.1\r\n%bContent-Length: 0x0\r\n\r\n",
    "an unknown encoding": b"POST /a HTTP/1.1\r\n%bTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "an encoding spelled oddly": b"POST /a HTTP/1.1\r\n%bTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "a space before the colon": b"POST /a HTTP/1.1\r\n%bTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    "a bad size of a chunk": b"POST /a HTTP/1.1\r\n%bTransfer-Encoding: chunked\r\n\r\n-1\r\n\r\n",
    "a huge size of a chunk": b"POST /a HTTP/1.1\r\n%bTransfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFFF\r\n",
    "a bare carriage return": b"GET /a HTTP/1.1\r\n%bX-A: b\rGET /smuggled HTTP/1.1\r\n\r\n",
    "a zero in a header": b"GET /a HTTP/1.1\r\n%bX-A: b\x00c\r\n\r\n",
}


@pytest.mark.parametrize("framing", AMBIGUOUS)
async def test_what_could_be_read_in_two_ways_is_refused_and_ends_the_connection(port: int, framing: str) -> None:
    answers = await _answers(port, AMBIGUOUS[framing].replace(b"%b", HOST) + SMUGGLED)
    assert all(answer.startswith(b"HTTP/1.1 400") for answer in answers[-1:]), answers
    assert sum(b"404" in answer for answer in answers) <= 1
    assert len(answers) <= 2


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /healthcheck HTTP/1.1\n" + LAST.replace(b"\r\n", b"\n") + b"\n",
        b"GET /healthcheck\r\n\r\n",
        b"GET /healthcheck HTTP/1.1\r\n" + LAST + b"X-A: b\r\n GET /smuggled HTTP/1.1\r\n\r\n",
        b"GET /healthcheck HTTP/1.1\r\n" + LAST + b"X-A: b\r\n\tfolded\r\n\r\n",
        b"GET http://roost.test/healthcheck HTTP/1.1\r\n" + LAST + b"\r\n",
        b"GET http://elsewhere.test/healthcheck HTTP/1.1\r\n" + LAST + b"\r\n",
        b"OPTIONS * HTTP/1.1\r\n" + LAST + b"\r\n",
        b"CONNECT 169.254.169.254:80 HTTP/1.1\r\n" + LAST + b"\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET /healthcheck HTTP/1.1\r\n" + HOST + b"Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings, close\r\n\r\n",
        b"TRACE / HTTP/1.1\r\n" + LAST + b"X-Auth-Token: secret\r\n\r\n",
    ],
    ids=range(11),
)
async def test_other_forms_of_a_request_are_one_request_and_reach_nothing_else(port: int, sent: bytes) -> None:
    answers = await _answers(port, sent)
    assert len(answers) == 1
    assert answers[0].split()[1] in (b"200", b"400", b"404", b"405")


async def test_headers_without_end_are_ended_and_a_large_body_is_not_read(port: int) -> None:
    many = b"".join(b"X-%d: %s\r\n" % (number, b"y" * 90) for number in range(10_000))
    for sent in (b"GET / HTTP/1.1\r\n" + HOST + many, b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n" + HOST):
        # Who goes on sending may not hear what is answered.
        assert await _answers(port, sent + b"\r\n") in ([], [b"HTTP/1.1 400 Bad Request"])
    head = b"POST /identity/v3/auth/tokens HTTP/1.1\r\n" + HOST + b"Content-Type: application/json\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(head + b"Content-Length: 99999999999\r\n\r\n{")
    assert (await asyncio.wait_for(reader.readline(), 60)).startswith(b"HTTP/1.1 413")
    writer.close()


async def test_the_address_in_links_is_the_operators_and_not_the_clients(
    settings: Settings, database: Database
) -> None:
    async with _served(replace(settings, public_url="https://cloud.example"), database) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nHost: evil.test\r\nX-Forwarded-Host: evil.test\r\nConnection: close\r\n\r\n")
        heard = await asyncio.wait_for(reader.read(), 60)
        writer.close()
    assert b"https://cloud.example/compute" in heard
    assert b"evil" not in heard
