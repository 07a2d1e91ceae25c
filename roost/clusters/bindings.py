"""Policies on clusters: the order in which they run before and after an action, and what their decisions change."""

import asyncio
import contextvars
import inspect
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.clusters import health
from roost.clusters.plugins import MissingPolicy
from roost.clusters.policies.base import AFTER, CHECK_NONE, CHECK_OK, ActionView, Effects, Policy
from roost.clusters.spec_type import SpecRow
from roost.clusters.state import Binding
from roost.clusters.states import ActionName, NodeStatus
from roost.store import bulk
from roost.store.tables.clusters import cluster_policies, clusters, nodes

logger = logging.getLogger(__name__)

_THREADS = ThreadPoolExecutor(64, "policy")
"""Plain hooks run here, so that one that blocks holds up neither the event loop nor other threads."""


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


class HookFailed(Exception):
    """A hook of a policy did not end as it should; the message completes a sentence about the policy."""


def chain(bindings: Sequence[Binding], policy_of: Callable[[SpecRow], Policy]) -> list[Bound]:
    """The policies in the order in which they run: by priority, then the types' own order, then by age."""
    bound = [Bound(policy_of(binding.policy), binding) for binding in bindings]
    return sorted(bound, key=lambda one: (one.policy.PRIORITY, one.policy.ORDER, one.binding.created_at))


def missing(bound: Sequence[Bound], action: ActionName) -> str | None:
    """Why an action cannot be carried out while the type of an attached policy is not installed; a deletion can."""
    if action is ActionName.CLUSTER_DELETE:
        return None
    found = (one.policy for one in bound if one.binding.enabled and isinstance(one.policy, MissingPolicy))
    return next((policy.sentence for policy in found), None)


async def consult(bound: Sequence[Bound], when: str, view: ActionView) -> Consultation:
    """Run each policy that the action concerns; the first that refuses ends it, and its reason is kept."""
    result = Consultation()
    view.data.update(status=CHECK_NONE, reason="")
    for one in bound:
        if not one.wants(when, view.action):
            continue
        refusal = await _ask(one, when, view)
        if view.last_op is not None and view.last_op != one.binding.last_op:
            result.last_ops[one.binding.id] = view.last_op
        if refusal is not None:
            result.refusal = f"Failed policy '{one.policy.name}': {refusal}"
            break
    else:
        view.data.update(status=CHECK_OK, reason="Completed policy checking.")
    result.effects = view.effects
    return result


async def _ask(one: Bound, when: str, view: ActionView) -> str | None:
    """Ask one policy. It gets a copy, so that a hook which overruns its time changes nothing afterwards."""
    own = replace(
        view,
        data=deepcopy(view.data),
        effects=deepcopy(view.effects),
        binding=one.binding.data,
        last_op=one.binding.last_op,
    )
    view.last_op = None
    try:
        await call(one.policy, one.policy.post_op if when == AFTER else one.policy.pre_op, own)
        data = as_json(own.data, "action.data")
        check_effects(own.effects)
    except HookFailed as failure:
        view.refuse(str(failure))
        return view.refusal
    view.data, view.effects, view.last_op = data, own.effects, own.last_op
    return view.refusal


async def call(policy: Policy, hook: Callable[[str, ActionView], Any], view: ActionView) -> Any:
    """What a hook of a policy answers. A plain hook runs in a thread; either kind has a deadline."""
    try:
        async with asyncio.timeout(policy.deadline) as limit:
            if inspect.iscoroutinefunction(hook):
                return await hook(view.cluster.id, view)
            loop, context = asyncio.get_running_loop(), contextvars.copy_context()
            answer = await loop.run_in_executor(_THREADS, context.run, hook, view.cluster.id, view)
            return await answer if inspect.isawaitable(answer) else answer
    except Exception as error:
        if isinstance(error, TimeoutError) and limit.expired():
            raise HookFailed(f"it did not answer within {policy.deadline:g} seconds") from None
        # A mistake of a third party's policy must not look like ours, nor leave the action hanging.
        logger.exception("a policy failed", extra={"policy": policy.type})
        raise HookFailed(f"it failed with {type(error).__name__}: {error}") from error


def check_effects(effects: Effects) -> None:
    """What a policy changes besides the action's data must be JSON too."""
    effects.node_data = as_json(effects.node_data, "effects.node_data")
    effects.cluster_data = as_json(effects.cluster_data, "effects.cluster_data")


def as_json(data: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The data as JSON keeps it, with times as text; `HookFailed` names the item that JSON cannot keep."""
    try:
        encoded = json.dumps(data, allow_nan=False, ensure_ascii=False, default=_text)
        if "\\u0000" in encoded:
            raise ValueError("it has a NUL character")
        encoded.encode()
    except (TypeError, ValueError, RecursionError) as error:
        path, value = _culprit(data)
        raise HookFailed(
            f"it left {value!r:.80} as '{path}' in {name}, which cannot be written as JSON: {error}"
        ) from None
    decoded: dict[str, Any] = json.loads(encoded)
    return decoded


def _text(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} is not a type of JSON")


def _culprit(value: Any, path: str = "") -> tuple[str, Any]:
    """The first item that JSON cannot keep, and where it is."""
    items: Sequence[tuple[Any, Any]] = ()
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list | tuple):
        items = list(enumerate(value))
    for key, item in items:
        inner = f"{path}.{key}" if path else str(key)
        if len(inner) > 500:
            break
        try:
            json.dumps({key: item}, allow_nan=False, ensure_ascii=False, default=_text).encode()
            if "\\u0000" in json.dumps({key: item}, default=_text):
                return _culprit(item, inner)
        except (TypeError, ValueError, RecursionError):
            return _culprit(item, inner)
    return path, value


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
            for node_id in sorted({**effects.node_data, **effects.node_warnings})
        ]
        await connection.execute(_MERGE_NODES, {"rows": rows})
    if effects.health is not None:
        await health.change(connection, cluster_id, policy, effects.health)


_given = bulk.given(nodes.c.id, nodes.c.data, drop=JSONB, warning=sa.Text)
_MERGE_NODES = (
    nodes.update()
    .where(nodes.c.id == _given.c.id)
    .values(
        data=sa.literal_column(
            "(nodes.data || given.data) - ARRAY(SELECT jsonb_array_elements_text(given.drop))", JSONB
        ),
        status=sa.case((_given.c.warning.is_(None), nodes.c.status), else_=NodeStatus.WARNING),
        status_reason=sa.func.coalesce(_given.c.warning, nodes.c.status_reason),
    )
)


def _merged(column: sa.Column[Any], changes: Mapping[str, Any]) -> sa.ColumnElement[Any]:
    kept = {key: value for key, value in changes.items() if value is not None}
    merged: sa.ColumnElement[Any] = column.op("||")(sa.bindparam(None, kept, type_=JSONB))
    for key, value in changes.items():
        if value is None:
            merged = merged.op("-")(sa.bindparam(None, key, type_=sa.Text))
    return merged
