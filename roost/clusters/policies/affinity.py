"""Affinity: the servers of a cluster are members of a server group, which keeps them together or apart."""

import secrets
from collections.abc import Iterator, Mapping
from itertools import chain, islice, repeat
from typing import Any

from roost.clouds.base import Cloud, CloudError, CloudGroup, Hypervisor
from roost.clusters.policies.base import (
    BEFORE,
    CHECK_ERROR,
    CREATION_COUNT,
    CREATION_ZONES,
    DELETION_COUNT,
    PLACEMENT_COUNT,
    PLACEMENTS,
    REBALANCE,
    SUPPORTED,
    ActionView,
    ClusterView,
    Objection,
    Policy,
    Verdict,
)
from roost.clusters.policies.counts import change
from roost.clusters.policies.zone_placement import ZonePlacementPolicy
from roost.clusters.spec import AllowedValues, Boolean, InvalidSpec, List, Map, Property, String
from roost.clusters.states import ActionName
from roost.config import ClusterSettings
from roost.errors import RoostError
from roost.placement.rules import AVAILABILITY_ZONE, HOST, TYPES, Kind, Rule, RuleError, inside

NO_DRS_HOST = "No suitable vSphere host is available."
NOT_ADMIN = "The vSphere DRS extension needs a cluster that is owned by an administrator of the cloud."

_NAME = String("Name of a server group to use, or of the one to make.")
_PLAIN_GROUP = Map(
    "Properties of the server group.",
    schema={
        "name": _NAME,
        "policies": String(
            "The server group policy.", default="anti-affinity", constraints=[AllowedValues(tuple(TYPES))]
        ),
    },
)
_SCOPED_GROUP = Map(
    "Properties of the server group.",
    schema={
        "name": _NAME,
        "policies": List(
            "The rules of the server group, all of which hold together.",
            default=[{"name": "anti-affinity"}],
            schema=Map(
                "A rule.",
                schema={
                    "name": String("What it asks for.", required=True, constraints=[AllowedValues(tuple(TYPES))]),
                    "scope": String("What members are to share or not to share: host, rack, switch, ...", default=HOST),
                    "identifier": String("The only one of the scope that is meant, by its name."),
                    "rules": Map(
                        "Limits of anti-affinity: max_server_per_host, max_server_per_aggregate, max_skew, partitions."
                    ),
                },
            ),
        ),
    },
)


