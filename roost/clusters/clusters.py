"""Requests about clusters: checked against the clusters' state, and turned into actions."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.clusters import lookup, names, records, sizes, state
from roost.clusters.actions import cluster_plans, control
from roost.clusters.actions.requests import ActionRequest, Owner, accept
from roost.clusters.errors import (
    ActionCooldown,
    ActionInProgress,
    BadRequest,
    FeatureNotSupported,
    MultipleChoices,
    ResourceInUse,
    ResourceIsLocked,
    ResourceNotFound,
)
from roost.clusters.ids import new_id
from roost.clusters.lookup import Resource
from roost.clusters.plugins import Plugins
from roost.clusters.policies import chain
from roost.clusters.policies.base import ClusterView, Policy
from roost.clusters.records import CLUSTERS, NODES, PROFILES, ClusterRecord
from roost.clusters.spec import InvalidSpec
from roost.clusters.states import CHANGING, ActionName, ActionStatus, ClusterStatus, NodeStatus, Recovery
from roost.config import ClusterSettings
from roost.errors import Conflict, OverQuota
from roost.identity.tokens import Caller
from roost.placement.rules import Rule
from roost.store.locks import hold
from roost.store.tables.clusters import actions, cluster_policies, clusters, nodes, unfinished

R = TypeVar("R")

POLICIES = "cluster.policies"
"""The item of a new cluster's configuration that names the policies which govern it from its first node on."""


@dataclass(frozen=True, slots=True)
class RequestContext:
    """Who asks, and within which limits."""

    connection: AsyncConnection
    caller: Caller
    settings: ClusterSettings
    plugins: Plugins
    permit_rules: Callable[[Sequence[Rule]], None]
    """Raises `Forbidden` unless the caller may have a server group with these rules."""
    warnings: list[str] = field(default_factory=list)
    """Warnings for the caller: what is done as requested, but may not be what was meant."""

    async def find(self, identity: str, *, lock: bool = True) -> ClusterRecord:
        """The cluster that an address names."""
        return await lookup.find(self.connection, CLUSTERS, identity, self.caller, lock=lock)

    async def refer(self, resource: Resource[R], identity: str) -> R:
        """What a body refers to."""
        return await lookup.refer(self.connection, resource, identity, self.caller)

    async def view(self, cluster: ClusterRecord) -> ClusterView:
        """A cluster as policies see it, without its nodes."""
        profiles = await state.profiles_by_id(self.connection, [cluster.profile_id])
        return state.cluster_view(cluster, (), profiles)

    async def accept(self, action: ActionName, cluster: ClusterRecord, inputs: Mapping[str, Any], **more: Any) -> str:
        """Have something done to a cluster."""
        request = ActionRequest(action, cluster.id, cluster.id, cluster.timeout, inputs, **more)
        return await accept(self.connection, Owner.of(self.caller), request)


# Making, changing and deleting


async def create(request: RequestContext, given: Mapping[str, Any]) -> tuple[ClusterRecord, str]:
    """Write a cluster down and have its nodes made."""
    limit, project_id = request.settings.max_clusters, request.caller.project_id or ""
    # One creation at a time for each project, so that none slips past the count of another.
    await hold(request.connection, f"clusters of {project_id}")
    query = sa.select(sa.func.count()).where(clusters.c.project_id == project_id)
    if int(await request.connection.scalar(query) or 0) >= limit:
        raise OverQuota(f"Quota exceeded for clusters: a project may have {limit}.")
    _check_config(given)
    profile = await request.refer(PROFILES, given["profile_id"])
    min_size, max_size = given.get("min_size", 0), given.get("max_size", -1)
    desired = given.get("desired_capacity", min_size)
    refusal = sizes.misfit(
        None, desired, min_size=min_size, max_size=max_size, strict=True, max_nodes=request.settings.max_nodes
    )
    if refusal is not None:
        raise BadRequest(refusal)
    values = {
        "id": new_id(),
        "name": given["name"],
        "profile_id": profile.id,
        "min_size": min_size,
        "max_size": max_size,
        "desired_capacity": desired,
        "timeout": given.get("timeout") or request.settings.timeout,
        "status": ClusterStatus.INIT,
        "status_reason": "Initializing",
        "metadata": given.get("metadata") or {},
        "config": given.get("config") or {},
        **Owner.of(request.caller).columns,
    }
    cluster = await CLUSTERS.insert(request.connection, values)
    governing = await _governing(request, cluster)
    return cluster, await request.accept(
        ActionName.CLUSTER_CREATE, cluster, {"policies": governing} if governing else {}
    )


