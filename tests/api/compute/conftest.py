"""The compute API for tests: every answer is held against the schema that its route declares."""

from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from jsonschema import Draft202012Validator

from roost.api.compute import COMPUTE_API
from roost.api.versions import Version
from tests.conftest import Api, refusal_of


@dataclass(frozen=True)
class Compute:
    """`await compute.get("/flavors", version="2.61")`: the parsed body, after checking status and shape."""

    api: Api

    async def ask(self, method: str, path: str, *, version: str = "2.1", **more: Any) -> httpx.Response:
        """One request under /compute/v2.1; a good answer must be as declared."""
        response = await self.api.request(method, f"/compute/v2.1{path}", version=version, **more)
        by_method, _, _ = COMPUTE_API.find(f"/v2.1{path.partition('?')[0]}")
        routes = [route for route in by_method.get(method, []) if route.serves(Version.parse(version))]
        if response.is_success:
            assert response.status_code == routes[0].status
            if routes[0].response is None:
                assert response.content == b""
            else:
                Draft202012Validator(routes[0].response).validate(response.json())
        return response

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
