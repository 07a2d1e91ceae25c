"""Region placement: the nodes of a cluster are spread over regions by weights, up to their caps."""

from roost.clouds.base import Cloud
from roost.clusters.policies import spreading
from roost.clusters.policies.base import (
    CREATION_COUNT,
    CREATION_REGIONS,
    DELETION_COUNT,
    DELETION_REGIONS,
    EXPERIMENTAL,
    SUPPORTED,
    ActionView,
    Policy,
)
from roost.clusters.policies.counts import change
from roost.clusters.policies.spreading import WeightedPlace
from roost.clusters.spec import Integer, List, Map, String
from roost.clusters.states import ActionName
from roost.config import ClusterSettings

NO_REGION = "No region is found usable."


class RegionPlacementPolicy(Policy):
    """Spreads the nodes of a cluster over regions."""

    TYPE = "senlin.policy.region_placement"
    VERSIONS = {"1.0": [{"status": EXPERIMENTAL, "since": "2016.04"}, {"status": SUPPORTED, "since": "2016.10"}]}
    PRIORITY = 200
    TARGET = spreading.TARGET
    READS = [CREATION_COUNT, DELETION_COUNT]
    WRITES = [CREATION_COUNT, CREATION_REGIONS, DELETION_COUNT, DELETION_REGIONS]
    spec_schema = {
        "regions": List(
            "List of regions to choose from.",
            required=True,
            schema=Map(
                "A region as a candidate.",
                schema={
                    "name": String("Name of a region.", required=True),
                    "weight": Integer("Weight of the region, above 0.", default=100),
                    "cap": Integer("Nodes that the region holds at most; -1 is no limit.", default=-1),
                },
            ),
        )
    }

    def check_spec(self) -> None:
        """Each region is named once and has a weight."""
        spreading.check_places("region", self.spec_data["regions"])

    @property
    def places(self) -> list[WeightedPlace]:
        """The regions of the spec."""
        return spreading.places_of(self.spec_data["regions"])

    async def validate(self, cloud: Cloud, settings: ClusterSettings) -> str | None:
        """All regions are regions of the cloud."""
        known = await cloud.regions()
        missing = [place.name for place in self.places if place.name not in known]
        return f"The specified regions '{missing}' could not be found." if missing else None

    async def pre_op(self, cluster_id: str, action: ActionView) -> None:
        """Plan how many nodes are made in, or go from, each region."""
        if action.action == ActionName.NODE_CREATE and _pinned(action):
            return
        wanted = change(action)
        if isinstance(wanted, str):
            return action.refuse(wanted)
        if not wanted.count:
            return
        known = await action.cloud.regions()
        usable = [place.name for place in self.places if place.name in known]
        if not usable:
            return action.refuse(NO_REGION)
        spreading.spread(action, wanted, self.places, usable, "region_name", CREATION_REGIONS, DELETION_REGIONS)


def _pinned(action: ActionView) -> bool:
    profile = action.node_profile or action.cluster.profile
    return bool((profile.properties.get("context") or {}).get("region_name"))
