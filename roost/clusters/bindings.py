"""Policies on clusters: the order in which they are asked about an action, and what their answers change."""

import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.clusters import health
from roost.clusters.policies.base import AFTER, BEFORE, CHECK_NONE, CHECK_OK, ActionView, Effects, Policy
from roost.clusters.state import Binding
from roost.store.tables.clusters import cluster_policies, clusters

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Bound:
    """A policy that was attached, and the binding that attached it."""

    policy: Policy
    binding: Binding

    def wants(self, when: str, action: str) -> bool:
        """Whether to ask it about that."""
        return self.binding.enabled and (when, action) in tuple(self.policy.TARGET)


@dataclass(slots=True)
class Consultation:
    """What the policies said."""

    refusal: str | None = None
    last_ops: dict[str, datetime] = field(default_factory=dict)
    effects: Effects = field(default_factory=Effects)


def chain(bindings: Sequence[Binding], policy_of: Callable[[Mapping[str, Any]], Policy]) -> list[Bound]:
    """The policies in the order in which they are asked: by priority, then the types' own order, then by age."""
    bound = [Bound(policy_of(binding.policy), binding) for binding in bindings]
    return sorted(bound, key=lambda one: (one.policy.PRIORITY, one.policy.ORDER, one.binding.created_at))


async def consult(bound: Sequence[Bound], when: str, view: ActionView) -> Consultation:
    """Ask each policy that wants to be asked; the first that refuses ends it, and its reason is kept."""
    result = Consultation(effects=view.effects)
    if when == BEFORE:
        view.data.update(status=CHECK_NONE, reason="")
    for one in bound:
        if not one.wants(when, view.action):
            continue
        view.binding, view.last_op = one.binding.data, one.binding.last_op
        refusal = await _ask(one, when, view)
        if view.last_op is not None and view.last_op != one.binding.last_op:
            result.last_ops[one.binding.id] = view.last_op
        if refusal is not None:
            result.refusal = f"Failed policy '{one.policy.name}': {refusal}"
            return result
    if when == BEFORE:
        view.data.update(status=CHECK_OK, reason="Completed policy checking.")
    return result


async def _ask(one: Bound, when: str, view: ActionView) -> str | None:
    method = one.policy.post_op if when == AFTER else one.policy.pre_op
    try:
        answer = method(view.cluster.id, view)
        if inspect.isawaitable(answer):
            await answer
    except Exception as error:
        # A third party's mistake must not look like ours, nor leave the action hanging.
        logger.exception("a policy failed", extra={"policy": one.policy.type})
        view.refuse(f"it failed with {type(error).__name__}: {error}")
    return view.refusal


async def write_down(
    connection: AsyncConnection, cluster_id: str, result: Consultation, policy: Policy | None = None
) -> None:
    """Keep what the policies (or the one that comes or goes) changed besides the action's data."""
    for binding_id, moment in result.last_ops.items():
        await connection.execute(
            cluster_policies.update().where(cluster_policies.c.id == binding_id).values(last_op=moment)
        )
    effects = result.effects
    if effects.cluster_data:
        await connection.execute(
            clusters.update()
            .where(clusters.c.id == cluster_id)
            .values(data=_merged(clusters.c.data, effects.cluster_data))
        )
    if effects.node_data or effects.node_warnings:
        rows = [
            {
                "id": node_id,
                "data": {key: value for key, value in effects.node_data.get(node_id, {}).items() if value is not None},
                "drop": [key for key, value in effects.node_data.get(node_id, {}).items() if value is None],
                "warning": effects.node_warnings.get(node_id),
            }
            for node_id in {**effects.node_data, **effects.node_warnings}
        ]
        await connection.execute(_MERGE_NODES, {"rows": rows})
    if effects.health is not None:
        await health.change(connection, cluster_id, policy, effects.health)


_MERGE_NODES = sa.text(
    """
    UPDATE nodes SET
        data = (nodes.data || given.data) - ARRAY(SELECT jsonb_array_elements_text(given.drop)),
        status = CASE WHEN given.warning IS NULL THEN nodes.status ELSE 'WARNING' END,
        status_reason = coalesce(given.warning, nodes.status_reason)
    FROM jsonb_to_recordset(:rows) AS given(id text, data jsonb, drop jsonb, warning text)
    WHERE nodes.id = given.id
    """
).bindparams(sa.bindparam("rows", type_=JSONB))


def _merged(column: sa.Column[Any], changes: Mapping[str, Any]) -> sa.ColumnElement[Any]:
    kept = {key: value for key, value in changes.items() if value is not None}
    merged: sa.ColumnElement[Any] = column.op("||")(sa.bindparam(None, kept, type_=JSONB))
    for key, value in changes.items():
        if value is None:
            merged = merged.op("-")(sa.bindparam(None, key, type_=sa.Text))
    return merged
