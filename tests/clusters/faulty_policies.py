"""Policy types that do what types should not, for the engine to withstand."""

import time
from datetime import UTC, datetime
from typing import Any

from roost.policies import AFTER, BEFORE, EXPERIMENTAL, ActionName, ActionView, Policy, String


class FaultyPolicy(Policy):
    """Does as its spec says before the cluster is scaled out."""

    TYPE = "tests.policy.faulty"
    VERSIONS = {"1.0": [{"status": EXPERIMENTAL, "since": "2026.11"}]}
    TARGET = [(BEFORE, ActionName.CLUSTER_SCALE_OUT), (AFTER, ActionName.CLUSTER_SCALE_OUT)]
    spec_schema = {"fault": String("What goes wrong.", default="")}

    def pre_op(self, cluster_id: str, action: ActionView) -> None:
        values: dict[str, Any] = {
            "set": {1},
            "nan": float("nan"),
            "nul": "a\0b",
            "time": datetime(2026, 11, 16, tzinfo=UTC),
        }
        fault = self.spec_data["fault"]
        if fault in values:
            action.data["faulty"] = {"list": ["fine", values[fault]]}
        if fault == "count":
            action.data["creation"] = {"count": "many"}
        if fault == "sleep":
            time.sleep(3)

    def post_op(self, cluster_id: str, action: ActionView) -> None:
        pass


class ImpatientPolicy(FaultyPolicy):
    """Has little time."""

    TYPE = "tests.policy.impatient"
    deadline = 0.3


class Nonconforming(Policy):
    """Has no versions."""

    TYPE = "tests.policy.nonconforming"
