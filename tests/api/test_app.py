"""From a request to an answer: routes, methods, request ids, failures."""

import asyncio
import json
import logging
import re
import uuid
from typing import Any

import httpx
import psycopg
import pytest
from prometheus_client.parser import text_string_to_metric_families

from roost import config
from roost.api.app import App, all_routes, make_services
from roost.api.auth import RoostAuthenticator
from roost.store.database import Database
from roost.store.embedded import EmbeddedPostgres
from tests.conftest import Api

NOT_FOUND = "The resource could not be found."
REQUEST_ID = re.compile(r"req-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/compute/v2.1/nothing", {"itemNotFound": {"code": 404, "message": NOT_FOUND}}),
        ("/compute/v2.1/flavors/%00", {"itemNotFound": {"code": 404, "message": NOT_FOUND}}),
        ("/identity/v3/nothing", {"error": {"code": 404, "title": "Not Found", "message": NOT_FOUND}}),
        ("/image/v2/nothing", {"error": {"code": 404, "title": "Not Found", "message": NOT_FOUND}}),
        ("/nothing", {"error": {"code": 404, "title": "Not Found", "message": NOT_FOUND}}),
        ("/computers", {"error": {"code": 404, "title": "Not Found", "message": NOT_FOUND}}),
    ],
)
async def test_a_path_that_is_not_served_is_404(api: Api, path: str, body: dict[str, Any]) -> None:
    answer = await api.get(path)
    assert answer.status_code == 404
    assert answer.json() == body


async def test_a_method_that_a_path_does_not_have_is_404_in_compute(api: Api) -> None:
    answer = await api.patch("/compute/v2.1/flavors", {})
    assert answer.status_code == 404
    assert answer.json() == {"itemNotFound": {"code": 404, "message": NOT_FOUND}}


@pytest.mark.parametrize("method", ["TRACE", "OPTIONS", "PROPFIND"])
async def test_a_method_that_nobody_serves_is_405(api: Api, method: str) -> None:
    message = "The method is not allowed for the requested URL."
    answer = await api.request(method, "/compute/v2.1/flavors")
    assert answer.status_code == 405
    assert answer.json() == {"badMethod": {"code": 405, "message": message}}
    assert answer.headers["Allow"] == "DELETE, GET, HEAD, PATCH, POST, PUT"


async def test_the_character_zero_in_a_query_is_refused(api: Api) -> None:
    answer = await api.get("/identity/v3/projects?name=%00")
    assert answer.status_code == 400
    assert answer.json()["error"]["message"] == "The query contains the character zero."


async def test_a_path_may_name_the_callers_project_and_no_other(api: Api) -> None:
    me = (await api.get("/identity/v3/auth/projects", cloud="roost")).json()["projects"][0]["id"]
    assert (await api.get(f"/compute/v2.1/{me}/flavors", cloud="roost")).status_code == 200
    answer = await api.get(f"/compute/v2.1/{me}/flavors", cloud="roost-alt")
    other = (await api.get("/identity/v3/auth/projects", cloud="roost-alt")).json()["projects"][0]["id"]
    assert answer.status_code == 400
    assert answer.json()["badRequest"]["message"] == (
        f"Malformed request URL: URL's project_id '{me}' doesn't match Context's project_id '{other}'"
    )


async def test_who_may_not_is_told_so_in_the_apis_own_words(api: Api) -> None:
    answer = await api.get("/compute/v2.1/os-hypervisors", cloud="roost")
    assert answer.status_code == 403
    words = "Policy doesn't allow os_compute_api:os-hypervisors:list to be performed."
    assert answer.json() == {"forbidden": {"code": 403, "message": words}}


async def test_every_answer_has_an_id_of_its_own(api: Api) -> None:
    answers = [await api.get(path) for path in ("/compute/v2.1/flavors", "/compute/v2.1/nothing", "/identity", "/")]
    identifiers = [answer.headers["X-OpenStack-Request-Id"] for answer in answers]
    assert all(REQUEST_ID.fullmatch(identifier) for identifier in identifiers)
    assert len(set(identifiers)) == len(identifiers)
    assert [answer.headers.get("X-Compute-Request-Id") for answer in answers] == [*identifiers[:2], None, None]


async def test_the_id_of_the_request_that_caused_this_one_is_logged_if_it_is_one(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    cause = f"req-{uuid.uuid4()}"
    for sent in (cause, "req-forged\nline", "x" * 10_000):
        await api.get("/compute", cloud=None, headers={"X-OpenStack-Request-Id": sent})
    causes = [getattr(record, "global_request_id", None) for record in caplog.records if record.name == "roost.api.app"]
    assert causes == [cause, None, None]


async def test_a_failure_is_500_with_an_id_and_its_reason_only_in_the_log(
    settings: config.Settings, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(RoostAuthenticator):
        async def authenticate(self, secret: str, service: str | None = None, address: str = "") -> Any:
            raise RuntimeError("the reason")

    app = App(make_services(settings, database), Broken(database, 0))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://roost.test") as http:
        answer = await http.get("/compute/v2.1/flavors", headers={"X-Auth-Token": "x"})
    assert answer.status_code == 500
    message = "The service failed unexpectedly. The operator finds the reason in the log under the id of this request."
    assert answer.json() == {"computeFault": {"code": 500, "message": message}}
    assert REQUEST_ID.fullmatch(answer.headers["X-Compute-Request-Id"])
    assert "the reason" in caplog.text


async def test_a_database_that_is_down_is_503_until_it_is_back(api: Api, postgres: EmbeddedPostgres) -> None:
    assert (await api.get("/image/v2/images")).status_code == 200
    headers = {"X-Auth-Token": await api.token("roost")}
    async with httpx.AsyncClient(transport=api.http._transport, base_url="http://roost.test") as http:
        admin = postgres.url.replace("/roost?", "/postgres?")
        name = api.services.database.address.database
        with psycopg.connect(admin, autocommit=True) as connection:
            connection.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false')
            connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name])
            answer = await http.get("/image/v2/images", headers=headers)
            health = await http.get("/readiness")
            alive = await http.get("/healthcheck")
            connection.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true')
        assert answer.status_code == 503
        assert answer.json()["error"]["message"] == "The database does not answer; try again in a moment."
        assert answer.headers["Retry-After"] == "1"
        assert (alive.status_code, alive.json()) == (200, {"status": "ok", "problems": []})
        assert health.status_code == 503
        assert health.json()["status"] == "error"
        assert health.json()["problems"] == ["the database does not answer"]
        assert (await http.get("/image/v2/images", headers=headers)).status_code == 200
        await asyncio.sleep(1.1)
        assert (await http.get("/readiness")).json()["status"] == "ok"
    await api.services.readiness.close()


