"""A proxy between Roost and a cloud that answers for it, says nothing, or loses the answer, as a test asks."""

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from enum import Enum

import httpx


class Cut(Enum):
    """How a connection ends without an answer."""

    BEFORE = "the request never reaches the cloud"
    AFTER = "the cloud does what was asked, and its answer is lost"
    SILENT = "the cloud does what was asked, and its answer does not come"


@dataclass
class Fault:
    """What happens to the next requests that match, as many as `times` says."""

    method: str
    path: str
    what: Cut | int
    """A cut, or the status to answer with in the cloud's place."""
    times: int = 1
    headers: dict[str, str] = field(default_factory=dict)
    body: object = None

    def hits(self, method: str, path: str) -> bool:
        """Whether this request is one of them."""
        return self.times > 0 and method == self.method and re.search(self.path, path) is not None


@dataclass
class FaultProxy:
    """Forwards to `target` what no fault catches."""

    target: str
    transport: httpx.AsyncBaseTransport | None = None
    """Another way to the target than over the network."""
    max_limit: int | None = None
    """The most items that the cloud puts on a page, whatever it is asked for."""
    faults: list[Fault] = field(default_factory=list)
    seen: list[tuple[str, str]] = field(default_factory=list)
    heard: list[dict[str, str]] = field(default_factory=list)
    """The headers of each request, by their names in lower case."""
    url: str = ""

    def fail(self, method: str, path: str, what: Cut | int, times: int = 1, **more: object) -> None:
        """From now on."""
        self.faults.append(Fault(method, path, what, times, **more))  # type: ignore[arg-type]

    def count(self, method: str, path: str) -> int:
        """How many requests there were of this kind."""
        return sum(seen == method and re.search(path, where) is not None for seen, where in self.seen)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["FaultProxy"]:
        """On a free port."""
        async with httpx.AsyncClient(base_url=self.target, transport=self.transport, timeout=120) as self._http:
            server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
            self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            try:
                yield self
            finally:
                server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._exchange(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request and its answer; whether the connection goes on."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, path, _ = head[0].split(" ")
        headers = dict(line.split(": ", 1) for line in head[1:] if line)
        length = next((int(value) for name, value in headers.items() if name.lower() == "content-length"), 0)
        body = await reader.readexactly(length)
        self.seen.append((method, path))
        self.heard.append({name.lower(): value for name, value in headers.items()})
        fault = next((fault for fault in self.faults if fault.hits(method, path)), None)
        if fault is not None:
            fault.times -= 1
        if fault is not None and isinstance(fault.what, int):
            content = json.dumps(fault.body).encode()
            return self._answer(writer, fault.what, {"Content-Type": "application/json", **fault.headers}, content)
        if fault is not None and fault.what is Cut.BEFORE:
            return False
        if self.max_limit is not None:
            path = re.sub(r"\blimit=\d+", f"limit={self.max_limit}", path)
        answer = await self._http.request(method, path, headers=headers, content=body)
        if fault is not None and fault.what is Cut.SILENT:
            await asyncio.sleep(600)
        if fault is not None:
            return False
        kept = {name: value for name, value in answer.headers.items() if name not in _OWN}
        return self._answer(writer, answer.status_code, kept, answer.content)

    def _answer(self, writer: asyncio.StreamWriter, status: int, headers: dict[str, str], body: bytes) -> bool:
        lines = [f"HTTP/1.1 {status} X", *(f"{name}: {value}" for name, value in headers.items())]
        lines.append(f"Content-Length: {len(body)}")
        writer.write("\r\n".join([*lines, "", ""]).encode("latin-1") + body)
        return True


_OWN = ("content-length", "transfer-encoding", "content-encoding", "connection")
"""Headers that tell of one connection, and not of the answer."""
