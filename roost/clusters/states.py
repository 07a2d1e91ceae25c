"""The words of the clustering API: the names of actions, and the states of actions, clusters and nodes."""

from enum import StrEnum, auto


class _Word(StrEnum):
    @staticmethod
    def _generate_next_value_(name: str, start: int, count: int, last_values: list[str]) -> str:
        return name


class ActionName(_Word):
    """What can be done to a cluster or to a node."""

    CLUSTER_CREATE = auto()
    CLUSTER_DELETE = auto()
    CLUSTER_UPDATE = auto()
    CLUSTER_ADD_NODES = auto()
    CLUSTER_DEL_NODES = auto()
    CLUSTER_RESIZE = auto()
    CLUSTER_CHECK = auto()
    CLUSTER_RECOVER = auto()
    CLUSTER_REPLACE_NODES = auto()
    CLUSTER_SCALE_OUT = auto()
    CLUSTER_SCALE_IN = auto()
    CLUSTER_ATTACH_POLICY = auto()
    CLUSTER_DETACH_POLICY = auto()
    CLUSTER_UPDATE_POLICY = auto()
    CLUSTER_OPERATION = auto()
    NODE_CREATE = auto()
    NODE_DELETE = auto()
    NODE_UPDATE = auto()
    NODE_JOIN = auto()
    NODE_LEAVE = auto()
    NODE_CHECK = auto()
    NODE_RECOVER = auto()
    NODE_OPERATION = auto()

    @property
    def on_cluster(self) -> bool:
        """Whether its target is a cluster; otherwise it is a node."""
        return self.startswith("CLUSTER_")


class ActionStatus(_Word):
    """How far an action has come."""

    INIT = auto()
    WAITING = auto()
    READY = auto()
    RUNNING = auto()
    SUCCEEDED = auto()
    FAILED = auto()
    CANCELLED = auto()
    WAITING_LIFECYCLE_COMPLETION = auto()
    SUSPENDED = auto()


class ClusterStatus(_Word):
    """The state of a cluster."""

    INIT = auto()
    ACTIVE = auto()
    CREATING = auto()
    UPDATING = auto()
    RESIZING = auto()
    DELETING = auto()
    CHECKING = auto()
    RECOVERING = auto()
    CRITICAL = auto()
    ERROR = auto()
    WARNING = auto()
    OPERATING = auto()


class NodeStatus(_Word):
    """The state of a node."""

    INIT = auto()
    ACTIVE = auto()
    ERROR = auto()
    WARNING = auto()
    CREATING = auto()
    UPDATING = auto()
    DELETING = auto()
    RECOVERING = auto()
    OPERATING = auto()


CHANGING = (NodeStatus.CREATING, NodeStatus.UPDATING, NodeStatus.DELETING, NodeStatus.RECOVERING)
"""A cluster or node in one of these states is deleted by force only."""


class Signal(_Word):
    """What a request asks of an action that is running."""

    CANCEL = auto()
    SUSPEND = auto()


class Recovery(_Word):
    """How a node is brought back."""

    REBOOT = auto()
    REBUILD = auto()
    RECREATE = auto()
