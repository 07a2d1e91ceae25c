"""The compute API, as Nova speaks it: one module a noun."""

from dataclasses import replace

from roost.api.compute import (
    aggregates,
    audits,
    availability_zones,
    console,
    drains,
    explanations,
    extensions,
    external_events,
    flavors,
    fleet,
    hosts,
    hypervisors,
    images,
    keypairs,
    plans,
    policy_scopes,
    quotas,
    repairs,
    rule_meanings,
    server_actions,
    server_groups,
    server_guests,
    server_history,
    server_metadata,
    server_networks,
    server_tags,
    server_volumes,
    servers,
    services,
    tenant_networks,
    tenant_usage,
    versions,
)
from roost.api.errors import compute_body
from roost.api.frame import Api
from roost.api.routes import Table
from roost.api.versions import COMPUTE

_NOUNS = (
    versions,
    server_networks,
    server_volumes,
    servers,
    server_actions,
    server_history,
    server_metadata,
    server_groups,
    audits,
    explanations,
    plans,
    repairs,
    drains,
    rule_meanings,
    policy_scopes,
    aggregates,
    availability_zones,
    extensions,
    flavors,
    fleet,
    console,
    hosts,
    hypervisors,
    images,
    keypairs,
    quotas,
    services,
    server_guests,
    server_tags,
    external_events,
    tenant_networks,
    tenant_usage,
)

COMPUTE_API = Api(
    name="compute",
    prefix="/compute",
    table=Table().include(*(noun.routes for noun in _NOUNS)),
    error_body=compute_body,
    rules=tuple(rule for noun in _NOUNS for rule in getattr(noun, "RULES", ())),
    negotiation=COMPUTE,
    project_after="v2.1",
    request_id_header="X-Compute-Request-Id",
)

_OWN = (
    versions, server_groups, audits, explanations, plans, repairs, drains, rule_meanings, policy_scopes, fleet, console
)  # fmt: skip

FRONT_API = replace(COMPUTE_API, table=Table().include(*(noun.routes for noun in _OWN)))
"""The part that Roost serves itself where Nova serves the rest."""
