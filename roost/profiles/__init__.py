"""For authors of profile types: everything that may be imported, and nothing else is promised.

`VERSION` is that of this surface, and changes as that of `roost.policies` does.
"""

from roost.clouds.base import Cloud, CloudError, CloudServer, ServerOutcome, ServerRequest
from roost.clusters.policies.base import NodeView
from roost.clusters.profiles.base import NodeOutcome, Profile
from roost.clusters.spec import AllowedValues, Boolean, Integer, InvalidSpec, List, Map, Number, Operation, String
from roost.clusters.spec_type import DEPRECATED, EXPERIMENTAL, SUPPORTED, UNSUPPORTED
from roost.clusters.states import Recovery

VERSION = "1.0"

__all__ = [
    "DEPRECATED",
    "EXPERIMENTAL",
    "SUPPORTED",
    "UNSUPPORTED",
    "VERSION",
    "AllowedValues",
    "Boolean",
    "Cloud",
    "CloudError",
    "CloudServer",
    "Integer",
    "InvalidSpec",
    "List",
    "Map",
    "NodeOutcome",
    "NodeView",
    "Number",
    "Operation",
    "Profile",
    "Recovery",
    "ServerOutcome",
    "ServerRequest",
    "String",
]
