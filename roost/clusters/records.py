"""The rows of the clustering tables as typed values, and the queries that the API shows them with."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

import sqlalchemy as sa

from roost.clusters.lookup import Resource
from roost.clusters.sizes import Sizes
from roost.clusters.spec_type import SpecRow, spec_columns
from roost.store.tables import clusters as tables

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

R = TypeVar("R", bound="DataclassInstance")


@dataclass(frozen=True, slots=True)
class ClusterRecord:
    """The row of a cluster."""

    id: str
    name: str
    profile_id: str
    min_size: int
    max_size: int
    desired_capacity: int
    next_index: int
    timeout: int
    status: str
    status_reason: str
    metadata: Mapping[str, Any]
    data: Mapping[str, Any]
    dependents: Mapping[str, Any]
    config: Mapping[str, Any]
    init_at: datetime
    created_at: datetime | None
    updated_at: datetime | None
    user_id: str
    project_id: str
    domain_id: str

    @property
    def sizes(self) -> Sizes:
        """Its bounds and the size it should have."""
        return Sizes.of(self)


@dataclass(frozen=True, slots=True)
class ClusterDetails(ClusterRecord):
    """A cluster with the name of its profile, and the ids of its nodes and policy bindings."""

    profile_name: str
    nodes: list[str]
    policies: list[str]


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """The row of a node."""

    id: str
    name: str
    profile_id: str
    cluster_id: str | None
    physical_id: str | None
    index: int
    role: str
    status: str
    status_reason: str
    metadata: Mapping[str, Any]
    data: Mapping[str, Any]
    dependents: Mapping[str, Any]
    tainted: bool
    init_at: datetime
    created_at: datetime | None
    updated_at: datetime | None
    user_id: str
    project_id: str
    domain_id: str


@dataclass(frozen=True, slots=True)
class NodeDetails(NodeRecord):
    """A node with the name of its profile."""

    profile_name: str


@dataclass(frozen=True, slots=True)
class BindingDetails:
    """A policy on a cluster, with the names of both."""

    id: str
    cluster_id: str
    cluster_name: str
    policy_id: str
    policy_name: str
    policy_type: str
    enabled: bool
    priority: int
    data: Mapping[str, Any]
    last_op: datetime | None


@dataclass(frozen=True, slots=True)
class ActionRecord:
    """The row of an action, without what only engines use."""

    id: str
    name: str
    target: str
    action: str
    cluster_id: str | None
    cause: str
    owner: str | None
    interval: int
    start_time: datetime | None
    end_time: datetime | None
    timeout: int
    status: str
    status_reason: str
    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any]
    data: Mapping[str, Any]
    user_id: str
    project_id: str
    domain_id: str
    created_at: datetime
    updated_at: datetime | None


@dataclass(frozen=True, slots=True)
class ActionDetails(ActionRecord):
    """An action with the unfinished actions that it waits for and that wait for it."""

    depends_on: list[str]
    depended_by: list[str]


@dataclass(frozen=True, slots=True)
class EventRecord:
    """The row of an event."""

    id: str
    timestamp: datetime
    oid: str
    oname: str
    otype: str
    cluster_id: str | None
    level: int
    user_id: str
    project_id: str
    action: str
    status: str
    status_reason: str
    meta_data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ReceiverRecord:
    """The row of a receiver."""

    id: str
    name: str
    type: str
    cluster_id: str | None
    action: str | None
    actor: Mapping[str, Any]
    params: Mapping[str, Any]
    channel: Mapping[str, Any]
    secret: str
    user_id: str
    project_id: str
    domain_id: str
    created_at: datetime
    updated_at: datetime | None


def _resource(
    name: str, table: sa.Table, record: type[R], source: sa.FromClause | None = None, **more: sa.ColumnElement[Any]
) -> Resource[R]:
    """Every field of the record is a column of the table, or one of `more`."""
    columns = [more[each.name].label(each.name) if each.name in more else table.c[each.name] for each in fields(record)]
    return Resource(name, table, record, tuple(columns), source)


def _ids(query: sa.Select[Any]) -> sa.ColumnElement[Any]:
    """The ids that a query finds, in its order, as one array."""
    return sa.func.array(query.scalar_subquery(), type_=sa.ARRAY(sa.Text))


_child, _parent = tables.actions.alias("child"), tables.actions.alias("parent")

CLUSTERS = _resource("cluster", tables.clusters, ClusterRecord)
CLUSTER_DETAILS = _resource(
    "cluster",
    tables.clusters,
    ClusterDetails,
    tables.clusters.join(tables.profiles),
    profile_name=tables.profiles.c.name,
    nodes=_ids(
        sa.select(tables.nodes.c.id)
        .where(tables.nodes.c.cluster_id == tables.clusters.c.id)
        .order_by(tables.nodes.c.index)
    ),
    policies=_ids(
        sa.select(tables.cluster_policies.c.id).where(tables.cluster_policies.c.cluster_id == tables.clusters.c.id)
    ),
)
NODES = _resource("node", tables.nodes, NodeRecord)
NODE_DETAILS = _resource(
    "node", tables.nodes, NodeDetails, tables.nodes.join(tables.profiles), profile_name=tables.profiles.c.name
)
BINDING_DETAILS = _resource(
    "policy binding",
    tables.cluster_policies,
    BindingDetails,
    tables.cluster_policies.join(tables.policies).join(
        tables.clusters, tables.clusters.c.id == tables.cluster_policies.c.cluster_id
    ),
    cluster_name=tables.clusters.c.name,
    policy_name=tables.policies.c.name,
    policy_type=tables.policies.c.type,
)
ACTIONS = _resource("action", tables.actions, ActionRecord)
ACTION_DETAILS = _resource(
    "action",
    tables.actions,
    ActionDetails,
    depends_on=_ids(
        sa.select(_child.c.id).where(_child.c.parent_id == tables.actions.c.id, _child.c.status.in_(tables.UNFINISHED))
    ),
    depended_by=_ids(sa.select(_parent.c.id).where(_parent.c.id == tables.actions.c.parent_id, tables.unfinished)),
)
PROFILES = Resource(
    "profile", tables.profiles, SpecRow, tuple(tables.profiles.c[name] for name in spec_columns("metadata"))
)
POLICIES = Resource("policy", tables.policies, SpecRow, tuple(tables.policies.c[name] for name in spec_columns("data")))
EVENTS = _resource("event", tables.events, EventRecord)
RECEIVERS = _resource("receiver", tables.receivers, ReceiverRecord)
