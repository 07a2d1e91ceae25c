"""Hooks: a URL, or a queue of the cloud, is told of each node that waits to go, while the action waits.

What comes of it changes nothing for the action: a message that does not arrive is an event, and the time for an answer
ends as it would have. An engine that ends at this moment sends nothing; the token is in an event of the node as well.
"""

import asyncio
import json
import logging
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from roost.clouds.base import CloudError, CloudRefused
from roost.clusters import events, state, urls
from roost.clusters.actions.work import ActionPlan, NodeStep, Work
from roost.store.tables.clusters import nodes

logger = logging.getLogger(__name__)

_AT_ONCE = 8


def message(step: NodeStep) -> dict[str, Any]:
    """What the owner of a node needs to know to let it go."""
    return {
        "lifecycle_action_token": step.id,
        "node_id": step.node_id,
        "lifecycle_transition_type": "termination",
    }


def send(work: Work, plan: ActionPlan) -> None:
    """Begin to tell the URL or the queue of the plan's hook, if it names one, of the nodes that wait."""
    hooks = plan.more.get("hooks") or {}
    kind, name = ("webhook", "url") if hooks.get("type") == "webhook" else ("queue", "queue")
    where = hooks.get("params", {}).get(name)
    waiting = [step for step in plan.steps if step.waiting]
    if not where or not waiting:
        return
    task = asyncio.create_task(_send(work, kind, where, waiting))
    work.engine.errands.add(task)
    task.add_done_callback(work.engine.errands.discard)


async def _send(work: Work, kind: str, where: str, steps: Sequence[NodeStep]) -> None:
    engine, turn = work.engine, asyncio.Semaphore(_AT_ONCE)
    async with engine.database.begin() as connection:
        found = await state.nodes_by_id(connection, [step.node_id for step in steps])
        whose = sa.select(nodes.c.project_id, nodes.c.user_id).where(nodes.c.id.in_(found)).limit(1)
        owner = (await connection.execute(whose)).one_or_none()
    if owner is None:
        return  # all of them have gone
    cloud = engine.clouds.of(owner.project_id, owner.user_id)

    async def tell(step: NodeStep) -> dict[str, Any] | None:
        node = found.get(step.node_id)
        body = {**message(step), "resource_id": node.physical_id if node else None}
        async with turn:
            try:
                if kind == "webhook":
                    await urls.fetch(where, json.dumps(body).encode(), private=engine.settings.private_urls)
                else:
                    await cloud.post_message(where, body)
            except (OSError, ValueError, urls.ForbiddenAddress, CloudError, CloudRefused) as error:
                return _failure(work, step, f"The {kind} {where} could not be told: {error}")
        return None

    told = await asyncio.gather(*(tell(step) for step in steps))
    failures = [failure for failure in told if failure is not None]
    try:
        async with engine.database.begin() as connection:
            await events.record(connection, failures)
    except SQLAlchemyError:
        logger.warning("could not write down that a hook failed", exc_info=True)


def _failure(work: Work, step: NodeStep, reason: str) -> dict[str, Any]:
    return {
        **work.event("error", reason, events.WARNING),
        "oid": step.node_id,
        "oname": step.node_id[:8],
        "otype": "NODE",
        "action": step.action,
    }
