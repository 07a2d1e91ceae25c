"""Roost's own calls, in the style of openstacksdk: policy scopes, and answers about server groups.

import openstack
from roost.client import Client

client = Client(openstack.connect(cloud="roost"))
print(client.explain(group, flavor="m1.small", count=13).advice)
"""

from roost.client.answers import (
    AuditAnswer,
    CandidateAnswer,
    DrainAnswer,
    ExplanationAnswer,
    GroupAnswer,
    Help,
    MigrationAnswer,
    Placed,
    PlanAnswer,
    PolicyScope,
    RefusalAnswer,
    RepairAnswer,
    ViolationAnswer,
)
from roost.client.client import Client

__all__ = [
    "AuditAnswer",
    "CandidateAnswer",
    "Client",
    "DrainAnswer",
    "ExplanationAnswer",
    "GroupAnswer",
    "Help",
    "MigrationAnswer",
    "Placed",
    "PlanAnswer",
    "PolicyScope",
    "RefusalAnswer",
    "RepairAnswer",
    "ViolationAnswer",
]
