"""Health checks of clusters: when nodes are checked, how failures are detected, and how they lead to recoveries.

Which clusters are watched is a table; the engine that moves a row's time on does the check, so that engines share the
work. Unhealthy nodes are marked, and one CLUSTER_RECOVER recovers them, governed by all policies of the cluster.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.clouds.base import Cloud, CloudError, Clouds
from roost.clusters import state, urls
from roost.clusters.actions import requests
from roost.clusters.actions.requests import ActionRequest, Owner
from roost.clusters.plugins import Plugins
from roost.clusters.policies.base import NodeView, Policy
from roost.clusters.policies.health import (
    ALL_FAILED,
    HYPERVISOR_STATUS_POLLING,
    LIFECYCLE_EVENTS,
    NODE_STATUS_POLL_URL,
    NODE_STATUS_POLLING,
    HealthPolicy,
)
from roost.clusters.profiles.base import Profile
from roost.clusters.records import ClusterRecord
from roost.clusters.states import ActionName, NodeStatus
from roost.errors import Conflict, RoostError
from roost.store.database import Database
from roost.store.tables.clusters import actions, clusters, health_registry, nodes, unfinished

logger = logging.getLogger(__name__)

LIFECYCLE_SECONDS = 5
"""How often a cloud is asked for the state of its servers, where a policy wants to react at once. The embedded cloud
also reports changes by itself: see `hurry`."""
_AT_ONCE = 32

Ill = dict[str, str]
"""Nodes, by id, and why they are considered unhealthy."""


async def change(connection: AsyncConnection, cluster_id: str, policy: Policy | None, what: str) -> None:
    """Start or stop watching a cluster (register, unregister), or suspend that (pause, resume)."""
    if what in ("pause", "resume"):
        update = health_registry.update().where(health_registry.c.cluster_id == cluster_id)
        await connection.execute(update.values(enabled=what == "resume"))
    elif what == "unregister":
        await connection.execute(health_registry.delete().where(health_registry.c.cluster_id == cluster_id))
    elif isinstance(policy, HealthPolicy):
        values = registration(policy)
        row = insert(health_registry).values(cluster_id=cluster_id, policy_id=policy.id, **values)
        await connection.execute(row.on_conflict_do_update(index_elements=["cluster_id", "policy_id"], set_=values))


def registration(policy: HealthPolicy) -> dict[str, Any]:
    """How a cluster with this policy is watched, as the table has it."""
    interval = LIFECYCLE_SECONDS if policy.modes == [LIFECYCLE_EVENTS] else policy.detection["interval"]
    return {"check_type": ",".join(policy.modes), "interval": interval, "params": dict(policy.spec)}


async def hurry(connection: AsyncConnection, node_ids: Sequence[str]) -> int:
    """Check now the clusters of these nodes (all clusters, if none are given) that follow events; returns how many."""
    change = health_registry.update().where(health_registry.c.check_type == LIFECYCLE_EVENTS)
    if node_ids:
        own = sa.select(nodes.c.cluster_id).where(nodes.c.id.in_(node_ids))
        change = change.where(health_registry.c.cluster_id.in_(own))
    return (await connection.execute(change.values(due_at=sa.func.now()))).rowcount


async def look(database: Database, clouds: Clouds, plugins: Plugins, *, private_urls: bool = False) -> int:
    """Look at the clusters whose time has come; how many there were. A cluster at which something is at work waits."""
    async with database.begin() as connection:
        due = [row.cluster_id for row in (await connection.execute(_TAKE)).all()]
    for cluster_id in due:
        try:
            await _look_at(database, clouds, plugins, cluster_id, private_urls)
        except (CloudError, RoostError):
            logger.warning("could not check a cluster", extra={"cluster": cluster_id}, exc_info=True)
    return len(due)


_busy = sa.select(actions.c.id).where(actions.c.lock == health_registry.c.cluster_id, unfinished).exists()
_due = (
    sa.select(health_registry.c.cluster_id)
    .where(health_registry.c.due_at <= sa.func.now(), ~_busy)
    .order_by(health_registry.c.due_at)
    .limit(20)
    .with_for_update(skip_locked=True)
)
_TAKE = (
    health_registry.update()
    .where(health_registry.c.cluster_id.in_(_due.scalar_subquery()))
    .values(due_at=sa.func.now() + health_registry.c.interval * sa.text("interval '1 second'"), enabled=True)
    .returning(health_registry.c.cluster_id)
)


@dataclass(frozen=True, slots=True)
class Watched:
    """A cluster that is looked at."""

    cluster: ClusterRecord
    policy: HealthPolicy
    profile: Profile
    nodes: tuple[NodeView, ...]


async def _look_at(database: Database, clouds: Clouds, plugins: Plugins, cluster_id: str, private_urls: bool) -> None:
    async with database.begin() as connection:
        watched = await _load(connection, plugins, cluster_id)
    if watched is None or not watched.nodes:
        return
    cloud = clouds.of(watched.cluster.project_id, watched.cluster.user_id)
    owner = watched.cluster.project_id
    ill = await diagnose(watched.policy, watched.profile, cloud, watched.nodes, owner=owner, private_urls=private_urls)
    if ill:
        async with database.begin() as connection:
            await _recover(connection, watched, ill)


async def _load(connection: AsyncConnection, plugins: Plugins, cluster_id: str) -> Watched | None:
    cluster = (await state.clusters_by_id(connection, [cluster_id])).get(cluster_id)
    bound = [binding for binding in await state.bindings(connection, cluster_id) if binding.enabled]
    found = [plugins.restore_policy(binding.policy) for binding in bound]
    policy = next((each for each in found if isinstance(each, HealthPolicy)), None)
    if cluster is None or policy is None:
        return None
    profiles = await state.profiles_by_id(connection, [cluster.profile_id])
    profile = plugins.restore_profile(profiles[cluster.profile_id])
    settled = timedelta(seconds=policy.detection["node_update_timeout"])
    members = await _settled(connection, cluster_id, settled)
    return Watched(cluster, policy, profile, members)


async def _settled(connection: AsyncConnection, cluster_id: str, since: timedelta) -> tuple[NodeView, ...]:
    """The nodes that have not been changed for this long."""
    changed = sa.func.greatest(nodes.c.init_at, nodes.c.created_at, nodes.c.updated_at)
    query = sa.select(*state.MEMBER_COLUMNS).where(
        nodes.c.cluster_id == cluster_id,
        nodes.c.status.in_((NodeStatus.ACTIVE, NodeStatus.WARNING, NodeStatus.ERROR)),
        changed <= sa.func.now() - since,
    )
    return tuple(NodeView._make(row) for row in (await connection.execute(query.order_by(nodes.c.index))).all())


async def _recover(connection: AsyncConnection, watched: Watched, ill: Ill) -> None:
    """Mark the nodes and have the cluster recovered; if another action is under way by now, next time."""
    cluster = watched.cluster
    await connection.execute(sa.select(clusters.c.id).where(clusters.c.id == cluster.id).with_for_update())
    reason = sa.case(ill, value=nodes.c.id, else_=nodes.c.status_reason)
    mark = nodes.update().where(nodes.c.id.in_(ill)).values(status=NodeStatus.ERROR, status_reason=reason)
    owner = Owner(cluster.user_id, cluster.project_id, cluster.domain_id)
    request = ActionRequest(ActionName.CLUSTER_RECOVER, cluster.id, cluster.id, cluster.timeout)
    try:
        async with connection.begin_nested():
            await connection.execute(mark)
            await requests.accept(connection, owner, request)
    except Conflict:
        return
    logger.info("nodes are unhealthy and will be recovered", extra={"cluster": cluster.id, "nodes": len(ill)})


# What makes a node unhealthy


async def diagnose(
    policy: HealthPolicy,
    profile: Profile,
    cloud: Cloud,
    members: Sequence[NodeView],
    *,
    owner: str = "",
    private_urls: bool = False,
) -> Ill:
    """The nodes that any mode of the policy finds unhealthy, or that all modes do, as the policy has it."""
    findings = [
        await _by_url(members, mode["options"], owner, private_urls)
        if mode["type"] == NODE_STATUS_POLL_URL
        else await _MODES[mode["type"]](profile, cloud, members)
        for mode in policy.detection["detection_modes"]
    ]
    every = policy.detection["recovery_conditional"] == ALL_FAILED
    found: Ill = {}
    for node in members:
        reasons = [finding[node.id] for finding in findings if node.id in finding]
        if len(reasons) == len(findings) if every else reasons:
            found[node.id] = "; ".join(reasons)
    return found


async def _by_status(profile: Profile, cloud: Cloud, members: Sequence[NodeView]) -> Ill:
    outcomes = await profile.check(cloud, members)
    return {outcome.node_id: outcome.reason for outcome in outcomes if not outcome.ok}


async def _by_hypervisor(profile: Profile, cloud: Cloud, members: Sequence[NodeView]) -> Ill:
    servers = await cloud.show_servers([node.physical_id for node in members if node.physical_id])
    known = {name for each in await cloud.hypervisors() for name in (each.hostname, each.service_host)}
    return {
        node.id: "Its hypervisor is not there."
        for node in members
        if node.physical_id in servers and servers[node.physical_id].host not in known
    }


async def _by_url(members: Sequence[NodeView], options: Mapping[str, Any], owner: str, private: bool) -> Ill:
    turn = asyncio.Semaphore(_AT_ONCE)

    async def poll(node: NodeView) -> str | None:
        async with turn:
            return await poll_url(node.name, options, owner=owner, private=private)

    reasons = await asyncio.gather(*(poll(node) for node in members))
    return {node.id: reason for node, reason in zip(members, reasons, strict=True) if reason}


_MODES: Mapping[str, Callable[[Profile, Cloud, Sequence[NodeView]], Awaitable[Ill]]] = {
    NODE_STATUS_POLLING: _by_status,
    LIFECYCLE_EVENTS: _by_status,
    HYPERVISOR_STATUS_POLLING: _by_hypervisor,
}


async def poll_url(node_name: str, options: Mapping[str, Any], *, owner: str = "", private: bool = False) -> str | None:
    """Why the node's URL reports it as unhealthy, if it still does after all retries. A URL that may not be called
    reports nothing."""
    url = options["poll_url"].replace("{nodename}", node_name)
    reason = None
    for attempt in range(options["poll_url_retry_limit"] + 1):
        if attempt:
            await asyncio.sleep(options["poll_url_retry_interval"])
        try:
            body = await urls.fetch(url, owner=owner, private=private, verify=options["poll_url_ssl_verify"])
        except urls.ForbiddenAddress as error:
            logger.warning("a node's URL may not be polled", extra={"url": url, "error": str(error)})
            return None
        except (OSError, ValueError) as error:
            if not options["poll_url_conn_error_as_unhealthy"]:
                return None
            reason = f"{url} does not answer: {error}"
        else:
            if options["poll_url_healthy_response"] in body:
                return None
            reason = f"{url} does not answer '{options['poll_url_healthy_response']}'."
    return reason
