"""One scheduler for all API processes of a machine.

Each process could claim what it was asked for in small batches of its own. A large batch costs little more than a small
one, so one process, the scheduler, decides for the others, which hand their requests over through a Unix socket. The
process that binds the socket's name is the scheduler; the name is free again when that process ends. Only processes of
the same user, release, database and settings share one, and only on Linux.

Nothing depends on it. A process decides for itself while it has no scheduler to ask, and what is more than it should
hand over at a time. A scheduler that dies or stands still gives no answer; what has become of a request is then looked
up by the ids of its servers, which it had from the start.

Messages are lines of JSON. An empty line says that the scheduler is there.
"""

import asyncio
import hashlib
import itertools
import logging
import os
import socket
import struct
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, cast

import prometheus_client

from roost import __version__, errors, quick_json, traces
from roost.compute.scheduling.request import CreatedServers, CreateRequest, NewServer
from roost.config import Settings
from roost.errors import RoostError
from roost.store.addresses import Address

logger = logging.getLogger(__name__)

HANDED_OVER = prometheus_client.Counter("roost_handed_over", "Requests for servers that another process decided.")

_MOST = 64
"""How many requests a process hands over at a time."""
_BEAT, _SILENCE = 0.25, 1.5
"""How often a scheduler that has something to do says that it is there, and when it is given up."""
_RETRY, _PAUSE = 0.5, 5.0
"""How long a process waits before it tries again: a scheduler that is just starting, and one that stood still."""
_OF_ONE_PROCESS = frozenset({"source", "listen", "engine_listen"})
_ADDRESSES = frozenset({"database_url", "session_url", "notification_url"})
"""These hold passwords, of which not even a hash should be seen."""

Outcome = CreatedServers | RoostError | None
"""What became of a request: servers, an error that the caller may see, or None if that is not known."""
Decide = Callable[[CreateRequest, str | None], "asyncio.Future[CreatedServers]"]
"""Decides a request, as a part of a trace."""


class _Lines(asyncio.Protocol):
    """Lines in both directions. Those that are sent in one turn of the loop go together."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._begun = b""
        self._held: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        *lines, self._begun = (self._begun + data).split(b"\n")
        for line in lines:
            self.received(line)

    def received(self, line: bytes) -> None:
        """Take what the other side sent."""
        raise NotImplementedError

    def send(self, line: bytes = b"") -> None:
        """Send this, with all else that is sent in this turn."""
        if not self._held:
            self.loop.call_soon(self._flush)
        self._held += (line, b"\n")

    def _flush(self) -> None:
        held, self._held = self._held, []
        if not self.transport.is_closing():
            self.transport.write(b"".join(held))


class _Taker(_Lines):
    """The scheduler's side of a connection."""

    def __init__(self, decide: Decide, takers: "set[_Taker]") -> None:
        super().__init__()
        self._decide = decide
        self._takers = takers
        self._at_work: dict[int, asyncio.Future[CreatedServers]] = {}
        self._beat: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if _user_at(self.transport.get_extra_info("socket")) != os.getuid():
            self.transport.abort()
            return
        self._takers.add(self)
        self.send()
        self._show()

    def connection_lost(self, exc: Exception | None) -> None:
        self._takers.discard(self)
        if self._beat is not None:
            self._beat.cancel()
        for future in list(self._at_work.values()):
            future.cancel()

    def _show(self) -> None:
        if self._at_work:
            self.send()
        self._beat = self.loop.call_later(_BEAT, self._show)

    def received(self, line: bytes) -> None:
        number, asked, trace = quick_json.loads(line)
        if asked is None:
            if number in self._at_work:
                self._at_work[number].cancel()
            return
        future = self._at_work[number] = self._decide(_request(asked), trace)
        future.add_done_callback(lambda done: self._answer(number, done))

    def _answer(self, number: int, done: "asyncio.Future[CreatedServers]") -> None:
        del self._at_work[number]
        if done.cancelled():
            return
        error = done.exception()
        if error is None:
            self.send(quick_json.dumps([number, done.result(), None]))
        elif isinstance(error, RoostError) and type(error).__name__ in _ERRORS:
            self.send(quick_json.dumps([number, None, [type(error).__name__, error.message]]))
        else:
            self.send(quick_json.dumps([number, None, None]))


_ERRORS: dict[str, type[RoostError]] = {
    name: each
    for name, each in vars(errors).items()
    if isinstance(each, type) and issubclass(each, RoostError) and each.__init__ is RoostError.__init__
}
"""The errors that are no more than a kind and a message. The process that asks finds out for itself about others."""


