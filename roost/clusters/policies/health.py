"""Health: detect nodes that fail, and recover them."""

from collections.abc import Mapping
from typing import Any

from roost.clouds.base import Cloud
from roost.clusters import urls
from roost.clusters.policies.base import (
    AFTER,
    BEFORE,
    CREATION_COUNT,
    DELETION_COUNT,
    EXPERIMENTAL,
    FENCING,
    RECOVER_ACTION,
    SUPPORTED,
    ActionView,
    Policy,
    Verdict,
)
from roost.clusters.policies.counts import change
from roost.clusters.spec import AllowedValues, Boolean, Integer, InvalidSpec, List, Map, String
from roost.clusters.states import ActionName
from roost.config import ClusterSettings

LIFECYCLE_EVENTS = "LIFECYCLE_EVENTS"
NODE_STATUS_POLLING = "NODE_STATUS_POLLING"
NODE_STATUS_POLL_URL = "NODE_STATUS_POLL_URL"
HYPERVISOR_STATUS_POLLING = "HYPERVISOR_STATUS_POLLING"
DETECTION_TYPES = (LIFECYCLE_EVENTS, NODE_STATUS_POLLING, NODE_STATUS_POLL_URL, HYPERVISOR_STATUS_POLLING)
ALL_FAILED, ANY_FAILED = "ALL_FAILED", "ANY_FAILED"

_OPTIONS = Map(
    "How a URL is polled.",
    default={},
    schema={
        "poll_url": String(
            "URL to poll for node status, in which {nodename} stands for the name of the node. Only required when "
            "type is 'NODE_STATUS_POLL_URL'.",
            default="",
        ),
        "poll_url_ssl_verify": Boolean("Whether to verify SSL when calling URL to poll for node status.", default=True),
        "poll_url_conn_error_as_unhealthy": Boolean(
            "Whether to treat URL connection errors as an indication of an unhealthy node.", default=True
        ),
        "poll_url_healthy_response": String(
            "String pattern in the poll URL response body that indicates a healthy node.", default=""
        ),
        "poll_url_retry_limit": Integer(
            "Number of times to retry URL polling when its return body is missing POLL_URL_HEALTHY_RESPONSE string "
            "before a node is considered down.",
            default=3,
        ),
        "poll_url_retry_interval": Integer(
            "Number of seconds between URL polling retries before a node is considered down.", default=3
        ),
    },
)


