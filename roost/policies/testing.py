"""For the tests of authors: a cluster and a chain in memory, and the suite that every policy type passes.

    outcome = await Harness().attached(CurfewPolicy, from_hour=8).run(ActionName.CLUSTER_SCALE_IN, count=1)
    assert outcome.refusal == "Nodes stay during office hours."

    def test_curfew_conforms() -> None:
        assert_conforms(CurfewPolicy, from_hour=8)

Hooks run as the engine runs them: in the order of the chain, plain ones in a thread, each with a deadline, and what
they leave in `action.data` must be JSON.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from roost.clusters import bindings
from roost.clusters.policies import base, chain
from roost.clusters.policies.base import (
    AFTER,
    BEFORE,
    CREATION_COUNT,
    CREATION_NODES,
    DELETION_CANDIDATES,
    ActionView,
    ClusterView,
    Effects,
    NodeView,
    Policy,
    ProfileView,
)
from roost.clusters.policies.counts import change
from roost.clusters.policies.decisions import Decisions
from roost.clusters.spec import InvalidSpec
from roost.clusters.state import Binding
from roost.clusters.states import ActionName, NodeStatus
from roost.clusters.stored import MalformedData
from roost.policies.memory import MemoryCloud

__all__ = ["Harness", "MemoryCloud", "Outcome", "assert_conforms", "problems"]

_OWN_KEYS = frozenset({"status", "reason", "status_reason"})

_PROFILE = ProfileView("profile-1", "web", "os.nova.server-1.0", {"flavor": "m1.tiny"})


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an action came to under the policies of a harness."""

    refusal: str | None
    data: Mapping[str, Any]
    cluster: ClusterView
    effects: Effects


@dataclass(slots=True)
class Harness:
    """A cluster in memory, with the policies attached to it. What policies keep, it remembers from action to action."""

    size: int = 3
    now: datetime = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)
    cloud: MemoryCloud = field(default_factory=MemoryCloud)
    is_admin: bool = False
    profile: ProfileView = _PROFILE
    min_size: int = 0
    max_size: int = -1
    nodes: list[NodeView] = field(default_factory=list)
    cluster_data: dict[str, Any] = field(default_factory=dict)
    _waiting: list[Policy] = field(default_factory=list)
    _bound: list[bindings.Bound] = field(default_factory=list)
    _made: int = 0

    def __post_init__(self) -> None:
        """Fill the cluster."""
        if not self.nodes:
            self._grow(self.size)

    def attached(self, kind: type[Policy], *, version: str | None = None, **properties: Any) -> "Harness":
        """This harness, with a policy of this type attached before the next action."""
        chosen = version or list(kind.VERSIONS)[-1]
        spec = {"type": kind.TYPE, "version": chosen, "properties": properties}
        number = len(self._waiting) + len(self._bound)
        self._waiting.append(kind(f"{kind.TYPE.rpartition('.')[2]}-{number}", spec, id=f"policy-{number}"))
        return self

    async def run(self, action: ActionName, **inputs: Any) -> Outcome:
        """Carry out an action: ask the policies before it, change the cluster, and ask them after it."""
        refusal = await self._attach_waiting()
        view = self._view(action, inputs)
        if refusal is None:
            refusal = (await self._ask(BEFORE, view)).refusal
        if refusal is None:
            try:
                self._carry_out(view)
            except MalformedData as error:
                refusal = str(error)
        if refusal is None:
            view.cluster = self._cluster()
            refusal = (await self._ask(AFTER, view)).refusal
        return Outcome(refusal, view.data, self._cluster(), view.effects)

    async def detach(self) -> str | None:
        """Detach all policies; why the first that refused did."""
        while self._bound:
            one = self._bound.pop()
            view = self._view(ActionName.CLUSTER_DETACH_POLICY, {})
            view.binding, view.last_op = one.binding.data, one.binding.last_op
            ok, answer = await bindings.call(one.policy, one.policy.detach, view)
            self._keep(view.effects)
            if not ok:
                return str(answer)
        return None

    async def _attach_waiting(self) -> str | None:
        while self._waiting:
            policy = self._waiting.pop(0)
            view = self._view(ActionName.CLUSTER_ATTACH_POLICY, {"policy_id": policy.id})
            fit = chain.fit(policy, view.cluster, [one.policy for one in self._bound])
            if fit.refusals:
                return " ".join(fit.refusals)
            try:
                ok, answer = await bindings.call(policy, policy.attach, view)
                data = bindings.as_json(answer or {}, "the binding") if ok else {}
            except bindings.HookFailed as failure:
                return f"Failed policy '{policy.name}': {failure}"
            if not ok:
                return str(answer)
            self._keep(view.effects)
            self._bind(policy, Binding(policy.id, policy.row, True, policy.PRIORITY, data, None, self.now))
        return None

    def _bind(self, policy: Policy, binding: Binding) -> None:
        others = [one for one in self._bound if one.policy is not policy]
        found = {policy.id: policy, **{one.policy.id: one.policy for one in others}}
        self._bound = bindings.chain([*(one.binding for one in others), binding], lambda row: found[row.id])

    async def _ask(self, when: str, view: ActionView) -> bindings.Consultation:
        result = await bindings.consult(self._bound, when, view)
        for one in self._bound:
            if one.binding.id in result.last_ops:
                self._bind(one.policy, replace(one.binding, last_op=result.last_ops[one.binding.id]))
        self._keep(result.effects)
        return result

    def _keep(self, effects: Effects) -> None:
        self.cluster_data = _merged(self.cluster_data, effects.cluster_data)
        self.nodes = [node._replace(data=_merged(node.data, effects.node_data.get(node.id, {}))) for node in self.nodes]

    def _view(self, action: ActionName, inputs: Mapping[str, Any]) -> ActionView:
        return ActionView(
            action=action,
            cluster=self._cluster(),
            cloud=self.cloud,
            now=self.now,
            id=f"action-{self._made}",
            inputs=inputs,
            node=self.nodes[0] if not action.on_cluster and self.nodes else None,
            is_admin=self.is_admin,
        )

    def _cluster(self) -> ClusterView:
        return ClusterView(
            id="cluster-1",
            name="front",
            project="project-1",
            user="user-1",
            profile=self.profile,
            min_size=self.min_size,
            max_size=self.max_size,
            desired_capacity=len(self.nodes),
            nodes=tuple(self.nodes),
            data=self.cluster_data,
            profiles={self.profile.id: self.profile},
        )

    def _carry_out(self, view: ActionView) -> None:
        """Change the number of nodes as the action and its policies have decided."""
        decided = Decisions.from_json(view.data, "action.data")
        wanted = change(view)
        count = 0 if isinstance(wanted, str) or view.action in _KEEP_SIZE else wanted.count
        if count > 0:
            CREATION_NODES.write(view.data, [node.id for node in self._grow(count)])
        gone = decided.deletion.candidates or [node.id for node in self.nodes[: max(-count, 0)]]
        self.nodes = [node for node in self.nodes if node.id not in gone]

    def _grow(self, count: int) -> list[NodeView]:
        new = []
        for _ in range(count):
            self._made += 1
            name = f"node-{self._made}"
            server = f"server-{self._made}"
            new.append(
                NodeView(name, name, self._made, "", NodeStatus.ACTIVE, self.now, self.profile.id, server, False, {})
            )
        self.nodes += new
        return new


