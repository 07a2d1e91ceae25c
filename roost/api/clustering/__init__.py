"""The clustering API, as Senlin speaks it."""

from roost.api.clustering import (
    actions,
    build_info,
    cluster_policies,
    clusters,
    events,
    nodes,
    policies,
    policy_types,
    profile_types,
    profiles,
    receivers,
    services,
    versions,
    webhooks,
)
from roost.api.errors import clustering_body
from roost.api.frame import Api
from roost.api.routes import Table
from roost.api.versions import CLUSTERING, Version
from roost.errors import RoostError

_NOUNS = (
    versions,
    build_info,
    profile_types,
    profiles,
    policy_types,
    policies,
    clusters,
    cluster_policies,
    nodes,
    actions,
    receivers,
    webhooks,
    events,
    services,
)


class ClusteringApi(Api):
    """Has its own message for a method that a version does not have."""

    def not_in_version(self, version: Version) -> RoostError:
        """A bad request, not a missing resource."""
        return clusters.unsupported(version)


CLUSTERING_API = ClusteringApi(
    name="clustering",
    prefix="/clustering",
    table=Table().include(*(noun.routes for noun in _NOUNS)),
    error_body=clustering_body,
    rules=tuple(rule for noun in _NOUNS for rule in getattr(noun, "RULES", ())),
    negotiation=CLUSTERING,
    forbidden="You are not authorized to complete this operation.",
    also_json=("", "text/plain"),
)
