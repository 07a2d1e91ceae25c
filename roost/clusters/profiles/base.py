"""What a profile type is: the base class `Profile`, which makes and keeps the things that nodes stand for.

Every method takes all nodes of a batch at once and answers with one outcome a node, in the same order. That something
could not be done to a node is an outcome; an exception is only for a cloud that did not answer at all.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar

from roost.clouds.base import Cloud
from roost.clusters import spec
from roost.clusters.policies.base import NodeView, versions_problem
from roost.clusters.spec import InvalidSpec, Operation, Property

RECREATE, REBUILD, REBOOT = "RECREATE", "REBUILD", "REBOOT"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one node: done, or why not."""

    node_id: str
    ok: bool
    physical_id: str | None = None
    """What the node stands for now."""
    reason: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)
    """Items to merge into the node's data; None removes an item."""


class Profile:
    """The base of all profile types; a profile is an object of one of them."""

    TYPE: ClassVar[str]
    """What the type is called in a spec, such as os.nova.server."""
    VERSIONS: ClassVar[Mapping[str, Sequence[Mapping[str, str]]]]
    spec_schema: ClassVar[Mapping[str, Property]] = {}
    OPERATIONS: ClassVar[Mapping[str, Operation]] = {}
    """What can be done to a node when somebody asks for it."""

    def __init__(
        self,
        name: str,
        spec_: Mapping[str, Any],
        *,
        id: str = "",
        user: str = "",
        project: str = "",
        domain: str = "",
        metadata: Mapping[str, Any] | None = None,
        created_at: datetime | None = None,
        updated_at: datetime | None = None,
    ) -> None:
        """Resolve the spec against the schema; raise `InvalidSpec` if it does not follow it."""
        envelope = spec.unwrap(spec_)
        self.id = id
        self.name = name
        self.spec = spec_
        self.version = envelope.version
        self.user = user
        self.project = project
        self.domain = domain
        self.metadata = metadata or {}
        self.created_at = created_at
        self.updated_at = updated_at
        self.properties: Mapping[str, Any] = spec.resolve(self.schema(self.version), envelope.properties, self.version)
        self.check_spec()

    @classmethod
    def schema(cls, version: str) -> Mapping[str, Property]:
        """The schema of one version."""
        return cls.spec_schema

    @property
    def type(self) -> str:
        """The type and version, such as os.nova.server-1.0."""
        return f"{self.TYPE}-{self.version}"

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> "Profile":
        """The profile of a row."""
        return cls(
            row["name"],
            row["spec"],
            id=row["id"],
            metadata=row["metadata"],
            user=row["user_id"],
            project=row["project_id"],
            domain=row["domain_id"],
            created_at=row["created_at"],
            updated_at=row["updated_at"],
        )

    def to_dict(self) -> dict[str, Any]:
        """The profile as the API shows it; times are left for the API to write."""
        return {
            "id": self.id,
            "name": self.name,
            "type": self.type,
            "spec": self.spec,
            "metadata": self.metadata,
            "user": self.user,
            "project": self.project,
            "domain": self.domain,
            "created_at": self.created_at,
            "updated_at": self.updated_at,
        }

    # What a profile type overrides

    def check_spec(self) -> None:
        """Raise `InvalidSpec` for what the schema allows and the type does not."""

    async def validate(self, cloud: Cloud) -> str | None:
        """Why the cloud cannot make what the spec asks for, if it cannot."""
        return None

    async def create(self, cloud: Cloud, nodes: Sequence[NodeView], cluster_id: str | None) -> list[Outcome]:
        """Make what these nodes stand for. A node that was made already is found again, never made twice."""
        raise NotImplementedError

    async def delete(self, cloud: Cloud, nodes: Sequence[NodeView], *, force: bool = False) -> list[Outcome]:
        """Unmake what these nodes stand for; what is not there counts as unmade."""
        raise NotImplementedError

    async def check(self, cloud: Cloud, nodes: Sequence[NodeView]) -> list[Outcome]:
        """Whether what these nodes stand for is there and well."""
        raise NotImplementedError

    async def details(self, cloud: Cloud, nodes: Sequence[NodeView]) -> dict[str, Mapping[str, Any]]:
        """All that the cloud shows of what these nodes stand for, by node id."""
        return {}

    def update_problem(self, new: "Profile") -> str | None:
        """Why nodes of this profile cannot be changed to another one in place, if they cannot."""
        if new.type != self.type:
            return "Cannot update a node to a different profile type, operation aborted."
        for key, item in self.schema(self.version).items():
            if not item.updatable and self.properties.get(key) != new.properties.get(key):
                return f"The property '{key}' of profile type {self.type} cannot be changed on a node that exists."
        return None

    async def update(self, cloud: Cloud, nodes: Sequence[NodeView], new: "Profile") -> list[Outcome]:
        """Change what these nodes stand for, from this profile to another of the same type."""
        raise NotImplementedError

    async def recover(
        self,
        cloud: Cloud,
        nodes: Sequence[NodeView],
        operation: str,
        params: Mapping[str, Any],
        cluster_id: str | None,
    ) -> list[Outcome]:
        """Bring these nodes back by RECREATE, REBUILD or REBOOT."""
        raise NotImplementedError

    async def operate(
        self, cloud: Cloud, nodes: Sequence[NodeView], operation: str, params: Mapping[str, Any]
    ) -> list[Outcome]:
        """Do one of the type's operations to these nodes."""
        raise NotImplementedError

    async def join(self, cloud: Cloud, nodes: Sequence[NodeView], cluster_id: str) -> list[Outcome]:
        """Note on what these nodes stand for that they are now members of a cluster."""
        return [Outcome(node.id, True, node.physical_id) for node in nodes]

    async def leave(self, cloud: Cloud, nodes: Sequence[NodeView]) -> list[Outcome]:
        """Note on what these nodes stand for that they are members of no cluster any more."""
        return [Outcome(node.id, True, node.physical_id) for node in nodes]

    @classmethod
    async def adopt(cls, cloud: Cloud, physical_id: str) -> dict[str, Any] | str:
        """The properties of a profile that something which exists could have been made from, or why there are none."""
        return f"Profile type {cls.TYPE} cannot adopt what exists."


def nonconformity(kind: object) -> str | None:
    """Why a class cannot be a profile type, in one sentence; None if it can."""
    if not (isinstance(kind, type) and issubclass(kind, Profile)):
        return f"{kind!r} is not a subclass of roost.clusters.profiles.base.Profile."
    problem = _problem(kind)
    return f"{kind.__module__}:{kind.__qualname__} {problem}" if problem else None


def _problem(kind: type[Profile]) -> str | None:
    if not isinstance(getattr(kind, "TYPE", None), str) or not kind.TYPE:
        return "has no TYPE: give it a name such as 'acme.profile.box'."
    if problem := versions_problem(kind):
        return problem
    for method in ("create", "delete", "check", "update", "recover", "operate"):
        if getattr(kind, method) is getattr(Profile, method):
            return f"does not define {method}."
    for version in kind.VERSIONS:
        for key, item in kind.schema(version).items():
            if not isinstance(item, Property):
                return f"has {item!r} as '{key}' in its spec schema, which is none of String, Boolean, ..."
            if item.default is not None:
                try:
                    item.resolve(item.default, version)
                except InvalidSpec as error:
                    return f"has an invalid default for '{key}' in its spec schema: {error.message}"
    return None
