"""Rules in plain words: the one place that says what a rule and its limits mean."""

from collections.abc import Sequence

from roost.placement.rules import Kind, Rule, inside


def phrase(rule: Rule) -> str:
    """One rule as a phrase: "never two in one rack"."""
    one, within = _noun(rule.scope), inside(rule.scope)
    if rule.identifier is not None:
        place = f"{one} {rule.identifier}"
        if rule.kind is Kind.AFFINITY:
            return f"preferably {within} {place}" if rule.soft else f"only {within} {place}"
        return f"preferably not {within} {place}" if rule.soft else f"never {within} {place}"
    if rule.kind is Kind.AFFINITY:
        return f"preferably one {one}" if rule.soft else f"all {within} one {one}"
    return f"preferably spread over {_plural(one)}" if rule.soft else _apart(rule, within, one)


def sentence(rules: Sequence[Rule]) -> str:
    """All rules of a group as one sentence."""
    said = "; ".join(phrase(rule) for rule in rules)
    return said[:1].upper() + said[1:]


def counted(number: int, noun: str) -> str:
    """A number of things: "1 move", "2,000 moves"."""
    return f"{number:,} {noun if number == 1 else _plural(noun)}"


def _apart(rule: Rule, within: str, one: str) -> str:
    parts = []
    if rule.limit == 1:
        parts.append(f"never two {within} one {one}")
    elif rule.limit is not None:
        parts.append(f"at most {rule.limit} per {one}")
    if rule.max_skew is not None:
        parts.append(f"{_plural(one)} at most {rule.max_skew} apart in number")
    if rule.partitions is not None:
        parts.append(f"{rule.partitions} partitions that share no {one}")
    return ", ".join(parts)


def _noun(scope: str) -> str:
    return scope.replace("_", " ")


def _plural(noun: str) -> str:
    if noun.endswith("y") and not noun.endswith(("ay", "ey", "oy")):
        return f"{noun[:-1]}ies"
    return f"{noun}es" if noun.endswith(("ch", "sh", "s", "x")) else f"{noun}s"
