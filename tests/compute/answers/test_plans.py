"""What a plan says is what applying it does, for whatever fleet, group and change; and it is refused exactly when
something that matters has changed in between."""

import random
import uuid
from dataclasses import dataclass
from typing import Any

import pytest
import sqlalchemy as sa

from roost.compute.answers import plans
from roost.compute.answers.plans import Change, ChangeMembers, ChangePolicies, Create, Displace
from roost.compute.groups import groups
from roost.compute.groups.groups import Group, GroupPolicy
from roost.compute.inventory.changes import host_changed
from roost.compute.scheduling import lifecycle
from roost.compute.scheduling.request import CreateRequest, NewServer
from roost.compute.scheduling.scheduler import Scheduler
from roost.config import Settings
from roost.errors import RoostError
from roost.placement.rules import Rule
from roost.store.database import Database
from roost.store.tables.answers import plans as plans_table
from roost.store.tables.compute import flavors, hosts
from roost.store.tables.servers import servers

TYPES = ("anti-affinity", "affinity", "soft-anti-affinity", "soft-affinity")
SCOPES = ("host", "rack", "switch", "availability_zone")
ROUNDS = 25


@dataclass
class Cloud:
    """A database, and a scheduler; all at random, but the same each time."""

    database: Database
    scheduler: Scheduler
    dice: random.Random

    async def shake(self) -> None:
        """Make the fleet uneven: some hosts go down, some are nearly full."""
        async with self.database.begin() as connection:
            every = list(await connection.scalars(sa.select(hosts.c.id).order_by(hosts.c.id)))
            down = self.dice.sample(every, 8)
            await connection.execute(hosts.update().values(enabled=hosts.c.id.not_in(down)))
            await host_changed(connection, every)

    def policies(self) -> tuple[GroupPolicy, ...]:
        kind, scope = self.dice.choice(TYPES), self.dice.choice(SCOPES)
        limit = self.dice.choice(("max_server_per_aggregate", "partitions"))
        limits = {limit: self.dice.randint(2, 3)} if kind == "anti-affinity" else {}
        return (GroupPolicy(Rule.parse(f"{kind}:{scope}", limits)),)

    async def group(self) -> Group:
        async with self.database.begin() as connection:
            made = await groups.create(
                connection, self.scheduler.settings, name="g", policies=self.policies(), project_id="p", user_id="u"
            )
        await self.boot(made.id, self.dice.randint(0, 4))
        return await self.again(made)

    async def boot(self, group_id: str | None, count: int) -> None:
        for _ in range(count):
            await self.scheduler.create(CreateRequest("p", "u", "req", (NewServer("s"),), "2", group_id=group_id))
        while await lifecycle.finish(self.database):
            pass

    async def again(self, group: Group) -> Group:
        async with self.database.begin() as connection:
            return await groups.find(connection, group.id)

    async def change(self, group: Group) -> Change:
        kind = self.dice.choice(("create", "policies", "add", "remove"))
        if kind == "policies":
            return ChangePolicies(self.policies())
        if kind == "remove" and group.members:
            return ChangeMembers(remove=(self.dice.choice(group.members),))
        if kind == "add":
            await self.boot(None, 1)
            async with self.database.begin() as connection:
                loose = sa.select(servers.c.id).where(servers.c.group_id.is_(None)).order_by(servers.c.number.desc())
                return ChangeMembers(add=(str(await connection.scalar(loose.limit(1))),))
        async with self.database.begin() as connection:
            flavor = (await connection.execute(sa.select(flavors).where(flavors.c.id == "2"))).one()
        new = tuple(NewServer(f"new-{number}") for number in range(self.dice.randint(1, 4)))
        return Create(CreateRequest("p", "u", "req", new, "2", least=len(new), group_id=group.id), flavor, "new")

    async def propose(self, group: Group, change: Change) -> plans.GroupPlan:
        return await plans.propose(self.scheduler, group, change, "demo")

    async def apply(self, group: Group, change: Change, generation: str) -> plans.GroupPlan:
        if isinstance(change, Create):
            return await plans.boot_planned(self.scheduler, group, change, generation)
        assert not isinstance(change, Displace)
        async with self.database.begin() as connection:
            return await plans.apply(connection, self.scheduler, group, change, generation)

    async def truth(self, group: Group) -> dict[str, Any]:
        """The group as the database has it: its policies, where its members are, and in which partitions."""
        found = await self.again(group)
        async with self.database.begin() as connection:
            query = (
                sa.select(servers.c.name, hosts.c.name.label("host"))
                .outerjoin(hosts, hosts.c.id == servers.c.host_id)
                .where(servers.c.group_id == group.id)
            )
            rows = (await connection.execute(query.order_by(servers.c.number))).all()
        members = [(row.name, row.host) for row in rows]
        return {"policies": found.policies, "members": members, "partitions": dict(found.partitions)}


