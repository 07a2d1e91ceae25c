"""Requests about nodes: checked against the nodes' state, and turned into actions."""

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from roost.clouds.base import Cloud
from roost.clusters import lookup, sizes, state
from roost.clusters.actions.requests import ActionRequest, Owner, accept
from roost.clusters.clusters import RequestContext, check_operation, end_all, recovery
from roost.clusters.errors import ActionInProgress, BadRequest, ResourceInUse
from roost.clusters.ids import new_id
from roost.clusters.names import FORMAT, node_name
from roost.clusters.policies.base import NodeView
from roost.clusters.records import CLUSTERS, NODES, PROFILES, ClusterRecord, NodeRecord
from roost.clusters.spec_type import SpecRow
from roost.clusters.states import CHANGING, ActionName, NodeStatus
from roost.errors import Invalid
from roost.store.tables.clusters import clusters, nodes


async def find(request: RequestContext, identity: str, *, lock: bool = True) -> NodeRecord:
    """The node that an address names."""
    return await lookup.find(request.connection, NODES, identity, request.caller, lock=lock)


async def _accept(
    request: RequestContext, action: ActionName, node: NodeRecord, inputs: Mapping[str, Any], **more: Any
) -> str:
    timeout = request.settings.timeout
    if node.cluster_id is not None:
        query = sa.select(clusters.c.timeout).where(clusters.c.id == node.cluster_id)
        timeout = await request.connection.scalar(query) or timeout
    wanted = ActionRequest(action, node.id, node.cluster_id, timeout, inputs, **more)
    return await accept(request.connection, Owner.of(request.caller), wanted)


async def create(request: RequestContext, given: Mapping[str, Any]) -> tuple[NodeRecord, str]:
    """Write a node down and have it made."""
    profile = await request.refer(PROFILES, given["profile_id"])
    name, cluster_id, index = given["name"], None, -1
    if given.get("cluster_id"):
        cluster = await lookup.refer(request.connection, CLUSTERS, given["cluster_id"], request.caller, lock=True)
        name, index = await _enter(request, cluster, profile)
        cluster_id = cluster.id
    row = await _insert(
        request, {**given, "name": name, "cluster_id": cluster_id, "index": index, "profile_id": profile.id}
    )
    return row, await _accept(request, ActionName.NODE_CREATE, row, {})


async def _enter(request: RequestContext, cluster: ClusterRecord, profile: SpecRow) -> tuple[str, int]:
    """The name and the index of a node that is made in a cluster."""
    if profile.type != await state.profile_type(request.connection, cluster.profile_id):
        raise BadRequest("Node and cluster have different profile type, operation aborted.")
    present = await state.count_members(request.connection, cluster.id)
    refusal = sizes.misfit(cluster.sizes, present + 1, strict=True, max_nodes=request.settings.max_nodes)
    if refusal is not None:
        raise BadRequest(refusal)
    change = clusters.update().where(clusters.c.id == cluster.id).values(next_index=cluster.next_index + 1)
    await request.connection.execute(change)
    return node_name(cluster.config.get(FORMAT), cluster.next_index), cluster.next_index


async def _insert(request: RequestContext, given: Mapping[str, Any]) -> NodeRecord:
    values = {
        "id": new_id(),
        "name": given["name"],
        "profile_id": given["profile_id"],
        "cluster_id": given.get("cluster_id"),
        "index": given.get("index", -1),
        "role": given.get("role") or "",
        "metadata": given.get("metadata") or {},
        "physical_id": given.get("physical_id"),
        "status": given.get("status", NodeStatus.INIT),
        "status_reason": given.get("status_reason", "Initializing"),
        "created_at": sa.func.now() if given.get("physical_id") else None,
        **Owner.of(request.caller).columns,
    }
    return await NODES.insert(request.connection, values)


async def update(request: RequestContext, identity: str, given: Mapping[str, Any]) -> tuple[NodeRecord, str]:
    """Have a node's properties changed, or its profile."""
    node = await find(request, identity)
    inputs = {
        key: given[key]
        for key in ("name", "role", "metadata", "tainted")
        if given.get(key) is not None and given[key] != getattr(node, key)
    }
    if given.get("profile_id") is not None:
        new = await request.refer(PROFILES, given["profile_id"])
        if new.type != await state.profile_type(request.connection, node.profile_id):
            raise BadRequest("Cannot update a node to a different profile type, operation aborted.")
        if new.id != node.profile_id:
            inputs["new_profile_id"] = new.id
    if not inputs:
        raise BadRequest("No property needs an update.")
    return node, await _accept(request, ActionName.NODE_UPDATE, node, inputs)


