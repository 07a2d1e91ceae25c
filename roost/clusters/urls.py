"""Addresses that users name and the engine calls: the pages of a health policy, the webhooks of a deletion policy.

Such an address must not lead into the operator's own network, unless the operator allows it. What is checked is the
address that is connected to, so no name or redirection gets around it; proxies are not used.
"""

import asyncio
import http.client
import ipaddress
import socket
import ssl
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

from roost.turns import FairTurns

_SECONDS, _GRACE = 10.0, 0.2
_AT_ONCE, _OF_A_PROJECT = 32, 8
_THREADS = ThreadPoolExecutor(_AT_ONCE, "urls")
"""Separate threads: slow URLs delay only other URLs."""
_TURNS = FairTurns(at_once=_AT_ONCE, share=_OF_A_PROJECT, each=sys.maxsize, waiting=sys.maxsize)
"""Those of one project keep only each other waiting."""
_LONGEST_ANSWER = 1 << 20
_LOCAL_TRANSLATION = ipaddress.IPv6Network("64:ff9b:1::/48")
_TRANSLATED = [ipaddress.IPv6Network(network) for network in ("64:ff9b::/96", "::/96", "::ffff:0:0:0/96")]
_DOCUMENTATION = ipaddress.IPv6Network("3fff::/20")
"""Not known to the ipaddress module of every Python."""


class ForbiddenAddress(Exception):
    """It leads to this machine or into a private network, which the operator does not allow."""

    def __init__(self) -> None:
        super().__init__(self.__doc__)


async def fetch(
    url: str, body: bytes | None = None, *, owner: str, private: bool, verify: bool = True, seconds: float = _SECONDS
) -> str:
    """What an address answers to a GET, or to a POST of JSON, within so many seconds, however it is answered; `owner`
    is the project that named it, `private` whether it may be of a private network.

    Raises OSError or ValueError if there is no good answer, and `ForbiddenAddress`."""
    await _TURNS.take(owner)
    loop = asyncio.get_running_loop()
    answer = loop.run_in_executor(_THREADS, _fetch, url, body, private, verify, seconds)
    # A look-up of a name cannot be ended: its thread counts until it ends by itself, but is not waited for.
    answer.add_done_callback(lambda _: _TURNS.give_back(owner))
    done, _ = await asyncio.wait((answer,), timeout=seconds + _GRACE)
    if not done:
        answer.add_done_callback(lambda late: late.cancelled() or late.exception())
        raise TimeoutError("timed out")
    return answer.result()


def refusal(url: str, *, private: bool) -> str | None:
    """Why a URL can be refused as soon as it is named: one whose host is a name is only known when it is called."""
    with suppress(ValueError):
        host = urllib.parse.urlsplit(url).hostname
        if not private and host and not is_public(host):
            return f"The URL '{url}' cannot be used: {ForbiddenAddress()}"
    return None


def is_public(address: str) -> bool:
    """Whether an IP address is one of the Internet at large."""
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address):
        within = found.ipv4_mapped or found.sixtofour or _embedded(found)
        if within is not None:
            return is_public(str(within))
        if found.is_site_local or found in _LOCAL_TRANSLATION or found in _DOCUMENTATION:
            return False
    return found.is_global and not found.is_multicast


def _embedded(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """The IPv4 address that a translator (NAT64) or an old host would read in the last 32 bits."""
    if any(address in network for network in _TRANSLATED):
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return None


def _fetch(url: str, body: bytes | None, private: bool, verify: bool, seconds: float) -> str:
    if not url.startswith(("http://", "https://")):
        raise ValueError("it is no URL of http or https")
    context = ssl.create_default_context()
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"} if body else {})  # noqa: S310
    deadline = _Deadline(seconds)
    try:
        with deadline, _opener(private, context, deadline).open(request, timeout=seconds) as response:
            return str(response.read(_LONGEST_ANSWER).decode(errors="replace"))
    except urllib.error.HTTPError as error:
        raise OSError(f"status {error.code}") from error
    except http.client.HTTPException as error:
        raise OSError(f"no answer of HTTP: {error}") from error


class _Deadline:
    """Ends the connections that are open when the time is over: a server that sends a byte now and then could hold a
    read for ever."""

    def __init__(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds
        self._timer = threading.Timer(seconds, self._end)
        self._sockets: list[socket.socket] = []

    def __enter__(self) -> None:
        self._timer.start()

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()

    def connect(self, address: tuple[str, int]) -> socket.socket:
        """A connection that ends with the time."""
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        made = socket.create_connection(address, left)
        self._sockets.append(made)
        return made

    def _end(self) -> None:
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


def _opener(private: bool, context: ssl.SSLContext, deadline: _Deadline) -> urllib.request.OpenerDirector:
    """Of http and https alone: what is added here is all that a redirection can lead to."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        _Handler(private, context, deadline),
        urllib.request.HTTPRedirectHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.UnknownHandler(),
    ):
        opener.add_handler(handler)
    return opener


class _Handler(urllib.request.AbstractHTTPHandler):
    def __init__(self, private: bool, context: ssl.SSLContext, deadline: _Deadline) -> None:
        super().__init__()
        self.private, self.context, self.deadline = private, context, deadline

    def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(partial(_Connection, private=self.private, deadline=self.deadline), request)

    def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        secure = partial(_SecureConnection, private=self.private, deadline=self.deadline, context=self.context)
        return self.do_open(secure, request)

    http_request = https_request = urllib.request.AbstractHTTPHandler.do_request_


class _Connection(http.client.HTTPConnection):
    def __init__(
        self, host: str, *, private: bool, deadline: _Deadline, context: ssl.SSLContext | None = None, **more: Any
    ) -> None:
        super().__init__(host, **more)
        self.private, self.deadline, self.context = private, deadline, context

    def connect(self) -> None:
        addresses = _look_up(self.host, self.port)
        if not self.private and not all(is_public(address) for address in addresses):
            raise ForbiddenAddress
        self.sock = self.deadline.connect((addresses[0], self.port))
        if self.context is not None:
            self.sock = self.context.wrap_socket(self.sock, server_hostname=self.host)


def _look_up(host: str, port: int) -> list[str]:
    return [str(address[0]) for *_, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


class _SecureConnection(_Connection):
    default_port = http.client.HTTPS_PORT
