"""Deletion: which nodes go, how they go, and who is notified first."""

from roost.clouds.base import Cloud
from roost.clusters import urls
from roost.clusters.policies import victims
from roost.clusters.policies.base import (
    BEFORE,
    CHECK_OK,
    DELETION_CANDIDATES,
    DELETION_COUNT,
    DELETION_DESTROY,
    DELETION_GRACE,
    DELETION_REDUCE,
    DELETION_REGIONS,
    DELETION_ZONES,
    HOOKS,
    SUPPORTED,
    ActionView,
    NodeView,
    Policy,
)
from roost.clusters.policies.counts import change
from roost.clusters.policies.victims import CRITERIA, RANDOM
from roost.clusters.spec import AllowedValues, Boolean, Integer, InvalidSpec, Map, String
from roost.clusters.states import ActionName
from roost.config import ClusterSettings


class DeletionPolicy(Policy):
    """Chooses the nodes that go when a cluster shrinks."""

    TYPE = "senlin.policy.deletion"
    VERSIONS = {"1.0": [{"status": SUPPORTED, "since": "2016.04"}], "1.1": [{"status": SUPPORTED, "since": "2018.01"}]}
    PRIORITY = 400
    TARGET = [
        (BEFORE, ActionName.CLUSTER_SCALE_IN),
        (BEFORE, ActionName.CLUSTER_DEL_NODES),
        (BEFORE, ActionName.CLUSTER_RESIZE),
        (BEFORE, ActionName.NODE_DELETE),
    ]
    READS = [DELETION_COUNT, DELETION_ZONES, DELETION_REGIONS]
    WRITES = [DELETION_COUNT, DELETION_CANDIDATES, DELETION_DESTROY, DELETION_GRACE, DELETION_REDUCE, HOOKS]
    spec_schema = {
        "criteria": String(
            "Criteria used in selecting candidates for deletion.", default=RANDOM, constraints=[AllowedValues(CRITERIA)]
        ),
        "destroy_after_deletion": Boolean(
            "Whether a node should be completely destroyed after deletion, or only leave the cluster.", default=True
        ),
        "grace_period": Integer("Number of seconds before real deletion happens.", default=0),
        "reduce_desired_capacity": Boolean(
            "Whether the desired capacity of the cluster should be reduced along with the deletion.", default=True
        ),
        "hooks": Map(
            "Whom to tell before a node goes, and how long to wait for an answer.",
            default={},
            schema={
                "type": String(
                    "Type of lifecycle hook.", default="zaqar", constraints=[AllowedValues(("zaqar", "webhook"))]
                ),
                "params": Map(
                    "Where the hook goes to.",
                    default={},
                    schema={
                        "queue": String("Queue that gets the message.", default=""),
                        "url": String("Address that gets the message.", default=""),
                    },
                ),
                "timeout": Integer("Number of seconds to wait before the node goes anyway.", default=0),
            },
        ),
    }

    def check_spec(self) -> None:
        """Times are not negative, and a hook says where it goes to."""
        if self.spec_data["grace_period"] < 0:
            raise InvalidSpec("The 'grace_period' must be >= 0.")
        hooks, given = self.spec_data["hooks"], "hooks" in self.spec["properties"]
        if hooks["timeout"] < 0:
            raise InvalidSpec("The 'timeout' for 'hooks' must be >= 0.")
        if given and hooks["type"] == "webhook" and not hooks["params"]["url"]:
            raise InvalidSpec("A hook of type 'webhook' needs a 'url' in its 'params'.")

    async def validate(self, cloud: Cloud, settings: ClusterSettings) -> str | None:
        """A webhook's address is one that the operator allows."""
        return urls.refusal(self.spec_data["hooks"]["params"]["url"], private=settings.private_urls)

    def pre_op(self, cluster_id: str, action: ActionView) -> None:
        """Name the nodes that go, and say in what manner."""
        chosen = self._named(action)
        if chosen is None:
            found = self._choose(action)
            if isinstance(found, str):
                return action.refuse(found)
            if not found:
                return
            chosen = [node.id for node in found]
        if "hooks" in self.spec["properties"]:
            HOOKS.write(action.data, self.spec_data["hooks"])
        action.data.update(status=CHECK_OK, reason="Candidates generated")
        DELETION_COUNT.write(action.data, len(chosen))
        DELETION_CANDIDATES.write(action.data, chosen)
        DELETION_DESTROY.write(action.data, self._destroys(action))
        DELETION_GRACE.write(action.data, self.spec_data["grace_period"])
        DELETION_REDUCE.write(action.data, self.spec_data["reduce_desired_capacity"])

    def _named(self, action: ActionView) -> list[str] | None:
        """The nodes that the request itself names."""
        if action.action == ActionName.NODE_DELETE and action.node is not None:
            return [action.node.id]
        given = action.inputs.get("candidates")
        return [str(node_id) for node_id in given] if given is not None else None

    def _destroys(self, action: ActionView) -> bool:
        """A request that says itself whether nodes are destroyed is followed."""
        given = action.inputs.get("destroy_after_deletion")
        if action.action == ActionName.CLUSTER_DEL_NODES and given is not None:
            return bool(given)
        return bool(self.spec_data["destroy_after_deletion"])

    def _choose(self, action: ActionView) -> list[NodeView] | str:
        wanted = change(action)
        if isinstance(wanted, str):
            return wanted
        by = victims.order(self.spec_data["criteria"], action.cluster.profiles, action.id)
        regions, zones = DELETION_REGIONS.read(action.data), DELETION_ZONES.read(action.data)
        return victims.select(action.cluster.nodes, max(-wanted.count, 0), by, regions, zones)
