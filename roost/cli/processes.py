"""The life of a process: what it starts, what it listens to, and how it stops."""

import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, cast

import prometheus_client
import uvicorn
from prometheus_client import Gauge
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from roost import config, engine, logs, traces
from roost.api.app import App, make_services
from roost.api.auth import Authenticator, KeystoneAuthenticator, RoostAuthenticator
from roost.api.routes import Services
from roost.cli.tls import Tls
from roost.clusters import plugins
from roost.config import Settings
from roost.errors import Unavailable
from roost.identity import tokens
from roost.store import pooler, schema
from roost.store.database import Database, Limits

logger = logging.getLogger(__name__)

CONNECTIONS = Gauge("roost_database_connections_in_use", "Connections of this process that do something now.")
CONNECTIONS_LIMIT = Gauge("roost_database_connections_limit", "The most that there may be; what needs more waits.")

_GRACE = 1.0
_FINISH_SECONDS = 2
"""For requests that are being worked on when the process stops."""
_STOP_SECONDS = 4.5

_NICE = 10
"""Of an engine that shares a machine with APIs: requests come before work in the background."""

_HEAD_BYTES = 64 * 1024
_HELD_BYTES = 16 * 1024
"""How much of an answer is sent together."""

_TOO_MANY_CONNECTIONS = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
)


def run(
    settings: Settings,
    *,
    api: bool = False,
    engine: bool = False,
    ready: Callable[[], None] = lambda: None,
    give_up: Callable[[], None] = lambda: None,
) -> int:
    """Run an API, an engine, or both, until SIGTERM or Ctrl-C; `ready` is called when requests are answered, `give_up`
    if the process has not ended in time and is about to be cut off."""
    logs.set_up(settings.log_level, settings.log_format)
    traces.set_up(settings.tracing_endpoint, f"roost-{'api' if api else 'engine'}")
    plugins.load(settings)  # a type that cannot be used is refused before anything is ready
    url = config.database_url(settings)
    pooler.refuse_unknown(url, settings.session_url)
    problem = schema.status(config.session_url(settings)).problem
    if problem:
        raise Unavailable(problem)
    if not api:
        os.nice(_NICE)
    tls = Tls.of(settings) if api else None
    listener = _listen(settings) if api else None
    if settings.engine_listen and not api:
        _answer_prometheus(*config.address(settings.engine_listen))
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_run(settings, url, listener, tls, engine, ready, give_up))
    traces.shut_down()
    return 0


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop


def _listen(settings: Settings) -> socket.socket:
    """Take the address before anything else starts, so that a port in use is said at once."""
    host, port = settings.address
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise _cannot_listen(host, port, error) from None
    return listener


def _answer_prometheus(host: str, port: int) -> None:
    """The API does so itself; an engine needs no more of HTTP than this."""
    try:
        prometheus_client.start_http_server(port, host)
    except OSError as error:
        raise _cannot_listen(host, port, error) from None


def _cannot_listen(host: str, port: int, error: OSError) -> Unavailable:
    return Unavailable(
        f"Cannot listen on {host}:{port}: {error.strerror}. Stop what does, or choose another with --listen."
    )


async def _run(
    settings: Settings,
    url: str,
    listener: socket.socket | None,
    tls: Tls | None,
    with_engine: bool,
    ready: Callable[[], None],
    give_up: Callable[[], None],
) -> None:
    databases = _databases(settings, url, api=listener is not None, engine=with_engine)
    CONNECTIONS.set_function(lambda: sum(each.connections_in_use for each in databases.values()))
    CONNECTIONS_LIMIT.set(len(databases) * (settings.pool_size + settings.max_overflow))
    stop = _Stop(settings.drain_seconds, give_up)
    if tls is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, tls.reload)
    try:
        async with asyncio.TaskGroup() as group:
            tasks = []
            if with_engine:
                tasks.append(group.create_task(engine.run(databases["engine"], settings)))
            if listener is not None:
                database = databases["api"]
                services = make_services(settings, database)
                server, authenticator = _server(services, tls)
                tasks.append(group.create_task(services.scheduler.keep_current()))
                tasks.append(group.create_task(services.scheduler.share()))
                if isinstance(authenticator, RoostAuthenticator):
                    tasks.append(group.create_task(database.listen(tokens.REVOCATIONS, authenticator.forget)))
                serving = group.create_task(server.serve(sockets=[listener]))
                await server.accepting.wait()
                tasks.append(group.create_task(_look_around(services)))
            # What has been loaded by now stays. Collected with what comes and goes, it would hold up all requests for a
            # tenth of a second each time.
            gc.collect()
            gc.freeze()
            # A request makes some thousand objects, nearly all of which go by themselves. Looking for the others every
            # 700 objects, as Python does, costs a twentieth of the CPU; looking at more than 20,000 at once, as many as
            # two pages of servers have, holds up all requests for 10 ms and more.
            gc.set_threshold(5_000, 3, 50)
            ready()
            await stop.asked.wait()
            if listener is not None:
                services.readiness.draining = True
                await stop.drain()
                services.watch.close()
                server.should_exit = True
                await serving
                await services.readiness.close()
            await _end(tasks)
    finally:
        for each in databases.values():
            await each.close()


