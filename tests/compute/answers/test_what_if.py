"""A hypothetical decision is the one that a real request would get."""

from roost.compute.answers import what_if
from roost.compute.scheduling import servers
from roost.compute.scheduling.scheduler import Scheduler
from roost.config import Settings
from roost.placement.decision import Refusal
from roost.placement.fleet import Resources
from tests.compute.cloud import Cloud


async def test_who_would_join_a_member_on_its_way_to_another_rack_is_refused_as_it_would_be(
    cloud: Cloud, settings: Settings
) -> None:
    await cloud.hosts(1)
    group = await cloud.group("affinity:rack")
    member = await cloud.boot(group=group)
    *_, in_another_rack = await cloud.hosts(12)
    await cloud.done(member, "migrate", {"host": in_another_rack})
    new = await cloud.boot(group=group)
    assert await cloud.status(new) == "ERROR"
    scheduler = Scheduler(cloud.database, settings)
    async with cloud.database.begin() as connection:
        wanted = await what_if.new_members(connection, scheduler, group, Resources(1, 1, 1), 1)
    trial = await what_if.decide(scheduler, wanted, "demo")
    assert not trial.decision
    assert Refusal.AWAY_FROM_MEMBERS in {refused.reason for refused in trial.decision.refused}


async def test_a_server_of_another_project_is_nobody_to_stay_away_from(cloud: Cloud, settings: Settings) -> None:
    await cloud.hosts(1)
    foreign = await cloud.boot(cloud="roost-admin")
    own = await cloud.boot(hints={"different_host": foreign})
    assert await cloud.status(own) == "ACTIVE"
    scheduler = Scheduler(cloud.database, settings)
    async with cloud.database.begin() as connection:
        again = await what_if.same_again(connection, scheduler, await servers.find(connection, own), 1)
    assert (await what_if.decide(scheduler, again, "demo")).decision
