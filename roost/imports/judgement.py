"""What of a Senlin database comes to Roost, what cannot and why, and what Roost does differently from Senlin.

Nothing is read or written here. A row is taken over if Roost has never had it and has, or gets, all that it refers to.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, NamedTuple

from roost.clusters import health, receivers
from roost.clusters.plugins import Plugins
from roost.clusters.policies import chain
from roost.clusters.policies.affinity import AffinityPolicy
from roost.clusters.policies.base import ClusterView, Policy, ProfileView
from roost.clusters.policies.deletion import DeletionPolicy
from roost.clusters.policies.health import HealthPolicy
from roost.clusters.policies.region_placement import RegionPlacementPolicy
from roost.clusters.policies.zone_placement import ZonePlacementPolicy
from roost.clusters.profiles.unsupported import UnsupportedProfile
from roost.clusters.spec_type import SpecRow, SpecType, spec_columns
from roost.clusters.states import ClusterStatus, NodeStatus
from roost.config import ClusterSettings
from roost.errors import Invalid
from roost.imports.senlin_database import SenlinData, SenlinRow

PROFILE, POLICY, CLUSTER, NODE = "profile", "policy", "cluster", "node"
BINDING, WATCH, RECEIVER = "binding", "health registry", "receiver"

_AT_REST = frozenset({"INIT", "ACTIVE", "ERROR", "WARNING", "CRITICAL"})
"""The statuses of clusters and nodes that nothing is being done to."""


class Fate(StrEnum):
    """What becomes of a row."""

    COMES = "comes"
    THERE = "there already"
    LEFT = "left"
    CANNOT = "cannot come"


class Ruling(NamedTuple):
    """What becomes of a row, why, and what is different from now on."""

    fate: Fate
    reason: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Arrival:
    """A row of a Senlin database, and what becomes of it."""

    noun: str
    id: str
    name: str
    ruling: Ruling
    row: SenlinRow
    """As Roost stores it."""

    @property
    def comes(self) -> bool:
        """Whether it is to be written."""
        return self.ruling.fate is Fate.COMES


@dataclass(frozen=True, slots=True)
class Present:
    """What Roost has, by noun."""

    ids: Mapping[str, frozenset[str]]
    imported: Mapping[str, frozenset[str]]
    """What was brought before, and may have been deleted since."""
    servers: Mapping[str, str]
    """The node of each server."""
    bound: frozenset[tuple[str, str]]
    """The clusters and policies that are bound to each other."""


def judge(data: SenlinData, present: Present, plugins: Plugins, settings: ClusterSettings) -> list[Arrival]:
    """What becomes of every row, in the order in which they have to be written."""
    court = _Court(data, present, plugins, settings)
    for noun, rows, look in (
        (PROFILE, data.profiles, court.profile),
        (POLICY, data.policies, court.policy),
        (CLUSTER, data.clusters, court.cluster),
        (NODE, data.nodes, court.node),
        (BINDING, sorted(data.bindings, key=court.weight), court.binding),
        (RECEIVER, data.receivers, court.receiver),
    ):
        for row in rows:
            court.take(noun, row, look)
    court.watches()
    return list(court.found.values())


@dataclass(slots=True)
class _Court:
    data: SenlinData
    present: Present
    plugins: Plugins
    settings: ClusterSettings
    found: dict[tuple[str, str], Arrival] = field(default_factory=dict)
    members: dict[str, list[SenlinRow]] = field(default_factory=dict)
    profiles: dict[str, SenlinRow] = field(default_factory=dict)
    policies: dict[str, Policy | str] = field(default_factory=dict)
    """Each policy, or why it cannot be one here."""
    attached: dict[str, list[Policy]] = field(default_factory=dict)
    """The policies that each cluster has in Roost, or gets."""
    clusters: dict[str, ClusterView] = field(default_factory=dict)
    bound: set[tuple[str, str]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.bound = set(self.present.bound)
        self.profiles = {row["id"]: row for row in self.data.profiles}
        self.policies = {row["id"]: _restored(self.plugins.policies, row, "data") for row in self.data.policies}
        for row in self.data.nodes:
            self.members.setdefault(row["cluster_id"] or "", []).append(row)
        self.clusters = {row["id"]: self._view(row) for row in self.data.clusters if row["profile_id"] in self.profiles}
        for cluster_id, policy_id in self.present.bound:
            policy = self.policies.get(policy_id)
            if isinstance(policy, Policy):
                self.attached.setdefault(cluster_id, []).append(policy)

    def take(self, noun: str, given: SenlinRow, look: Callable[[SenlinRow], Ruling]) -> None:
        """Judge one row, unless Roost has it or has had it."""
        row = _completed(given)
        if row["id"] in self.present.ids[noun]:
            ruling = Ruling(Fate.THERE)
        elif row["id"] in self.present.imported[noun]:
            ruling = Ruling(Fate.THERE, "it was imported before, and deleted in Roost since")
        elif "\\u0000" in json.dumps(row, default=str):
            ruling = Ruling(Fate.CANNOT, "it has a NUL character, which PostgreSQL does not store")
        elif not row.get("project_id", "-") or not row.get("user_id", "-"):
            ruling = Ruling(Fate.CANNOT, "it belongs to no user and project")
        else:
            ruling = look(row)
        self.found[noun, row["id"]] = Arrival(noun, row["id"], row.get("name") or "", ruling, row)

    def without(self, noun: str, identifier: str | None) -> Ruling | None:
        """What becomes of a row that refers to this one; None if it is, or will be, in Roost."""
        needed = self.found.get((noun, identifier or ""))
        if needed is None:
            return Ruling(Fate.CANNOT, f"its {noun} {identifier} is not in the database")
        if needed.comes or needed.id in self.present.ids[noun]:
            return None
        if needed.ruling.fate is Fate.LEFT:
            return Ruling(Fate.LEFT, f"its {noun} is left")
        return Ruling(Fate.CANNOT, f"its {noun} {identifier} does not come")

    # Profiles and policies

    def profile(self, row: SenlinRow) -> Ruling:
        """A profile comes if its spec is one of a type that Roost knows."""
        made = _restored(self.plugins.profiles, row, "metadata")
        if isinstance(made, str):
            return Ruling(Fate.CANNOT, made)
        notes = []
        if isinstance(made, UnsupportedProfile):
            notes.append(f"Roost keeps profiles of type {row['type']}, and makes no nodes of them")
        return Ruling(Fate.COMES, notes=tuple(notes))

    def policy(self, row: SenlinRow) -> Ruling:
        """A policy comes if its spec is one of a type that Roost knows."""
        made = self.policies[row["id"]]
        return Ruling(Fate.CANNOT, made) if isinstance(made, str) else Ruling(Fate.COMES)

    # Clusters and nodes

    def cluster(self, row: SenlinRow) -> Ruling:
        """A cluster comes when nothing is at work on it or on its nodes."""
        members = self.members.get(row["id"], [])
        busy = [reason for each in (row, *members) for reason in self.data.busy.get(each["id"], ())]
        if busy:
            return Ruling(Fate.LEFT, f"it is in progress: {'; '.join(busy)}")
        refused = self._made_of(row)
        if refused:
            return refused
        view = self.clusters[row["id"]]
        sizes = {name: getattr(view, name) for name in ("min_size", "max_size", "desired_capacity")}
        next_index = max([row["next_index"] or 1, *(1 + (each["index"] or 0) for each in members)])
        row.update(sizes, next_index=next_index, timeout=row["timeout"] or self.settings.timeout)
        return Ruling(Fate.COMES, notes=_settled(row, ClusterStatus.WARNING))

    def node(self, row: SenlinRow) -> Ruling:
        """A node comes with its cluster; its server stays what it is."""
        row["cluster_id"] = row["cluster_id"] or None
        row["index"] = -1 if row["index"] is None else row["index"]
        row["role"], row["tainted"] = row["role"] or "", bool(row["tainted"])
        refused = self.without(CLUSTER, row["cluster_id"]) if row["cluster_id"] else None
        busy = self.data.busy.get(row["id"])
        if refused is None and busy:
            refused = Ruling(Fate.LEFT, f"it is in progress: {'; '.join(busy)}")
        refused = refused or self._made_of(row)
        if refused:
            return refused
        if row["physical_id"] in self.present.servers:
            owner = self.present.servers[row["physical_id"]]
            return Ruling(Fate.CANNOT, f"its server {row['physical_id']} is that of node {owner}")
        return Ruling(Fate.COMES, notes=_settled(row, NodeStatus.WARNING))

    def _made_of(self, row: SenlinRow) -> Ruling | None:
        """Why a cluster or a node cannot come because of its profile."""
        refused = self.without(PROFILE, row["profile_id"])
        if refused:
            return refused
        kind = self.plugins.profiles.get(self.profiles[row["profile_id"]]["type"])
        if kind is not None and issubclass(kind, UnsupportedProfile):
            return Ruling(Fate.CANNOT, f"Roost neither makes nor deletes nodes of type {kind.TYPE}")
        return None

    def _view(self, row: SenlinRow) -> ClusterView:
        profile = self.profiles[row["profile_id"]]
        properties, desired = profile["spec"].get("properties") or {}, row["desired_capacity"]
        return ClusterView(
            id=row["id"],
            name=row["name"],
            project=row["project_id"],
            user=row["user_id"],
            profile=ProfileView(profile["id"], profile["name"], profile["type"], properties),
            min_size=row["min_size"] or 0,
            max_size=-1 if row["max_size"] is None else row["max_size"],
            desired_capacity=len(self.members.get(row["id"], ())) if desired is None else desired,
            config=row["config"],
            data=row["data"],
        )

    # What governs clusters

    def weight(self, row: SenlinRow) -> tuple[int, int, str]:
        """Of two bindings that cannot be together, the first stays: affinity did something in Senlin, zones did not."""
        policy = self.policies.get(row["policy_id"])
        return row["priority"] or 0, -policy.ORDER if isinstance(policy, Policy) else 0, row["id"]

    def binding(self, row: SenlinRow) -> Ruling:
        """A binding comes with its data; one that Roost would have refused comes disabled."""
        refused = self.without(CLUSTER, row["cluster_id"]) or self.without(POLICY, row["policy_id"])
        if refused:
            return refused
        policy, cluster = self.policies[row["policy_id"]], self.clusters[row["cluster_id"]]
        if isinstance(policy, str):
            return Ruling(Fate.CANNOT, policy)
        others = self.attached.setdefault(cluster.id, [])
        row["name"] = f"of policy {policy.name} to cluster {cluster.name}"
        if (cluster.id, policy.id) in self.bound:
            return Ruling(Fate.CANNOT, "the policy is attached to the cluster already")
        self.bound.add((cluster.id, policy.id))
        row["enabled"], row["priority"] = bool(row["enabled"]), policy.PRIORITY
        row["data"] = policy.bound(self._kept(policy, cluster, row["data"]))
        fit = chain.fit(policy, cluster, others)
        if fit.refusals and row["enabled"]:
            row["enabled"] = False
            return Ruling(Fate.COMES, notes=(f"it comes disabled, for Roost would refuse it: {fit.refusals[0]}",))
        others.append(policy)
        members = self.members.get(cluster.id, [])
        return Ruling(Fate.COMES, notes=(*fit.warnings, *self._differences(policy, cluster, members, row)))

    def _kept(self, policy: Policy, cluster: ClusterView, data: Mapping[str, Any]) -> dict[str, Any]:
        """What Senlin kept in the binding. Senlin has the address of a load balancer in the data of the cluster."""
        kept = dict(policy.kept(data))
        balancers = cluster.data.get("loadbalancers") or {}
        return {**balancers.get(policy.id, {}), **kept}

    def _differences(
        self, policy: Policy, cluster: ClusterView, members: list[SenlinRow], row: SenlinRow
    ) -> Iterator[str]:
        if isinstance(policy, ZonePlacementPolicy):
            where = Counter((node["data"].get("placement") or {}).get("zone") or "an unknown zone" for node in members)
            now = ", ".join(f"{number} in {zone}" for zone, number in sorted(where.items())) or "none"
            yield (
                "Senlin planned zones and left new nodes to Nova; Roost makes them where the plan says: "
                f"{', '.join(place.name for place in policy.places)} (nodes now: {now})"
            )
        if isinstance(policy, RegionPlacementPolicy):
            yield "Senlin planned regions and made all nodes in one; Roost refuses nodes in regions it does not serve"
        if isinstance(policy, AffinityPolicy):
            yield from _affinity(policy, cluster, row)
        hooks = policy.spec_data.get("hooks") if isinstance(policy, DeletionPolicy) else None
        if hooks and hooks["type"] == "webhook":
            yield "Senlin failed with webhooks as lifecycle hooks; Roost calls them"
        if isinstance(policy, HealthPolicy) and cluster.id not in self.data.watched:
            yield "Senlin did not watch this cluster any more; Roost does"

    def watches(self) -> None:
        """A cluster is watched when its health policy comes, whatever Senlin's registry says."""
        for arrival in [each for each in self.found.values() if each.noun == BINDING and each.comes]:
            policy = self.policies[arrival.row["policy_id"]]
            cluster_id = arrival.row["cluster_id"]
            if isinstance(policy, HealthPolicy):
                row = {"cluster_id": cluster_id, "policy_id": policy.id, **health.registration(policy)}
                self._watch(cluster_id, Ruling(Fate.COMES), row)
        for cluster_id in sorted(self.data.watched):
            if (WATCH, cluster_id) in self.found:
                continue
            there = cluster_id in self.present.ids[CLUSTER]
            ruling = Ruling(Fate.THERE) if there else self.without(CLUSTER, cluster_id)
            self._watch(cluster_id, ruling or Ruling(Fate.CANNOT, "no health policy comes with its cluster"), {})

    def _watch(self, cluster_id: str, ruling: Ruling, row: SenlinRow) -> None:
        cluster = self.found.get((CLUSTER, cluster_id))
        name = f"of cluster {cluster.name}" if cluster else ""
        self.found[WATCH, cluster_id] = Arrival(WATCH, cluster_id, name, ruling, row)

    def receiver(self, row: SenlinRow) -> Ruling:
        """A receiver comes if what it triggers can be triggered."""
        row["cluster_id"], row["action"] = row["cluster_id"] or None, row["action"] or None
        refused = self.without(CLUSTER, row["cluster_id"]) if row["cluster_id"] else None
        if refused:
            return refused
        if row["type"] not in receivers.TYPES:
            return Ruling(Fate.CANNOT, f"Roost has no receivers of type {row['type']}")
        if row["action"] is not None and row["action"] not in receivers.ACTIONS:
            return Ruling(Fate.CANNOT, f"{row['action']} cannot be triggered")
        if row["type"] == "message":
            queue = row["channel"].get("queue_name")
            return Ruling(Fate.COMES, notes=(f"Zaqar's subscription to queue {queue} calls Senlin: make a new one",))
        return Ruling(Fate.COMES)