async def test_readiness_says_what_is_wrong(api: Api) -> None:
    answer = await api.get("/readiness", cloud=None)
    assert (answer.status_code, answer.json()["problems"]) == (200, [])
    assert 0 <= answer.json()["fleet_age_seconds"] < 5
    async with api.services.database.begin() as connection:
        await connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0000'")
    assert (await api.get("/readiness", cloud=None)).status_code == 200  # at most one look a second
    await asyncio.sleep(1.1)
    answer = await api.get("/readiness", cloud=None)
    assert answer.status_code == 503
    (problem,) = answer.json()["problems"]
    assert re.fullmatch(r"The schema is at 0000, this program needs \d+: roost db upgrade", problem)
    assert answer.headers["Cache-Control"] == "no-store"
    await api.services.readiness.close()


async def test_a_process_that_may_only_read_or_is_about_to_stop_is_not_ready(
    api: Api, postgres: EmbeddedPostgres
) -> None:
    name = api.services.database.address.database
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
    read_only = await api.get("/readiness", cloud=None)
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute(f'ALTER DATABASE "{name}" RESET default_transaction_read_only')
    await api.services.readiness.close()
    assert (read_only.status_code, read_only.json()["problems"]) == (503, ["the database can only be read"])
    await asyncio.sleep(1.1)
    assert (await api.get("/readiness", cloud=None)).status_code == 200
    api.services.readiness.draining = True
    stopping = await api.get("/readiness", cloud=None)
    assert (stopping.status_code, stopping.json()["problems"]) == (503, ["this process is stopping"])
    await api.services.readiness.close()


async def test_a_database_without_a_schema_and_one_that_never_was_are_told_apart(postgres: EmbeddedPostgres) -> None:
    for url, words in (
        (postgres.url.replace("/roost?", "/postgres?"), "The schema is at nothing, "),
        ("postgresql://roost@127.0.0.1:1/roost", "the database does not answer"),
    ):
        database = Database(url)
        services = make_services(config.load(), database)
        app = App(services, RoostAuthenticator(database, 0))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://roost.test") as http:
            assert words in (await http.get("/readiness")).json()["problems"][0]
        await services.readiness.close()
        await database.close()


async def test_metrics_count_requests_by_route_and_status(api: Api) -> None:
    async def count(**labels: str) -> float:
        text = (await api.get("/metrics", cloud=None)).text
        return sum(
            sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == "roost_api_requests_total" and labels.items() <= sample.labels.items()
        )

    shown = {"api": "identity", "method": "GET", "route": "/v3/projects/{project_id}", "status": "404"}
    before = await count(**shown), await count(route="unknown"), await count(method="other")
    for name in ("a", "b"):
        await api.get(f"/identity/v3/projects/{name}")
        await api.get(f"/{name}", cloud=None)
        await api.request(f"X{name}", "/", cloud=None)
    after = await count(**shown), await count(route="unknown"), await count(method="other")
    assert after == (before[0] + 2, before[1] + 4, before[2] + 2)


async def test_the_root_says_what_is_here(api: Api) -> None:
    body = (await api.get("/", cloud=None)).json()
    assert body["name"] == "roost"
    assert body["links"]["compute"] == "http://roost.test/compute"


def test_every_route_but_documents_and_signing_in_needs_a_permission() -> None:
    changing = {
        (api.name, route.method, route.path)
        for api, route in all_routes()
        # A webhook of the clustering API is called by programs that have no token: its address is the secret.
        if route.public and route.method != "GET" and api.name != "clustering"
    }
    assert changing == {("identity", "POST", "/v3/auth/tokens"), ("identity", "POST", "/v3/users/{user_id}/password")}
    unguarded = [route.path for _, route in all_routes() if not route.public and not route.rule]
    # Which permission an action needs depends on the action, so its handler asks.
    assert [path for path in unguarded if not path.endswith("/action")] == []


def test_every_route_says_what_it_is_for() -> None:
    silent = [f"{api.name} {route.method} {route.path}" for api, route in all_routes() if not route.handler.__doc__]
    assert silent == []


async def test_a_body_is_compact_utf8_json(api: Api) -> None:
    made = await api.post("/identity/v3/projects", {"project": {"name": "nœuds", "description": "é"}})
    assert "nœuds".encode() in made.content
    assert b'": ' not in made.content
    assert made.headers["Content-Type"] == "application/json"
    assert json.loads(made.content)["project"]["description"] == "é"