class AffinityPolicy(Policy):
    """Makes the servers of a cluster members of a server group."""

    TYPE = "senlin.policy.affinity"
    VERSIONS = {"1.0": [{"status": SUPPORTED, "since": "2016.10"}], "1.1": [{"status": SUPPORTED, "since": "2026.11"}]}
    PROFILE_TYPE = ["os.nova.server-1.0"]
    PRIORITY = 300
    ORDER = 1
    TARGET = [
        (BEFORE, ActionName.CLUSTER_CREATE),
        (BEFORE, ActionName.CLUSTER_SCALE_OUT),
        (BEFORE, ActionName.CLUSTER_RESIZE),
        (BEFORE, ActionName.CLUSTER_RECOVER),
        (BEFORE, ActionName.NODE_CREATE),
        (BEFORE, ActionName.NODE_RECOVER),
    ]
    READS = [CREATION_COUNT, CREATION_ZONES, REBALANCE]
    WRITES = [CREATION_COUNT, DELETION_COUNT, PLACEMENT_COUNT, PLACEMENTS]
    spec_schema = {
        "servergroup": _PLAIN_GROUP,
        "availability_zone": String("Name of the availability zone to place the nodes in."),
        "enable_drs_extension": Boolean("Whether the vSphere DRS extension is used.", default=False),
    }

    @classmethod
    def schema(cls, version: str) -> Mapping[str, Property]:
        """From 1.1 on a server group has a list of rules with scopes."""
        return cls.spec_schema if version == "1.0" else {**cls.spec_schema, "servergroup": _SCOPED_GROUP}

    def check_spec(self) -> None:
        """The rules can be understood."""
        try:
            self.rules = self._rules()
        except RuleError as error:
            raise InvalidSpec(f"The policies of the servergroup cannot be used: {error}.") from None

    def _rules(self) -> list[Rule]:
        group = self.spec_data["servergroup"] or {}
        given = group.get("policies") or "anti-affinity"
        if isinstance(given, str):
            return [Rule.parse(given)]
        return [_rule(item) for item in given]

    async def validate(self, cloud: Cloud, settings: ClusterSettings) -> str | None:
        """The zone is one of the cloud's."""
        zone = self.spec_data["availability_zone"]
        if zone is None or zone in {known.name for known in await cloud.availability_zones()}:
            return None
        return f"The specified availability_zone '{zone}' could not be found."

    def objections(self, cluster: ClusterView) -> list[Objection]:
        """A profile that is pinned to another zone, and rules that one vSphere host cannot keep for many servers."""
        return [*self._pinned_elsewhere(cluster), *self._crowded(cluster)]

    def _crowded(self, cluster: ClusterView) -> Iterator[Objection]:
        if not self.spec_data["enable_drs_extension"]:
            return
        room = min((rule.limit for rule in self.rules if rule.limit is not None), default=None)
        if room is not None and (cluster.max_size < 0 or room < max(cluster.max_size, cluster.desired_capacity)):
            nodes = "one node" if room == 1 else f"{room} nodes"
            yield Objection(
                f"Policy '{self.name}' places all servers on one vSphere host, and its rules keep them apart: the "
                f"cluster can hold {nodes} only.",
                fatal=False,
            )

    def _pinned_elsewhere(self, cluster: ClusterView) -> list[Objection]:
        pinned, zone = cluster.profile.properties.get("availability_zone"), self.spec_data["availability_zone"]
        if not pinned or not zone or pinned == zone:
            return []
        message = f"The profile '{cluster.profile.name}' pins its servers to zone '{pinned}', and policy '{self.name}' "
        return [Objection(message + f"places them in zone '{zone}': the policy decides.", fatal=False)]

    def clashes(self, other: Policy, cluster: ClusterView) -> list[Objection]:
        """What zones want and what the group's rules allow."""
        if not isinstance(other, ZonePlacementPolicy):
            return []
        zones = [place.name for place in other.places]
        sides = f"policy '{other.name}' spreads servers over zones {', '.join(zones)}"
        found = [Objection(f"Policy '{self.name}' {why}, and {sides}.", fatal) for why, fatal in self._ties(zones)]
        return found + [
            Objection(f"Policy '{self.name}' {why}, and {sides}.", fatal)
            for rule in self.rules
            for why, fatal in _contradictions(rule, zones, cluster)
        ]

    def _ties(self, zones: list[str]) -> Iterator[tuple[str, bool]]:
        zone = self.spec_data["availability_zone"]
        if zone and zones != [zone]:
            yield f"places all servers in zone '{zone}'", True
        if self.spec_data["enable_drs_extension"]:
            yield "places all servers on one vSphere host", True

    async def attach(self, cluster_id: str, action: ActionView) -> Verdict:
        """Find the server group that the profile or the spec names, or make one."""
        if self.spec_data["enable_drs_extension"] and not action.is_admin:
            return False, NOT_ADMIN
        hints = action.cluster.profile.properties.get("scheduler_hints") or {}
        of_profile, of_spec = hints.get("group"), (self.spec_data["servergroup"] or {}).get("name")
        name = of_profile or of_spec
        try:
            group = await action.cloud.find_server_group(name) if name else None
        except (CloudError, RoostError, RuleError) as error:
            return False, f"Failed in retrieving servergroup '{name}': {error}"
        if group is None and of_profile:
            return False, f"Failed in retrieving servergroup '{of_profile}': it does not exist."
        if group is None:
            return await self._make_group(action, of_spec)
        if of_spec and of_spec not in (group.name, group.id):
            return False, f"The profile names servergroup '{of_profile}', and the policy names '{of_spec}'."
        if not self._matches(group):
            specified, existing = (", ".join(map(str, rules)) for rules in (self.rules, group.rules))
            return False, (
                f"Policies specified ({specified}) doesn't match that of the existing servergroup ({existing})."
            )
        return True, self.bound({"servergroup_id": group.id, "inherited_group": True})

    async def _make_group(self, action: ActionView, name: str | None) -> Verdict:
        name = name or f"server_group_{secrets.token_hex(4)}"
        try:
            group = await action.cloud.create_server_group(name, self.rules)
        except (CloudError, RoostError) as error:
            return False, f"Failed in creating servergroup: {error}"
        return True, self.bound({"servergroup_id": group.id, "inherited_group": False})

    def _matches(self, group: CloudGroup) -> bool:
        limited = self.version != "1.0"
        asked, existing = (
            sorted((str(rule), sorted(rule.limits.items()) if limited else []) for rule in rules)
            for rules in (self.rules, group.rules)
        )
        return asked == existing

    async def detach(self, cluster_id: str, action: ActionView) -> Verdict:
        """Delete the server group, unless it was there before the policy."""
        kept = self.kept(action.binding)
        if kept.get("inherited_group") or not kept.get("servergroup_id"):
            return True, "Servergroup resource was not created by the policy, and is kept."
        try:
            await action.cloud.delete_server_group(kept["servergroup_id"])
        except (CloudError, RoostError) as error:
            return False, f"Failed in deleting servergroup: {error}"
        return True, "Servergroup resource deletion succeeded."

    async def pre_op(self, cluster_id: str, action: ActionView) -> None:
        """Give every new node its server group and, where one is known, its zone."""
        wanted = change(action)
        if isinstance(wanted, str):
            return action.refuse(wanted)
        count = max(wanted.count, 0) + len(REBALANCE.read(action.data) or ())
        if not count:
            return
        zone: str | None = self.spec_data["availability_zone"]
        if self.spec_data["enable_drs_extension"]:
            host = await self._drs_host(action)
            if host is None:
                return
            zone = f"{zone or host.zone or 'nova'}:{host.hostname}"
        group = {"servergroup": self.kept(action.binding).get("servergroup_id")}
        places = [{"zone": place, **group} if place else dict(group) for place in islice(_zones(action, zone), count)]
        action.data["placement"] = {"count": count, "placements": places}

    async def _drs_host(self, action: ActionView) -> Hypervisor | None:
        """The first vSphere host that can take servers and is in the policy's zone, if it has one."""
        if not action.is_admin:
            action.refuse(NOT_ADMIN)
            return None
        zone = self.spec_data["availability_zone"]
        suitable = (
            host
            for host in await action.cloud.hypervisors()
            if host.up and "drs" in host.hostname.lower() and (not zone or host.zone in (zone, None))
        )
        found = next(suitable, None)
        if found is None:
            action.data.update(status=CHECK_ERROR, status_reason=NO_DRS_HOST)
        return found


