"""`roost front`: what Roost keeps of the Nova behind it although Nova no longer has it."""

import asyncio

from roost.clouds import choice
from roost.compute.fronting import mirror
from roost.config import Settings, database_url
from roost.errors import Invalid
from roost.store.database import Database


def missing(settings: Settings) -> int:
    """Print the groups that are hidden because Nova does not have them; 1 if there are any."""
    return asyncio.run(_missing(settings))


def forget(settings: Settings, group_ids: list[str], *, everything: bool) -> int:
    """Delete groups that Nova does not have, and with `everything` its lost hosts too."""
    if everything == bool(group_ids):
        raise Invalid("Name the server groups to forget, or give --all.")
    return asyncio.run(_forget(settings, None if everything else group_ids))


async def _missing(settings: Settings) -> int:
    database = Database(database_url(settings))
    try:
        async with database.begin() as connection:
            rows = await mirror.missing_groups(connection)
    finally:
        await database.close()
    for row in rows:
        print(
            f"{row.id} {row.name}: of project {row.project_id}, missing since {row.missing_since:%Y-%m-%d %H:%M:%S%z}"
        )
    if not rows:
        print("Nova has every server group that Roost knows.")
    return 1 if rows else 0


async def _forget(settings: Settings, group_ids: list[str] | None) -> int:
    database = Database(database_url(settings))
    front = choice.front(settings, database)
    try:
        if front is None:
            raise Invalid("This Roost is not in front of a Nova: [clusters] cloud is not openstack.")
        groups, hosts = await front.forget(group_ids)
    finally:
        if front is not None:
            front.nova.close()
        await database.close()
    for kind, names in (("server group", groups), ("host", hosts)):
        for name in names:
            print(f"{kind} {name}: forgotten")
    return 0