class _Giver(_Lines):
    """The side of a process that hands over."""

    def __init__(self) -> None:
        super().__init__()
        self.over: asyncio.Future[bool] = self.loop.create_future()
        """Whether the scheduler stood still, once the connection has ended."""
        self._ready = False
        self._numbers = itertools.count()
        self._waiting: dict[int, asyncio.Future[Outcome]] = {}
        self._heard = self.loop.time()
        self._watch = self.loop.call_later(_SILENCE, self._look)

    @property
    def takes_more(self) -> bool:
        """Whether another request should be handed over."""
        return self._ready and len(self._waiting) < _MOST

    async def hand_over(self, request: CreateRequest) -> Outcome:
        """Have the scheduler decide."""
        number = next(self._numbers)
        try:
            line = quick_json.dumps([number, request, traces.current()])
        except TypeError:  # a hint of a whole number beyond 64 bits
            return None
        if not self._waiting:
            self._heard = self.loop.time()
        future: asyncio.Future[Outcome] = self.loop.create_future()
        self._waiting[number] = future
        self.send(line)
        try:
            return await future
        except asyncio.CancelledError:
            if self._waiting.pop(number, None) is not None:
                self.send(quick_json.dumps([number, None, None]))
            raise

    def received(self, line: bytes) -> None:
        self._ready, self._heard = not self.over.done(), self.loop.time()
        if line:
            number, created, refusal = quick_json.loads(line)
            future = self._waiting.pop(number, None)
            if future is not None and not future.done():
                future.set_result(_outcome(created, refusal))

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(stood_still=False)

    def _look(self) -> None:
        if not self._ready or (self._waiting and self.loop.time() - self._heard > _SILENCE):
            self._end(stood_still=True)
            self.transport.abort()
        else:
            self._watch = self.loop.call_later(_BEAT, self._look)

    def _end(self, *, stood_still: bool) -> None:
        self._ready = False
        self._watch.cancel()
        if not self.over.done():
            self.over.set_result(stood_still)
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_result(None)


def _request(asked: dict[str, Any]) -> CreateRequest:
    """Read a request as it was written."""
    for key in _LISTS:
        if asked[key] is not None:
            asked[key] = tuple(asked[key])
    asked["servers"] = tuple([NewServer(**each) for each in asked["servers"]])
    if asked["expected"] is not None:
        asked["expected"] = tuple((host_id, partition) for host_id, partition in asked["expected"])
    return CreateRequest(**asked)


_LISTS = ("tags", "same_host", "different_host")


def _outcome(created: Mapping[str, Any] | None, refusal: tuple[str, str] | None) -> Outcome:
    """Read an answer as it was written."""
    if refusal is not None:
        kind, message = refusal
        return _ERRORS[kind](message)
    return None if created is None else CreatedServers(tuple(created["server_ids"]), created["reservation_id"])


@dataclass(slots=True)
class Handover:
    """The part that a process has among those of its machine."""

    decide: Decide
    _giver: _Giver | None = None
    _takers: set[_Taker] = field(default_factory=set)

    @property
    def takes_more(self) -> bool:
        """Whether there is another process that decides, and has time."""
        return self._giver is not None and self._giver.takes_more

    async def hand_over(self, request: CreateRequest) -> Outcome:
        """Have the other process decide, which `takes_more`."""
        assert self._giver is not None
        HANDED_OVER.inc()
        return await self._giver.hand_over(request)

    async def share(self, name: str) -> None:
        """Be the scheduler of this name, or hand over to the process that is; until cancelled."""
        while sys.platform == "linux":
            try:
                pause = await self._share(name)
            except OSError as error:
                logger.warning("no scheduler could be shared, trying again", extra={"error": str(error)})
                pause = _PAUSE
            await asyncio.sleep(pause)

    async def _share(self, name: str) -> float:
        own = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        own.setblocking(False)
        try:
            own.bind(name)
        except OSError:
            return await self._follow(own, name)
        await self._lead(own)
        return _RETRY

    async def _lead(self, own: socket.socket) -> None:
        server = await asyncio.get_running_loop().create_unix_server(
            lambda: _Taker(self.decide, self._takers), sock=own
        )
        try:
            await asyncio.Event().wait()
        finally:
            server.close()
            for taker in list(self._takers):
                taker.transport.abort()

    async def _follow(self, own: socket.socket, name: str) -> float:
        try:
            own.connect(name)
        except OSError:  # bound, and not listening yet, or not any more
            own.close()
            return _RETRY
        if _user_at(own) != os.getuid():
            own.close()
            return _PAUSE
        transport, self._giver = await asyncio.get_running_loop().create_unix_connection(_Giver, sock=own)
        try:
            return _PAUSE if await asyncio.shield(self._giver.over) else 0.0
        finally:
            self._giver = None
            transport.abort()


def _user_at(connected: socket.socket) -> int:
    """The user whose process is at the other end: any can bind a name, and connect to it."""
    _, user, _ = struct.unpack("3i", connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return int(user)


def socket_name(settings: Settings, database: Address) -> str:
    """What the processes that share a scheduler have in common, as a name in the abstract namespace: it vanishes with
    the process that binds it, and is in no folder in which another user could put something."""
    compared = [each.name for each in fields(settings) if each.name not in _OF_ONE_PROCESS | _ADDRESSES]
    configured = [getattr(settings, name) for name in compared]
    common = (__version__, os.getuid(), database.conninfo(password=False), configured)
    return "\0roost-" + hashlib.sha256(repr(common).encode()).hexdigest()