def _check_config(given: Mapping[str, Any]) -> None:
    form = (given.get("config") or {}).get(names.FORMAT)
    problem = None if form is None else names.misfit(form)
    if problem is not None:
        raise BadRequest(problem)


async def _governing(request: RequestContext, cluster: ClusterRecord) -> list[str]:
    """The ids of the policies that are to govern a cluster from its first node on, as its configuration names them."""
    named = cluster.config.get(POLICIES) or []
    if isinstance(named, str):
        named = [name.strip() for name in named.split(",") if name.strip()]
    if not isinstance(named, list) or not all(isinstance(name, str) for name in named):
        raise BadRequest(f"The '{POLICIES}' of a cluster's config is a list of policies: '{named}'.")
    view = await request.view(cluster)
    found: list[Policy] = []
    for name in named:
        policy = request.plugins.restore_policy(await request.refer(records.POLICIES, name))
        _check_fit(request, policy, view, found)
        found.append(policy)
    return [policy.id for policy in found]


def _check_fit(request: RequestContext, policy: Policy, view: ClusterView, others: Sequence[Policy]) -> None:
    request.permit_rules(policy.rules)
    fit = chain.fit(policy, view, others)
    if fit.refusals:
        raise BadRequest(" ".join(fit.refusals))
    request.warnings.extend(fit.warnings)


async def update(request: RequestContext, identity: str, given: Mapping[str, Any]) -> tuple[ClusterRecord, str]:
    """Have a cluster's properties changed, or its profile."""
    cluster = await request.find(identity)
    _check_config(given)
    if cluster.status == ClusterStatus.ERROR:
        raise FeatureNotSupported("Updating a cluster in error state is not supported.")
    inputs = {
        key: given[key]
        for key in ("name", "metadata", "timeout", "config")
        if given.get(key) is not None and given[key] != getattr(cluster, key)
    }
    if given.get("profile_id") is not None:
        new = await _new_profile(request, cluster, given["profile_id"])
        if new is not None:
            inputs |= {"new_profile_id": new, "profile_only": bool(given.get("profile_only", False))}
    if not inputs:
        raise BadRequest("No property needs an update.")
    return cluster, await request.accept(ActionName.CLUSTER_UPDATE, cluster, inputs)


async def _new_profile(request: RequestContext, cluster: ClusterRecord, identity: str) -> str | None:
    new = await request.refer(PROFILES, identity)
    if new.type != await state.profile_type(request.connection, cluster.profile_id):
        raise BadRequest("Cannot update a cluster to a different profile type, operation aborted.")
    return None if new.id == cluster.profile_id else new.id


async def delete(request: RequestContext, identity: str, *, force: bool) -> str:
    """Have a cluster deleted with its nodes; by force, whatever is being done to it."""
    cluster = await request.find(identity)
    referring = cluster.dependents.get("profiles")
    if referring:
        raise ResourceInUse("cluster", identity, f"still referenced by profile(s): {referring}")
    if not force and cluster.status in CHANGING:
        raise ActionInProgress("cluster", identity, cluster.status)
    if force:
        await end_all(request.connection, cluster.id)
    return await request.accept(ActionName.CLUSTER_DELETE, cluster, {"force": True} if force else {})


async def end_all(connection: AsyncConnection, lock: str) -> None:
    """End every action that holds this lock or waits for it, here and now."""
    whole = actions.c.parent_id.is_(None)
    for action in await records.ACTIONS.read(connection, actions.c.lock == lock, whole, unfinished, lock=True):
        await control.end_now(connection, action, "Ended by a forced deletion.")


# Sizes


