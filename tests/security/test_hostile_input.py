"""Whatever is sent, in whatever place, is a refusal in words: never a failure, never SQL, never a line of the log."""

import itertools
import json
import logging
import re
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest
import sqlalchemy as sa

from roost import logs
from roost.api.app import all_routes
from tests.clusters.house import House, clustering
from tests.compute.cloud import IMAGE
from tests.conftest import Api
from tests.security.world import patiently

LONG = "9" * 5000
INJECTED = (
    "'; DROP TABLE servers; --",
    '" OR 1=1 --',
    "\\'; SELECT pg_sleep(9)--",
    "%' OR '1'='1",
    "$$; DELETE FROM users; $$",
    "{{7*7}}",
    "name; --",
    "1e309",
    LONG,
    "-1",
    "\r\nX-Injected: yes",
    "\u202e\u0000\ud7ff",
)
LISTS = (
    *(f"/compute/v2.1/{noun}" for noun in ("servers/detail", "flavors/detail", "os-keypairs", "os-server-groups")),
    *("/compute/v2.1/os-aggregates", "/compute/v2.1/os-migrations", "/compute/v2.1/os-services"),
    *("/compute/v2.1/os-policy-scopes", "/compute/v2.1/os-fleet", "/image/v2/images", "/identity/v3/users"),
    *(f"/clustering/v1/{noun}" for noun in ("clusters", "nodes", "profiles", "policies", "actions", "receivers")),
    "/clustering/v1/events",
    *(f"/network/v2.0/{noun}" for noun in ("networks", "subnets", "ports", "security-groups", "security-group-rules")),
    *(f"/identity/v3/{noun}" for noun in ("projects", "groups", "role_assignments", "services", "limits")),
    *(f"/compute/v2.1/{noun}" for noun in ("os-hypervisors", "os-lists/servers", "os-exports/servers", "os-search")),
)
PARAMETERS = (
    *("name", "marker", "limit", "offset", "sort", "sort_key", "sort_dir", "status", "uuid", "changes-since", "host"),
    *("flavor", "image", "tags", "enabled", "minRam", "cluster_id", "global_project", "id", "scope", "level", "target"),
    *("q", "format", "broken", "network_id", "fixed_ips"),
)


@pytest.fixture
async def house(database_url: str) -> AsyncIterator[House]:
    """The APIs, without an engine."""
    async with clustering(database_url, engine=False) as made:
        yield made


async def _ask(api: Api, method: str, path: str, **more: Any) -> httpx.Response:
    version = {"compute": "2.1003", "clustering": "1.14"}.get(path.split("/")[1])
    return await patiently(api, method, path, version=version, **more)


async def test_no_parameter_of_a_list_is_sql_or_a_failure(house: House) -> None:
    failures, turn = [], itertools.cycle(INJECTED)
    for path in LISTS:
        for parameter in PARAMETERS:
            # A number without end for each, and of the others a few, other ones each time.
            for value in (LONG, next(turn), next(turn), next(turn)):
                answer = await _ask(house.api, "GET", path, params={parameter: value})
                if answer.status_code >= 500 or "x-injected" in answer.headers:
                    failures.append(f"{path}?{parameter}={value[:40]!r}: {answer.status_code}")
    assert not failures, "\n".join(failures)
    async with house.database.begin() as connection:
        assert await connection.scalar(sa.text("SELECT count(*) FROM users")) == 7


@pytest.mark.parametrize("word", INJECTED)
async def test_names_are_kept_as_they_are_or_refused(house: House, word: str) -> None:
    server = {"name": word, "flavorRef": "1", "imageRef": IMAGE, "networks": "none"}
    bodies: dict[str, Any] = {
        "/compute/v2.1/servers": {"server": server},
        "/compute/v2.1/os-server-groups": {"server_group": {"name": word, "policies": [{"name": "affinity"}]}},
        "/compute/v2.1/os-keypairs": {"keypair": {"name": word, "public_key": word}},
        "/compute/v2.1/os-aggregates": {"aggregate": {"name": word}},
        "/compute/v2.1/flavors": {"flavor": {"name": word, "vcpus": 1, "ram": 1, "disk": 1}},
        "/compute/v2.1/os-policy-scopes": {"policy_scope": {"name": word}},
        "/identity/v3/projects": {"project": {"name": word, "description": word}},
        "/identity/v3/users": {"user": {"name": word, "password": word}},
        "/clustering/v1/receivers": {"receiver": {"name": word, "type": "message", "params": {word: word}}},
    }
    for path, body in bodies.items():
        made = await _ask(house.api, "POST", path, json=body)
        assert made.status_code < 500, (path, made.text)
        if made.is_success and "servers" not in path:
            assert json.dumps(word) in json.dumps(made.json()) or word in made.text


