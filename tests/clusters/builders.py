"""Short words for what policies look at: `action(CLUSTER_SCALE_IN, cluster(node("a", zone="nova-1")))`."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from roost import config
from roost.clusters import plugins
from roost.clusters.bindings import Consultation, chain, consult
from roost.clusters.policies.base import ActionView, ClusterView, NodeView, Policy, ProfileView, Verdict
from roost.clusters.state import Binding
from roost.policies.memory import MemoryCloud

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
SETTINGS = config.load()
PROFILE = ProfileView("profile-1", "web", "os.nova.server-1.0", {"flavor": "m1.tiny"}, NOW)


@cache
def types() -> plugins.Plugins:
    """All types of the house."""
    return plugins.load(SETTINGS)


def policy(type_: str, properties: Mapping[str, Any], name: str = "", id: str = "") -> Policy:
    """A policy such as `policy("affinity-1.0", {})`."""
    kind, _, version = type_.rpartition("-")
    spec = {"type": f"senlin.policy.{kind}", "version": version, "properties": properties}
    return types().policy(f"senlin.policy.{kind}-{version}")(name or kind, spec, id=id or f"id-of-{kind}")


def node(
    id: str,
    *,
    zone: str | None = None,
    region: str | None = None,
    status: str = "ACTIVE",
    age: float = 0,
    index: int = 0,
    tainted: bool = False,
    profile: str = "profile-1",
    physical: str | None = "",
    born: bool = True,
    **data: Any,
) -> NodeView:
    """A node, so many seconds old."""
    placement = {key: value for key, value in (("zone", zone), ("region_name", region)) if value}
    return NodeView(
        id=id,
        name=f"node-{id}",
        index=index,
        role="",
        status=status,
        created_at=NOW - timedelta(seconds=age) if born else None,
        profile_id=profile,
        physical_id=f"server-{id}" if physical == "" else physical,
        tainted=tainted,
        data={**({"placement": placement} if placement else {}), **data},
    )


def nodes(**counts: int) -> list[NodeView]:
    """So many nodes in each zone: `nodes(nova_1=4, nova_2=3)`; the older ones first."""
    found = []
    for zone, count in counts.items():
        name = zone.replace("_", "-")
        found += [node(f"{name}.{at}", zone=name, age=count - at, index=at) for at in range(count)]
    return found


def cluster(*members: NodeView, **more: Any) -> ClusterView:
    """A cluster of these nodes."""
    given = {"min_size": 0, "max_size": -1, "desired_capacity": len(members), "profile": PROFILE, **more}
    return ClusterView(id="cluster-1", name="web", project="demo", user="alice", nodes=tuple(members), **given)


def pinned(**properties: Any) -> ProfileView:
    """A profile with more properties."""
    return PROFILE._replace(properties={**PROFILE.properties, **properties})


def action(
    name: str, on: ClusterView, cloud: MemoryCloud | None = None, inputs: Mapping[str, Any] | None = None, **more: Any
) -> ActionView:
    """An action as a policy sees it."""
    return ActionView(
        action=name, cluster=on, cloud=cloud or MemoryCloud(), now=NOW, id="action-1", inputs=inputs or {}, **more
    )


async def before(asked: Policy, view: ActionView) -> dict[str, Any]:
    """Ask one policy before an action; what is in the action's data then."""
    outcome = asked.pre_op(view.cluster.id, view)
    if outcome is not None:
        await outcome
    return view.data


async def after(asked: Policy, view: ActionView) -> dict[str, Any]:
    """Ask one policy after an action; what is in the action's data then."""
    outcome = asked.post_op(view.cluster.id, view)
    if outcome is not None:
        await outcome
    return view.data


async def attach(asked: Policy, view: ActionView) -> Verdict:
    """Attach a policy to the cluster of the action."""
    outcome = asked.attach(view.cluster.id, view)
    return outcome if isinstance(outcome, tuple) else await outcome


async def detach(asked: Policy, view: ActionView) -> Verdict:
    """Detach a policy from the cluster of the action."""
    outcome = asked.detach(view.cluster.id, view)
    return outcome if isinstance(outcome, tuple) else await outcome


async def ask_all(when: str, view: ActionView, *asked: tuple[Policy, Mapping[str, Any]]) -> Consultation:
    """Ask several policies, each with what it keeps in its binding, in the order in which the engine does."""
    own = {each.id: each for each, _ in asked}
    kept = [Binding(each.id, each.row, True, each.PRIORITY, data, view.last_op, NOW) for each, data in asked]
    return await consult(chain(kept, lambda row: own[row.id]), when, view)
