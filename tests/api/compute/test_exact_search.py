"""A request that only the exact search can place: everything else goes on meanwhile, and no rule is broken."""

import asyncio
import gc
import time
from random import Random

import sqlalchemy as sa

from roost.compute.inventory import topology
from roost.compute.inventory.topology import Topology, TopologyHost
from roost.store.tables.compute import aggregate_hosts, aggregates, hosts, scopes, topologies
from roost.store.tables.servers import servers
from tests.compute.cloud import Cloud

PARTS, SCOPES = 200, 4


async def crossing(cloud: Cloud, number: int) -> dict[str, list[int]]:
    """Hosts in four scopes of 200 parts that cut across each other, with a place for 200 servers in 200 parts of each
    of them; the parts of each host."""
    dice = Random(1)
    shuffled = [dice.sample(range(PARTS), PARTS) for _ in range(SCOPES)]
    rows = [[scope[at] for scope in shuffled] for at in range(PARTS)]
    rows += [[dice.randrange(PARTS) for _ in range(SCOPES)] for _ in range(number - PARTS)]
    dice.shuffle(rows)
    parts = {f"host{at}": row for at, row in enumerate(rows)}
    made = tuple(
        TopologyHost(name, "", {f"scope{at}": f"s{at}p{part}" for at, part in enumerate(row)}, 16, 65536, 500)
        for name, row in parts.items()
    )
    async with cloud.database.begin() as connection:
        for table in (aggregate_hosts, aggregates, scopes, hosts, topologies):
            await connection.execute(table.delete().where(table.c.id != 0) if table is scopes else table.delete())
        assert await topology.load(connection, Topology("crossing", made, {"boot_seconds": 0.0, "failure_rate": 0.0}))
    return parts


async def busiest(cloud: Cloud, until: "asyncio.Task[str]") -> float:
    """The most CPU time that the event loop spent from one answer to a healthcheck to the next, while something else
    was under way: none would have waited longer, whenever it came, on a machine with nothing else to do."""
    most, before = 0.0, time.thread_time()
    while not until.done():
        await asyncio.sleep(0.005)
        assert (await cloud.api.request("GET", "/healthcheck", cloud=None)).status_code == 200
        now = time.thread_time()
        most, before = max(most, now - before), now
    return most


async def test_the_api_answers_while_190_servers_are_fitted_into_four_crossing_scopes(cloud: Cloud) -> None:
    parts = await crossing(cloud, 1000)
    await cloud.quota(instances=-1, cores=-1, ram=-1, server_group_members=-1)
    group = await cloud.group(*(f"anti-affinity:scope{at}" for at in range(SCOPES)))
    await cloud.boot(flavorRef="1", settle=False)  # the fleet is loaded
    gc.collect()
    gc.freeze()  # as a process does once it serves: what the other tests left is not looked through meanwhile
    asked = asyncio.create_task(cloud.boot(group=group, min_count=190, max_count=190, settle=False))
    working = await busiest(cloud, asked)
    await asked
    gc.unfreeze()
    async with cloud.database.begin() as connection:
        query = sa.select(hosts.c.name).join(servers, servers.c.host_id == hosts.c.id)
        placed = (await connection.scalars(query.where(servers.c.group_id == group))).all()
    assert len(placed) == 190
    assert all(len({parts[host][at] for host in placed}) == 190 for at in range(SCOPES))
    assert working < 0.1, f"the event loop was busy for {working:.3f} s"