HUGE: dict[str, Any] = {
    "POST /compute/v2.1/servers": [
        {"server": {"name": "a", "flavorRef": "1", "imageRef": IMAGE, "networks": "none", **more}}
        for more in (
            {"min_count": LONG},
            {"max_count": LONG},
            {"min_count": "0"},
            {"min_count": 10**30},
            {"metadata": {"a": "\ufffd" * 255}},
            {"networks": [{"fixed_ip": LONG}]},
            {"user_data": "A" * 65535},
        )
    ],
    "POST /compute/v2.1/os-server-groups": [
        {"server_group": {"name": "a", "policies": [{"name": "anti-affinity", "rules": {limit: value}}]}}
        for limit in ("max_server_per_host", "max_skew")
        for value in (LONG, 10**30, "0", 2**63)
    ],
    "POST /compute/v2.1/os-aggregates/1/action": [{"add_host": {"host": "h" * 255}}],
    "POST /compute/v2.1/flavors": [
        {"flavor": {"name": "a", "vcpus": value, "ram": value, "disk": value}} for value in (LONG, 10**30)
    ],
    "POST /clustering/v1/clusters": [
        {"cluster": {"name": "a", "profile_id": "none", key: value}}
        for key in ("desired_capacity", "min_size", "max_size", "timeout")
        for value in (LONG, 10**30, 1e308, "1e400")
    ],
    "PUT /compute/v2.1/os-quota-sets/a": [{"quota_set": {"cores": value}} for value in (LONG, 10**30)],
}


@pytest.mark.parametrize("request_line", HUGE)
async def test_numbers_without_measure_are_refused(house: House, request_line: str) -> None:
    method, path = request_line.split()
    for body in HUGE[request_line]:
        answer = await _ask(house.api, method, path, json=body)
        assert answer.status_code < 500, (str(body)[:300], answer.text)


@pytest.mark.parametrize("when", ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "0001-01-01", LONG])
async def test_moments_beyond_time_are_no_failure(house: House, when: str) -> None:
    answer = await _ask(house.api, "GET", "/compute/v2.1/servers", params={"changes-since": when})
    assert answer.status_code in (200, 400)


async def _cluster(house: House, **config: Any) -> httpx.Response:
    profile = await house.profile()
    return await house.post("/clusters", {"cluster": {"name": "c", "profile_id": profile["id"], "config": config}})


@pytest.mark.parametrize("form", ["$999999999R", "$999999999I", "n" * 300, 5, {"a": 1}, ["$3I"], "$8R\u0007"])
async def test_a_format_of_names_that_no_name_can_have_is_refused(house: House, form: Any) -> None:
    answer = await _cluster(house, **{"node.name.format": form})
    assert answer.status_code == 400, answer.text
    made = await _cluster(house)
    change = {"cluster": {"config": {"node.name.format": form}}}
    changed = await house.call("PATCH", f"/clusters/{made.json()['cluster']['id']}", change)
    assert changed.status_code == 400, changed.text