_KEEP_SIZE = (ActionName.CLUSTER_RECOVER, ActionName.NODE_RECOVER)


def _merged(data: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in {**data, **changes}.items() if value is not None}


# The suite

_INPUTS: Mapping[ActionName, Mapping[str, Any]] = {
    ActionName.CLUSTER_SCALE_IN: {"count": 1},
    ActionName.CLUSTER_SCALE_OUT: {"count": 1},
    ActionName.CLUSTER_RESIZE: {"adjustment_type": "CHANGE_IN_CAPACITY", "number": 1, "strict": False},
    ActionName.CLUSTER_DEL_NODES: {"candidates": ["node-1"]},
    ActionName.CLUSTER_REPLACE_NODES: {"candidates": {"node-1": "node-9"}},
    ActionName.CLUSTER_OPERATION: {"operation": "reboot", "params": {}, "nodes": ["node-1"]},
}


def assert_conforms(kind: type[Policy], **properties: Any) -> None:
    """Fail with one line for each thing that is wrong with a policy type; `properties` are those of a valid spec."""
    found = asyncio.run(problems(kind, **properties))
    assert not found, "\n".join(found)


async def problems(kind: type[Policy], **properties: Any) -> list[str]:
    """What is wrong with a policy type: how it is declared, what its schema says, and what its hooks do."""
    sentence = base.nonconformity(kind)
    if sentence:
        return [sentence]
    found = [*_undocumented(kind)]
    for version in kind.VERSIONS:
        try:
            harness = Harness().attached(kind, version=version, **properties)
        except InvalidSpec as error:
            return [*found, f"version {version} refuses the properties: {error.message}"]
        found += [f"version {version}, {problem}" async for problem in _run_all(kind, harness)]
    return found


def _undocumented(kind: type[Policy]) -> Iterator[str]:
    if not (kind.__doc__ or "").strip():
        yield "the class has no docstring, which `roost policy describe` shows."
    for key, item in kind.spec_schema.items():
        if not item.description:
            yield f"the property '{key}' has no description."


async def _run_all(kind: type[Policy], harness: Harness) -> AsyncIterator[str]:
    written = {key.path for key in kind.WRITES}
    for action in dict.fromkeys(ActionName(name) for _, name in kind.TARGET):
        outcome = await harness.run(action, **_INPUTS.get(action, {}))
        if outcome.refusal and ("it failed with" in outcome.refusal or "cannot be written as JSON" in outcome.refusal):
            yield f"{action}: {outcome.refusal}"
        for path in _paths(outcome.data):
            if not any(path == key or path.startswith(f"{key}.") for key in written | _ENGINES):
                yield f"{action}: it wrote '{path}', which is not in WRITES."
    refusal = await harness.detach()
    if refusal:
        yield f"detach: {refusal}"


_ENGINES = frozenset({CREATION_NODES.path, CREATION_COUNT.path, DELETION_CANDIDATES.path, "deletion.count", *_OWN_KEYS})


def _paths(data: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in data.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping) and value and not prefix:
            yield from _paths(value, f"{path}.")
        else:
            yield path
