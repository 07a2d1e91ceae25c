"""What the policies of server groups mean, in words, from 2.1003 on: for what shows or composes them."""

from typing import Any

from roost.api import schemas
from roost.api.compute import server_groups
from roost.api.compute.explanations import FIRST
from roost.api.routes import Call, Reply, Table
from roost.api.schemas import array, thing
from roost.placement.phrases import phrase, sentence
from roost.placement.rules import Rule, contradictions

routes = Table(prefix="/v2.1")

_MOST_GROUPS = 500
_RULE = thing(
    {
        "scope": schemas.STRING,
        "phrase": schemas.STRING,
        # How many members one aggregate of the scope may hold.
        "limit": {"type": ["integer", "null"]},
    }
)
_MEANING = thing({"sentence": schemas.STRING, "rules": array(_RULE), "conflicts": array(schemas.STRING)})


def meaning_view(rules: list[Rule]) -> dict[str, Any]:
    """The rules of one group in words, and those of them that can never hold together."""
    return {
        "sentence": sentence(rules),
        "rules": [{"scope": rule.scope, "phrase": phrase(rule), "limit": rule.limit} for rule in rules],
        "conflicts": [each.sentence for each in contradictions(rules)],
    }


@routes.post(
    "/os-rule-meanings",
    since=FIRST,
    rule=server_groups.INDEX,
    body=thing({"groups": array(server_groups.POLICIES, maxItems=_MOST_GROUPS)}),
    response=thing({"meanings": array(_MEANING)}),
)
async def describe(call: Call) -> Reply:
    """Put the policies of `groups` into words, in the order given. Nothing is made."""
    asked = [server_groups.written_policies({"policies": each}, call.version) for each in call.body["groups"]]
    return {"meanings": [meaning_view([policy.rule for policy in policies]) for policies in asked]}
