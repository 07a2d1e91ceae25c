"""What an action that was ended by force may have left in the cloud.

Its engine finds out at its next write, clears away what it made for nodes that are gone, and lets the action go
(`runner`). If that engine has died meanwhile, or could not reach the cloud, another look is due: the action still has
an owner.
"""

import logging
from collections.abc import Collection

import sqlalchemy as sa

from roost.clouds.base import CloudError
from roost.clusters import state
from roost.clusters.actions.work import Engine
from roost.clusters.records import ACTIONS, ActionRecord
from roost.clusters.services import is_up
from roost.clusters.states import ActionName, NodeStatus
from roost.store.tables.clusters import abandoned, actions, nodes, services

logger = logging.getLogger(__name__)

_MAKING = (ActionName.NODE_CREATE, ActionName.NODE_RECOVER)


async def clear(engine: Engine, in_hand: Collection[str]) -> None:
    """Clear up after the actions that this engine, or one that is dead, no longer has in hand."""
    dead = ~sa.exists().where(services.c.id == actions.c.owner, is_up(engine.settings.dead_after))
    mine = (actions.c.owner == engine.id) & ~state.among(actions.c.id, in_hand)
    async with engine.database.autocommit() as connection:
        found = await ACTIONS.read(connection, abandoned, dead | mine)
    for action in found:
        try:
            await _clear(engine, action)
        except CloudError as error:
            logger.warning("could not clear up after an action", extra={"action": action.id, "error": str(error)})


async def _clear(engine: Engine, action: ActionRecord) -> None:
    steps = sa.or_(actions.c.id == action.id, actions.c.parent_id == action.id) & actions.c.action.in_(_MAKING)
    stays = nodes.c.status != NodeStatus.DELETING
    async with engine.database.autocommit() as connection:
        made = set(await connection.scalars(sa.select(actions.c.target).where(steps)))
        made -= set(await connection.scalars(sa.select(nodes.c.id).where(state.among(nodes.c.id, made), stays)))
    if made:
        cloud = engine.clouds.of(action.project_id, action.user_id)
        servers = await cloud.find_servers(list(made))
        refused = await cloud.delete_servers([server.id for server in servers.values()], force=True)
        await cloud.release_ports(list(made))
        if refused:
            raise CloudError(next(iter(refused.values())))
    await let_go(engine, action.id, action.owner)


async def let_go(engine: Engine, action_id: str, owner: str | None) -> None:
    """Note that nothing is left of an action that was ended by force."""
    mine = (actions.c.id == action_id) & (actions.c.owner == owner) & abandoned
    async with engine.database.autocommit() as connection:
        await connection.execute(actions.update().where(mine).values(owner=None))
