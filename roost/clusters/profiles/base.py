"""What a profile type is: the base class `Profile`, which makes and keeps the things that nodes stand for.

Every method takes all nodes of a batch at once and answers with one outcome a node, in the same order. A failure for
one node is an outcome; an exception means that the cloud did not answer at all.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from roost.clouds.base import Cloud
from roost.clusters.policies.base import NodeView
from roost.clusters.spec import Operation
from roost.clusters.spec_type import SpecType, type_problem


@dataclass(frozen=True, slots=True)
class NodeOutcome:
    """What became of one node: done, or why not."""

    node_id: str
    ok: bool
    physical_id: str | None = None
    """What the node stands for now."""
    reason: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)
    """Items to merge into the node's data; None removes an item."""


class Profile(SpecType):
    """The base of all profile types; a profile is an object of one of them."""

    KEEPS = "metadata"
    OPERATIONS: ClassVar[Mapping[str, Operation]] = {}
    """What can be done to a node on request."""

    def __init__(
        self, name: str, spec_: Mapping[str, Any], *, metadata: Mapping[str, Any] | None = None, **about: Any
    ) -> None:
        """Resolve the spec against the schema; raise `InvalidSpec` if it does not follow it."""
        self.metadata = metadata or {}
        super().__init__(name, spec_, **about)

    # What a profile type overrides

    async def create(self, cloud: Cloud, nodes: Sequence[NodeView], cluster_id: str | None) -> list[NodeOutcome]:
        """Make what these nodes stand for. A node that was made already is found again, never made twice."""
        raise NotImplementedError

    async def delete(self, cloud: Cloud, nodes: Sequence[NodeView], *, force: bool = False) -> list[NodeOutcome]:
        """Delete what these nodes stand for; what does not exist counts as deleted."""
        raise NotImplementedError

    async def check(self, cloud: Cloud, nodes: Sequence[NodeView]) -> list[NodeOutcome]:
        """Whether what these nodes stand for exists and is healthy."""
        raise NotImplementedError

    async def details(self, cloud: Cloud, nodes: Sequence[NodeView]) -> dict[str, Mapping[str, Any]]:
        """All that the cloud shows of what these nodes stand for, by node id."""
        return {}

    def update_problem(self, new: "Profile") -> str | None:
        """Why nodes of this profile cannot be changed to another one in place, if they cannot."""
        if new.type != self.type:
            return "Cannot update a node to a different profile type, operation aborted."
        for key, item in self.schema(self.version).items():
            if not item.updatable and self.spec_data.get(key) != new.spec_data.get(key):
                return f"The property '{key}' of profile type {self.type} cannot be changed on a node that exists."
        return None

    async def update(self, cloud: Cloud, nodes: Sequence[NodeView], new: "Profile") -> list[NodeOutcome]:
        """Change what these nodes stand for, from this profile to another of the same type."""
        raise NotImplementedError

    async def recover(
        self, cloud: Cloud, nodes: Sequence[NodeView], operation: str, params: Mapping[str, Any], cluster_id: str | None
    ) -> list[NodeOutcome]:
        """Bring these nodes back by RECREATE, REBUILD or REBOOT."""
        raise NotImplementedError

    async def operate(
        self, cloud: Cloud, nodes: Sequence[NodeView], operation: str, params: Mapping[str, Any]
    ) -> list[NodeOutcome]:
        """Do one of the type's operations to these nodes."""
        raise NotImplementedError

    async def join(self, cloud: Cloud, nodes: Sequence[NodeView], cluster_id: str) -> list[NodeOutcome]:
        """Note on what these nodes stand for that they are now members of a cluster."""
        return [NodeOutcome(node.id, True, node.physical_id) for node in nodes]

    async def leave(self, cloud: Cloud, nodes: Sequence[NodeView]) -> list[NodeOutcome]:
        """Note on what these nodes stand for that they no longer belong to a cluster."""
        return [NodeOutcome(node.id, True, node.physical_id) for node in nodes]

    @classmethod
    async def adopt(cls, cloud: Cloud, physical_id: str) -> dict[str, Any] | str:
        """The properties of a profile that would make this existing resource, or why there is no such profile."""
        return f"Profile type {cls.TYPE} cannot adopt what exists."


def nonconformity(kind: object) -> str | None:
    """Why a class cannot be a profile type, in one sentence; None if it can."""
    if not (isinstance(kind, type) and issubclass(kind, Profile)):
        return f"{kind!r} is not a subclass of roost.clusters.profiles.base.Profile."
    problem = _problem(kind)
    return f"{kind.__module__}:{kind.__qualname__} {problem}" if problem else None


def _problem(kind: type[Profile]) -> str | None:
    if problem := type_problem(kind):
        return problem
    for method in ("create", "delete", "check", "update", "recover", "operate"):
        if getattr(kind, method) is getattr(Profile, method):
            return f"does not define {method}."
    return None
