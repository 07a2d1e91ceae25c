"""Roost's own calls, in the style of openstacksdk: policy scopes, and answers about server groups.

import openstack
from roost.client import Client

client = Client(openstack.connect(cloud="roost"))
print(client.explain(group, flavor="m1.small", count=13).advice)
"""

from roost.client.answers import (
    Audit,
    Explanation,
    Help,
    Migration,
    Placed,
    Plan,
    PolicyScope,
    Refused,
    Repair,
    ServerGroup,
    Standing,
    Violation,
)
from roost.client.client import Client

__all__ = [
    "Audit",
    "Client",
    "Explanation",
    "Help",
    "Migration",
    "Placed",
    "Plan",
    "PolicyScope",
    "Refused",
    "Repair",
    "ServerGroup",
    "Standing",
    "Violation",
]
