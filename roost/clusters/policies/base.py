"""What a policy type is: the base class `Policy`, and what a policy sees of an action.

A policy type is a subclass of `Policy` in one file. It says what it is called (`TYPE`), which versions it has had
(`VERSIONS`), before or after which actions it runs (`TARGET`), and what its specs may say (`spec_schema`).
It decides by reading and writing `action.data`; which items it reads and writes is declared (`READS`, `WRITES`).
"""

import inspect
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar, Generic, Literal, NamedTuple, TypeAlias, TypeVar

from roost.clouds.base import Cloud
from roost.clusters.spec_type import DEPRECATED as DEPRECATED
from roost.clusters.spec_type import EXPERIMENTAL as EXPERIMENTAL
from roost.clusters.spec_type import SUPPORTED as SUPPORTED
from roost.clusters.spec_type import UNSUPPORTED as UNSUPPORTED
from roost.clusters.spec_type import SpecType, type_problem
from roost.clusters.states import ActionName as ActionName
from roost.clusters.states import NodeStatus
from roost.placement.rules import Rule

BEFORE, AFTER = "BEFORE", "AFTER"
ANY = "ANY"
CHECK_OK, CHECK_ERROR, CHECK_NONE = "OK", "ERROR", "NONE"


T = TypeVar("T")


class DataKey(Generic[T]):
    """One item of `action.data`: where it is, what type it has, and what it means."""

    def __init__(self, path: str, kind: type[T], meaning: str) -> None:
        self.path = path
        self.kind = kind
        self.meaning = meaning
        self._parts = tuple(path.split("."))

    def __repr__(self) -> str:
        return f"DataKey({self.path!r}, {self.kind.__name__})"

    def read(self, data: Mapping[str, Any]) -> T | None:
        """The item, or None where there is none; a `TypeError` when something else is in its place."""
        place: Any = data
        for part in self._parts:
            if not isinstance(place, Mapping) or place.get(part) is None:
                return None
            place = place[part]
        if not isinstance(place, self.kind) or (self.kind is int and isinstance(place, bool)):
            raise TypeError(f"action.data has {place!r} as {self.path}, which is to be of type {self.kind.__name__}")
        return place

    def write(self, data: dict[str, Any], value: T) -> None:
        """Put the item in its place."""
        place = data
        for part in self._parts[:-1]:
            place = place.setdefault(part, {})
        place[self._parts[-1]] = value


CREATION_COUNT = DataKey("creation.count", int, "how many nodes are to be made")
CREATION_ZONES = DataKey("creation.zones", dict, "how many of them in which availability zone")
CREATION_REGIONS = DataKey("creation.regions", dict, "how many of them in which region")
CREATION_NODES = DataKey("creation.nodes", list, "the ids of the nodes that were made")
DELETION_COUNT = DataKey("deletion.count", int, "how many nodes are to go")
DELETION_ZONES = DataKey("deletion.zones", dict, "how many of them from which availability zone")
DELETION_REGIONS = DataKey("deletion.regions", dict, "how many of them from which region")
DELETION_CANDIDATES = DataKey("deletion.candidates", list, "the ids of the nodes that go")
DELETION_DESTROY = DataKey("deletion.destroy_after_deletion", bool, "whether they are destroyed, or only let go")
DELETION_GRACE = DataKey("deletion.grace_period", int, "the seconds to wait before they go")
DELETION_REDUCE = DataKey("deletion.reduce_desired_capacity", bool, "whether the cluster's desired capacity falls")
HOOKS = DataKey("hooks", dict, "whom to tell, and how long to wait, before a node goes")
PLACEMENT_COUNT = DataKey("placement.count", int, "for how many nodes a place is given")
PLACEMENTS = DataKey("placement.placements", list, "the server group and zone of each new node")
UPDATE_PAUSE = DataKey("update.pause_time", int, "the seconds between two batches of an update")
UPDATE_PLAN = DataKey("update.plan", list, "the ids of the nodes of each batch of an update")
REBALANCE = DataKey("rebalance", list, "the ids of the nodes that are replaced elsewhere, those first made then gone")
RECOVER_ACTION = DataKey("health.recover_action", list, "how a node is recovered")
FENCING = DataKey("health.fencing", list, "what is fenced before a node is recovered")

