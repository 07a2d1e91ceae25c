"""Which identifiers of aggregates an answer shows: the real ones are stored, and the reader decides what is shown.

Operators see the real ones. A tenant sees what the scope's deployer allows (`Scope.identifier_for`); an identifier that
is not allowed never leaves Roost, and a surrogate, made up for one answer, stands in its place.
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


class Identifiers:
    """Identifiers as one answer shows them: two are equal exactly where the aggregates are the same.

    `real` is for operators, who see every name; otherwise they are those of a project.
    """

    def __init__(self, known: Mapping[str, Scope], project_id: str, *, real: bool = False) -> None:
        self.known = known
        self.real = real
        self._project_id = project_id
        self._made_up: dict[tuple[str, str], str] = {}

    def of(self, scope: str, identifier: str) -> str:
        """The reader's own identifier; where the scope allows none, one that the next answer will not repeat."""
        if self.real:
            return identifier
        if self.known[scope].allow_identifiers:
            return self.known[scope].identifier_for(self._project_id, identifier)
        return self._made_up.setdefault((scope, identifier), str(uuid4()))

    def shown(self, rule: Rule) -> Rule:
        """The rule with the reader's own identifier; with none if its scope is gone."""
        if self.real or rule.identifier is None:
            return rule
        return shown(rule, self.known, self._project_id) if rule.scope in self.known else replace(rule, identifier=None)
