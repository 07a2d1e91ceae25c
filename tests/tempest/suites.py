"""Which tests are run against Roost, in which passes, and which of them cannot pass, with the reason of each."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pass:
    """A run of some tests, all of whose waits are cut to that many seconds."""

    regex: str
    exclude: str = ""
    longest_sleep: float = 0.2


_LOCKED = "TestClusterScaleOutNegativeResourceIsLocked"
_HEALTH = r"TestHealthPolicy\.test_health_policy\["

SUITES: Mapping[str, tuple[Pass, ...]] = {
    "clustering": (
        # These first: they count what is in the project, and two of the others leave nodes behind.
        Pass(r"senlin_tempest_plugin\.tests\.functional\.", _HEALTH),
        Pass(r"senlin_tempest_plugin\.tests\.api\.", _LOCKED),
        # Its profile makes servers slow to boot, and the plug-in then uses it in all tests that follow.
        Pass(_LOCKED, longest_sleep=5.0),
        # It waits for a watch that looks every ten seconds.
        Pass(_HEALTH, longest_sleep=15.0),
    ),
}

_WANTS_500 = "wants a 500 for a spec that is the request's fault; we answer 400"
_WANTS_HEAT = "makes a node of a Heat stack, and there is no Heat"
_BAD_PATTERN = "has a regular expression with flags in the middle, which Python refuses since 3.11"

CANNOT_PASS: Mapping[str, str] = {
    "TestPolicyCreateNegativeBadRequest.test_policy_create_spec_validation_failed": _WANTS_500,
    "TestPolicyValidateNegativeBadRequest.test_policy_validate_spec_validation_failed": _WANTS_500,
    "TestScalingPolicy.test_scaling_policy_invalid_type": _WANTS_500,
    "TestClusterAddNodesNegativeProfileTypeUnmatch.test_cluster_add_nodes_profile_type_unmatch": _WANTS_HEAT,
    "TestClusterReplaceNodeNegativeProfileUnmatch.test_cluster_replace_nodes_profile_type_unmatch": _WANTS_HEAT,
    "TestHealthPolicy.test_invalid_health_policy_duplicate_type": _BAD_PATTERN,
    "TestHealthPolicy.test_invalid_health_policy_invalid_combo": _BAD_PATTERN,
}
"""By class and method."""