@pytest.mark.parametrize(
    "inputs",
    [
        {"adjustment_type": "EXACT_CAPACITY", "number": "inf"},
        {"adjustment_type": "EXACT_CAPACITY", "number": "nan"},
        {"adjustment_type": "CHANGE_IN_CAPACITY", "number": 1e308},
        {"adjustment_type": "CHANGE_IN_PERCENTAGE", "number": "1e308"},
        {"adjustment_type": "nonsense", "number": 1},
        {"adjustment_type": {"a": 1}, "number": 1},
        {"number": 1},
        {"min_size": LONG},
        {"min_size": 10**30, "strict": "maybe"},
        {"min_step": [1], "unknown": {}},
    ],
)
async def test_what_is_sent_to_a_webhook_is_checked_as_if_it_were_signed(house: House, inputs: Any) -> None:
    cluster = (await _cluster(house)).json()["cluster"]
    for action in ("CLUSTER_RESIZE", "CLUSTER_SCALE_OUT", "CLUSTER_SCALE_IN", "CLUSTER_CHECK", "CLUSTER_RECOVER"):
        hook = {"name": "h", "type": "webhook", "cluster_id": cluster["id"], "action": action}
        made = (await house.post("/receivers", {"receiver": hook})).json()["receiver"]
        address = made["channel"]["alarm_url"].removeprefix("http://roost.test")
        answer = await house.api.request("POST", address, json=inputs, cloud=None)
        assert answer.status_code < 500, answer.text


async def test_a_client_chooses_neither_its_request_id_nor_any_header(api: Api) -> None:
    for sent in ("req-1\r\nX-Injected: yes", "req-" + "a" * 5000, "req-%0d%0aX-Injected: yes"):
        scope_headers = [(b"x-openstack-request-id", sent.encode()), (b"host", b"roost.test")]
        answer = await api.http.request("GET", "/identity/v3/nothing%0d%0aX-Injected:%20yes", headers=scope_headers)
        assert answer.headers["x-openstack-request-id"] != sent
        assert "x-injected" not in answer.headers


async def test_a_path_with_line_ends_is_one_line_of_the_log(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        for style in ("text", "json"):
            logs.set_up("INFO", style)
            await api.get(
                "/identity/v3/a%0d%0a2026-01-01%20forged%1b[2J", cloud=None, headers={"x-auth-token": "a%85b"}
            )
            lines = capsys.readouterr().err.splitlines()
            assert len([line for line in lines if "roost.api.app" in line]) == 1
            assert all(line.isprintable() for line in lines)
    finally:
        root.handlers[:], root.level = handlers, level


@pytest.mark.parametrize("name", ["%2e%2e", "..%2fconfig.py", "%2e%2e/config.py", "....//config.py", "a\\..\\b"])
async def test_no_file_but_the_dashboards_is_served(api: Api, name: str) -> None:
    answer = await api.get(f"/web/{name}", cloud=None)
    assert answer.status_code == 404
    assert "import" not in answer.text


@pytest.mark.parametrize("kind", ["application/yaml", "application/x-yaml", "text/yaml", "application/xml", "text/xml"])
async def test_no_format_with_references_is_read(api: Api, kind: str) -> None:
    laughs = b"a: &a [x,x,x]\nb: &b [*a,*a,*a]\nc: &c [*b,*b,*b]\n"
    headers = {"Content-Type": kind}
    for path in ("/identity/v3/users", "/compute/v2.1/servers", "/clustering/v1/policies"):
        answer = await api.request("POST", path, content=laughs, headers=headers)
        assert answer.status_code == 415, path


def patterns(schema: Any) -> Iterator[tuple[str, int]]:
    """The regular expressions in a schema, each with the longest text that it is tried on."""
    if isinstance(schema, dict):
        if isinstance(schema.get("pattern"), str):
            yield schema["pattern"], schema.get("maxLength", 20_000)
        for expression in schema.get("patternProperties", {}):
            yield expression, 20_000
    for each in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        yield from patterns(each)


def test_no_pattern_of_a_schema_takes_long() -> None:
    schemas = [each.schema for _, route in all_routes() for each in (route.body, route.query) if each is not None]
    found = {pattern for schema in schemas for pattern in patterns(schema)}
    assert len(found) > 10
    for expression, longest in found:
        for part in ("a", "A", "0", "-", ".", " ", "a-", "a ", ":", "0:", "é"):
            text = (part * longest)[: longest - 1] + "!"
            started = time.thread_time()
            re.search(expression, text)
            assert time.thread_time() - started < 0.015, (expression, part)