def _affinity(policy: AffinityPolicy, cluster: ClusterView, row: SenlinRow) -> Iterator[str]:
    group = policy.kept(row["data"]).get("servergroup_id")
    hint = (cluster.profile.properties.get("scheduler_hints") or {}).get("group")
    if group is None:
        yield "Senlin kept no server group for it: detach the policy and attach it again"
        return
    yield f"in Senlin only scaling made members of server group {group}; in Roost every new and recreated node joins it"
    if hint and hint != group:
        yield (
            f"the profile names server group {hint}, which Senlin ignored for {group}; attached anew, the policy "
            "inherits the group of the profile"
        )


def _completed(given: SenlinRow) -> SenlinRow:
    """With what Senlin may leave out."""
    row = dict(given)
    for key in ("created_at", "init_at"):
        # A cluster or a node without a time of creation was not made yet.
        if key in row and row[key] is None and (key == "init_at" or "init_at" not in row):
            row[key] = datetime.now(UTC)
    for key, usual in (("domain_id", "default"), ("name", ""), ("status_reason", "")):
        if key in row:
            row[key] = row[key] or usual
    return row


def _settled(row: SenlinRow, status: str) -> tuple[str, ...]:
    """Give a row a settled status; returns what to report if the status changed."""
    was = row["status"] or "INIT"
    row["status"] = was if was in _AT_REST else status
    if was in _AT_REST:
        return ()
    row["status_reason"] = f"Senlin left it in status {was}."
    return (f"it comes in status {status}, for Senlin left it {was} and nothing works on it: have it checked",)


def _restored(types: Mapping[str, type[Any]], row: SenlinRow, kept: str) -> Any:
    """The profile or policy that a row describes, or why Roost cannot use it."""
    kind: type[SpecType] | None = types.get(row["type"])
    if kind is None:
        return f"no installed package offers type {row['type']}"
    try:
        return kind.from_row(SpecRow(*(row[name] for name in spec_columns(kept))))
    except Invalid as error:
        return f"its spec is refused: {error.message}"
