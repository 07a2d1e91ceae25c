"""Access rules: which paths a rule means, and that no rule takes long to judge."""

import re
import time

from hypothesis import given
from hypothesis import strategies as st

from roost.api import access_rules


def allowed(rule: str, path: str) -> bool:
    return access_rules.allow([("compute", rule, "GET")], "compute", "GET", path)


def meant(rule: str) -> str:
    """The rule as a regular expression, which is clear, and slow for some rules."""
    parts = re.split(r"(\*\*|\*|\{[^}]*\})", rule.rstrip("/") or "/")
    return "".join(
        ".*" if part == "**" else "[^/]+" if index % 2 else re.escape(part) for index, part in enumerate(parts)
    )


@given(st.text("ab/*{}", max_size=8), st.text("ab/", max_size=10))
def test_a_rule_means_what_its_wildcards_say(rule: str, path: str) -> None:
    assert allowed(rule, path) == bool(re.fullmatch(meant(rule), path))


def test_no_rule_takes_long() -> None:
    """One of a tenant's own making kept the event loop busy for as long as the tenant liked."""
    started = time.thread_time()
    for rule in ("**a" * 42 + "!", "*a" * 60 + "!", "{x}a" * 30, "*" * 128):
        for path in ("a" * 2000, "/" * 2000, "a/" * 1000, "a" * 60_000):
            allowed(rule, path)
    assert time.thread_time() - started < 0.5
