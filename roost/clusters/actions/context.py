"""What an action looks at before it decides: its cluster or node, the policies on the cluster, and its members."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.clouds.base import Cloud
from roost.clusters import bindings, sizes, state
from roost.clusters.actions.work import ActionRefused, Work
from roost.clusters.bindings import Bound
from roost.clusters.policies.base import ActionView, NodeView
from roost.clusters.records import ClusterRecord
from roost.clusters.spec_type import SpecRow
from roost.store.database import now
from roost.store.tables.clusters import nodes


@dataclass(slots=True)
class PlanningContext:
    """What a planner looks at."""

    work: Work
    found: ClusterRecord | None
    """The cluster that the action is about, or that its node is in."""
    node: NodeView | None
    """The node that the action is about."""
    owner: tuple[str, str]
    """The project and the user in whose name cloud calls are made: those of the cluster, else of the node."""
    bound: list[Bound] = field(default_factory=list)
    profiles: Mapping[str, SpecRow] = field(default_factory=dict)
    members: tuple[NodeView, ...] | None = None
    """None where no policy is attached, since most planners only need their number."""
    count: int = 0
    connection: AsyncConnection | None = None
    """To read with; None for a new one each time."""

    @property
    def cluster(self) -> ClusterRecord:
        """The cluster, which must still be there."""
        if self.found is None:
            raise ActionRefused(f"The cluster '{self.work.target}' could not be found.")
        return self.found

    @property
    def cloud(self) -> Cloud:
        """The cloud in which the nodes are."""
        return self.work.cloud_of(*self.owner)

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[AsyncConnection]:
        """A transaction to read in."""
        if self.connection is not None:
            yield self.connection
            return
        async with self.work.engine.database.begin() as connection:
            yield connection

    async def all_members(self) -> tuple[NodeView, ...]:
        """The nodes of the cluster."""
        if self.members is None:
            async with self.reading() as connection:
                self.members = await state.members(connection, self.cluster.id)
        return self.members

    def check_size(self, desired: int) -> None:
        """Refuse a size outside the cluster's bounds."""
        refusal = sizes.misfit(self.cluster.sizes, desired, strict=True, max_nodes=self.work.engine.settings.max_nodes)
        if refusal is not None:
            raise ActionRefused(refusal)

    async def view(self, *, succeeded: bool = True) -> ActionView:
        """The action as policies see it."""
        work, members = self.work, self.members or ()
        async with self.reading() as connection:
            missing = {node.profile_id for node in members} - set(self.profiles)
            if missing:
                self.profiles = {**self.profiles, **await state.profiles_by_id(connection, missing)}
            moment = await now(connection)
        cluster = state.cluster_view(self.cluster, members, self.profiles)
        return ActionView(
            action=work.action,
            cluster=cluster,
            cloud=self.cloud,
            now=moment,
            id=work.id,
            inputs=work.inputs,
            data=work.data,
            node=self.node,
            node_profile=cluster.profiles.get(self.node.profile_id) if self.node else None,
            is_admin=work.owner.is_admin,
            succeeded=succeeded,
            max_nodes=work.engine.settings.max_nodes,
        )


async def read(connection: AsyncConnection, works: Sequence[Work]) -> list[PlanningContext]:
    """The contexts of several actions, in a few queries for all of them."""
    ids = {work.cluster_id for work in works if work.cluster_id}
    found = await state.clusters_by_id(connection, ids) if ids else {}
    attached = await state.bindings_of(connection, found) if found else {}
    governed = [cluster_id for cluster_id, some in attached.items() if some]
    plain = [cluster_id for cluster_id in found if cluster_id not in governed]
    members = await state.members_of(connection, governed) if governed else {}
    counts = await state.member_counts(connection, plain) if plain else {}
    targets = [work.target for work in works if not work.action.on_cluster]
    nodes_ = await state.nodes_by_id(connection, targets) if targets else {}
    wanted = {cluster.profile_id for cluster in found.values()} | {node.profile_id for node in nodes_.values()}
    profiles = await state.profiles_by_id(connection, wanted) if wanted else {}
    alone = [work.target for work in works if work.cluster_id not in found and work.target in nodes_]
    owners = await _node_owners(connection, alone) if alone else {}
    contexts = []
    for work in works:
        cluster = found.get(work.cluster_id or "")
        owner = owners.get(work.target, (work.owner.project_id, work.owner.user_id))
        context = PlanningContext(
            work, cluster, nodes_.get(work.target), owner if cluster is None else (cluster.project_id, cluster.user_id)
        )
        context.profiles = profiles
        if cluster is not None:
            restore = work.engine.plugins.restore_policy
            context.bound = bindings.chain(attached[cluster.id], restore)
            context.members = members.get(cluster.id)
            context.count = counts.get(cluster.id, 0) if context.members is None else len(context.members)
        contexts.append(context)
    return contexts


async def _node_owners(connection: AsyncConnection, node_ids: Sequence[str]) -> dict[str, tuple[str, str]]:
    query = sa.select(nodes.c.id, nodes.c.project_id, nodes.c.user_id).where(state.among(nodes.c.id, node_ids))
    return {row.id: (row.project_id, row.user_id) for row in await connection.execute(query)}
