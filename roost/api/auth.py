"""Who makes this request: a token looked up, in Roost's own identity or in Keystone."""

import asyncio
import time
from typing import Any, Protocol

from roost.config import Settings
from roost.errors import Unauthorized, Unavailable
from roost.identity import tokens
from roost.identity.tokens import Caller
from roost.store.database import Database

REFUSAL = "The request you have made requires authentication."
_CACHE_SIZE = 10_000


class Authenticator(Protocol):
    """Turns a token into whom it speaks for."""

    async def authenticate(self, secret: str) -> Caller:
        """Raise `Unauthorized` if the token is not valid now."""
        ...


class RoostAuthenticator:
    """Tokens of Roost's own identity, remembered for a few seconds and forgotten at once when revoked."""

    def __init__(self, database: Database, cache_seconds: int) -> None:
        self._database = database
        self._seconds = cache_seconds
        self._cache: dict[bytes, tuple[float, Caller]] = {}

    async def authenticate(self, secret: str) -> Caller:
        key = tokens.digest(secret)
        found = self._cache.get(key)
        if found is not None and found[0] > time.monotonic():
            return found[1]
        async with self._database.begin() as connection:
            token = await tokens.find(connection, secret)
        if token is None:
            self._cache.pop(key, None)
            raise Unauthorized(REFUSAL)
        self._remember(key, token)
        return token.caller

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
        left = token.expires_at.timestamp() - time.time()
        self._cache[key] = (time.monotonic() + min(self._seconds, left), token.caller)


class KeystoneAuthenticator:
    """Tokens of a Keystone, validated and cached by keystonemiddleware as [keystone_authtoken] says."""

    def __init__(self, settings: Settings) -> None:
        try:
            from keystonemiddleware import auth_token
            from webob.exc import HTTPServiceUnavailable
        except ImportError:
            missing = "[auth] strategy = keystone needs keystonemiddleware: pip install 'roost[keystone]'"
            raise Unavailable(missing) from None
        self._refused: type[Exception] = auth_token.InvalidToken
        self._failed: type[Exception] = HTTPServiceUnavailable
        self._middleware = auth_token.AuthProtocol(None, {"oslo_config_config": settings.source})

    async def authenticate(self, secret: str) -> Caller:
        try:
            # keystonemiddleware blocks while it asks Keystone, so it works off the event loop.
            data: dict[str, Any] = await asyncio.to_thread(self._middleware.fetch_token, secret)
        except self._refused:
            raise Unauthorized(REFUSAL) from None
        except self._failed:
            raise Unavailable("Keystone does not answer; try again in a moment.") from None
        token = data["token"]
        project = token.get("project") or {}
        return Caller(
            user_id=token["user"]["id"],
            user_name=token["user"]["name"],
            project_id=project.get("id"),
            project_name=project.get("name"),
            roles=tuple(role["name"] for role in token.get("roles", [])),
        )
