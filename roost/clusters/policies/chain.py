"""Which policies a cluster can have together, and where they would contradict each other.

Their types set the order in which they run: by priority, then by the order of types within a priority. For the built-in
types that is scaling, region, batch, zone, affinity, deletion, load balance, health.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from roost.clusters.policies.base import ANY, ClusterView, Policy


@dataclass(frozen=True, slots=True)
class Fit:
    """Whether a policy can be attached to a cluster: any refusal prevents it, warnings do not."""

    refusals: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def fit(policy: Policy, cluster: ClusterView, attached: Sequence[Policy]) -> Fit:
    """What speaks against attaching a policy to a cluster that these are attached to already."""
    if not _governs(policy, cluster.profile.type):
        return Fit((f"Policy not applicable on profile type: {cluster.profile.type}",))
    others = [other for other in attached if other.id != policy.id]
    for other in others:
        if policy.SINGLETON and other.TYPE == policy.TYPE:
            return Fit((_only_one(policy, other, cluster),))
    found = policy.objections(cluster)
    for other in others:
        found += policy.clashes(other, cluster) + other.clashes(policy, cluster)
    return Fit(
        tuple(objection.message for objection in found if objection.fatal),
        tuple(objection.message for objection in found if not objection.fatal),
    )


def _governs(policy: Policy, profile_type: str) -> bool:
    return any(kind in (ANY, profile_type, profile_type.rpartition("-")[0]) for kind in policy.PROFILE_TYPE)


def _only_one(policy: Policy, other: Policy, cluster: ClusterView) -> str:
    return (
        f"Only one instance of policy type ({policy.type}) can be attached to a cluster, but another instance "
        f"({other.name}) is found attached to the cluster ({cluster.id}) already."
    )
