"""Groups below HTTP: what scheduling reads, what changes raise, and how full a group may be."""

import asyncio
from dataclasses import replace

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.compute.groups import groups, members
from roost.compute.groups.groups import Group, GroupPolicy
from roost.compute.inventory.scopes import Scope, load_scopes
from roost.config import Settings
from roost.errors import NotFound, OverQuota
from roost.placement.rules import Rule
from roost.store.database import Database
from roost.store.tables.compute import quotas, scopes
from roost.store.tables.servers import project_usage, server_groups
from tests.compute.members import put_server

RACK_1 = "4"


async def make(database: Database, settings: Settings, *policies: GroupPolicy) -> Group:
    async with database.begin() as connection:
        return await groups.create(
            connection, settings, name="g", policies=policies, project_id="tenant", user_id="somebody"
        )


def policy(text: str, **limits: int) -> GroupPolicy:
    return GroupPolicy(Rule.parse(text, limits))


async def allow(database: Database, **values: bool) -> None:
    async with database.begin() as connection:
        await connection.execute(scopes.update().values(values))


async def version(database: Database, group: Group) -> int:
    async with database.begin() as connection:
        query = sa.select(server_groups.c.version).where(server_groups.c.id == group.id)
        return int((await connection.execute(query)).scalar_one())


async def test_a_group_that_is_deleted_while_it_is_read_is_gone(
    database: Database, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    group, load = await make(database, settings, policy("anti-affinity")), load_scopes

    async def delete_first(connection: AsyncConnection) -> dict[str, Scope]:
        async with database.begin() as other:
            await other.execute(server_groups.delete().where(server_groups.c.id == group.id))
        return await load(connection)

    monkeypatch.setattr(groups, "load_scopes", delete_first)
    async with database.autocommit() as connection:
        with pytest.raises(NotFound, match="could not be found"):
            await groups.find(connection, group.id)
    monkeypatch.setattr(groups, "load_scopes", load)
    group = await make(database, settings, policy("anti-affinity"))
    monkeypatch.setattr(groups, "load_scopes", delete_first)
    async with database.autocommit() as connection:
        assert await groups.brief(connection, [group.id]) == {}


async def test_scheduling_reads_rules_with_real_identifiers_in_one_query(
    database: Database, settings: Settings
) -> None:
    await allow(database, allow_identifiers=True)
    asked = [
        policy(f"affinity:rack:{RACK_1}"),
        policy("anti-affinity", max_server_per_host=3),
        policy("soft-affinity:availability_zone:zone2"),
    ]
    targeted, plain = await make(database, settings, *asked), await make(database, settings, policy("affinity"))
    await allow(database, obfuscate_identifiers=True)
    statements: list[str] = []
    sa.event.listen(database._engine.sync_engine, "before_cursor_execute", lambda *event: statements.append(event[2]))
    async with database.begin() as connection:
        found = await groups.rules_of(connection, [targeted.id, plain.id])
    assert len(statements) == 1
    assert found == {targeted.id: tuple(each.rule for each in asked), plain.id: (Rule.parse("affinity"),)}
    async with database.begin() as connection:
        shown = await groups.find(connection, targeted.id)
    assert shown.policies[0].rule.identifier not in (RACK_1, None)
    assert shown.policies[1:] == tuple(asked[1:])


async def test_every_change_that_scheduling_must_see_raises_the_version(database: Database, settings: Settings) -> None:
    group = await make(database, settings, policy("affinity"))
    server = await put_server(database, "tenant")
    assert await version(database, group) == 1
    async with database.begin() as connection:
        await groups.update(connection, settings, group, name=None, policies=[policy("anti-affinity")])
    assert await version(database, group) == 2
    async with database.begin() as connection:
        await members.add(connection, settings, group, server)
    assert await version(database, group) == 3
    async with database.begin() as connection:
        await members.remove(connection, settings, group, server)
    assert await version(database, group) == 4


@pytest.mark.parametrize(
    ("quota", "cap", "adding", "fits"),
    [
        (-1, -1, 1000, True),
        (3, -1, 1, True),
        (3, -1, 2, False),
        (-1, 4, 1, True),
        (-1, 4, 2, False),
        (0, -1, 1, False),
        (-1, 0, 1, False),
    ],
)
async def test_a_group_is_full_by_the_users_quota_or_by_the_deployers_cap(
    database: Database, settings: Settings, quota: int, cap: int, adding: int, fits: bool
) -> None:
    limits = {**settings.quota, "server_group_members": quota}
    bounded = replace(settings, quota=limits, group_max_members=cap)
    group = await make(database, settings, policy("affinity"))
    for user_id in ("somebody", "somebody", "else"):
        await put_server(database, "tenant", group=group.id, user_id=user_id)
    async with database.begin() as connection:
        asked = members.check_room(connection, bounded, "tenant", group.id, "somebody", adding)
        if fits:
            await asked
        else:
            with pytest.raises(OverQuota, match=r"^Quota exceeded, too many servers in group$"):
                await asked


async def test_members_added_at_once_do_not_overfill_a_group(database: Database, settings: Settings) -> None:
    bounded = replace(settings, group_max_members=2)
    group = await make(database, settings, policy("affinity"))
    waiting = [await put_server(database, "tenant") for _ in range(6)]

    async def add(server: str) -> bool:
        try:
            async with database.begin() as connection:
                await members.add(connection, bounded, group, server)
        except OverQuota:
            return False
        return True

    assert sum(await asyncio.gather(*map(add, waiting))) == 2
    async with database.begin() as connection:
        assert len((await groups.find(connection, group.id)).members) == 2


async def test_a_refused_group_is_not_counted(database: Database, settings: Settings) -> None:
    full = replace(settings, quota={**settings.quota, "server_groups": 1})
    await make(database, full, policy("affinity"))
    with pytest.raises(OverQuota, match=r"^Quota exceeded, too many server groups\.$"):
        await make(database, full, policy("affinity"))
    async with database.begin() as connection:
        assert await connection.scalar(sa.select(project_usage.c.server_groups)) == 1


async def test_a_user_with_a_quota_of_its_own_has_no_more_groups_than_that(
    database: Database, settings: Settings
) -> None:
    async with database.begin() as connection:
        bound = {"project_id": "tenant", "user_id": "somebody", "resource": "server_groups", "limit": 1}
        await connection.execute(quotas.insert().values(bound))
    await make(database, settings, policy("affinity"))
    with pytest.raises(OverQuota):
        await make(database, settings, policy("affinity"))
    async with database.begin() as connection:
        policies = [policy("affinity")]
        await groups.create(connection, settings, name="g", policies=policies, project_id="tenant", user_id="other")
