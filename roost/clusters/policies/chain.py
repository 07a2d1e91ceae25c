"""The policies of a cluster in concert: in which order they are asked, what they leave for the action, and which of
them contradict each other.

The order is decided here alone: by priority, then by the order of types within a priority, then by who was attached
first. For the types of the house that is scaling, region, batch, zone, affinity, deletion, load balance, health.
"""

import inspect
import logging
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain as joined
from itertools import islice, repeat
from typing import Any, TypeVar

from roost.clusters.policies.base import (
    ANY,
    BEFORE,
    CHECK_NONE,
    CHECK_OK,
    CREATION_REGIONS,
    CREATION_ZONES,
    PLACEMENTS,
    ActionView,
    ClusterView,
    Policy,
    Verdict,
)

T = TypeVar("T")

_log = logging.getLogger(__name__)
_LONG_AGO = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Bound:
    """A policy as it is attached to a cluster."""

    policy: Policy
    binding: Mapping[str, Any] = field(default_factory=dict)
    last_op: datetime | None = None
    enabled: bool = True
    attached_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Checked:
    """What the chain came to."""

    ok: bool
    reason: str
    last_ops: Mapping[str, datetime] = field(default_factory=dict)
    """When policies, by id, last let something happen, where they said so now."""


@dataclass(frozen=True, slots=True)
class Fit:
    """Whether a policy can be attached to a cluster: not if anything is refused; what is dubious is only told."""

    refusals: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def in_order(bound: Iterable[Bound]) -> list[Bound]:
    """The policies in the order in which they are asked."""
    return sorted(bound, key=_place)


def _place(bound: Bound) -> tuple[int, int, datetime, str]:
    policy = bound.policy
    return policy.PRIORITY, policy.ORDER, bound.attached_at or _LONG_AGO, policy.id


async def check(bound: Iterable[Bound], when: str, action: ActionView) -> Checked:
    """Ask every policy that wants to be asked about this action at this moment; the first refusal ends it.

    What a policy decides is in `action.data` and `action.effects` afterwards. An error inside a policy is a refusal.
    """
    action.data.update(status=CHECK_NONE, reason="")
    action.data.pop("status_reason", None)
    last_ops: dict[str, datetime] = {}
    for each in in_order(bound):
        policy = each.policy
        if not each.enabled or (when, action.action) not in policy.TARGET:
            continue
        action.binding, action.last_op = each.binding, each.last_op
        try:
            await _settled((policy.pre_op if when == BEFORE else policy.post_op)(action.cluster.id, action))
        except Exception as error:
            _log.exception("policy %s failed on %s", policy.name, action.action)
            action.refuse(f"{type(error).__name__}: {error}")
        if action.last_op is not None and action.last_op != each.last_op:
            last_ops[policy.id] = action.last_op
        if (refusal := action.refusal) is not None:
            action.data["reason"] = refusal
            return Checked(False, f"Failed policy '{policy.name}': {refusal}", last_ops)
    action.data.update(status=CHECK_OK, reason="Completed policy checking.")
    return Checked(True, action.data["reason"], last_ops)


async def attach(policy: Policy, action: ActionView) -> Verdict:
    """Let a policy get ready for the cluster; an error inside it is a refusal."""
    return await _verdict(policy, "attach", action)


async def detach(policy: Policy, action: ActionView) -> Verdict:
    """Let a policy undo what it did to get ready; an error inside it is a refusal."""
    return await _verdict(policy, "detach", action)


async def _verdict(policy: Policy, method: str, action: ActionView) -> Verdict:
    try:
        outcome: Verdict = await _settled(getattr(policy, method)(action.cluster.id, action))
    except Exception as error:
        _log.exception("policy %s failed to %s", policy.name, method)
        return False, f"{type(error).__name__}: {error}"
    return outcome


async def _settled(outcome: T | Awaitable[T]) -> T:
    return await outcome if inspect.isawaitable(outcome) else outcome


def fit(policy: Policy, cluster: ClusterView, attached: Sequence[Policy]) -> Fit:
    """What speaks against attaching a policy to a cluster that these are attached to already."""
    if not _governs(policy, cluster.profile.type):
        return Fit((f"Policy not applicable on profile type: {cluster.profile.type}",))
    others = [other for other in attached if other.id != policy.id]
    for other in others:
        if policy.SINGLETON and other.TYPE == policy.TYPE:
            return Fit((_only_one(policy, other, cluster),))
    found = policy.objections(cluster)
    for other in others:
        found += policy.clashes(other, cluster) + other.clashes(policy, cluster)
    return Fit(
        tuple(objection.message for objection in found if objection.fatal),
        tuple(objection.message for objection in found if not objection.fatal),
    )


def _governs(policy: Policy, profile_type: str) -> bool:
    return any(kind in (ANY, profile_type, profile_type.rsplit("-", 1)[0]) for kind in policy.PROFILE_TYPE)


def _only_one(policy: Policy, other: Policy, cluster: ClusterView) -> str:
    return (
        f"Only one instance of policy type ({policy.type}) can be attached to a cluster, but another instance "
        f"({other.id}) is found attached to the cluster ({cluster.id}) already."
    )


def placements(data: Mapping[str, Any], count: int) -> list[dict[str, str]]:
    """Where each of so many new nodes goes: its zone, server group and region, as far as policies decided.

    This is what a node keeps as `data.placement`.
    """
    given = PLACEMENTS.read(data) or []
    zones = _each(CREATION_ZONES.read(data))
    regions = _each(CREATION_REGIONS.read(data))
    found = []
    for own, zone, region in islice(zip(joined(given, repeat({})), zones, regions, strict=False), count):
        place = {"zone": zone, "region_name": region, **own}
        found.append({key: value for key, value in place.items() if value})
    return found


def _each(plan: Mapping[str, int] | None) -> Iterable[str | None]:
    return joined(*(repeat(name, number) for name, number in (plan or {}).items()), repeat(None))
