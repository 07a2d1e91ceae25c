"""A proxy of our own between two parties, whose connections can be cut, slowed down and frozen while they are used."""

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable

Dial = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]
"""Opens a connection to the party behind the proxy."""


class Proxy:
    """Listens on a port of this machine and passes on what comes, as slowly as it is set to."""

    def __init__(self, dial: Dial, address: tuple[str, int] = ("127.0.0.1", 0)) -> None:
        self.delay = 0.0
        """Seconds that each piece of data waits on its way."""
        self._dial = dial
        self._passing = asyncio.Event()
        self._passing.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        # The port is the proxy's for good: those behind it come back to the same address after each fault.
        self._listener = socket.create_server(address)
        self.port = int(self._listener.getsockname()[1])

    async def start(self) -> None:
        """Begin to listen."""
        self._server = await asyncio.start_server(self._serve, sock=self._listener)

    async def stop(self) -> None:
        """End all connections and listen no more."""
        self.heal()
        self.cut()
        if self._server is not None:
            self._server.close()

    def cut(self) -> None:
        """End every connection at once, in the middle of whatever it carries."""
        for writer in list(self._writers):
            writer.transport.abort()

    def freeze(self) -> None:
        """Pass nothing on, not even that a party has gone; new connections wait too."""
        self._passing.clear()

    def heal(self) -> None:
        """Be as if there were no proxy."""
        self.delay = 0.0
        self._passing.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._passing.wait()
        try:
            far_reader, far_writer = await self._dial()
        except OSError:
            writer.transport.abort()
            return
        ends = {writer, far_writer}
        self._writers |= ends
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pass_on(reader, far_writer))
                group.create_task(self._pass_on(far_reader, writer))
        finally:
            self._writers -= ends
            for end in ends:
                end.transport.abort()

    async def _pass_on(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65_536):
                if self.delay:
                    await asyncio.sleep(self.delay)
                await self._passing.wait()
                sink.write(data)
                await sink.drain()
            await self._passing.wait()
        # A closed side closes both: HTTP and PostgreSQL are not spoken over half a connection here.
        sink.close()
