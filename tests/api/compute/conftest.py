"""The compute API for tests."""

from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tests.conftest import Api, refusal_of


@dataclass(frozen=True)
class Compute:
    """`await compute.get("/flavors", version="2.61")`: the parsed body."""

    api: Api

    async def ask(self, method: str, path: str, *, version: str = "2.1", **more: Any) -> httpx.Response:
        """One request under /compute/v2.1."""
        return await self.api.request(method, f"/compute/v2.1{path}", version=version, **more)

    async def _good(self, method: str, path: str, **more: Any) -> Any:
        response = await self.ask(method, path, **more)
        assert response.is_success, response.text
        return response.json() if response.content else None

    async def get(self, path: str, **more: Any) -> Any:
        return await self._good("GET", path, **more)

    async def post(self, path: str, body: Any, **more: Any) -> Any:
        return await self._good("POST", path, json=body, **more)

    async def put(self, path: str, body: Any, **more: Any) -> Any:
        return await self._good("PUT", path, json=body, **more)

    async def delete(self, path: str, **more: Any) -> Any:
        return await self._good("DELETE", path, **more)

    async def refusal(self, method: str, path: str, body: Any = None, **more: Any) -> tuple[int, str]:
        """The status and the message of a request that must fail."""
        return refusal_of(await self.ask(method, path, **({"json": body} if body is not None else {}), **more))


@pytest.fixture
def compute(api: Api) -> Compute:
    """The compute API on the test's own database."""
    return Compute(api)