async def scale(request: RequestContext, identity: str, action: ActionName, count: int | None) -> str:
    """Have nodes added or removed. Whether the bounds allow it is decided when its turn comes."""
    cluster = await request.find(identity)
    direction = "out" if action == ActionName.CLUSTER_SCALE_OUT else "in"
    if count == 0:
        raise BadRequest(f"Count for scale-{direction} request cannot be 0.")
    await _refuse_while_cooling(request, cluster, action)
    present = await state.count_members(request.connection, cluster.id)
    if count is not None and direction == "out":
        refusal = sizes.misfit(cluster.sizes, present + count, strict=False, max_nodes=request.settings.max_nodes)
        if refusal is not None:
            raise BadRequest(refusal)
    return await request.accept(action, cluster, {} if count is None else {"count": count})


async def _refuse_while_cooling(request: RequestContext, cluster: ClusterRecord, action: str) -> None:
    """A scaling policy in its cooldown refuses at once, not in an action that fails later."""
    for binding in await state.bindings(request.connection, cluster.id):
        policy = request.plugins.restore_policy(binding.policy)
        left: Callable[..., float] | None = getattr(policy, "seconds_to_rest", None)
        if binding.enabled and left is not None and (seconds := left(action, binding.last_op)) > 0:
            raise ActionCooldown(
                f"The {action} action for cluster {cluster.id} cannot be processed due to Policy {policy.id} cooldown "
                f"still in progress: {math.ceil(seconds)} seconds are left."
            )


async def resize(request: RequestContext, identity: str, given: Mapping[str, Any]) -> str:
    """Have the size or the bounds of a cluster changed."""
    cluster = await request.find(identity)
    inputs = dict(given)
    inputs.setdefault("strict", True)
    number, kind = inputs.get("number"), inputs.get("adjustment_type")
    if number is not None and kind == sizes.EXACT_CAPACITY and number < 0:
        raise BadRequest("The 'number' must be non-negative integer for adjustment type 'EXACT_CAPACITY'.")
    if number is not None and kind != sizes.CHANGE_IN_PERCENTAGE:
        inputs["number"] = int(number)
    present = await state.count_members(request.connection, cluster.id)
    wanted = sizes.resize(inputs, cluster.sizes, present, request.settings.max_nodes)
    if isinstance(wanted, str):
        raise BadRequest(wanted)
    return await request.accept(ActionName.CLUSTER_RESIZE, cluster, inputs)


# Members


async def add_nodes(request: RequestContext, identity: str, given: Sequence[str]) -> str:
    """Have nodes that are in no cluster join."""
    cluster = await request.find(identity)
    known, missing = await _resolve_nodes(request, given)
    problem = await cluster_plans.why_not_joinable(request.connection, cluster.profile_id, known, missing)
    if problem:
        raise BadRequest(problem)
    present = await state.count_members(request.connection, cluster.id)
    _check_size(request, cluster, present + len(known))
    await _refuse_if_busy(request, ActionName.CLUSTER_ADD_NODES, known)
    return await request.accept(ActionName.CLUSTER_ADD_NODES, cluster, {"nodes": known})


async def del_nodes(request: RequestContext, identity: str, given: Sequence[str], destroy: bool | None) -> str:
    """Have members leave, or be destroyed."""
    cluster = await request.find(identity)
    known, missing = await _resolve_nodes(request, given)
    rows = await NODES.read(request.connection, state.among(nodes.c.id, known))
    outside = [row.id for row in rows if row.cluster_id != cluster.id]
    sentences = [
        (missing, f"Nodes not found: {missing}."),
        (outside, f"Nodes not members of specified cluster: {outside}."),
    ]
    problems = "\n".join(sentence for some, sentence in sentences if some)
    if problems:
        raise BadRequest(problems)
    for row in rows:
        if row.dependents.get("nodes"):
            raise ResourceInUse(
                "node", row.id, f"still depended by other clusters and/or nodes: {row.dependents['nodes']}"
            )
    present = await state.count_members(request.connection, cluster.id)
    _check_size(request, cluster, present - len(known))
    inputs = {"candidates": known} | ({} if destroy is None else {"destroy_after_deletion": destroy})
    return await request.accept(ActionName.CLUSTER_DEL_NODES, cluster, inputs)