OF_THE_ENGINE: frozenset[DataKey[Any]] = frozenset({CREATION_NODES, DELETION_CANDIDATES})
"""What the engine itself writes into `action.data`, so that a policy may read it."""


UNHEALTHY = frozenset({NodeStatus.ERROR, NodeStatus.WARNING})
_NOWHERE: Mapping[str, Any] = {}


class NodeView(NamedTuple):
    """A member of the cluster as a policy sees it. A tuple, since there may be ten thousand of them an action."""

    id: str
    name: str
    index: int  # type: ignore[assignment]
    role: str
    status: str
    created_at: datetime | None
    profile_id: str
    physical_id: str | None
    tainted: bool
    data: Mapping[str, Any]

    @property
    def placement(self) -> Mapping[str, Any]:
        """Where policies put this node: its zone, server group and region, if they did."""
        return self.data.get("placement") or _NOWHERE

    @property
    def unhealthy(self) -> bool:
        """Whether this node should be the first to go."""
        return self.tainted or self.status in UNHEALTHY


class ProfileView(NamedTuple):
    """A profile as a policy sees it: `properties` are those of its spec, as the user gave them."""

    id: str
    name: str
    type: str
    properties: Mapping[str, Any]
    created_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The cluster as a policy sees it. After an action, `nodes` has the nodes that it made."""

    id: str
    name: str
    project: str
    user: str
    profile: ProfileView
    min_size: int
    max_size: int
    desired_capacity: int
    nodes: tuple[NodeView, ...] = ()
    config: Mapping[str, Any] = field(default_factory=dict)
    data: Mapping[str, Any] = field(default_factory=dict)
    profiles: Mapping[str, ProfileView] = field(default_factory=dict)
    """The profiles of the nodes, by id: nodes may still be on an older one."""


@dataclass(slots=True)
class Effects:
    """What a policy changes besides `action.data`; the engine writes it down in the same transaction."""

    node_data: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Items to merge into the `data` of nodes, by node id; None removes an item."""
    node_warnings: dict[str, str] = field(default_factory=dict)
    """Nodes to put into status WARNING, and why."""
    cluster_data: dict[str, Any] = field(default_factory=dict)
    """Items to merge into the cluster's `data`; None removes an item."""
    health: Literal["register", "unregister", "pause", "resume"] | None = None
    """How watching over the cluster's health changes: see `roost.clusters.health`."""


@dataclass(slots=True)
class ActionView:
    """The action that a policy runs before or after."""

    action: str
    cluster: ClusterView
    cloud: Cloud
    now: datetime
    id: str = ""
    inputs: Mapping[str, Any] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)
    node: NodeView | None = None
    node_profile: ProfileView | None = None
    """The profile of `node`; None is the cluster's."""
    is_admin: bool = False
    """Whether the cluster's owner is an administrator of the cloud."""
    succeeded: bool = True
    """After an action: whether it did."""
    max_nodes: int = 1000
    """How large a cluster may be at all."""
    binding: Mapping[str, Any] = field(default_factory=dict)
    """What the policy kept when it was attached."""
    last_op: datetime | None = None
    """When the policy last let something happen; a policy that sets this will find it next time."""
    effects: Effects = field(default_factory=Effects)

    def refuse(self, reason: str) -> None:
        """Stop the action, for this reason."""
        self.data["status"] = CHECK_ERROR
        self.data["reason"] = reason

    @property
    def refusal(self) -> str | None:
        """Why the action was stopped, whichever of the two names the policy gave the reason; None if it was not."""
        if self.data.get("status") != CHECK_ERROR:
            return None
        return str(self.data.get("reason") or self.data.get("status_reason") or "no reason was given")


Verdict: TypeAlias = tuple[bool, Any]
"""True and the data to keep in the binding, or False and the reason."""


