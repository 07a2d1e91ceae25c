"""Whatever the OpenAPI documents allow is answered as they say, and never with a failure of ours.

Schemathesis makes the requests, by the operator: one by one, with the ids of things that exist wherever a path wants
one, since only behind these is there anything to break; and one after the other along the links of the documents, from
what makes a thing to whatever can be asked of it. `ROOST_EXAMPLES=200 make security` tries more, in every version.
"""

import asyncio
import io
import itertools
import json
import os
import threading
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import httpx
import pytest
import requests
import schemathesis
import urllib3
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize
from requests.adapters import HTTPAdapter
from schemathesis.checks import load_all_checks
from schemathesis.generation.stateful import run_state_machine_as_test

from roost.api import openapi
from roost.api.app import APIS
from roost.api.frame import Api
from roost.api.scheduler import SCHEDULER_API
from roost.api.versions import Version
from tests.api.test_openapi import changes
from tests.api.test_scheduler import served_in_front
from tests.conftest import Api as Served
from tests.security.probes import BODIES, OPERATORS
from tests.security.world import FEED, OPERATOR, Things, World, inhabited

EXAMPLES = int(os.environ.get("ROOST_EXAMPLES", "2"))
VERSIONS = {"compute": ("2.1", "2.90", "2.1003"), "clustering": ("1.0", "1.14")}
SITE = "http://roost.test"

load_all_checks()


class InProcess(HTTPAdapter):
    """Hands requests to the application, which lives on its own loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, http: httpx.AsyncClient) -> None:
        super().__init__()
        self.loop, self.http = loop, http
        self.version: dict[str, str] = {}
        """What asks for a version, which stays even where schemathesis leaves out what is required."""

    def send(self, request: requests.PreparedRequest, *_: Any, **__: Any) -> requests.Response:
        assert request.method is not None
        assert isinstance(request.body, bytes | str | None)
        headers = [(str(name), str(value)) for name, value in {**request.headers, **self.version}.items()]
        asked = self._ask(request.method, str(request.url), content=request.body or b"", headers=headers)
        answer = asyncio.run_coroutine_threadsafe(asked, self.loop).result(60)
        raw = urllib3.HTTPResponse(
            body=io.BytesIO(answer.content),
            headers=urllib3.HTTPHeaderDict(answer.headers.multi_items()),
            status=answer.status_code,
            preload_content=False,
        )
        return self.build_response(request, raw)

    async def _ask(self, method: str, url: str, **more: Any) -> httpx.Response:
        """Again, as long as a busy machine says so."""
        answer = await self.http.request(method, url, **more)
        return answer if answer.status_code != 503 else await self._ask(method, url, **more)


class Inside:
    """A world on a loop in a thread, and a session that speaks to it as the operator."""

    def __init__(self, database_url: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()
        self._context = inhabited(database_url)
        self.world: World = self._wait(self._context.__aenter__())
        self._in_front = served_in_front(self.world.house.database, database_url)
        self.front: Served = self._wait(self._in_front.__aenter__())
        self.session = requests.Session()
        self.adapter = InProcess(self.loop, self.world.house.api.http)
        self.session.mount(SITE, self.adapter)
        self.session.headers["X-Auth-Token"] = self._wait(self.world.house.api.token(OPERATOR))

    def speaking(self, api: Api, version: Version) -> dict[str, Any]:
        """How to call, in that version."""
        service = api.negotiation.service if api.negotiation else api.name
        self.adapter.version = {"OpenStack-API-Version": f"{service} {version}"}
        self.adapter.http = self.front.http if api is SCHEDULER_API else self.world.house.api.http
        return {"base_url": SITE + api.prefix, "session": self.session}

    def _wait(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(180)

    def close(self) -> None:
        """Leave the world and end its loop."""
        self._wait(self._in_front.__aexit__(None, None, None))
        self._wait(self._context.__aexit__(None, None, None))
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()


@pytest.fixture(scope="module")
def inside(shared_database_url: str) -> Iterator[Inside]:
    """One world for all documents: what is deleted in it stays so, hence deletions come last."""
    made = Inside(shared_database_url)
    yield made
    made.close()


def documents() -> list[tuple[Api, Version]]:
    """The versions to look at: a few, or all that change anything."""
    every = EXAMPLES > 10
    return [
        (api, version)
        for api in APIS
        for version in changes(api)
        if every or str(version) in VERSIONS.get(api.name, ("0.0",))
    ]


def existing(things: Things) -> Mapping[str, str]:
    """What to put into a path where something that exists is wanted."""
    return {**OPERATORS, **things, "group_id": things["server_group_id"]}


def said(api: Api, version: Version) -> Any:
    """A document, to be followed with the operator's token and no other, along the links that it has and no others."""
    schema = schemathesis.openapi.from_dict(openapi.document(api, version, SITE + api.prefix))
    schema.config.generation.update(with_security_parameters=False)
    schema.config.phases.stateful.inference.algorithms = []
    return schema


