"""Zone placement: the nodes of a cluster are spread over availability zones by weights."""

from collections import Counter

from roost.clouds.base import Cloud
from roost.clusters.policies import spreading, victims
from roost.clusters.policies.base import (
    CREATION_COUNT,
    CREATION_ZONES,
    DELETION_COUNT,
    DELETION_ZONES,
    EXPERIMENTAL,
    REBALANCE,
    SUPPORTED,
    ActionView,
    ClusterView,
    Objection,
    Policy,
)
from roost.clusters.policies.counts import SizeChange, change
from roost.clusters.policies.spreading import WeightedPlace
from roost.clusters.spec import Boolean, Integer, InvalidSpec, List, Map, String
from roost.clusters.states import ActionName
from roost.config import ClusterSettings

NO_ZONE = "No availability zone found available."


class ZonePlacementPolicy(Policy):
    """Spreads the nodes of a cluster over availability zones."""

    TYPE = "senlin.policy.zone_placement"
    VERSIONS = {
        "1.0": [{"status": EXPERIMENTAL, "since": "2016.04"}, {"status": SUPPORTED, "since": "2016.10"}],
        "1.1": [{"status": SUPPORTED, "since": "2026.11"}],
    }
    PROFILE_TYPE = ["os.nova.server-1.0"]
    PRIORITY = 300
    TARGET = spreading.TARGET
    READS = [CREATION_COUNT, DELETION_COUNT]
    WRITES = [CREATION_COUNT, CREATION_ZONES, DELETION_COUNT, DELETION_ZONES, REBALANCE]
    spec_schema = {
        "zones": List(
            "List of availability zones to choose from.",
            required=True,
            schema=Map(
                "An availability zone as candidate.",
                schema={
                    "name": String("Name of an availability zone.", required=True),
                    "weight": Integer("Weight of the availability zone, above 0.", default=100),
                    "minimum": Integer("Nodes that the zone holds at least.", default=0, min_version="1.1"),
                    "cap": Integer("Nodes that the zone holds at most; -1 is no limit.", default=-1, min_version="1.1"),
                },
            ),
        ),
        "rebalance": Boolean(
            "Whether recovery, and a resize that changes nothing, move nodes back that have drifted from the plan.",
            default=False,
            min_version="1.1",
        ),
        "rebalance_budget": Integer(
            "Nodes moved at once: each is made in its new zone before the old one goes.", default=1, min_version="1.1"
        ),
    }

    def check_spec(self) -> None:
        """Zones are named once, and their numbers make sense."""
        zones = self.spec_data["zones"]
        spreading.check_places("zone", zones)
        for zone in zones:
            if zone.get("minimum", 0) < 0:
                raise InvalidSpec(f"The 'minimum' of zone '{zone['name']}' must be >= 0.")
            if 0 <= zone.get("cap", -1) < zone.get("minimum", 0):
                raise InvalidSpec(f"The 'cap' of zone '{zone['name']}' is less than its 'minimum'.")
        if self.spec_data.get("rebalance_budget", 1) < 1:
            raise InvalidSpec("The 'rebalance_budget' must be > 0.")

    @property
    def places(self) -> list[WeightedPlace]:
        """The zones of the spec."""
        return spreading.places_of(self.spec_data["zones"])

    async def validate(self, cloud: Cloud, settings: ClusterSettings) -> str | None:
        """All zones are zones of the cloud."""
        known = {zone.name for zone in await cloud.availability_zones()}
        missing = [place.name for place in self.places if place.name not in known]
        return f"The specified name '{missing}' could not be found." if missing else None

    def objections(self, cluster: ClusterView) -> list[Objection]:
        """A profile that is pinned to a zone leaves nothing to plan."""
        pinned = cluster.profile.properties.get("availability_zone")
        if not pinned:
            return []
        foreign = pinned not in {place.name for place in self.places}
        names = ", ".join(place.name for place in self.places)
        return [
            Objection(
                f"The profile '{cluster.profile.name}' pins its servers to zone '{pinned}', and policy '{self.name}' "
                f"spreads them over {names}: "
                + ("the two cannot both hold." if foreign else "the policy decides, but for nodes created one by one."),
                fatal=foreign,
            )
        ]

    async def pre_op(self, cluster_id: str, action: ActionView) -> None:
        """Plan how many nodes are made in, or go from, each zone."""
        if action.action == ActionName.NODE_CREATE and _pinned(action):
            return
        wanted = change(action)
        if isinstance(wanted, str):
            return action.refuse(wanted)
        if not wanted.count and not self._may_rebalance(action):
            return
        available = {zone.name for zone in await action.cloud.availability_zones() if zone.available}
        usable = [place.name for place in self.places if place.name in available]
        if not usable:
            return action.refuse(NO_ZONE)
        keys = (CREATION_ZONES, DELETION_ZONES)
        if wanted.count and not spreading.spread(action, wanted, self.places, usable, "zone", *keys):
            return
        if self._may_rebalance(action) and wanted.count >= 0:
            self._rebalance(action, wanted, usable)

    def _may_rebalance(self, action: ActionView) -> bool:
        return bool(self.spec_data.get("rebalance")) and action.action in (
            ActionName.CLUSTER_RECOVER,
            ActionName.CLUSTER_RESIZE,
        )

    def _rebalance(self, action: ActionView, wanted: SizeChange, usable: list[str]) -> None:
        """Recreate nodes that have drifted where they belong: add their zones to the plan."""
        zones = Counter(CREATION_ZONES.read(action.data) or {})
        found = spreading.moves(
            self.places,
            usable,
            [node for node in action.cluster.nodes if node.id not in wanted.replaced],
            zones,
            self.spec_data["rebalance_budget"],
            victims.order(victims.OLDEST_FIRST, {}),
        )
        if found:
            zones.update(move.to for move in found)
            CREATION_COUNT.write(action.data, wanted.count)
            CREATION_ZONES.write(action.data, dict(zones))
            REBALANCE.write(action.data, [move.node_id for move in found])


def _pinned(action: ActionView) -> bool:
    profile = action.node_profile or action.cluster.profile
    return bool(profile.properties.get("availability_zone"))
