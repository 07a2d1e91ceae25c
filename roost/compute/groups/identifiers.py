"""By which identifiers a tenant knows aggregates: the real ones are stored, and shown only where the scope allows it.

A scope's deployer chooses (`Scope.identifier_for`). Identifiers that are not allowed never leave Roost: an audit shows
surrogates, made up for that one answer.
"""

from collections.abc import Mapping
from dataclasses import replace
from uuid import uuid4

from roost.compute.inventory.scopes import Scope
from roost.placement.rules import Rule


def shown(rule: Rule, known: Mapping[str, Scope], project_id: str) -> Rule:
    """The rule as this project may see it."""
    if rule.identifier is None:
        return rule
    return replace(rule, identifier=known[rule.scope].identifier_for(project_id, rule.identifier))


class Surrogates:
    """Identifiers as one audit shows them: two are equal exactly where the aggregates are the same."""

    def __init__(self, known: Mapping[str, Scope], project_id: str) -> None:
        self._known = known
        self._project_id = project_id
        self._made_up: dict[tuple[str, str], str] = {}

    def of(self, scope: str, identifier: str) -> str:
        """The tenant's own identifier; where the scope allows none, one that the next answer will not repeat."""
        if self._known[scope].allow_identifiers:
            return self._known[scope].identifier_for(self._project_id, identifier)
        return self._made_up.setdefault((scope, identifier), str(uuid4()))

    def shown(self, rule: Rule) -> Rule:
        """The rule with the tenant's own identifier."""
        return shown(rule, self._known, self._project_id)