async def replace_nodes(request: RequestContext, identity: str, given: Mapping[str, str]) -> str:
    """Have members replaced by nodes that are in no cluster."""
    cluster = await request.find(identity)
    old, lost_old = await _resolve_nodes(request, list(given))
    new, lost_new = await _resolve_nodes(request, list(given.values()))
    rows = {row.id: row for row in await NODES.read(request.connection, state.among(nodes.c.id, [*old, *new]))}
    used = [cluster.profile_id, *(row.profile_id for row in rows.values())]
    types = {key: profile.type for key, profile in (await state.profiles_by_id(request.connection, used)).items()}
    outside = [node_id for node_id in old if rows[node_id].cluster_id != cluster.id]
    owned = [node_id for node_id in new if rows[node_id].cluster_id is not None]
    idle = [node_id for node_id in new if rows[node_id].status != NodeStatus.ACTIVE]
    other = [node_id for node_id in new if types[rows[node_id].profile_id] != types[cluster.profile_id]]
    sentences = [
        (lost_old, f"Original nodes not found: {lost_old}."),
        (lost_new, f"Replacement nodes not found: {lost_new}."),
        (outside, f"The specified nodes {outside} to be replaced are not members of the cluster {identity}."),
        (owned, f"Nodes {owned} already member of a cluster."),
        (idle, f"Nodes are not ACTIVE: {idle}."),
        (other, f"Profile type of nodes {other} do not match that of the cluster."),
    ]
    problems = "\n".join(sentence for some, sentence in sentences if some)
    if problems:
        raise BadRequest(problems)
    await _refuse_if_busy(request, ActionName.CLUSTER_REPLACE_NODES, new)
    return await request.accept(
        ActionName.CLUSTER_REPLACE_NODES, cluster, {"candidates": dict(zip(old, new, strict=True))}
    )


async def _resolve_nodes(request: RequestContext, given: Sequence[str]) -> tuple[list[str], list[str]]:
    """The ids of the nodes that these names mean, and the names that mean none."""
    known, missing = [], []
    for identity in given:
        try:
            known.append((await lookup.find(request.connection, NODES, identity, request.caller, lock=True)).id)
        except (ResourceNotFound, MultipleChoices):
            missing.append(identity)
    return known, missing


async def _refuse_if_busy(request: RequestContext, action: str, node_ids: Sequence[str]) -> None:
    """Refuse nodes that have an action under way, or waiting."""
    targets = state.among(actions.c.target, node_ids)
    busy = await request.connection.scalar(sa.select(actions.c.target).where(targets, unfinished).limit(1))
    if busy is not None:
        raise ResourceIsLocked(action, "node", busy)


def _check_size(request: RequestContext, cluster: ClusterRecord, desired: int) -> None:
    refusal = sizes.misfit(cluster.sizes, desired, strict=True, max_nodes=request.settings.max_nodes)
    if refusal is not None:
        raise BadRequest(refusal)


# Policies


async def attach_policy(request: RequestContext, identity: str, policy_name: str, enabled: bool) -> str:
    """Have a policy govern a cluster."""
    cluster = await request.find(identity)
    row = await request.refer(records.POLICIES, policy_name)
    bindings = await state.bindings(request.connection, cluster.id)
    if any(binding.policy.id == row.id for binding in bindings):
        raise Conflict(f"The policy '{policy_name}' is already attached to the cluster '{identity}'.")
    policy = request.plugins.restore_policy(row)
    view = await request.view(cluster)
    others = [request.plugins.restore_policy(binding.policy) for binding in bindings]
    _check_fit(request, policy, view, others)
    return await request.accept(ActionName.CLUSTER_ATTACH_POLICY, cluster, {"policy_id": policy.id, "enabled": enabled})


async def change_policy(
    request: RequestContext, identity: str, action: ActionName, policy_name: str, **inputs: Any
) -> str:
    """Have an attached policy enabled or disabled, or let go."""
    cluster = await request.find(identity)
    row = await request.refer(records.POLICIES, policy_name)
    query = sa.select(cluster_policies.c.id).where(
        cluster_policies.c.cluster_id == cluster.id, cluster_policies.c.policy_id == row.id
    )
    if await request.connection.scalar(query) is None:
        raise BadRequest(f"The policy '{policy_name}' is not attached to the specified cluster '{identity}'.")
    return await request.accept(action, cluster, {"policy_id": row.id, **inputs})