def _zones(action: ActionView, own: str | None) -> Iterator[str | None]:
    """The zone of each new node: this policy's own, else as a zone plan has them, else none."""
    plan = CREATION_ZONES.read(action.data)
    if own or not plan:
        return repeat(own)
    return chain(*(repeat(zone, number) for zone, number in plan.items()), repeat(None))


def _rule(item: Mapping[str, Any]) -> Rule:
    text = ":".join([item["name"], item["scope"], *([item["identifier"]] if item["identifier"] else [])])
    return Rule.parse(text, item["rules"])


def _contradictions(rule: Rule, zones: list[str], cluster: ClusterView) -> Iterator[tuple[str, bool]]:
    """Why a rule of the group and zones with weights cannot both be followed, or not well."""
    if rule.kind is Kind.AFFINITY and rule.identifier is None and len(zones) > 1:
        word = "prefers" if rule.soft else "keeps"
        # A rack or a switch may reach over several zones; a host or a zone cannot.
        yield (
            f"{word} all servers {inside(rule.scope)} one {rule.scope}",
            rule.scope in (HOST, AVAILABILITY_ZONE) and not rule.soft,
        )
    if rule.scope != AVAILABILITY_ZONE:
        return
    if rule.identifier is not None:
        outside = rule.identifier not in zones if rule.kind is Kind.ANTI_AFFINITY else zones == [rule.identifier]
        if not outside:
            word = "out of" if rule.kind is Kind.ANTI_AFFINITY else "in"
            yield f"keeps servers {word} zone '{rule.identifier}'", not rule.soft
    elif rule.limit is not None:
        room = rule.limit * len(zones)
        if room < max(cluster.desired_capacity, cluster.max_size):
            yield f"allows {rule.limit} in a zone, {room} in all", room < cluster.desired_capacity