async def delete(request: RequestContext, identity: str, *, force: bool) -> str:
    """Have a node deleted; by force, whatever is being done to it."""
    node = await find(request, identity)
    if node.dependents.get("nodes") or node.dependents.get("profiles"):
        raise ResourceInUse("node", identity, "still depended by other clusters and/or nodes")
    if not force and node.status in CHANGING:
        raise ActionInProgress("node", identity, node.status)
    if force and node.cluster_id is None:
        await end_all(request.connection, node.id)
    return await _accept(request, ActionName.NODE_DELETE, node, {"force": True} if force else {})


async def check(request: RequestContext, identity: str, given: Mapping[str, Any]) -> str:
    """Have a node checked."""
    return await _accept(request, ActionName.NODE_CHECK, await find(request, identity), dict(given))


async def recover(request: RequestContext, identity: str, given: Mapping[str, Any]) -> str:
    """Have a node recovered."""
    node = await find(request, identity)
    inputs = recovery(given, ("delete_timeout", "force_recreate"))
    if inputs.pop("force_recreate", None):
        inputs["operation_params"] = {**(inputs.get("operation_params") or {}), "force_recreate": True}
    return await _accept(request, ActionName.NODE_RECOVER, node, inputs)


async def operate(request: RequestContext, identity: str, operation: str, params: Mapping[str, Any]) -> str:
    """Have one of the profile's operations done."""
    node = await find(request, identity)
    profile = (await state.profiles_by_id(request.connection, [node.profile_id]))[node.profile_id]
    check_operation(request.plugins, profile.type, operation, params)
    inputs = {"operation": operation, "params": dict(params)}
    return await _accept(request, ActionName.NODE_OPERATION, node, inputs, name=f"node_{operation}_{node.id[:8]}")


async def details(request: RequestContext, cloud: Cloud, rows: Sequence[NodeRecord]) -> dict[str, Mapping[str, Any]]:
    """All that the cloud shows of what these nodes stand for, by node id."""
    found = await state.profiles_by_id(request.connection, [row.profile_id for row in rows])
    shown: dict[str, Mapping[str, Any]] = {}
    for key, profile in found.items():
        views = [_view(row) for row in rows if row.profile_id == key]
        shown |= await request.plugins.restore_profile(profile).details(cloud, views)
    return shown


def _view(row: NodeRecord) -> NodeView:
    """A node as profiles and policies see it."""
    return NodeView._make(getattr(row, name) for name in NodeView._fields)


async def members(request: RequestContext, cluster_id: str) -> list[NodeRecord]:
    """The nodes of a cluster, in the order of their indexes."""
    return await NODES.read(request.connection, nodes.c.cluster_id == cluster_id, order=nodes.c.index)


# Adoption


async def preview(request: RequestContext, cloud: Cloud, given: Mapping[str, Any]) -> dict[str, Any]:
    """The profile that something which exists could have been made from."""
    kind = request.plugins.profile(given["type"])
    properties = await kind.adopt(cloud, given["identity"])
    if isinstance(properties, str):
        raise BadRequest(properties)
    name, _, version = str(given["type"]).rpartition("-")
    return {"type": name, "version": version, "properties": {**properties, **(given.get("overrides") or {})}}


async def adopt(request: RequestContext, cloud: Cloud, given: Mapping[str, Any]) -> NodeRecord:
    """Make a node of something which exists, and a profile of it."""
    spec = await preview(request, cloud, given)
    taken = sa.select(nodes.c.id).where(nodes.c.physical_id == given["identity"]).limit(1)
    if await request.connection.scalar(taken) is not None:
        raise BadRequest(f"The resource '{given['identity']}' is a node already.")
    name = given.get("name") or node_name("node-$8R", 0)
    try:
        request.plugins.profile(given["type"])(name, spec)
    except Invalid as error:
        raise BadRequest(f"No profile can be made of it: {error.message}") from None
    owner = Owner.of(request.caller).columns
    values = {"id": new_id(), "name": f"prof-{name}", "type": given["type"], "spec": spec, **owner}
    profile = await PROFILES.insert(request.connection, values)
    return await _insert(
        request,
        {
            **given,
            "name": name,
            "profile_id": profile.id,
            "physical_id": given["identity"],
            "status": NodeStatus.ACTIVE,
            "status_reason": "Node adopted successfully",
        },
    )
