"""Who may do what: oslo.policy, with the personas reader, member, manager and admin.

Each API module declares the rules of its noun as `RULES`: a name, a persona, and a sentence. Which requests a rule
guards is read from the route table, so the operator's sample file cannot go stale.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from oslo_policy import opts, policy

from roost.config import Settings
from roost.identity.tokens import Caller

ADMIN = "rule:admin_api"
MANAGER = "rule:project_manager_or_admin"
MEMBER = "rule:project_member_or_admin"
READER = "rule:project_reader_or_admin"
ANYONE = "@"

_PERSONAS = [
    policy.RuleDefault("admin_api", "role:admin", "The operators of the cloud."),
    policy.RuleDefault("project_manager_api", "role:manager and project_id:%(project_id)s", "A project's manager."),
    policy.RuleDefault("project_member_api", "role:member and project_id:%(project_id)s", "Who changes a project."),
    policy.RuleDefault("project_reader_api", "role:reader and project_id:%(project_id)s", "Who reads a project."),
    policy.RuleDefault("project_manager_or_admin", "rule:project_manager_api or rule:admin_api"),
    policy.RuleDefault("project_member_or_admin", "rule:project_member_api or rule:admin_api"),
    policy.RuleDefault("project_reader_or_admin", "rule:project_reader_api or rule:admin_api"),
]


@dataclass(frozen=True, slots=True)
class Permission:
    """One permission: what it is called, who has it unless the operator says otherwise, and what it allows."""

    name: str
    check: str
    description: str


class Permissions:
    """The rules in force: the defaults, and what the operator's policy.yaml changes."""

    def __init__(self, settings: Settings, rules: Iterable[policy.RuleDefault]) -> None:
        opts.set_defaults(settings.source, policy_file="policy.yaml")
        self._enforcer = policy.Enforcer(settings.source)
        self._enforcer.register_defaults(rules)
        self._enforcer.load_rules()
        self._answers: dict[tuple[str, Caller, tuple[tuple[str, Any], ...]], bool] = {}
        self._fresh_until = 0.0

    def allows(self, rule: str, caller: Caller, target: Mapping[str, Any]) -> bool:
        """Whether the caller may, on things that belong to `target`: by default, to the caller's own project.

        Answers are kept for a second: oslo.policy looks at its files and takes its checks apart each time it is asked.
        """
        if time.monotonic() > self._fresh_until:
            self._answers.clear()
            self._fresh_until = time.monotonic() + 1
        question = (rule, caller, tuple(sorted(target.items())))
        answer = self._answers.get(question)
        if answer is None:
            answer = self._answers[question] = self._ask(rule, caller, target)
        return answer

    def _ask(self, rule: str, caller: Caller, target: Mapping[str, Any]) -> bool:
        credentials = {"user_id": caller.user_id, "project_id": caller.project_id, "roles": list(caller.roles)}
        owner = {"user_id": caller.user_id, "project_id": caller.project_id}
        return bool(self._enforcer.authorize(rule, {**owner, **target}, credentials, do_raise=False))


def documented(
    rules: Iterable[Permission], operations: Mapping[str, Sequence[tuple[str, str]]]
) -> list[policy.RuleDefault]:
    """The rules as oslo.policy wants them, with the requests that each guards."""
    documented_rules = [
        policy.DocumentedRuleDefault(
            rule.name,
            rule.check,
            rule.description,
            [{"method": method, "path": path} for method, path in operations.get(rule.name, [])]
            or [{"method": "-", "path": "part of other requests"}],
        )
        for rule in rules
    ]
    return [*_PERSONAS, *documented_rules]


def list_rules() -> list[policy.RuleDefault]:
    """For oslo.policy's sample generator."""
    from roost.api.app import default_rules

    return default_rules()
