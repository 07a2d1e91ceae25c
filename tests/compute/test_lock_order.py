"""Groups and hosts are locked in one order (see `roost.compute.inventory.claims`), so that no cycle of waits forms.

PostgreSQL would end a cycle with an error for one of its transactions; these tests expect none.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.compute.answers import plans
from roost.compute.answers.plans import ChangeMembers, ChangePolicies
from roost.compute.groups import groups, members
from roost.compute.groups.groups import Group, GroupPolicy
from roost.compute.inventory import claims, scopes
from roost.compute.scheduling import servers
from roost.compute.scheduling.request import CreateRequest, NewServer
from roost.compute.scheduling.scheduler import Scheduler
from roost.config import Settings
from roost.errors import Invalid
from roost.placement.rules import Rule
from roost.store.database import Database
from roost.store.tables.answers import plans as stored_plans
from roost.store.tables.compute import scopes as scopes_table
from roost.store.tables.servers import servers as servers_table
from tests.compute.members import put_server
from tests.store.waiting import until_waiting

APART = (GroupPolicy(Rule.parse("anti-affinity")),)
DIVIDED = (GroupPolicy(Rule.parse("anti-affinity:rack", {"partitions": 2})),)


@dataclass(frozen=True)
class House:
    """A group with a member, and a server that is in no group."""

    database: Database
    settings: Settings
    group: Group
    member: str
    loose: str


Change = Callable[[House, AsyncConnection], Awaitable[object]]


@pytest.fixture
async def house(database: Database, settings: Settings) -> House:
    async with database.begin() as connection:
        owner = {"project_id": "tenant", "user_id": "somebody"}
        group = await groups.create(connection, settings, name="g", policies=APART, **owner)
    member = await put_server(database, "tenant", host="host1", group=group.id)
    loose = await put_server(database, "tenant", host="host2")
    return House(database, settings, group, member, loose)


async def divide(house: House, connection: AsyncConnection) -> None:
    await groups.update(connection, house.settings, house.group, name=None, policies=DIVIDED)


async def delete(house: House, connection: AsyncConnection) -> None:
    await groups.delete(connection, house.settings, house.group)


async def plan_to_divide(house: House, connection: AsyncConnection) -> None:
    await plans.propose(scheduler(house), house.group, ChangePolicies(DIVIDED), "demo")


async def plan_to_add_and_remove(house: House, connection: AsyncConnection) -> None:
    change = ChangeMembers(add=(house.loose,), remove=(house.member,))
    await plans.propose(scheduler(house), house.group, change, "demo")


async def apply_a_plan_to_divide(house: House, connection: AsyncConnection) -> None:
    await _apply(house, connection, ChangePolicies(DIVIDED))


async def apply_a_plan_to_add_and_remove(house: House, connection: AsyncConnection) -> None:
    await _apply(house, connection, ChangeMembers(add=(house.loose,), remove=(house.member,)))


async def _apply(house: House, connection: AsyncConnection, change: ChangePolicies | ChangeMembers) -> None:
    async with house.database.begin() as other:
        # Planned as if alone: what is looked at here is who waits when the plan is applied.
        kept = {"group_id": house.group.id, "change": change.as_data(), "seed": 0, "outcome": {}}
        number = await other.scalar(stored_plans.insert().values(kept).returning(stored_plans.c.number))
    with pytest.raises(plans.Changed):
        await plans.apply(connection, scheduler(house), house.group, change, f"0.0.{number}")


def scheduler(house: House) -> Scheduler:
    return Scheduler(house.database, house.settings)


async def in_a_transaction(house: House, change: Change) -> None:
    async with house.database.begin() as connection:
        await change(house, connection)


@pytest.mark.parametrize(
    "change",
    [divide, delete, plan_to_divide, plan_to_add_and_remove, apply_a_plan_to_divide, apply_a_plan_to_add_and_remove],
)
async def test_who_changes_a_group_does_not_hold_it_while_a_member_moves(house: House, change: Change) -> None:
    async with house.database.begin() as connection:
        await servers.find(connection, house.member, lock=True)
        changing = asyncio.create_task(in_a_transaction(house, change))
        await until_waiting(house.database)
        await claims.lock_groups(connection, [house.group.id])
    await changing


async def test_who_changes_policies_does_not_hold_the_group_while_a_scope_is_renamed(house: House) -> None:
    await in_a_transaction(house, divide)
    async with house.database.begin() as connection:
        rack = sa.select(scopes_table.c.uuid).where(scopes_table.c.name == "rack")
        uuid = (await connection.execute(rack)).scalar_one()
        await scopes.find(connection, uuid, lock=True)
        changing = asyncio.create_task(in_a_transaction(house, divide))
        await until_waiting(house.database)
        await scopes.update(connection, uuid, {"name": "shelf"})
    with pytest.raises(Exception, match="no policy scope 'rack'"):
        await changing


async def test_who_joins_a_divided_group_does_not_wait_for_a_member_without_a_number(house: House) -> None:
    await in_a_transaction(house, divide)
    async with house.database.begin() as connection:
        await connection.execute(servers_table.update().values(partition=None))
        group = await groups.find(connection, house.group.id)
    async with house.database.begin() as connection:
        await servers.find(connection, house.member, lock=True)
        async with house.database.begin() as other:
            joined = await members.add(other, house.settings, group, house.loose)
        await claims.lock_groups(connection, [house.group.id])
    assert joined.partitions == {house.member: None, house.loose: 2}


async def test_who_joins_a_contended_group_waits_for_the_usage_of_the_project_first(house: House) -> None:
    """A deletion has locked the usage, and the group is next."""
    creating = scheduler(house)
    creating.groups.contended([house.group.id])
    asked = CreateRequest(
        project_id="tenant", user_id="u", request_id="r", servers=(NewServer("s"),), flavor_id="1",
        group_id=house.group.id,
    )  # fmt: skip
    async with house.database.begin() as connection:
        # A cycle would end here: whoever creates would try again.
        await connection.execute(sa.text("SET LOCAL deadlock_timeout = '10ms'"))
        await claims.lock_usage(connection, "tenant")
        creates = asyncio.create_task(creating.create(asked))
        await until_waiting(house.database)
        await claims.lock_groups(connection, [house.group.id])
    assert len((await creates).server_ids) == 1


async def test_who_joins_a_group_that_was_divided_meanwhile_gets_a_number(house: House) -> None:
    await in_a_transaction(house, divide)
    async with house.database.begin() as connection:
        joined = await members.add(connection, house.settings, house.group, house.loose)
    assert joined.partitions == {house.member: 1, house.loose: 2}


async def test_who_asks_for_a_partition_of_a_group_that_has_none_any_more_is_refused(house: House) -> None:
    await in_a_transaction(house, divide)
    async with house.database.begin() as connection:
        divided = await groups.find(connection, house.group.id)
        await groups.update(connection, house.settings, divided, name=None, policies=APART)
    with pytest.raises(Invalid, match="is not divided into partitions"):
        async with house.database.begin() as connection:
            await members.add(connection, house.settings, divided, house.loose, partition=1)


@pytest.mark.parametrize("change", [divide, delete])
async def test_a_server_may_join_and_move_while_its_group_is_changed(house: House, change: Change) -> None:
    async def move() -> None:
        async with house.database.begin() as connection:
            await servers.find(connection, house.loose, lock=True)
            await claims.lock_groups(connection, [house.group.id])

    async with house.database.begin() as joining:
        await members.add(joining, house.settings, house.group, house.loose)
        changing = asyncio.create_task(in_a_transaction(house, change))
        await until_waiting(house.database)  # for the group, knowing of one member
        moving = asyncio.create_task(move())
        await until_waiting(house.database, 2)  # for the other one, which is first in the queue
    await asyncio.gather(changing, moving)
    async with house.database.begin() as connection:
        query = sa.select(servers_table.c.group_id, servers_table.c.partition)
        rows = {tuple(row) for row in await connection.execute(query)}
    assert rows == {(None, None)} if change is delete else {(house.group.id, 1), (house.group.id, 2)}