class _Stop:
    """A signal to stop. After SIGTERM an API goes on serving for a while, unless a second signal, or Ctrl-C, comes."""

    def __init__(self, drain_seconds: float, give_up: Callable[[], None]) -> None:
        self.asked = asyncio.Event()
        self._at_once = asyncio.Event()
        self._drain_seconds = drain_seconds
        self._give_up = give_up
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._ask, False)
        loop.add_signal_handler(signal.SIGINT, self._ask, True)

    def _ask(self, at_once: bool) -> None:
        if at_once or self.asked.is_set():
            self._at_once.set()
        if not self.asked.is_set():
            self.asked.set()
            # Whatever does not hear, such as a thread in a long calculation, must not keep the process.
            last = threading.Timer(self._drain_seconds + _STOP_SECONDS, self._cut_off)
            last.daemon = True
            last.start()

    async def drain(self) -> None:
        """Wait while load balancers notice that this process is not ready any more."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._drain_seconds):
                await self._at_once.wait()

    def _cut_off(self) -> None:
        logger.error("not everything stopped in time; what is left is cut off")
        self._give_up()
        os._exit(1)


def _databases(settings: Settings, url: str, *, api: bool, engine: bool) -> dict[str, Database]:
    """A pool for each kind of work, with its own limits."""
    limits = Limits(settings.statement_seconds, settings.lock_seconds, settings.idle_seconds)
    longer = Limits(settings.engine_statement_seconds, settings.lock_seconds, settings.idle_seconds * 4)
    pool = partial(
        Database,
        url,
        session_url=settings.session_url,
        pool_size=settings.pool_size,
        max_overflow=settings.max_overflow,
    )
    wanted = [("api", limits)] * api + [("engine", longer)] * engine
    return {name: pool(limits=each, name=f"roost-{name}") for name, each in wanted}


async def _look_around(services: Services) -> None:
    """Audit all groups once, so that the first look at the map need not wait."""
    with contextlib.suppress(Exception):
        async with services.database.begin() as connection:
            await services.violations.now(connection)


async def _end(tasks: list[asyncio.Task[None]]) -> None:
    """Cancel the tasks, and again those that have not ended in time, however deep they are nested."""
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks, timeout=_GRACE)
    for left in asyncio.all_tasks() - {asyncio.current_task()}:
        left.cancel()


def _server(services: Services, tls: Tls | None = None) -> tuple["_Server", Authenticator]:
    settings = services.settings
    authenticator: Authenticator
    if settings.auth_strategy == "keystone":
        authenticator = KeystoneAuthenticator(settings)
    else:
        authenticator = RoostAuthenticator(services.database, settings.token_cache_seconds)
    app = App(services, authenticator)
    server = _Server(
        uvicorn.Config(
            app,
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=_FINISH_SECONDS,
            # Longer than clients are idle as a rule: one that sends on a connection just being closed must try again.
            timeout_keep_alive=75,
            ssl_context_factory=None if tls is None else lambda *_: tls.context,
            http=type("Protocol", (_Protocol,), {"patience": settings.body_seconds, "most": settings.max_connections}),
        )
    )
    return server, authenticator


class _Protocol(HttpToolsProtocol):
    """Ends the connections of clients who send no end of headers, or nothing, or do not take what they asked for;
    uvicorn itself would collect the first and wait for the others for ever."""

    patience: float
    most: int

    _in_head = False
    _head_bytes = 0
    _head: asyncio.TimerHandle | None = None
    _rest: asyncio.TimerHandle | None = None
    _unsent = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(cast(asyncio.Transport, _JoinedWrites(transport, self.loop)))
        if len(self.connections) > self.most:
            transport.write(_TOO_MANY_CONNECTIONS)
            transport.close()
        else:
            self._expect_a_head()

    def connection_lost(self, exc: Exception | None) -> None:
        for waiting in (self._head, self._rest):
            if waiting is not None:
                waiting.cancel()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head, self._head_bytes = True, 0
        self._expect_a_head()

    def on_headers_complete(self) -> None:
        self._in_head = False
        if self._head is not None:
            self._head.cancel()
        super().on_headers_complete()

    def _expect_a_head(self) -> None:
        if self._head is not None:
            self._head.cancel()
        self._head = self.loop.call_later(self.patience, self.transport.close)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._expect_some_to_be_taken()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._rest is not None:
            self._rest.cancel()

    def _expect_some_to_be_taken(self) -> None:
        self._unsent = self.transport.get_write_buffer_size()
        self._rest = self.loop.call_later(self.patience, self._look_at_the_rest)

    def _look_at_the_rest(self) -> None:
        """Wait on as long as the client takes some of what is there for it."""
        if self.transport.get_write_buffer_size() < self._unsent:
            self._expect_some_to_be_taken()
        else:
            self.transport.abort()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._head_bytes += len(data)
        if self._in_head and self._head_bytes > _HEAD_BYTES:
            self.send_400_response("The request line and the headers are too long.")


class _JoinedWrites:
    """A transport that sends the head of an answer and its body together: apart, each would be a system call and wake
    the client."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._held: list[bytes] = []
        self._size = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Send this, at the latest before anything else is done."""
        if not self._held:
            self._loop.call_soon(self._send)
        self._held.append(data)
        self._size += len(data)
        if self._size > _HELD_BYTES:
            self._send()

    def close(self) -> None:
        """Send what is held, and end."""
        self._send()
        self._transport.close()

    def _send(self) -> None:
        held, self._held, self._size = self._held, [], 0
        if held:
            self._transport.writelines(held)


class _Server(uvicorn.Server):
    """Says when it accepts requests, and leaves the signals to us: both parts of a process must stop, in order."""

    def __init__(self, server_config: uvicorn.Config) -> None:
        super().__init__(server_config)
        self.accepting = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.accepting.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
