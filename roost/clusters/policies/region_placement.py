"""Region placement: the nodes of a cluster are spread over regions by weights, up to their caps."""

from roost.clouds.base import Cloud
from roost.clusters.policies import plans
from roost.clusters.policies.base import (
    BEFORE,
    CHECK_OK,
    CLUSTER_CREATE,
    CLUSTER_RECOVER,
    CLUSTER_RESIZE,
    CLUSTER_SCALE_IN,
    CLUSTER_SCALE_OUT,
    CREATION_COUNT,
    CREATION_REGIONS,
    DELETION_COUNT,
    DELETION_REGIONS,
    EXPERIMENTAL,
    NODE_CREATE,
    NODE_RECOVER,
    SUPPORTED,
    ActionView,
    Policy,
)
from roost.clusters.policies.counts import change, unplaced
from roost.clusters.policies.plans import INFEASIBLE, Place
from roost.clusters.spec import Integer, InvalidSpec, List, Map, String
from roost.config import ClusterSettings

NO_REGION = "No region is found usable."


class RegionPlacementPolicy(Policy):
    """Spreads the nodes of a cluster over regions."""

    TYPE = "senlin.policy.region_placement"
    VERSIONS = {"1.0": [{"status": EXPERIMENTAL, "since": "2016.04"}, {"status": SUPPORTED, "since": "2016.10"}]}
    PRIORITY = 200
    TARGET = [
        (BEFORE, CLUSTER_CREATE),
        (BEFORE, CLUSTER_SCALE_IN),
        (BEFORE, CLUSTER_SCALE_OUT),
        (BEFORE, CLUSTER_RESIZE),
        (BEFORE, CLUSTER_RECOVER),
        (BEFORE, NODE_CREATE),
        (BEFORE, NODE_RECOVER),
    ]
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
        ),
    }

    def check_spec(self) -> None:
        """Regions are named once, and have weights."""
        names = [region["name"] for region in self.spec_data["regions"]]
        if not names:
            raise InvalidSpec("At least one region has to be named in 'regions'.")
        for region in self.spec_data["regions"]:
            if names.count(region["name"]) > 1:
                raise InvalidSpec(f"The region '{region['name']}' is named more than once.")
            if region["weight"] <= 0:
                raise InvalidSpec(f"The 'weight' of region '{region['name']}' must be > 0.")

    @property
    def places(self) -> list[Place]:
        """The regions of the spec."""
        return [
            Place(region["name"], region["weight"], cap=None if region["cap"] < 0 else region["cap"])
            for region in self.spec_data["regions"]
        ]

    async def validate(self, cloud: Cloud, settings: ClusterSettings) -> str | None:
        """All regions are regions of the cloud."""
        known = await cloud.regions()
        missing = [place.name for place in self.places if place.name not in known]
        return f"The specified regions '{missing}' could not be found." if missing else None

    async def pre_op(self, cluster_id: str, action: ActionView) -> None:
        """Plan how many nodes are made in, or go from, each region."""
        if action.action == NODE_CREATE and _pinned(action):
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
        standing = plans.population(action.cluster.nodes, "region_name", without=unplaced(action, wanted))
        grows = wanted.count > 0
        plan = (plans.creation if grows else plans.deletion)(self.places, usable, standing, abs(wanted.count))
        if plan is None:
            return action.refuse(INFEASIBLE)
        action.data["status"] = CHECK_OK
        (CREATION_COUNT if grows else DELETION_COUNT).write(action.data, abs(wanted.count))
        (CREATION_REGIONS if grows else DELETION_REGIONS).write(action.data, plan)


def _pinned(action: ActionView) -> bool:
    profile = action.node_profile or action.cluster.profile
    return bool((profile.properties.get("context") or {}).get("region_name"))
