"""The inputs, the plan and the progress of an action: the values that its row stores."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from roost.clusters.ids import new_id
from roost.clusters.policies.base import NodeView
from roost.clusters.policies.decisions import LifecycleHook, Place
from roost.clusters.states import ActionName, ClusterStatus, Recovery
from roost.clusters.stored import Stored

# Inputs


@dataclass(frozen=True, slots=True)
class CreateInputs(Stored):
    """Policies to attach before the first node is made."""

    policies: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DeleteInputs(Stored):
    """Whether what the cloud refuses to delete is deleted anyway."""

    force: bool = False


@dataclass(frozen=True, slots=True)
class UpdateInputs(Stored):
    """New properties of a cluster, or a new profile for it and, unless `profile_only`, for its nodes."""

    name: str | None = None
    metadata: Mapping[str, object] | None = None
    timeout: int | None = None
    config: Mapping[str, object] | None = None
    new_profile_id: str | None = None
    profile_only: bool = False


@dataclass(frozen=True, slots=True)
class ScaleInputs(Stored):
    """How many nodes come or go."""

    count: int = 1


@dataclass(frozen=True, slots=True)
class AddInputs(Stored):
    """The nodes that join."""

    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RemoveInputs(Stored):
    """The nodes that leave, and whether they are destroyed."""

    candidates: tuple[str, ...] = ()
    destroy_after_deletion: bool | None = None


@dataclass(frozen=True, slots=True)
class ReplaceInputs(Stored):
    """For each node that leaves, the one that takes its place."""

    candidates: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RecoverInputs(Stored):
    """How nodes are recovered, and whether all are checked and missing ones made."""

    operation: str | None = None
    operation_params: Mapping[str, object] = field(default_factory=dict)
    check: bool = False
    check_capacity: bool = False


@dataclass(frozen=True, slots=True)
class OperateInputs(Stored):
    """An operation of the profile, and the nodes it is done to."""

    operation: str = ""
    params: Mapping[str, object] = field(default_factory=dict)
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PolicyInputs(Stored):
    """A policy that is attached, detached, enabled or disabled."""

    policy_id: str = ""
    enabled: bool | None = None


@dataclass(frozen=True, slots=True)
class NodeInputs(Stored):
    """The inputs of all actions on a node; each action reads its own part."""

    name: str | None = None
    role: str | None = None
    metadata: Mapping[str, object] | None = None
    tainted: bool | None = None
    new_profile_id: str | None = None
    force: bool = False
    check: bool = False
    operation: str | None = None
    operation_params: Mapping[str, object] = field(default_factory=dict)
    params: Mapping[str, object] = field(default_factory=dict)
    best_effort: bool = False
    """Whether the step counts as done even if the operation failed."""
    cluster_id: str | None = None
    index: int | None = None
    placement: Place | None = None
    replaced_by: str | None = None
    """The node must be active before this one goes."""

    @property
    def recovery(self) -> str:
        """How the node is recovered."""
        return (self.operation or Recovery.RECREATE).upper()


# The plan


@dataclass(frozen=True, slots=True)
class NodeStep:
    """What an action does to one node: a derived action, or (for an action on a node) the action itself."""

    id: str
    action: ActionName
    node_id: str
    part: int = 0
    inputs: NodeInputs = NodeInputs()
    waiting: bool = False
    """Until its life cycle is completed, or the time for that is over."""

    @classmethod
    def new(cls, action: ActionName, node_id: str, part: int = 0, inputs: NodeInputs | None = None) -> "NodeStep":
        """A step of an action on a cluster."""
        return cls(new_id(), action, node_id, part, inputs or NodeInputs())


@dataclass(frozen=True, slots=True)
class ClusterChange(Stored):
    """Columns of a cluster to set."""

    name: str | None = None
    metadata: Mapping[str, object] | None = None
    config: Mapping[str, object] | None = None
    timeout: int | None = None
    next_index: int | None = None
    profile_id: str | None = None
    min_size: int | None = None
    max_size: int | None = None


@dataclass(frozen=True, slots=True)
class Program(Stored):
    """What an action has decided to do and how far it has come, kept in `actions.plan`. Its steps and its new nodes are
    rows of their own."""

    total: int = 0
    desired: int | None = None
    """The size of the cluster if all goes well."""
    keep_desired: bool = False
    """Whether the size stays as it was if something fails."""
    change: ClusterChange = ClusterChange()
    """What becomes of the cluster if all goes well."""
    undo_failures: bool = False
    """Whether nodes that could not be made are forgotten, so that the cluster is not left larger than it is."""
    ask_after: bool = False
    """Whether a policy wants to see the result."""
    pause: float = 0.0
    """Seconds between two parts."""
    hooks: LifecycleHook | None = None
    inputs: NodeInputs | None = None
    """Of an action on a node: those of its only step."""
    not_before: datetime | None = None
    last_part: int | None = None
    paused_for: int | None = None
    done: bool = False
    """Of an action on a node: whether its step is done, and why it failed."""
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class ActionPlan:
    """What a planner decided: the program, and what is to be written down with it."""

    program: Program
    steps: tuple[NodeStep, ...] = ()
    new_nodes: tuple[NodeView, ...] = ()
    busy: ClusterStatus | None = None
    """The status of the cluster meanwhile."""
    at_once: ClusterChange = ClusterChange()
    wait: float = 0.0
    """Seconds before the first part."""


# How far it has come


@dataclass(frozen=True, slots=True)
class Outputs(Stored):
    """What an action shows of its progress and its result."""

    nodes_done: int | None = None
    nodes_total: int | None = None
    nodes_added: tuple[str, ...] = ()
    nodes_removed: tuple[str, ...] = ()
    nodes_failed: Mapping[str, str] = field(default_factory=dict)
