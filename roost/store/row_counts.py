"""What the database holds, counted every so often by the engines, for Prometheus."""

import time
from collections.abc import Iterable

import sqlalchemy as sa
from prometheus_client import REGISTRY, Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from roost.store.database import Database

# What each metric says, the name of its label if it has one, and how its values are counted.
COUNTED = {
    "roost_hosts": (
        "Hosts, by state.",
        "state",
        """SELECT CASE WHEN forced_down THEN 'down' WHEN enabled THEN 'enabled' ELSE 'disabled' END, count(*)
           FROM hosts GROUP BY 1""",
    ),
    "roost_capacity": (
        "What the hosts have that may be given servers, by resource.",
        "resource",
        """SELECT resource, sum(value) FROM hosts,
           LATERAL (VALUES ('vcpus', vcpus), ('memory_mb', memory_mb), ('disk_gb', disk_gb)) AS its (resource, value)
           WHERE enabled AND NOT forced_down GROUP BY 1""",
    ),
    "roost_capacity_used": (
        "What servers have claimed of that, by resource.",
        "resource",
        """SELECT resource, sum(value) FROM hosts, LATERAL (VALUES
               ('vcpus', vcpus_used), ('memory_mb', memory_mb_used), ('disk_gb', disk_gb_used)) AS its (resource, value)
           WHERE enabled AND NOT forced_down GROUP BY 1""",
    ),
    "roost_servers": ("Servers, by state.", "state", "SELECT vm_state, count(*) FROM servers GROUP BY 1"),
    "roost_groups_missing": (
        "Server groups that Nova has no more, and whose rules are kept.",
        None,
        "SELECT NULL, count(*) FROM server_groups WHERE missing_since IS NOT NULL",
    ),
    "roost_clusters": ("Clusters, by status.", "status", "SELECT status, count(*) FROM clusters GROUP BY 1"),
    "roost_nodes": ("Nodes, by status.", "status", "SELECT status, count(*) FROM nodes GROUP BY 1"),
    "roost_engines": (
        "Engines, by whether they give signs of life.",
        "state",
        """SELECT state, count(id) FROM (VALUES ('up'), ('down')) AS states (state) LEFT JOIN services
           ON state = CASE WHEN updated_at > now() - make_interval(secs => :dead_after) THEN 'up' ELSE 'down' END
           GROUP BY 1""",
    ),
    "roost_actions_unfinished": (
        "Actions that have not ended, by status; their steps are not counted.",
        "status",
        """SELECT status, count(*) FROM actions WHERE parent_id IS NULL AND
           status IN ('INIT', 'READY', 'RUNNING', 'WAITING', 'WAITING_LIFECYCLE_COMPLETION', 'SUSPENDED') GROUP BY 1""",
    ),
    "roost_actions_oldest_seconds": (
        "How long ago the oldest action was asked for that engines should be at.",
        None,
        """SELECT NULL, coalesce(extract(epoch FROM now() - min(created_at)), 0) FROM actions
           WHERE parent_id IS NULL AND status IN ('INIT', 'READY', 'RUNNING', 'WAITING')""",
    ),
    "roost_notifications_waiting": ("Notifications not yet sent.", None, "SELECT NULL, count(*) FROM outbox"),
    "roost_notifications_oldest_seconds": (
        "How long ago the oldest of them was written.",
        None,
        "SELECT NULL, coalesce(extract(epoch FROM now() - min(created_at)), 0) FROM outbox",
    ),
}
COUNTED_AT = ("roost_counted_timestamp_seconds", "When all this was counted.")
_COUNT = sa.text(
    " UNION ALL ".join(
        f"SELECT '{name}', label::text, value::float8 FROM ({query}) AS counted (label, value)"
        for name, (_, _, query) in COUNTED.items()
    )
)


class _Holdings(Collector):
    """The last count as a whole: a status that nothing has any more is not reported any more."""

    def __init__(self) -> None:
        self.latest: list[Metric] = []

    def collect(self) -> Iterable[Metric]:
        return self.latest


_HOLDINGS = _Holdings()
REGISTRY.register(_HOLDINGS)


async def count(database: Database, dead_after: float) -> None:
    """Count once."""
    async with database.begin() as connection:
        rows = (await connection.execute(_COUNT, {"dead_after": dead_after})).all()
    families = {
        name: GaugeMetricFamily(name, words, labels=[label] if label else None)
        for name, (words, label, _) in COUNTED.items()
    }
    for name, label, value in rows:
        families[name].add_metric([label] if label is not None else [], value)
    at = GaugeMetricFamily(*COUNTED_AT, time.time())
    _HOLDINGS.latest = [*families.values(), at]
