"""Profile types that are known and not supported: their specs are checked and kept, their nodes cannot be made.

Users of other clustering services have profiles of these types and can bring them along. The type's support status,
and the reason of the failed action, say plainly that no node can be made from them here.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from roost.clouds.base import Cloud
from roost.clusters.policies.base import UNSUPPORTED, NodeView
from roost.clusters.profiles.base import NodeOutcome, Profile
from roost.clusters.spec import Boolean, Integer, InvalidSpec, Map, String

_SINCE = {"1.0": [{"status": UNSUPPORTED, "since": "2026.11"}]}


class RefusingProfile(Profile):
    """A profile that does nothing to nodes, and says why."""

    @property
    def refusal(self) -> str:
        """Why, in one sentence."""
        raise NotImplementedError

    def _refused(self, nodes: Sequence[NodeView]) -> list[NodeOutcome]:
        return [NodeOutcome(node.id, False, None, self.refusal) for node in nodes]

    async def create(self, cloud: Cloud, nodes: Sequence[NodeView], cluster_id: str | None) -> list[NodeOutcome]:
        """Refused."""
        return self._refused(nodes)

    async def check(self, cloud: Cloud, nodes: Sequence[NodeView]) -> list[NodeOutcome]:
        """Refused."""
        return self._refused(nodes)

    async def update(self, cloud: Cloud, nodes: Sequence[NodeView], new: Profile) -> list[NodeOutcome]:
        """Refused."""
        return self._refused(nodes)

    async def recover(
        self, cloud: Cloud, nodes: Sequence[NodeView], operation: str, params: Mapping[str, Any], cluster_id: str | None
    ) -> list[NodeOutcome]:
        """Refused."""
        return self._refused(nodes)

    async def operate(
        self, cloud: Cloud, nodes: Sequence[NodeView], operation: str, params: Mapping[str, Any]
    ) -> list[NodeOutcome]:
        """Refused."""
        return self._refused(nodes)


class UnsupportedProfile(RefusingProfile):
    """A profile whose nodes cannot be made."""

    @property
    def refusal(self) -> str:
        """That there is no support for its type."""
        return f"Profile type {self.type} is not supported here."

    async def delete(self, cloud: Cloud, nodes: Sequence[NodeView], *, force: bool = False) -> list[NodeOutcome]:
        """There is nothing to delete."""
        return [NodeOutcome(node.id, True) for node in nodes]


class StackProfile(UnsupportedProfile):
    """Nodes that are stacks of the orchestration service."""

    TYPE = "os.heat.stack"
    VERSIONS = _SINCE
    spec_schema = {
        "context": Map("A dictionary for specifying the customized context for stack operations", default={}),
        "template": Map("Heat stack template.", default={}, updatable=True),
        "template_url": String("Heat stack template url.", default="", updatable=True),
        "parameters": Map("Parameters to be passed to Heat for stack operations.", default={}, updatable=True),
        "files": Map("Contents of files referenced by the template, if any.", default={}, updatable=True),
        "timeout": Integer(
            "A integer that specifies the number of minutes that a stack operation times out.", updatable=True
        ),
        "disable_rollback": Boolean(
            "A boolean specifying whether a stack operation can be rolled back.", default=True, updatable=True
        ),
        "environment": Map(
            "A map that specifies the environment used for stack operations.", default={}, updatable=True
        ),
    }

    def check_spec(self) -> None:
        """There is a template."""
        if not self.spec_data["template"] and not self.spec_data["template_url"]:
            raise InvalidSpec(f"Both template and template_url are not specified for profile '{self.name}'.")


class DockerProfile(UnsupportedProfile):
    """Nodes that are containers on other nodes."""

    TYPE = "container.dockerinc.docker"
    VERSIONS = _SINCE
    spec_schema = {
        "context": Map("Customized security context for operating containers."),
        "image": String("The image used to create a container", required=True),
        "name": String("The name of the container.", updatable=True),
        "command": String("The command to run when container is started."),
        "port": Integer("The port number used to connect to docker daemon.", default=2375),
        "host_node": String("The node on which container will be launched."),
        "host_cluster": String("The cluster on which container will be launched."),
    }

    def check_spec(self) -> None:
        """There is one place to run it."""
        if (self.spec_data["host_node"] is None) == (self.spec_data["host_cluster"] is None):
            raise InvalidSpec("Exactly one of host_node and host_cluster must be specified.")
