"""The ASGI application: every API behind its prefix, one way from a request to an answer."""

import asyncio
import logging
import re
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Iterable, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from oslo_policy import policy
from starlette.datastructures import Headers
from starlette.responses import Content, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from roost import errors, logs, quick_json, traces
from roost.api import access_rules, bodies, budgets, metrics, permissions, web
from roost.api.auth import REFUSAL, Authenticator
from roost.api.clustering import CLUSTERING_API
from roost.api.compute import COMPUTE_API, FRONT_API
from roost.api.errors import UNEXPECTED, status_of
from roost.api.frame import Api
from roost.api.identity import IDENTITY_API
from roost.api.image import IMAGE_API
from roost.api.network import NETWORK_API
from roost.api.rates import Allowance, RateLimit, TooFast
from roost.api.readiness import Readiness
from roost.api.routes import Call, Reply, Route, Services
from roost.api.scheduler import SCHEDULER_API
from roost.api.service import SERVICE_API
from roost.api.versions import Version
from roost.api.volume import VOLUME_API
from roost.clouds import choice
from roost.compute.answers.violations import Violations
from roost.compute.inventory.image_files import ImageFiles
from roost.compute.scheduling.scheduler import Scheduler
from roost.config import Settings
from roost.identity.tokens import Caller
from roost.network.addresses import AddressPool
from roost.store.database import Database, is_unavailable
from roost.store.watch import Watch
from roost.turns import FairTurns, RestingTurns

if TYPE_CHECKING:
    from roost.clouds.front import Front

logger = logging.getLogger(__name__)

