"""What must hold when the way to the cloud is bad; the modules that have a `troubled` cloud collect these tests."""

import time
from dataclasses import dataclass

import pytest

from roost.clouds.base import CloudError
from tests.clouds.conformance import Subject
from tests.clouds.fault_proxy import Cut, FaultProxy

CREATE = ("POST", "/servers$")
LIST = ("GET", "/servers/detail")


@dataclass(frozen=True)
class Troubled:
    """A cloud behind a proxy, and the same cloud seen directly."""

    through: Subject
    direct: Subject
    proxy: FaultProxy


async def made_once_each(troubled: Troubled, count: int) -> None:
    """Ask for servers through the proxy: each node has exactly one, seen from the other side."""
    requests = await troubled.through.wanted(count)
    made = await troubled.through.cloud.create_servers(requests)
    assert [outcome.error for outcome in made] == [None] * count
    found = await troubled.direct.cloud.find_servers([request.node_id for request in requests])
    assert [found[request.node_id].id for request in requests] == [outcome.server_id for outcome in made]
    assert troubled.proxy.count("DELETE", "/servers/") == 0, "none was made too many"
    assert await troubled.through.cloud.delete_servers([server.id for server in found.values()]) == {}


async def test_a_cloud_that_says_later_is_asked_later(troubled: Troubled) -> None:
    troubled.proxy.fail(*CREATE, 429, times=2, headers={"Retry-After": "1"})
    troubled.proxy.fail(*LIST, 503, times=2)
    began = time.monotonic()
    await made_once_each(troubled, 2)
    assert time.monotonic() - began >= 1
    assert troubled.proxy.count(*CREATE) == 4


async def test_a_gateway_without_an_answer_is_asked_again_only_where_that_is_safe(troubled: Troubled) -> None:
    troubled.proxy.fail(*LIST, 502, times=2)
    troubled.proxy.fail(*LIST, 504, times=1)
    await made_once_each(troubled, 1)
    assert troubled.proxy.count(*CREATE) == 1


async def test_a_creation_whose_answer_was_lost_is_found_and_kept(troubled: Troubled) -> None:
    troubled.proxy.fail(*CREATE, Cut.AFTER, times=2)
    await made_once_each(troubled, 3)
    assert troubled.proxy.count(*CREATE) == 3


async def test_a_creation_that_never_arrived_is_asked_for_again(troubled: Troubled) -> None:
    troubled.proxy.fail(*CREATE, Cut.BEFORE, times=1)
    await made_once_each(troubled, 2)
    assert troubled.proxy.count(*CREATE) == 3


async def test_a_creation_whose_answer_does_not_come_in_time_is_found_and_kept(troubled: Troubled) -> None:
    troubled.proxy.fail(*CREATE, Cut.SILENT, times=1)
    await made_once_each(troubled, 2)
    assert troubled.proxy.count(*CREATE) == 2


async def test_what_is_refused_of_a_batch_is_a_reason_and_not_asked_again(troubled: Troubled) -> None:
    refusal = {"forbidden": {"code": 403, "message": "Quota exceeded for instances: Requested 1"}}
    troubled.proxy.fail(*CREATE, 403, times=1, body=refusal)
    made = await troubled.through.cloud.create_servers(await troubled.through.wanted(3))
    assert sorted(outcome.error or "" for outcome in made) == ["", "", "Quota exceeded for instances: Requested 1"]
    assert troubled.proxy.count(*CREATE) == 3
    await troubled.direct.cloud.delete_servers([outcome.server_id for outcome in made if outcome.server_id])


async def test_a_cloud_that_never_answers_is_an_error_and_nothing_is_made(troubled: Troubled) -> None:
    requests = await troubled.through.wanted(1)
    troubled.proxy.fail(*LIST, 503, times=1000)
    with pytest.raises(CloudError):
        await troubled.through.cloud.create_servers(requests)
    assert troubled.proxy.count(*CREATE) == 0
    assert troubled.proxy.count(*LIST) < 20


async def test_an_operation_whose_answer_was_lost_is_not_done_twice(troubled: Troubled) -> None:
    [made] = await troubled.through.cloud.create_servers(await troubled.through.wanted(1))
    assert made.server_id is not None
    troubled.proxy.fail("POST", "/action$", Cut.AFTER)
    assert await troubled.through.cloud.operate(made.server_id, "stop", {}) is None
    assert troubled.proxy.count("POST", "/action$") == 1
    assert (await troubled.direct.cloud.show_servers([made.server_id]))[made.server_id].status == "SHUTOFF"
    troubled.proxy.fail("DELETE", "/servers/", Cut.AFTER)
    assert await troubled.through.cloud.delete_servers([made.server_id]) == {}
    assert await troubled.direct.cloud.show_servers([made.server_id]) == {}
