"""Servers: their status, their lists in every order, and who may be changed when."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from roost.compute.scheduling import servers
from roost.compute.scheduling.servers import (
    SORT_KEYS,
    STATE_CHANGES,
    STATUSES,
    Actor,
    Filters,
    Server,
)
from roost.errors import Conflict, Invalid, NotFound
from roost.store.pages import PageRequest
from tests.compute.cloud import Cloud

ACTOR = Actor("u", "p", "req-1")
ADMIN = Actor("u", "p", "req-1", is_admin=True)


def server(**values: Any) -> Server:
    """A server as a row."""
    usual = {"id": "s", "vm_state": "active", "task_state": None, "locked": False}
    return cast(Server, SimpleNamespace(**{**usual, **values}))


def test_every_state_that_a_step_leads_to_has_a_status() -> None:
    for step in STATE_CHANGES.values():
        assert step.vm_state in STATUSES
        assert step.allowed <= STATUSES.keys()
    assert servers.status("active", "rebooting") == "REBOOT"
    assert servers.status("active", "anything else") == "ACTIVE"
    assert servers.status("resized", None) == "VERIFY_RESIZE"


def test_a_server_is_changed_in_the_right_state_when_idle_and_unlocked() -> None:
    allowed = frozenset({"active"})
    servers.check(server(), "x", allowed, ACTOR)
    servers.check(server(locked=True), "x", allowed, ADMIN)
    for values, message in (
        ({"locked": True}, "Instance s is locked"),
        ({"vm_state": "stopped"}, "Cannot 'x' instance s while it is in vm_state stopped"),
        ({"task_state": "spawning"}, "Cannot 'x' instance s while it is in task_state spawning"),
    ):
        with pytest.raises(Conflict, match=message):
            servers.check(server(**values), "x", allowed, ACTOR)


async def test_a_status_finds_exactly_the_servers_that_show_it(cloud: Cloud) -> None:
    await cloud.quota(instances=-1)
    for action in (None, "os-stop", "pause", "migrate", "shelve"):
        for finished in (False, True):
            made = await cloud.boot()
            if action is not None:
                await cloud.act(made, action)
            if finished:
                await cloud.settle()
            else:
                async with cloud.database.begin() as connection:  # it stays under way
                    await servers.update(connection, made, {"due_at": None})
    async with cloud.database.begin() as connection:
        shown = {
            row.id: servers.status(row.vm_state, row.task_state) for row in await servers.index(connection, Filters())
        }
        words = {word for by_task in STATUSES.values() for word in by_task.values()}
        for word in words:
            listed = await servers.index(connection, Filters(statuses=(word.lower(),)))
            assert [row.id for row in listed] == [server_id for server_id, status in shown.items() if status == word], (
                word
            )
        both = await servers.index(connection, Filters(statuses=("RESIZE", "SHUTOFF")))
        assert {shown[row.id] for row in both} == {"RESIZE", "SHUTOFF"}


@pytest.mark.parametrize("descends", [False, True])
async def test_every_sort_key_pages_without_loss(cloud: Cloud, descends: bool) -> None:
    await cloud.boot(min_count=3, description="d")
    await cloud.boot(min_count=2, name="b")
    await cloud.hosts(0)
    await cloud.boot()
    async with cloud.database.begin() as connection:
        for key in SORT_KEYS:
            order = ((key, descends),)
            whole = [row.id for row in await servers.index(connection, Filters(sorts=order))]
            assert len(set(whole)) == 6, key
            marker, paged = None, []
            while page := await servers.index(connection, Filters(sorts=order, page=PageRequest(2, marker))):
                paged += [row.id for row in page]
                marker = paged[-1]
            assert paged == whole, key


async def test_what_is_not_there_is_not_found(cloud: Cloud) -> None:
    made = await cloud.boot()
    async with cloud.database.begin() as connection:
        for server_id, project in (("a-name", None), (made, "other")):
            with pytest.raises(NotFound):
                await servers.find(connection, server_id, project_id=project)
        with pytest.raises(Invalid, match="marker"):
            await servers.index(connection, Filters(page=PageRequest(marker=made), project_id="other"))
        assert (await servers.find(connection, made.upper())).id == made
