"""Who makes this request: a token looked up, in Roost's own identity or in Keystone."""

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import Protocol
from urllib.parse import quote

from roost import threads
from roost.config import Settings
from roost.errors import Invalid, Unauthorized, Unavailable
from roost.identity import projects, tokens
from roost.identity.tokens import Caller
from roost.store.database import Database
from roost.turns import FairTurns

logger = logging.getLogger(__name__)

REFUSAL = "The request you have made requires authentication."
_SILENT = "Keystone does not answer; try again in a moment."
_CACHE_SIZE = 10_000
_KEYSTONE_SECONDS = 10


class Authenticator(Protocol):
    """Finds the caller that a token stands for."""

    sign_in_at: str | None
    """Where tokens are issued; None: here, at /identity."""

    async def authenticate(self, secret: str, service: str | None = None, address: str = "") -> Caller:
        """Raise `Unauthorized` if the token is not valid now, or the token of a service beside it is not; `address` is
        where the client connects from."""
        ...

    async def has_project(self, secret: str, project_id: str) -> bool:
        """Whether there is a project with this id, as far as the token's owner may see."""
        ...


class RoostAuthenticator:
    """Tokens of Roost's own identity, remembered for a few seconds and forgotten at once when revoked."""

    sign_in_at: str | None = None

    def __init__(self, database: Database, cache_seconds: int) -> None:
        self._database = database
        self._seconds = cache_seconds
        self._cache: dict[bytes, tuple[float, Caller]] = {}
        # Clients may send tokens that do not exist: such requests wait for each other, and hold few connections.
        self._turns = FairTurns(at_once=8, share=4, each=128, waiting=256)

    async def authenticate(self, secret: str, service: str | None = None, address: str = "") -> Caller:
        if service is not None:
            await self.authenticate(service, address=address)
        key = tokens.digest(secret)
        found = self._cache.get(key)
        if found is not None and found[0] > time.monotonic():
            return found[1]
        async with self._turns.turn(address), self._database.autocommit() as connection:
            token = await tokens.find(connection, secret)
        if token is None:
            self._cache.pop(key, None)
            raise Unauthorized(REFUSAL)
        self._remember(key, token)
        return token.caller

    async def has_project(self, secret: str, project_id: str) -> bool:
        async with self._database.autocommit() as connection:
            return await projects.find(connection, project_id=project_id) is not None

    async def forget(self, payload: str) -> None:
        """A token was revoked here or elsewhere; anything but a digest means that any may have been."""
        try:
            self._cache.pop(bytes.fromhex(payload) if payload else b"", None)
        except ValueError:
            self._cache.clear()
        if not payload:
            self._cache.clear()

    def _remember(self, key: bytes, token: tokens.Token) -> None:
        if len(self._cache) >= _CACHE_SIZE:
            self._cache.clear()
        self._cache[key] = (time.monotonic() + min(self._seconds, token.lasts), token.caller)


class KeystoneAuthenticator:
    """Tokens of a Keystone, validated and cached by keystonemiddleware as [keystone_authtoken] says."""

    def __init__(self, settings: Settings) -> None:
        try:
            import webob
            from keystoneauth1.exceptions import ClientException
            from keystonemiddleware.auth_token import AuthProtocol
        except ImportError:
            missing = "[auth] strategy = keystone needs keystonemiddleware: pip install 'roost[keystone]'"
            raise Unavailable(missing) from None
        threads.import_eventlet()
        self._request = webob.Request
        # The catalogue is not used here but requested all the same: other services that share the memcached would
        # otherwise find the token without one. Which requests need a token is decided here.
        ours = {"include_service_catalog": True, "delay_auth_decision": False}
        try:
            self._middleware = AuthProtocol(webob.Response(), {"oslo_config_config": settings.source, **ours})
        except ClientException as error:
            raise Invalid(f"[keystone_authtoken] cannot be used: {error}") from error
        options = settings.source.keystone_authtoken
        if not options.auth_type:
            raise Invalid("[keystone_authtoken] has no auth_type: it says how Roost signs in to check tokens.")
        self.sign_in_at: str | None = options.www_authenticate_uri or options.auth_url

    async def authenticate(self, secret: str, service: str | None = None, address: str = "") -> Caller:
        given = {"X-Auth-Token": secret, **({} if service is None else {"X-Service-Token": service})}
        if not all(token.isascii() and token.isprintable() for token in given.values()):
            # No token looks like this, and a library that cannot send it might write it into the log.
            raise Unauthorized(REFUSAL)
        # keystonemiddleware blocks while it asks Keystone, so it works off the event loop.
        return await asyncio.to_thread(self._ask, given)

    async def has_project(self, secret: str, project_id: str) -> bool:
        return await asyncio.to_thread(self._has_project, secret, project_id)

    def _has_project(self, secret: str, project_id: str) -> bool:
        from keystoneauth1 import exceptions, session, token_endpoint

        address = f"{(self.sign_in_at or '').removesuffix('/').removesuffix('/v3')}/v3"
        keystone = session.Session(auth=token_endpoint.Token(address, secret), timeout=_KEYSTONE_SECONDS)
        try:
            keystone.get(f"{address}/projects/{quote(project_id, safe='')}")
        except (exceptions.NotFound, exceptions.Forbidden):
            return False
        except exceptions.ClientException as error:
            raise Unavailable(_SILENT) from error
        return True

    def _ask(self, given: Mapping[str, str]) -> Caller:
        """Send the middleware a request of its own kind, and read what it adds for the application behind it."""
        request = self._request.blank("/")
        try:
            request.headers.update(given)
            status = request.get_response(self._middleware).status_int
        except Exception as error:
            logger.exception("a token could not be checked")
            raise Unavailable(_SILENT) from error
        if status == 503:
            raise Unavailable(_SILENT)
        said: Mapping[str, str] = request.headers
        if status != 200 or said.get("X-Identity-Status") != "Confirmed":
            raise Unauthorized(REFUSAL)
        return Caller(
            user_id=said["X-User-Id"],
            user_name=said["X-User-Name"],
            project_id=said.get("X-Project-Id"),
            project_name=said.get("X-Project-Name"),
            roles=tuple(filter(None, said.get("X-Roles", "").split(","))),
            system=said.get("OpenStack-System-Scope") == "all",
        )