def documented(*names: str) -> pytest.MarkDecorator:
    """For each document of these APIs."""
    chosen = [(api, version) for api, version in documents() if api.name in names]
    return pytest.mark.parametrize(("api", "version"), chosen, ids=lambda value: getattr(value, "name", str(value)))


def limits(examples: int, **more: Any) -> settings:
    """The same requests each time, unless many are wanted."""
    return settings(
        max_examples=examples,
        derandomize=EXAMPLES < 10,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        **more,
    )


def that_would_do(api: Api, version: Version, things: Things, case: Any, number: int) -> Any:
    """A body with which a request has a chance: three times out of four one from the list, with its own name."""
    choice = zlib.crc32(repr(case.body).encode())
    row = f"{case.method.upper()} {api.prefix}{case.operation.path}"
    if row not in BODIES or choice % 4 == 0:
        return case.body
    body = BODIES[row][choice // 4 % len(BODIES[row])](things, version)
    return json.loads(json.dumps(body).replace('"probe"', f'"probe-{number}"'))


@documented("identity", "compute", "clustering")
def test_what_was_made_can_be_asked_for_whatever_a_document_allows(inside: Inside, api: Api, version: Version) -> None:
    schema = said(api, version)
    numbers, found = itertools.count(), Counter[str]()

    class Following(schema.as_state_machine()):  # type: ignore[misc]
        # What was made before is still there: of two runs that begin alike the second may go on otherwise, which
        # Hypothesis takes for a fault. So a run has one try (after the simplest one), which begins like no other.
        @initialize(_=st.binary(min_size=16, max_size=16))
        def begin(self, _: bytes) -> None: ...

        def before_call(self, case: Any) -> None:
            case.body = that_would_do(api, version, inside.world.owner, case, next(numbers))

        def get_call_kwargs(self, case: Any) -> dict[str, Any]:
            return inside.speaking(api, version)

        def validate_response(self, response: Any, case: Any, **_: Any) -> None:
            assert response.status_code < 500, (case, response.text)
            case.validate_response(response, excluded_checks=UNWANTED)
            if response.status_code < 300:
                found[case.operation.label] += 1

    for number in range(EXAMPLES + 10):
        print(f"seed {number}")
        run_state_machine_as_test(seed(number)(Following), settings=limits(2, stateful_step_count=8))
    assert any("{" in label for label in found), f"nothing that was made was found again: {found}"


@documented(*(api.name for api in APIS))
def test_what_a_document_allows_is_answered_as_it_says(inside: Inside, api: Api, version: Version) -> None:
    schema = said(api, version)
    there = existing(inside.world.owner)
    order = ["get", "post", "put", "patch", "delete"]
    every: list[Any] = [result.ok() for result in schema.get_all_operations()]
    operations = [each for each in every if api.prefix + each.path != FEED]  # It has no end.
    for operation in sorted(operations, key=lambda each: order.index(each.method)):

        @limits(EXAMPLES)
        @given(case=operation.as_strategy(), real=st.booleans())
        def ask(case: Any, real: bool) -> None:
            if real or EXAMPLES < 10:
                for name in case.path_parameters or {}:
                    case.path_parameters[name] = there.get(name, case.path_parameters[name])
            answer = case.call(**inside.speaking(api, version))
            assert answer.status_code < 500, (case, answer.text)
            case.validate_response(answer, excluded_checks=UNWANTED)

        ask()


# These ask for refusals in words of their own, or look at what a document does not say.
UNWANTED = [
    check
    for check in schemathesis.checks.CHECKS.get_all()
    if check.__name__
    not in (
        "not_a_server_error",
        "status_code_conformance",
        "content_type_conformance",
        "response_schema_conformance",
        "response_headers_conformance",
    )
]
