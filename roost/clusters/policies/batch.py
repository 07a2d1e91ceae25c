"""Batch: an update goes through a cluster in batches, so that enough nodes stay in service."""

from roost.clusters.policies.base import BEFORE, CHECK_OK, EXPERIMENTAL, UPDATE_PAUSE, UPDATE_PLAN, ActionView, Policy
from roost.clusters.spec import Integer, InvalidSpec
from roost.clusters.states import ActionName


class BatchPolicy(Policy):
    """Plans the batches of an update."""

    TYPE = "senlin.policy.batch"
    VERSIONS = {"1.0": [{"status": EXPERIMENTAL, "since": "2017.02"}]}
    PRIORITY = 200
    ORDER = 1
    TARGET = [(BEFORE, ActionName.CLUSTER_UPDATE)]
    WRITES = [UPDATE_PAUSE, UPDATE_PLAN]
    spec_schema = {
        "min_in_service": Integer("Minimum number of nodes in service when performing updates.", default=1),
        "max_batch_size": Integer(
            "Maximum number of nodes that will be updated in parallel; -1 is no limit.", default=-1
        ),
        "pause_time": Integer("Interval in seconds between update batches if any.", default=60),
    }

    def check_spec(self) -> None:
        """Numbers are in their ranges."""
        for key in ("min_in_service", "pause_time"):
            if self.spec_data[key] < 0:
                raise InvalidSpec(f"The '{key}' must be >= 0.")
        if self.spec_data["max_batch_size"] == 0 or self.spec_data["max_batch_size"] < -1:
            raise InvalidSpec("The 'max_batch_size' must be > 0, or -1.")

    def pre_op(self, cluster_id: str, action: ActionView) -> None:
        """Plan the batches, nodes that are not well first."""
        nodes = sorted(action.cluster.nodes, key=lambda node: not node.unhealthy)
        size = self._batch_size(len(nodes))
        plan = [[node.id for node in nodes[at : at + size]] for at in range(0, len(nodes), size)]
        action.data.update(status=CHECK_OK, reason="Batching request validated.")
        UPDATE_PAUSE.write(action.data, self.spec_data["pause_time"])
        UPDATE_PLAN.write(action.data, plan)

    def _batch_size(self, total: int) -> int:
        """As many as can be spared; half of a cluster that is too small to spare any."""
        least, most = self.spec_data["min_in_service"], self.spec_data["max_batch_size"]
        spared = total - least if total > least else (total + 1) // 2
        return max(1, spared if most < 0 else min(spared, most))
