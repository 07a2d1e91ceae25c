"""The tables, one module per room. Constraints that must hold under concurrency live here, not in code."""

from roost.store.tables import answers, balancers, clusters, compute, history, identity, network, servers, volume
from roost.store.tables.base import metadata

__all__ = [
    "answers",
    "balancers",
    "clusters",
    "compute",
    "history",
    "identity",
    "metadata",
    "network",
    "servers",
    "volume",
]