APIS: tuple[Api, ...] = (
    *(IDENTITY_API, COMPUTE_API, IMAGE_API, NETWORK_API, VOLUME_API, CLUSTERING_API, SCHEDULER_API),
    SERVICE_API,
)
ANONYMOUS = Caller("", "", None, None, ())
_REQUEST_ID = re.compile(r"^req-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
_EVENTS = "/os-server-external-events"
_LONGEST_MESSAGE = 16_384
"""Messages quote what was sent."""
_SHARES = 8
"""How many projects can use their whole share of a process at the same time."""
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"})


def default_rules() -> list[policy.RuleDefault]:
    """Every permission that any API checks, with the requests that it guards."""
    operations: dict[str, list[tuple[str, str]]] = {}
    for api in APIS:
        for route in api.table.routes:
            if route.rule is not None:
                operations.setdefault(route.rule, []).append((route.method, api.prefix + route.path))
    rules = [rule for api in APIS for rule in api.rules]
    return permissions.documented(rules, {name: list(dict.fromkeys(rows)) for name, rows in operations.items()})


def make_services(settings: Settings, database: Database) -> Services:
    """What the handlers of this process use."""
    scheduler, front = Scheduler(database, settings), choice.front(settings, database)
    return Services(
        settings,
        database,
        permissions.Permissions(settings, default_rules()),
        scheduler,
        choice.choose(settings, database, scheduler),
        front,
        choice.groups(settings, database, front),
        Watch(database),
        Violations(scheduler.live),
        AddressPool(database),
        ImageFiles.of(settings),
        Readiness(database, scheduler.live),
    )


@dataclass(slots=True)
class _Exchange:
    """One request on its way to an answer."""

    api: Api
    scope: Scope
    receive: Receive
    headers: Headers
    path: str
    deadline: asyncio.Timeout
    """When the work on it ends, here and in the database, whether it is done or not."""
    seconds: float
    """How long the work on it may take in one go."""
    version: Version | None = None
    route: Route | None = None
    allowance: Allowance | None = None
    """What the project or the address has left of its share of requests."""

    @property
    def address(self) -> str:
        """Where the client connects from."""
        return str((self.scope.get("client") or ("", 0))[0])


class _Admission:
    """How many requests are being worked on. One too many is refused at once: it would only make all others wait."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._at_work = 0

    @contextmanager
    def work(self) -> Iterator[None]:
        """Work on a request, or raise `Unavailable`."""
        self._count(1)
        try:
            self._shed()
            yield
        finally:
            self._count(-1)

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Wait for the client without holding up other requests; then work on, or raise `Unavailable`."""
        self._count(-1)
        try:
            yield
        finally:
            self._count(1)
        self._shed()

    def _shed(self) -> None:
        if self._at_work > self._most:
            metrics.SHED.inc()
            raise errors.Unavailable("Too many requests are being worked on; try again in a moment.")

    def _count(self, change: int) -> None:
        self._at_work += change
        metrics.AT_WORK.set(self._at_work)


class App:
    """The whole HTTP side of Roost."""

    def __init__(self, services: Services, authenticator: Authenticator) -> None:
        self._services = services
        self._authenticator = authenticator
        self._admission = _Admission(services.settings.max_requests)
        settings = services.settings
        self._expensive = FairTurns(
            at_once=2 * settings.worker_processes,
            each=settings.project_questions,
            waiting=8 * settings.worker_processes,
        )
        self._ordinary = RestingTurns(
            at_once=_SHARES * settings.project_requests,
            share=settings.project_requests,
            each=max(settings.project_requests, settings.max_requests // 2),
            waiting=settings.max_requests,
        )
        self._projects, self._addresses = RateLimit(settings.project_rate), RateLimit(settings.address_rate)
        served = {IDENTITY_API.name: settings.auth_strategy == "roost", SCHEDULER_API.name: settings.in_front_of_nova}
        # In front of a Nova, its Neutron, its Glance and its Cinder are the ones to ask.
        served |= dict.fromkeys((NETWORK_API.name, IMAGE_API.name, VOLUME_API.name), not settings.in_front_of_nova)
        compute = FRONT_API if settings.in_front_of_nova else COMPUTE_API
        self._apis = [compute if api is COMPUTE_API else api for api in APIS if served.get(api.name, True)]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request. Life-cycle events are left to the server."""
        if scope["type"] != "http":
            return
        started = time.perf_counter()
        headers = Headers(scope=scope)
        identifier = f"req-{uuid.uuid4()}"
        logs.request_id.set(identifier)
        exchange = self._enter(scope, receive, headers)
        with traces.span("request", headers.get("traceparent")) as traced:
            response = await self._respond(exchange)
            self._sign(exchange, response, identifier)
            traced |= self._traced(exchange, response)
            await response(scope, receive, send)
        self._note(exchange, response, time.perf_counter() - started)

    async def _respond(self, exchange: _Exchange) -> Response:
        """The answer, or an error in its place."""
        try:
            # Health checks are answered even when there is too much to do, and servers that are being made wait for the
            # events that Neutron and Cinder send to Nova.
            urgent = exchange.api is SERVICE_API or (exchange.api is FRONT_API and exchange.path.endswith(_EVENTS))
            with nullcontext() if urgent else self._admission.work():
                async with exchange.deadline:
                    return await self._answer(exchange)
        except errors.RoostError as error:
            status = exchange.api.over_quota if isinstance(error, errors.OverQuota) else status_of(error)
            response = self._refuse(exchange, status, error.message, type(error))
            if isinstance(error, errors.TooManyRequests):
                response.headers["Retry-After"] = str(error.seconds)
            if isinstance(error, TooFast):
                exchange.allowance = error.allowance
            return response
        except Exception as error:
            return self._fail(exchange, error)

    def _fail(self, exchange: _Exchange, error: Exception) -> Response:
        """What went wrong is not the caller's fault: 503 where the same again may succeed, else 500."""
        if exchange.deadline.expired():
            logger.error("the request took too long and was cancelled")
            message = "The request took too long and was cancelled; try again in a moment."
            return self._refuse(exchange, 503, message, errors.Unavailable)
        if is_unavailable(error):
            logger.error("the database does not answer", extra={"error": str(error.__cause__ or error)})
            message = "The database does not answer; try again in a moment."
            return self._refuse(exchange, 503, message, errors.Unavailable)
        logger.error("unexpected failure", exc_info=error)
        return self._refuse(exchange, 500, UNEXPECTED, RuntimeError)

    def _enter(self, scope: Scope, receive: Receive, headers: Headers) -> _Exchange:
        path: str = scope["path"]
        seconds = self._services.settings.request_seconds
        deadline = asyncio.timeout(seconds)
        for api in self._apis:
            if path == api.prefix or path.startswith(api.prefix + "/"):
                return _Exchange(api, scope, receive, headers, path[len(api.prefix) :], deadline, seconds)
        return _Exchange(SERVICE_API, scope, receive, headers, path, deadline, seconds)

    async def _answer(self, exchange: _Exchange) -> Response:
        api, scope = exchange.api, exchange.scope
        if scope["method"] not in _METHODS:
            return self._refuse_method(exchange, _METHODS)
        if "\x00" in exchange.path:
            raise errors.NotFound(api.not_found)  # nothing has such a name, and the database would refuse it
        if api is FRONT_API and self._services.front is not None:
            self._services.front.must_not_ask_itself(exchange.headers.get("via"))
            if not _is_own(exchange):
                with self._unhurried(exchange):
                    return await self._relay(exchange, self._services.front)
        by_method, values, project_id = api.find(exchange.path)
        routes = by_method.get("GET" if scope["method"] == "HEAD" else scope["method"])
        if not routes and api.says_wrong_method:
            return self._refuse_method(exchange, by_method)
        if not routes:
            raise errors.NotFound(api.not_found)
        exchange.route = self._choose(exchange, routes)
        if exchange.route.public and api is not SERVICE_API:
            exchange.allowance = self._addresses.take(exchange.address)
        caller = ANONYMOUS if exchange.route.public else await self._identify(exchange, project_id)
        call = self._call(exchange, caller, values)
        if exchange.route.rule is not None and not exchange.route.owned:
            call.permit(exchange.route.rule)
        if exchange.route.query is not None:
            exchange.route.query.check_query(call.query, api.invalid)
        raw = b""
        if exchange.route.body is not None or (exchange.route.method != "GET" and not exchange.route.streamed):
            limits, public = self._services.settings, exchange.route.public
            with self._admission.aside(), self._unhurried(exchange):
                raw = await bodies.read(exchange.receive, exchange.headers, limits, public=public)
        # A project has its share before a connection to the database, or the time of the event loop, is taken for it.
        async with self._turn(exchange.route, call):
            self._begin(exchange, exchange.route)
            settings, trusted = self._services.settings, api is SCHEDULER_API
            call.body = bodies.parse(raw, exchange.headers, settings, api.also_json, trusted=trusted)
            if exchange.route.body is not None:
                exchange.route.body.check_body(call.body, api.invalid)
            work = exchange.route.handler(call)
            reply = await (_while_connected(exchange, work) if exchange.route.expensive else work)
            response = reply if isinstance(reply, Response) else await _json(reply, exchange.route.status)
        if isinstance(response, StreamingResponse) and response.media_type != metrics.ENDLESS:
            response.body_iterator = self._in_turns(exchange.route, call, response.body_iterator)
        response.headers.update(call.answer_headers)
        return await web.compressed(exchange.headers, response)

    async def _pieces(self, exchange: _Exchange) -> AsyncGenerator[bytes]:
        with self._admission.aside(), self._unhurried(exchange):
            async for piece in bodies.pieces(exchange.receive, self._services.settings):
                yield piece

    async def _in_turns(self, route: Route, call: Call, pieces: AsyncIterable[Content]) -> AsyncGenerator[Content]:
        """Make each piece of an answer that is made while it is sent in a turn of its project, and in its time."""
        made = aiter(pieces)
        while True:
            async with self._turn(route, call, begun=True), asyncio.timeout(self._seconds(route)):
                piece = await anext(made, None)
            if piece is None:
                return
            yield piece

    @asynccontextmanager
    async def _turn(self, route: Route, call: Call, *, begun: bool = False) -> AsyncIterator[None]:
        """Work on a request in the turn of its project. Services of the operator, sign-ins, which have turns of their
        own, and bodies that come as slowly as the client likes do not wait."""
        owner = call.caller.project_id or call.caller.user_id
        if route.public or route.streamed or "service" in call.caller.roles:
            yield
            return
        turns = self._expensive if route.expensive else self._ordinary
        await (turns.take_another(owner) if begun else turns.take(owner))
        with ExitStack() as ending:
            ending.callback(turns.give_back, owner)
            call.leave = ending.close
            yield

    def _begin(self, exchange: _Exchange, route: Route) -> None:
        """Give the work on a request, which begins now, the time that there is for its kind."""
        exchange.seconds = self._seconds(route)
        last, until = exchange.deadline.when(), asyncio.get_running_loop().time() + exchange.seconds
        exchange.deadline.reschedule(until if last is None else min(last, until))

    def _seconds(self, route: Route) -> float:
        return budgets.SHARES[route.kind] * self._services.settings.request_seconds

    @contextmanager
    def _unhurried(self, exchange: _Exchange) -> Iterator[None]:
        """Wait for the client, or for a Nova, which have limits of their own."""
        exchange.deadline.reschedule(None)
        yield
        exchange.deadline.reschedule(asyncio.get_running_loop().time() + exchange.seconds)

    async def _relay(self, exchange: _Exchange, front: "Front") -> Response:
        from roost.api.compute.relay import Relayed, relay

        scope, headers = exchange.scope, exchange.headers
        asked = Relayed(
            method=scope["method"],
            path=exchange.path,
            query=scope["query_string"].decode("latin-1"),
            headers=headers,
            body=await bodies.read(exchange.receive, headers, self._services.settings),
            request_id=logs.request_id.get(),
            base=self._site(exchange) + exchange.api.prefix,
        )
        return await relay(front, asked)

    def _choose(self, exchange: _Exchange, routes: list[Route]) -> Route:
        """The route for the version that the request asks for; version documents are the same in all."""
        if exchange.api.negotiation is None or routes[0].public:
            return routes[0]
        exchange.version = exchange.api.negotiation.choose(exchange.headers)
        for route in routes:
            if route.serves(exchange.version):
                return route
        raise exchange.api.not_in_version(exchange.version)

    async def _identify(self, exchange: _Exchange, project_id: str | None) -> Caller:
        try:
            secret = exchange.headers.get("x-auth-token")
            if not secret:
                raise errors.Unauthorized(REFUSAL)
            service = exchange.headers.get("x-service-token")
            caller = await self._authenticator.authenticate(secret, service, exchange.address)
        except errors.Unauthorized:
            exchange.allowance = self._addresses.take(exchange.address)
            raise
        if "service" not in caller.roles:
            exchange.allowance = self._projects.take(caller.project_id or caller.user_id)
        if not access_rules.allow(caller.access_rules, exchange.api.name, exchange.scope["method"], exchange.path):
            raise errors.Unauthorized(REFUSAL)
        if caller.project_id is None and exchange.api is not IDENTITY_API:
            raise errors.Forbidden("This needs a token that is scoped to a project.")
        if project_id is not None and project_id != caller.project_id:
            raise errors.Invalid(
                f"Malformed request URL: URL's project_id '{project_id}' doesn't match Context's project_id "
                f"'{caller.project_id}'"
            )
        return caller

    def _call(self, exchange: _Exchange, caller: Caller, values: Mapping[str, str]) -> Call:
        queries = parse_qsl(exchange.scope["query_string"].decode("latin-1"), keep_blank_values=True)
        if any("\x00" in word for pair in queries for word in pair):
            raise errors.Invalid("The query contains the character zero.")
        site = self._site(exchange)
        return Call(
            services=self._services,
            caller=caller,
            version=exchange.version or Version(0, 0),
            headers=exchange.headers,
            path=values,
            query=dict(queries),
            queries=queries,
            body=None,
            base=site + exchange.api.prefix,
            url=site + exchange.scope["path"],
            forbidden=exchange.api.forbidden,
            has_project=partial(self._authenticator.has_project, exchange.headers.get("x-auth-token", "")),
            address=exchange.address,
            pieces=partial(self._pieces, exchange),
            identify=partial(self._authenticator.authenticate, exchange.headers.get("x-auth-token", "")),
        )

    def _site(self, exchange: _Exchange) -> str:
        """The address of this Roost as its clients know it."""
        here = f"{exchange.scope['scheme']}://{exchange.headers.get('host', 'localhost')}"
        return self._services.settings.public_url or here

    def _refuse(self, exchange: _Exchange, status: int, message: str, kind: type[BaseException]) -> Response:
        said = message if len(message) <= _LONGEST_MESSAGE else f"{message[:_LONGEST_MESSAGE]}..."
        content = quick_json.dumps(exchange.api.error_body(status, said, kind))
        response = Response(content, status, media_type="application/json")
        if status == 401:
            identity = self._authenticator.sign_in_at or f"{self._site(exchange)}/identity"
            response.headers["WWW-Authenticate"] = f'Keystone uri="{identity}"'
        if status == 503:
            response.headers["Retry-After"] = "1"
        if status in (408, 413):
            response.headers["Connection"] = "close"  # the rest of the body may never come, or is not read
        return response

    def _refuse_method(self, exchange: _Exchange, allowed: Iterable[str]) -> Response:
        message = "The method is not allowed for the requested URL."
        response = self._refuse(exchange, 405, message, errors.Invalid)
        response.headers["Allow"] = ", ".join(sorted(allowed))
        return response

    def _sign(self, exchange: _Exchange, response: Response, identifier: str) -> None:
        # A relayed answer has Nova's own, by which its history and logs know the request.
        identifier = response.headers.setdefault("X-OpenStack-Request-Id", identifier)
        if exchange.allowance is not None:
            response.headers.update(exchange.allowance.headers)
        for name, value in exchange.api.headers(exchange.version, identifier):
            response.headers[name] = value

    def _traced(self, exchange: _Exchange, response: Response) -> dict[str, Any]:
        """The request as OpenTelemetry names its parts; its id is Nova's where Nova has answered."""
        method, route = exchange.scope["method"], exchange.route.path if exchange.route else None
        return {
            "name": f"{method} {exchange.api.prefix}{route or ''}",
            "http.request.method": method,
            "http.route": route,
            "http.response.status_code": response.status_code,
            "openstack.request_id": response.headers["X-OpenStack-Request-Id"],
        }

    def _note(self, exchange: _Exchange, response: Response, seconds: float) -> None:
        method = exchange.scope["method"] if exchange.scope["method"] in _METHODS else "other"
        route = exchange.route.path if exchange.route else "unknown"
        metrics.REQUESTS.labels(exchange.api.name, method, route, response.status_code).inc()
        if response.media_type != metrics.ENDLESS:
            metrics.SECONDS.labels(exchange.api.name, method, route).observe(seconds)
        extra: dict[str, Any] = {"status": response.status_code, "ms": round(seconds * 1000, 1)}
        asked_by = exchange.headers.get("x-openstack-request-id", "")
        if _REQUEST_ID.match(asked_by):
            extra["global_request_id"] = asked_by
        logger.info("%s %s", exchange.scope["method"], exchange.scope["path"], extra=extra)


async def _while_connected(exchange: _Exchange, work: Awaitable[Reply]) -> Reply:
    """Do the work, unless the client goes away meanwhile: then it is cancelled, since it may take long."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_disconnected(exchange.receive))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise errors.Invalid("The client has gone.")
        return working.result()
    finally:
        for each in (working, leaving):
            each.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _is_own(exchange: _Exchange) -> bool:
    """Whether Roost answers this itself where it stands in front of a Nova."""
    try:
        by_method = exchange.api.find(exchange.path)[0]
    except errors.NotFound:
        return False
    return ("GET" if exchange.scope["method"] == "HEAD" else exchange.scope["method"]) in by_method


async def _json(reply: dict[str, Any] | list[Any] | None, status: int) -> Response:
    if reply is None:
        return Response(status_code=status)
    pieces = [piece async for piece in _written(reply)]
    if len(pieces) == 1:
        return Response(pieces[0], status, media_type="application/json")
    return web.PiecewiseResponse(pieces, status)


async def _written(value: Any) -> AsyncIterator[bytes]:
    """A long list or object is written piece by piece, and others are served in between. A huge one is freed piece by
    piece too: all at once, that takes as long as a hundred requests."""
    if not _is_long(value):
        yield quick_json.dumps(value)
        return
    named = isinstance(value, dict)
    entries = list(value.items() if named else value)
    opening, closing = (b"{", b"}") if named else (b"[", b"]")
    if len(entries) > _MANY:
        write = _member if named else quick_json.dumps
        if len(entries) > _HUGE:
            value.clear()
        for start in range(0, len(entries), _MANY):
            part = slice(start, start + _MANY)
            yield (b"," if start else opening) + b",".join(map(write, entries[part]))
            if len(entries) > _HUGE:
                entries[part] = [None] * len(entries[part])
            await asyncio.sleep(0)
    else:
        for place, entry in enumerate(entries):
            yield (b"," if place else opening) + (quick_json.dumps(entry[0]) + b":" if named else b"")
            async for piece in _written(entry[1] if named else entry):
                yield piece
    yield closing


def _is_long(value: Any, depth: int = 3) -> bool:
    if not isinstance(value, (dict, list)):
        return False
    inside = value.values() if isinstance(value, dict) else value
    return len(value) > _MANY or (depth > 0 and any(_is_long(item, depth - 1) for item in inside))


def _member(item: tuple[str, Any]) -> bytes:
    return quick_json.dumps(item[0]) + b":" + quick_json.dumps(item[1])


_MANY = 50
_HUGE = 10_000


def all_routes() -> Iterator[tuple[Api, Route]]:
    """Every route of every API."""
    for api in APIS:
        for route in api.table.routes:
            yield api, route
