"""The network API, as Neutron speaks it: networks, subnets, ports, security groups and quotas, for stock tools."""

from roost.api.errors import network_body
from roost.api.frame import Api
from roost.api.network import collections, quotas, versions
from roost.api.routes import Table
from roost.api.schemas import keystone_sentence

_NOUNS = (versions, collections, quotas)

NETWORK_API = Api(
    name="network",
    prefix="/network",
    table=Table().include(*(noun.routes for noun in _NOUNS)),
    error_body=network_body,
    rules=tuple(rule for noun in _NOUNS for rule in getattr(noun, "RULES", ())),
    forbidden="(rule:{rule}) is disallowed by policy",
    invalid=keystone_sentence,
    says_wrong_method=True,
    over_quota=409,
)
