"""Profiles: made from a spec, listed, renamed, labelled and deleted."""

from roost.api.clustering import fields, specs
from roost.api.clustering.fields import BodyField
from roost.clusters.specs import PROFILES

RULES = specs.rules(PROFILES, "profiles")
routes = specs.table(PROFILES, "profiles", {"name": BodyField(fields.as_name), "metadata": BodyField(fields.as_map)})