class HealthPolicy(Policy):
    """Watches over the nodes of a cluster, and says how they are recovered."""

    TYPE = "senlin.policy.health"
    VERSIONS = {
        "1.0": [{"status": EXPERIMENTAL, "since": "2017.02"}, {"status": SUPPORTED, "since": "2018.06"}],
        "1.1": [{"status": SUPPORTED, "since": "2018.09"}],
        "1.2": [{"status": SUPPORTED, "since": "2020.09"}],
    }
    PROFILE_TYPE = ["os.nova.server", "os.heat.stack"]
    PRIORITY = 600
    TARGET = [
        (when, action)
        for when in (BEFORE, AFTER)
        for action in (
            ActionName.CLUSTER_RECOVER,
            ActionName.CLUSTER_DEL_NODES,
            ActionName.CLUSTER_SCALE_IN,
            ActionName.CLUSTER_RESIZE,
            ActionName.CLUSTER_UPDATE,
            ActionName.CLUSTER_REPLACE_NODES,
            ActionName.NODE_DELETE,
            ActionName.NODE_RECOVER,
        )
    ]
    READS = [DELETION_COUNT]
    WRITES = [CREATION_COUNT, DELETION_COUNT, RECOVER_ACTION, FENCING]
    spec_schema = {
        "detection": Map(
            "Policy aspect for node failure detection.",
            required=True,
            schema={
                "interval": Integer("Number of seconds between pollings.", default=60),
                "node_update_timeout": Integer(
                    "Number of seconds since last node update to wait before checking node health.", default=300
                ),
                "recovery_conditional": String(
                    "Whether all detection modes have to find a node ill before it is recovered, or any of them.",
                    default=ANY_FAILED,
                    constraints=[AllowedValues((ALL_FAILED, ANY_FAILED))],
                ),
                "detection_modes": List(
                    "List of node failure detection modes.",
                    required=True,
                    schema=Map(
                        "Node failure detection mode to try",
                        schema={
                            "type": String(
                                "Type of node failure detection.",
                                required=True,
                                constraints=[AllowedValues(DETECTION_TYPES)],
                            ),
                            "options": _OPTIONS,
                        },
                    ),
                ),
            },
        ),
        "recovery": Map(
            "Policy aspect for node failure recovery.",
            required=True,
            schema={
                "actions": List(
                    "List of actions to try for node recovery.",
                    schema=Map(
                        "Action to try for node recovery.",
                        schema={
                            "name": String(
                                "Name of action to execute.",
                                required=True,
                                constraints=[AllowedValues(("REBOOT", "REBUILD", "RECREATE"))],
                            ),
                            "params": Map("Parameters for the action"),
                        },
                    ),
                ),
                "fencing": List(
                    "List of services to be fenced.",
                    schema=String("Service to be fenced.", required=True, constraints=[AllowedValues(("COMPUTE",))]),
                ),
                "node_delete_timeout": Integer(
                    "Number of seconds to wait for node deletion to finish and start node creation for recreate "
                    "recovery option.",
                    default=20,
                ),
                "node_force_recreate": Boolean("Whether to create node even if node deletion failed.", default=False),
            },
        ),
    }

    @property
    def detection(self) -> Mapping[str, Any]:
        """How nodes are looked at."""
        found: Mapping[str, Any] = self.spec_data["detection"]
        return found

    @property
    def recovery(self) -> Mapping[str, Any]:
        """How nodes are recovered."""
        found: Mapping[str, Any] = self.spec_data["recovery"]
        return found

    @property
    def modes(self) -> list[str]:
        """The types of detection."""
        return [mode["type"] for mode in self.detection["detection_modes"]]

    def check_spec(self) -> None:
        """Modes that can be used together, and one way to recover."""
        modes = self.modes
        if len(self.recovery["actions"] or ()) > 1:
            raise InvalidSpec("Only one 'actions' is supported for now.")
        if not modes or (LIFECYCLE_EVENTS in modes and len(modes) > 1):
            raise InvalidSpec(f"Invalid detection modes in health policy: {', '.join(modes)}")
        if len(modes) != len(set(modes)):
            raise InvalidSpec(f"Duplicate detection modes are not allowed in health policy: {', '.join(modes)}")
        for mode in self.detection["detection_modes"]:
            if mode["type"] == NODE_STATUS_POLL_URL and not mode["options"]["poll_url"]:
                raise InvalidSpec(
                    "A detection mode of type 'NODE_STATUS_POLL_URL' needs a 'poll_url' in its 'options'."
                )

    async def validate(self, cloud: Cloud, settings: ClusterSettings) -> str | None:
        """Nodes are not looked at more often, or elsewhere, than the operator allows."""
        for mode in self.detection["detection_modes"]:
            if problem := urls.refusal(mode["options"]["poll_url"], private=settings.private_urls):
                return problem
        least = settings.health_interval_min
        if self.detection["interval"] >= least:
            return None
        return (
            f"Specified interval of {self.detection['interval']} seconds has to be larger than "
            f"health_check_interval_min of {least} seconds set in configuration."
        )

    def attach(self, cluster_id: str, action: ActionView) -> Verdict:
        """Begin to watch."""
        kind = action.cluster.profile.type
        for way in self.recovery["actions"] or ():
            if way["name"] in ("REBUILD", "REBOOT") and not kind.startswith("os.nova.server"):
                return False, f"Recovery action {way['name']} is only applicable to os.nova.server clusters."
        action.effects.health = "register"
        return True, self.bound(
            {
                "interval": self.detection["interval"],
                "node_update_timeout": self.detection["node_update_timeout"],
                "recovery_conditional": self.detection["recovery_conditional"],
                "detection_modes": self.detection["detection_modes"],
            }
        )

    def detach(self, cluster_id: str, action: ActionView) -> Verdict:
        """Stop watching."""
        action.effects.health = "unregister"
        return True, ""

    def pre_op(self, cluster_id: str, action: ActionView) -> None:
        """Pause the checks while nodes come and go, and say how to recover."""
        if action.action == ActionName.CLUSTER_RESIZE:
            wanted = change(action)
            if isinstance(wanted, str):
                return action.refuse(wanted)
            if wanted.count >= 0:
                return
        if action.action in (ActionName.CLUSTER_RECOVER, ActionName.NODE_RECOVER):
            RECOVER_ACTION.write(action.data, self.ways)
            FENCING.write(action.data, self.recovery["fencing"] or [])
        if action.action != ActionName.NODE_RECOVER:
            action.effects.health = "pause"

    @property
    def ways(self) -> list[dict[str, Any]]:
        """How a node is recovered, with all parameters."""
        more = {
            "delete_timeout": self.recovery["node_delete_timeout"],
            "force_recreate": self.recovery["node_force_recreate"],
        }
        return [
            {"name": way["name"], "params": {**(more if way["name"] == "RECREATE" else {}), **(way["params"] or {})}}
            for way in self.recovery["actions"] or ()
        ]

    def post_op(self, cluster_id: str, action: ActionView) -> None:
        """Resume the checks."""
        action.effects.health = "resume"
