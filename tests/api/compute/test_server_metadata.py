"""The metadata of servers over HTTP."""

from typing import Any

from tests.compute.cloud import Cloud


async def test_items_are_added_replaced_changed_and_deleted(cloud: Cloud) -> None:
    path = f"/servers/{await cloud.boot(metadata={'a': '1'})}/metadata"
    steps: list[tuple[str, str, Any, Any]] = [
        ("GET", "", None, {"metadata": {"a": "1"}}),
        ("POST", "", {"metadata": {"b": "2", "a": "3"}}, {"metadata": {"a": "3", "b": "2"}}),
        ("GET", "/a", None, {"meta": {"a": "3"}}),
        ("PUT", "/a", {"meta": {"a": "4"}}, {"meta": {"a": "4"}}),
        ("PUT", "/new", {"meta": {"new": "5"}}, {"meta": {"new": "5"}}),
        ("PUT", "", {"metadata": {"only": ""}}, {"metadata": {"only": ""}}),
        ("DELETE", "/only", None, None),
        ("GET", "", None, {"metadata": {}}),
    ]
    for method, item, body, answer in steps:
        response = await cloud.ask(method, path + item, **({"json": body} if body else {}))
        assert response.is_success, response.text
        assert (response.json() if response.content else None) == answer


async def test_what_is_refused(cloud: Cloud) -> None:
    server = await cloud.boot(metadata={"a": "1"})
    path = f"/servers/{server}/metadata"
    await cloud.quota(metadata_items=2)
    forbidden = "Policy doesn't allow os_compute_api:server-metadata:create to be performed."
    rows: list[tuple[str, str, Any, str, int, str]] = [
        ("GET", "/none", None, "roost", 404, "Metadata item was not found"),
        ("DELETE", "/none", None, "roost", 404, "Metadata item was not found"),
        ("PUT", "/a", {"meta": {"b": "1"}}, "roost", 400, "Request body and URI mismatch"),
        ("POST", "", {"metadata": {"b": "", "c": ""}}, "roost", 403, "Maximum number of metadata items exceeds 2"),
        ("POST", "", {"metadata": {}}, "roost-reader", 403, forbidden),
        ("GET", "", None, "roost-alt", 404, f"Instance {server} could not be found."),
    ]
    for method, item, body, who, status, message in rows:
        assert await cloud.refusal(method, path + item, body, cloud=who) == (status, message)
    wrong: list[Any] = [{}, {"metadata": {"k": 1}}, {"metadata": {"": "v"}}, {"metadata": {"k": "v" * 256}}]
    for body in wrong:
        assert (await cloud.ask("POST", path, json=body)).status_code == 400
    assert (await cloud.ask("GET", path)).json() == {"metadata": {"a": "1"}}