# Health and operations


async def check(request: RequestContext, identity: str, given: Mapping[str, Any]) -> str:
    """Have every node checked; on request, older checks are forgotten."""
    cluster = await request.find(identity)
    if given.get("delete_check_action"):
        old = actions.delete().where(
            actions.c.target == cluster.id,
            actions.c.action == ActionName.CLUSTER_CHECK,
            actions.c.status.in_((ActionStatus.SUCCEEDED, ActionStatus.FAILED)),
        )
        await request.connection.execute(old)
    return await request.accept(ActionName.CLUSTER_CHECK, cluster, dict(given))


async def recover(request: RequestContext, identity: str, given: Mapping[str, Any]) -> str:
    """Have unhealthy nodes recovered."""
    cluster = await request.find(identity)
    return await request.accept(ActionName.CLUSTER_RECOVER, cluster, recovery(given, ("check_capacity",)))


def recovery(given: Mapping[str, Any], more: tuple[str, ...] = ()) -> dict[str, Any]:
    """The inputs of a recovery, checked."""
    known = ("operation", "operation_params", "check", *more)
    unknown = [key for key in given if key not in known]
    if unknown:
        raise BadRequest(f"Action parameter {unknown} is not recognizable.")
    inputs = {key: value for key, value in given.items() if value is not None}
    if "operation" in inputs:
        if str(inputs["operation"]).upper() not in list(Recovery):
            raise BadRequest(
                f"Operation value '{inputs['operation']}' has to be one of the following: {', '.join(list(Recovery))}."
            )
        inputs["operation"] = str(inputs["operation"]).upper()
        _check_reboot(inputs)
    return inputs


def _check_reboot(inputs: Mapping[str, Any]) -> None:
    params = inputs.get("operation_params") or {}
    if not isinstance(params, Mapping):
        raise BadRequest("The operation_params of a recovery are a map.")
    kind = params.get("type")
    if inputs["operation"] == "REBOOT" and kind is not None and str(kind).upper() not in ("SOFT", "HARD"):
        raise BadRequest("Type field 'SOFT' or 'HARD' is required for REBOOT operation.")


async def operate(
    request: RequestContext, identity: str, operation: str, params: Mapping[str, Any], filters: Mapping[str, Any]
) -> str:
    """Have one of the profile's operations done to the nodes that the filters leave."""
    cluster = await request.find(identity)
    profile = (await state.profiles_by_id(request.connection, [cluster.profile_id]))[cluster.profile_id]
    check_operation(request.plugins, profile.type, operation, params)
    query = sa.select(nodes.c.id).where(nodes.c.cluster_id == cluster.id)
    for key, value in filters.items():
        if key not in ("name", "profile_id", "status", "role"):
            raise BadRequest(f"Filter key '{key}' is unsupported")
        query = query.where(nodes.c[key] == value)
    chosen = list((await request.connection.execute(query.order_by(nodes.c.index))).scalars())
    if not chosen:
        raise BadRequest("No node (matching the filter) could be found")
    inputs = {"operation": operation, "params": dict(params), "nodes": chosen}
    return await request.accept(
        ActionName.CLUSTER_OPERATION, cluster, inputs, name=f"cluster_{operation}_{cluster.id[:8]}"
    )


def check_operation(plugins: Plugins, kind: str, operation: str, params: Mapping[str, Any]) -> None:
    """Refuse an operation that the profile type does not have, or not with these parameters."""
    known = plugins.profile(kind).OPERATIONS
    if operation not in known:
        raise BadRequest(f"The requested operation '{operation}' is not supported by the profile type '{kind}'.")
    try:
        known[operation].check(params)
    except InvalidSpec as error:
        raise BadRequest(error.message.rstrip(".") + ".") from None


async def complete_lifecycle(request: RequestContext, identity: str, token: str) -> str:
    """Complete the deletion of a node that waits for it."""
    cluster = await request.find(identity, lock=False)
    return await control.complete_lifecycle(request.connection, cluster.id, token)
