"""Policies: made from a spec, listed, renamed and deleted."""

from roost.api.clustering import fields, specs
from roost.api.clustering.fields import BodyField
from roost.clusters.specs import POLICIES

RULES = specs.rules(POLICIES, "policies")
routes = specs.table(POLICIES, "policies", {"name": BodyField(fields.as_name, required=True)})
