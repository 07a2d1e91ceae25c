"""Whether nodes and servers match: compares Roost's nodes with what Nova has."""

from collections.abc import Iterable

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.clouds.base import NodeServer
from roost.clusters.states import NodeStatus
from roost.store.tables.clusters import nodes, profiles

_NODES = (
    sa.select(nodes.c.id, nodes.c.name, nodes.c.physical_id, nodes.c.status, nodes.c.project_id)
    .join(profiles, profiles.c.id == nodes.c.profile_id)
    .where(profiles.c.type.like("os.nova.server-%"))
    .order_by(nodes.c.id)
)


async def compare(connection: AsyncConnection, servers: Iterable[NodeServer]) -> list[str]:
    """What does not match, a sentence each: nodes without their server first, then servers without a node."""
    there = {server.id: server for server in servers}
    found, known = [], set()
    for node in await connection.execute(_NODES):
        server = there.get(node.physical_id)
        known.add(node.physical_id)
        if server is None and (node.physical_id or node.status == NodeStatus.ACTIVE):
            found.append(f"server missing: {node.physical_id or 'none'}, of node {node.id} {node.name}")
        elif server is not None and server.project_id != node.project_id:
            owner = f"belongs to project {server.project_id}, and node {node.id} {node.name} to {node.project_id}"
            found.append(f"server of another project: {server.id} {server.name} {owner}")
    for server in there.values():
        if server.node_id is not None and server.id not in known:
            found.append(f"server unknown: {server.id} {server.name}, made for node {server.node_id}")
    return found