@pytest.fixture
def cloud(database: Database, settings: Settings) -> Cloud:
    return Cloud(database, Scheduler(database, settings), random.Random(7))


def unlimited(cloud: Cloud) -> None:
    quota = dict.fromkeys(cloud.scheduler.settings.quota, -1)
    cloud.scheduler.settings.quota.update(quota)


async def test_what_a_plan_says_is_what_applying_it_does(cloud: Cloud) -> None:
    unlimited(cloud)
    applied = 0
    for _ in range(ROUNDS):
        await cloud.shake()
        group = await cloud.group()
        change = await cloud.change(group)
        before = await cloud.truth(group)
        planned = await cloud.propose(group, change)
        assert await cloud.truth(group) == before
        generation = planned.generation or ""
        if isinstance(change, Create) and not planned.outcome.placements:
            with pytest.raises(RoostError, match="nothing to apply"):
                await cloud.apply(group, change, generation)
            assert await cloud.truth(group) == before
            continue
        done = await cloud.apply(group, change, generation)
        after = await cloud.truth(group)
        applied += 1
        if isinstance(change, Create):
            said = [(each["name"], each["host"]) for each in planned.outcome.placements]
            assert after["members"] == before["members"] + said
            numbers = [each["partition"] for each in planned.outcome.placements if "partition" in each]
            assert list(after["partitions"].values()) == [*before["partitions"].values(), *numbers]
        elif isinstance(change, ChangePolicies):
            assert after == {**before, "policies": change.policies, "partitions": planned.outcome.partitions}
        elif isinstance(change, ChangeMembers):
            assert after["partitions"] == planned.outcome.partitions
            assert len(after["members"]) == len(before["members"]) + len(change.add) - len(change.remove)
        assert done.outcome.essence()["placements"] == planned.outcome.essence()["placements"]
    assert applied > ROUNDS / 2


async def test_a_plan_is_refused_exactly_when_its_outcome_has_become_another(cloud: Cloud) -> None:
    unlimited(cloud)
    refused = 0
    for _ in range(ROUNDS):
        await cloud.shake()
        group = await cloud.group()
        change = await cloud.change(group)
        planned = await cloud.propose(group, change)
        if isinstance(change, Create) and not planned.outcome.placements:
            continue
        # Something happens that may matter: hosts go down and come up, or a member joins.
        await (cloud.shake() if cloud.dice.random() < 0.6 else cloud.boot(group.id, 1))
        before = await cloud.truth(group)
        row = await _plan_row(cloud, planned.generation or "")
        again = await _look(cloud, await cloud.again(group), change, row.seed)
        same = again.essence() == planned.outcome.essence()
        try:
            await cloud.apply(group, change, planned.generation or "")
        except plans.Changed:
            assert not same
            assert await cloud.truth(group) == before
            refused += 1
        else:
            assert same or (isinstance(change, Create) and again.placements == planned.outcome.placements)
    assert refused


async def _plan_row(cloud: Cloud, generation: str) -> sa.Row[Any]:
    async with cloud.database.begin() as connection:
        number = int(generation.rpartition(".")[2])
        return (await connection.execute(sa.select(plans_table).where(plans_table.c.number == number))).one()


async def _look(cloud: Cloud, group: Group, change: Change, seed: int) -> plans.PlanOutcome:
    return await plans.look_ahead(cloud.scheduler, group, change, seed)


async def test_a_plan_of_a_group_that_is_gone_cannot_be_applied(cloud: Cloud) -> None:
    group = await cloud.group()
    stranger = Group(str(uuid.uuid4()), "x", "p", "u")
    planned = await cloud.propose(group, ChangePolicies(cloud.policies()))
    with pytest.raises(RoostError, match="There is no plan of generation"):
        await cloud.apply(stranger, ChangePolicies(cloud.policies()), planned.generation or "")
