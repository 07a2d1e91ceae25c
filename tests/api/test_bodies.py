"""What is read of a body, and what is said of one that cannot be."""

import asyncio
import json
from typing import Any

import httpx
import pytest

from tests.conftest import Api
from tests.loop import stretches

PATH = "/identity/v3/users"
JSON = {"Content-Type": "application/json"}


async def send(api: Api, content: bytes, kind: str | None = "application/json") -> httpx.Response:
    """POST these very bytes."""
    return await api.request("POST", PATH, content=content, headers={"Content-Type": kind} if kind else {})


def said(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["message"]


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b"nonsense",
        b'{"user": {"name": "a"},}',
        b'{"user": NaN}',
        b'{"user": -Infinity}',
        b'{"user": 1e999}',
        b'{"user": ' + b"9" * 5000 + b"}",
        b'{"user": "\x00"}',
        b'{"user": "\\u0000"}',
        b'{"user": {"\\u0000": 1}}',
        b'{"user": ["half a character: \\ud800"]}',
        b'{"user": "half a character: \xed\xa0\x80"}',
        b'{"user": "\xff"}',
        '{"user": {"name": "a"}}'.encode("utf-16"),
        b"\xef\xbb\xbf{}",
        b"[" * 10_000,
        b"[" * 10_000 + b"]" * 10_000,
        b'{"a":' * 10_000 + b"1" + b"}" * 10_000,
        b"[" * 65 + b"]" * 65,
        b" ",
    ],
    ids=range(20),
)
async def test_what_is_not_json_is_malformed(api: Api, content: bytes) -> None:
    assert said(await send(api, content)) == (400, "Malformed request body")


@pytest.mark.parametrize(
    "body", [[], 3, "text", True, [[[]]], "[" * 10_000, ["]" * 5, "[" * 100, '\\"' + "{" * 100], ["\U0001f423"]]
)
async def test_what_is_json_of_the_wrong_type_is_told_so(api: Api, body: Any) -> None:
    assert said(await send(api, json.dumps(body).encode())) == (400, f"{body!r} is not of type 'object'")


async def test_depth_is_that_of_brackets_outside_strings(api: Api) -> None:
    deep = "[" * 62 + "]" * 62
    allowed = f'{{"user": {{"name": {deep}}}}}'.encode()
    assert said(await send(api, allowed))[1].startswith("Invalid input for field 'user/name'")
    assert said(await send(api, allowed.replace(b"[", b"[[", 1).replace(b"]", b"]]", 1)))[1] == "Malformed request body"


@pytest.mark.parametrize("kind", [None, "", "text/plain", "application/x-www-form-urlencoded", "application/jsonx"])
async def test_a_body_that_does_not_say_it_is_json_is_415(api: Api, kind: str | None) -> None:
    assert said(await send(api, b'{"user": {"name": "a"}}', kind)) == (415, "Unsupported Content-Type")


@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "Application/JSON", "application/vnd.x+json"])
async def test_a_body_may_say_so_in_several_ways(api: Api, kind: str) -> None:
    assert (await send(api, b'{"user": {"name": "a"}}', kind)).status_code == 201


async def test_a_body_over_the_limit_is_413_whether_or_not_its_size_was_announced(api: Api) -> None:
    large = b'{"user": "' + b"x" * 10_000_000 + b'"}'
    expected = (413, "Request is too large: at most 1048576 bytes are read.")
    assert said(await send(api, large)) == expected

    async def pieces() -> Any:
        for start in range(0, len(large), 100_000):
            yield large[start : start + 100_000]

    assert said(await api.request("POST", PATH, content=pieces(), headers=JSON)) == expected


async def test_a_body_of_too_many_values_is_413_before_they_are_looked_at(api: Api) -> None:
    wanted = {"server": {"name": "x", "metadata": {f"k{number}": "v" for number in range(60_000)}}}
    content = json.dumps(wanted).encode()
    with stretches() as found:
        await asyncio.sleep(0)
        answer = await api.request("POST", "/compute/v2.1/servers", content=content, headers=JSON)
    assert answer.status_code == 413
    assert answer.json()["overLimit"]["message"] == "Request is too large: at most 10000 values are read."
    assert found.longest < 0.1, found
    # Commas in a text are none between values.
    assert (await send(api, json.dumps({"user": {"name": "a", "text": "," * 20_000}}).encode())).status_code == 201


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"[" * 500_000 + b"]" * 500_000, 413),
        (b"[" * 9_000 + b"]" * 1_000_000, 400),
        (b"[" + b"[]," * 340_000 + b"[]]", 413),
        (b'"' + b'",' * 500_000, 413),
        (b'["' + b'\\\\","' * 200_000 + b'"]', 413),
        (b'["' + b'\\"' * 500_000 + b'", [' + b"9," * 9_000 + b"9]]", 400),
        (b'["\\u0041' + b"x" * 1_000_000 + b'"]', 400),
    ],
    ids=["deep", "closed", "pairs", "texts", "backslashes", "quotes", "long"],
)
async def test_no_body_takes_long_to_check(api: Api, content: bytes, status: int) -> None:
    with stretches() as found:
        await asyncio.sleep(0)
        answer = await send(api, content)
    assert answer.status_code == status
    assert found.longest < 0.06, found


async def test_a_message_quotes_no_more_than_some_of_what_was_sent(api: Api) -> None:
    status, message = said(await send(api, json.dumps("x" * 1_000_000).encode()))
    assert (status, len(message)) == (400, 16_387)


async def test_no_body_where_one_is_needed_is_a_wrong_type(api: Api) -> None:
    assert said(await send(api, b"", None)) == (400, "None is not of type 'object'")


async def test_a_body_is_not_read_before_its_sender_is_known_and_permitted(api: Api) -> None:
    answer = await api.request("POST", PATH, cloud=None, content=b"{", headers=JSON)
    assert answer.status_code == 401
    answer = await api.request("POST", PATH, cloud="roost", content=b"{", headers=JSON)
    assert answer.status_code == 403
