"""Lifecycle hooks: a URL, or a queue of the cloud, gets a message for each node that waits to go.

The action does not depend on the message: one that does not arrive is an event, and the time for an answer ends as it
would have. An engine that stops at this moment sends nothing; the token is in an event of the node as well.
"""

import asyncio
import json
import logging
from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from roost.clouds.base import CloudError, CloudRefused
from roost.clusters import events, state, urls
from roost.clusters.actions.program import ActionPlan, NodeStep
from roost.clusters.actions.work import Work
from roost.clusters.events import Event, Severity
from roost.store.tables.clusters import nodes

logger = logging.getLogger(__name__)

_AT_ONCE = 8


def message(step: NodeStep) -> dict[str, str | None]:
    """What the owner of a node needs to know to complete its deletion."""
    return {"lifecycle_action_token": step.id, "node_id": step.node_id, "lifecycle_transition_type": "termination"}


def send(work: Work, plan: ActionPlan) -> None:
    """Begin to send the messages for the nodes that wait, if the plan's hook says where to."""
    hook = plan.program.hooks
    if hook is None:
        return
    kind, where = ("webhook", hook.params.url) if hook.type == "webhook" else ("queue", hook.params.queue)
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

    async def tell(step: NodeStep) -> Event | None:
        node = found.get(step.node_id)
        body = {**message(step), "resource_id": node.physical_id if node else None}
        async with turn:
            try:
                if kind == "webhook":
                    content, private = json.dumps(body).encode(), engine.settings.private_urls
                    await urls.fetch(where, content, owner=owner.project_id, private=private)
                else:
                    await cloud.post_message(where, body)
            except (OSError, ValueError, urls.ForbiddenAddress, CloudError, CloudRefused) as error:
                return work.node_event(
                    step, "error", f"The {kind} {where} did not get the message: {error}", Severity.WARN
                )
        return None

    failures = [failure for failure in await asyncio.gather(*(tell(step) for step in steps)) if failure is not None]
    try:
        async with engine.database.begin() as connection:
            await events.record(connection, failures)
    except SQLAlchemyError:
        logger.warning("could not record that a hook failed", exc_info=True)