class Policy(SpecType):
    """The base of all policy types; a policy is an object of one of them."""

    KEEPS = "data"
    PROFILE_TYPE: ClassVar[Sequence[str]] = (ANY,)
    """The profile types that it can govern, with or without a version."""
    TARGET: ClassVar[Sequence[tuple[str, str]]] = ()
    """When it runs: (BEFORE, CLUSTER_SCALE_IN), ..."""
    PRIORITY: ClassVar[int] = 900
    """Lower runs earlier."""
    ORDER: ClassVar[int] = 0
    """Among types of the same priority, lower runs earlier."""
    deadline: float = 60.0
    """The seconds that each of its hooks may take."""
    SINGLETON: ClassVar[bool] = True
    """Whether a cluster can have only one policy of this type."""
    READS: ClassVar[Sequence[DataKey[Any]]] = ()
    WRITES: ClassVar[Sequence[DataKey[Any]]] = ()
    rules: Sequence[Rule] = ()
    """The rules of the server group that it makes, if it does: the caller needs the permission to use them."""

    def __init__(
        self, name: str, spec_: Mapping[str, Any], *, data: Mapping[str, Any] | None = None, **about: Any
    ) -> None:
        """Resolve the spec against the schema; raise `InvalidSpec` if it does not follow it."""
        self.data = data or {}
        super().__init__(name, spec_, **about)

    # What a policy type overrides

    def objections(self, cluster: ClusterView) -> "list[Objection]":
        """What speaks against this policy on that cluster."""
        return []

    def clashes(self, other: "Policy", cluster: ClusterView) -> "list[Objection]":
        """How this policy and another on the same cluster contradict each other; either of the two is asked."""
        return []

    def attach(self, cluster_id: str, action: ActionView) -> Verdict | Awaitable[Verdict]:
        """Get ready to govern a cluster; the binding keeps what is returned beside True."""
        return True, self.bound({})

    def detach(self, cluster_id: str, action: ActionView) -> Verdict | Awaitable[Verdict]:
        """Undo what `attach` did."""
        return True, ""

    def pre_op(self, cluster_id: str, action: ActionView) -> Awaitable[None] | None:
        """Look at an action before it is carried out."""

    def post_op(self, cluster_id: str, action: ActionView) -> Awaitable[None] | None:
        """Look at an action after it was carried out."""

    # What a binding looks like

    def bound(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """The data of a binding, under the name of the class and with the version that made it."""
        return {type(self).__name__: {"version": float(self.version), "data": dict(data)}}

    def kept(self, binding: Mapping[str, Any]) -> Mapping[str, Any]:
        """What this type keeps in a binding."""
        return (binding.get(type(self).__name__) or {}).get("data") or {}


@dataclass(frozen=True, slots=True)
class Objection:
    """Something that contradicts a policy when it is attached: it cannot be, or it is worth a warning."""

    message: str
    fatal: bool


def nonconformity(kind: object) -> str | None:
    """Why a class cannot be a policy type, in one sentence; None if it can."""
    if not (isinstance(kind, type) and issubclass(kind, Policy)):
        return f"{kind!r} is not a subclass of roost.clusters.policies.base.Policy."
    checks = (type_problem, _target_problem, _keys_problem, _methods_problem)
    found = next((problem for check in checks if (problem := check(kind))), None)
    return f"{kind.__module__}:{kind.__qualname__} {found}" if found else None


def _target_problem(kind: type[Policy]) -> str | None:
    if not isinstance(kind.PRIORITY, int) or not isinstance(kind.ORDER, int):
        return "has a PRIORITY or an ORDER that is not an integer."
    if isinstance(kind.PROFILE_TYPE, str) or not kind.PROFILE_TYPE:
        return "has no list of profile types in PROFILE_TYPE: write ['ANY'] for all."
    for target in kind.TARGET:
        if len(target) != 2 or target[0] not in (BEFORE, AFTER):
            return f"has {target!r} in TARGET, which is to be (BEFORE, action) or (AFTER, action)."
        if target[1] not in set(ActionName):
            return f"has {target[1]!r} in TARGET, and there is no such action."
    for when, method in ((BEFORE, "pre_op"), (AFTER, "post_op")):
        wanted = any(target[0] == when for target in kind.TARGET)
        if wanted and getattr(kind, method) is getattr(Policy, method):
            return f"has {when} in TARGET, and does not define {method}."
    return None


def _keys_problem(kind: type[Policy]) -> str | None:
    for attribute in ("READS", "WRITES"):
        for key in getattr(kind, attribute):
            if not isinstance(key, DataKey):
                return f"has {key!r} in {attribute}, which is to be a DataKey."
    return None


def _methods_problem(kind: type[Policy]) -> str | None:
    for method in ("attach", "detach", "pre_op", "post_op"):
        try:
            inspect.signature(getattr(kind, method)).bind(object(), "cluster_id", object())
        except TypeError:
            return f"has a method {method} that does not take (self, cluster_id, action)."
    return None
