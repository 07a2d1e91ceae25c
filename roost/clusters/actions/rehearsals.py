"""What an action would do: the same policies and the same planner, with nothing stored."""

from collections import Counter
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.clusters import bindings
from roost.clusters.actions import attachments, cluster_plans, context, node_plans
from roost.clusters.actions.context import PlanningContext
from roost.clusters.actions.program import ActionPlan
from roost.clusters.actions.work import ActionRefused, ActionRow, Engine, Work
from roost.clusters.policies.base import BEFORE
from roost.clusters.states import ActionName
from roost.clusters.stored import MalformedData
from roost.errors import Invalid
from roost.store.tables.clusters import actions

_READS = ("find_", "show_", "availability_zones", "hypervisors", "regions")
_DONE_LATER = frozenset({"remove_member", "add_member"})


@dataclass(frozen=True, slots=True)
class RehearsedDecision:
    """What one policy decides."""

    policy: str
    type: str
    decision: Mapping[str, object]
    refusal: str | None


@dataclass(frozen=True, slots=True)
class RehearsedStep:
    """What would happen to one node; where it would go, and how it would be recovered, if that is so."""

    action: str
    node: str
    placement: Mapping[str, object] | None = None
    operation: str | None = None


@dataclass(slots=True)
class Rehearsal:
    """What each policy decides, what then happens to which nodes, and how these are distributed in the end."""

    action: str
    in_cluster: bool
    refusal: str | None = None
    policies: list[RehearsedDecision] = field(default_factory=list)
    steps: list[RehearsedStep] = field(default_factory=list)
    now: int = 0
    then: int = 0
    distribution: dict[str, dict[str, int]] = field(default_factory=dict)

    def to_json(self) -> dict[str, object]:
        """As the API shows it."""
        if self.refusal is not None:
            sentence = f"{self.action} would be refused: {self.refusal}"
        else:
            counts = Counter(step.action for step in self.steps)
            listed = ", ".join(f"{number} {action}" for action, number in counts.items()) or "nothing to nodes"
            sentence = f"{self.action} would do {listed}{self._afterwards()}."
        return {
            "action": self.action,
            "accepted": self.refusal is None,
            "sentence": sentence,
            "refusal": self.refusal,
            "policies": [asdict(policy) for policy in self.policies],
            "steps": [_without_none(asdict(step)) for step in self.steps],
            "size": {"now": self.now, "then": self.then},
            "distribution": self.distribution,
        }

    def _afterwards(self) -> str:
        if not self.in_cluster:
            return ""
        if self.action == ActionName.CLUSTER_DELETE:
            return "; then the cluster would be gone"
        return f"; the cluster would go from {self.now} to {self.then} nodes"


def _without_none(values: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in values.items() if value is not None}


async def rehearse(engine: Engine, connection: AsyncConnection, action_id: str) -> Rehearsal:
    """Plan an action that was accepted in this transaction, which the caller rolls back."""
    query = sa.select(*(actions.c[name] for name in ActionRow._fields)).where(actions.c.id == action_id)
    work = Work.of(engine, ActionRow(*(await connection.execute(query)).one()))
    [found] = await context.read(connection, [work])
    found.connection = connection
    on_cluster = work.action.on_cluster
    if on_cluster and work.action not in (*cluster_plans.PLANNERS, *attachments.HANDLERS):
        raise Invalid(f"The action {work.action} cannot be rehearsed.")
    rehearsal = Rehearsal(work.action, in_cluster=found.found is not None, now=found.count, then=found.count)
    if work.action in attachments.HANDLERS:
        return rehearsal  # What speaks against it was said when it was accepted; it touches no node.
    try:
        await _consult(work, found, rehearsal)
        plan = await (cluster_plans.PLANNERS[work.action] if on_cluster else node_plans.plan)(found)
    except (ActionRefused, MalformedData) as refusal:
        rehearsal.refusal = str(refusal)
        return rehearsal
    await _describe(found, plan, rehearsal)
    return rehearsal


async def _consult(work: Work, found: PlanningContext, rehearsal: Rehearsal) -> None:
    """Ask the policies one by one, to see what each decides."""
    if refusal := bindings.missing(found.bound, work.action):
        raise ActionRefused(refusal)
    if not any(one.wants(BEFORE, work.action) for one in found.bound):
        return
    view = await found.view()
    view.cloud = _ReadOnlyCloud(view.cloud)
    for one in found.bound:
        if not one.wants(BEFORE, work.action):
            continue
        before = deepcopy(view.data)
        result = await bindings.consult([one], BEFORE, view)
        decided = {key: value for key, value in view.data.items() if before.get(key) != value}
        kept = {key: value for key, value in decided.items() if key not in ("status", "reason")}
        rehearsal.policies.append(RehearsedDecision(one.policy.name, one.policy.type, kept, result.refusal))
        if result.refusal is not None:
            raise ActionRefused(result.refusal)
    work.data = view.data


async def _describe(found: PlanningContext, plan: ActionPlan, rehearsal: Rehearsal) -> None:
    new = {node.id: node for node in plan.new_nodes}
    members = await found.all_members() if found.found is not None else ()
    known = (*members, *plan.new_nodes, *([found.node] if found.node is not None else []))
    names = {node.id: node.name for node in known}
    for step in plan.steps:
        place = new[step.node_id].placement if step.node_id in new else None
        operation = step.inputs.recovery if step.action is ActionName.NODE_RECOVER else None
        name = names.get(step.node_id, step.node_id)
        rehearsal.steps.append(RehearsedStep(step.action, name, place or None, operation))
    going = (ActionName.NODE_DELETE, ActionName.NODE_LEAVE)
    leaving = {step.node_id for step in plan.steps if step.action in going}
    stay = [node for node in members if node.id not in leaving]
    coming = sum(step.action is ActionName.NODE_JOIN for step in plan.steps)
    rehearsal.then = len(stay) + len(new) + coming
    places: list[Mapping[str, Any]] = [node.placement for node in (*stay, *plan.new_nodes)]
    for key in ("zone", "region_name"):
        counts = Counter(str(place[key]) for place in places if place.get(key))
        if counts:
            rehearsal.distribution[key] = dict(sorted(counts.items()))


class _ReadOnlyCloud:
    """A cloud that answers questions and does nothing."""

    def __init__(self, cloud: Any) -> None:
        self._cloud = cloud

    def __getattr__(self, name: str) -> Any:
        if name.startswith(_READS) or not callable(getattr(self._cloud, name)):
            return getattr(self._cloud, name)
        if name in _DONE_LATER:
            return _nothing
        raise ActionRefused(f"it would call {name} of the cloud, which cannot be rehearsed")


async def _nothing(*_: Any, **__: Any) -> None:
    return None
