"""Policy types."""

from roost.api.clustering import plugin_types
from roost.clusters.plugins import Plugins

RULES = plugin_types.rules("policy")
routes = plugin_types.table("policy", lambda known: known.policies, Plugins.policy)
