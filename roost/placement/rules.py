"""The rules of a group: what they say, how they are written, and which of them can never hold together.

Errors a rule can be refused with, all of them `RuleError`:

    RuleError
    ├── UnknownType          the word before the first colon is none of the four types
    ├── MalformedRule        a part between the colons is empty or has blanks around it
    ├── UntargetableScope    an identifier where the scope has none to offer
    ├── UnknownLimit         a limit that no rule knows
    ├── BadLimit             a limit that is not a whole number from 0 up, or, of partitions, not from 2 to 100
    └── MisplacedLimit       a limit on a rule that cannot carry it
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations
from typing import Final, Self

HOST = "host"
"""The built-in scope in which every host is its own aggregate."""

AVAILABILITY_ZONE = "availability_zone"
"""The built-in scope whose aggregates are the availability zones."""

MOST_PARTITIONS: Final = 100
"""How many partitions a group can be divided into."""


def inside(scope: str) -> str:
    """Servers are on a host or a switch, and in anything else."""
    return "on" if scope in (HOST, "switch") else "in"


class Kind(StrEnum):
    """Whether members are to be together or apart."""

    AFFINITY = "affinity"
    ANTI_AFFINITY = "anti-affinity"


class Limit(StrEnum):
    """The limits a hard anti-affinity rule may carry."""

    MAX_SERVER_PER_HOST = "max_server_per_host"
    MAX_SERVER_PER_AGGREGATE = "max_server_per_aggregate"
    MAX_SKEW = "max_skew"
    PARTITIONS = "partitions"


TYPES: Mapping[str, tuple[Kind, bool]] = {
    "anti-affinity": (Kind.ANTI_AFFINITY, False),
    "affinity": (Kind.AFFINITY, False),
    "soft-anti-affinity": (Kind.ANTI_AFFINITY, True),
    "soft-affinity": (Kind.AFFINITY, True),
}
"""Each type's kind, and whether it is soft."""


class RuleError(ValueError):
    """A rule that cannot be understood."""


class UnknownType(RuleError):
    """The word before the first colon is not one of the four types."""

    def __init__(self, name: str) -> None:
        super().__init__(f"'{name}' is not a type of rule; use one of {', '.join(TYPES)}")


class MalformedRule(RuleError):
    """A part between the colons is empty or has blanks around it."""

    def __init__(self, text: str, part: str) -> None:
        super().__init__(f"the {part} of '{text}' is empty or has blanks around it; write TYPE[:SCOPE[:IDENTIFIER]]")


class UntargetableScope(RuleError):
    """An identifier where the scope has none to offer."""

    def __init__(self, identifier: str) -> None:
        super().__init__(f"single hosts cannot be targeted: leave out '{identifier}', or name another scope than host")


class UnknownLimit(RuleError):
    """A limit that no rule knows."""

    def __init__(self, name: str) -> None:
        super().__init__(f"'{name}' is not a limit; use one of {', '.join(Limit)}")


class BadLimit(RuleError):
    """A limit that is not a whole number from 0 up, or, of partitions, not from 2 to 100."""

    def __init__(self, limit: Limit, value: object) -> None:
        numbers = f"from 2 to {MOST_PARTITIONS}" if limit is Limit.PARTITIONS else "from 1 up"
        super().__init__(f"{limit} must be a whole number {numbers}, and is {value!r}")


class MisplacedLimit(RuleError):
    """A limit on a rule that cannot carry it."""

    def __init__(self, limit: Limit, why: str) -> None:
        super().__init__(f"{limit} cannot stand here: {why}")


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of a group's policy: kind, strength, scope, target and limits."""

    kind: Kind
    soft: bool = False
    scope: str = HOST
    identifier: str | None = None
    max_server_per_host: int | None = None
    max_server_per_aggregate: int | None = None
    max_skew: int | None = None
    partitions: int | None = None

    def __post_init__(self) -> None:
        _check_part(str(self), "scope", self.scope)
        if self.identifier is not None:
            _check_part(str(self), "identifier", self.identifier)
            if self.scope == HOST:
                raise UntargetableScope(self.identifier)
        for limit, value in self.limits.items():
            _check_limit(self, limit, value)

    @classmethod
    def parse(cls, text: str, limits: Mapping[str, object] | None = None) -> Self:
        """The rule that `TYPE[:SCOPE[:IDENTIFIER]]` and its limits mean."""
        name, *rest = text.split(":", 2)
        if name not in TYPES:
            raise UnknownType(name)
        kind, soft = TYPES[name]
        numbers = {_limit_named(key): value for key, value in (limits or {}).items()}
        return cls(
            kind,
            soft,
            rest[0] if rest else HOST,
            rest[1] if len(rest) > 1 else None,
            **{str(limit): _whole_number(limit, value) for limit, value in numbers.items()},
        )

    def __str__(self) -> str:
        """The rule as `TYPE[:SCOPE[:IDENTIFIER]]`, in its shortest form; limits travel beside it."""
        parts = [f"soft-{self.kind}" if self.soft else str(self.kind)]
        if self.scope != HOST or self.identifier is not None:
            parts.append(self.scope)
        if self.identifier is not None:
            parts.append(self.identifier)
        return ":".join(parts)

    @property
    def limits(self) -> dict[Limit, int]:
        """The limits that were given, by name."""
        every = {
            Limit.MAX_SERVER_PER_HOST: self.max_server_per_host,
            Limit.MAX_SERVER_PER_AGGREGATE: self.max_server_per_aggregate,
            Limit.MAX_SKEW: self.max_skew,
            Limit.PARTITIONS: self.partitions,
        }
        return {name: value for name, value in every.items() if value is not None}

    @property
    def together(self) -> bool:
        """Hard, and its members must share one aggregate that the rule does not name."""
        return not self.soft and self.kind is Kind.AFFINITY and self.identifier is None

    @property
    def limit(self) -> int | None:
        """How many members one aggregate may hold; None where nothing bounds it.

        A skew alone lifts the default of 1, under which it would have no effect; so do partitions, whose own members
        may share.
        """
        if self.soft or self.kind is Kind.AFFINITY or self.identifier is not None:
            return None
        given = [n for n in (self.max_server_per_host, self.max_server_per_aggregate) if n is not None]
        if given:
            return min(given)
        return None if self.max_skew is not None or self.partitions is not None else 1


def _check_part(text: str, part: str, value: str) -> None:
    if not value or value != value.strip():
        raise MalformedRule(text, part)


def _check_limit(rule: Rule, limit: Limit, value: int) -> None:
    if value < 0 or (limit is Limit.PARTITIONS and not 2 <= value <= MOST_PARTITIONS):
        raise BadLimit(limit, value)
    if rule.soft or rule.kind is Kind.AFFINITY:
        raise MisplacedLimit(limit, f"only anti-affinity takes limits, and this is {rule}")
    if rule.identifier is not None:
        raise MisplacedLimit(limit, f"{rule} keeps all members out of '{rule.identifier}'; leave out one of the two")
    if limit is Limit.MAX_SERVER_PER_HOST and rule.scope != HOST:
        raise MisplacedLimit(limit, f"the scope is {rule.scope}; use {Limit.MAX_SERVER_PER_AGGREGATE}")
    if limit is Limit.PARTITIONS and rule.max_skew is not None:
        raise MisplacedLimit(
            limit, f"{Limit.MAX_SKEW} spreads members evenly in spite of them; leave out one of the two"
        )


def _limit_named(name: str) -> Limit:
    try:
        return Limit(name)
    except ValueError:
        raise UnknownLimit(name) from None


def _whole_number(limit: Limit, value: object) -> int:
    """The number, also where a client sends it as digits."""
    if isinstance(value, str) and value.isascii() and value.isdigit():
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadLimit(limit, value)
    return value


class ContradictionKind(StrEnum):
    """Why rules can never hold. The codes are public and do not change."""

    LIMIT_OF_NONE = "limit_of_none"
    TWO_TARGETS = "two_targets"
    TARGET_FORBIDDEN = "target_forbidden"
    TOGETHER_AND_APART = "together_and_apart"
    DIVIDED_TWICE = "divided_twice"


@dataclass(frozen=True, slots=True)
class Contradiction:
    """Rules that can never hold together, whatever the fleet."""

    conflict: ContradictionKind
    rules: tuple[Rule, ...]
    sentence: str


def contradictions(rules: Sequence[Rule], servers: int = 2) -> list[Contradiction]:
    """Every contradiction among the hard rules of a group that is to hold this many servers."""
    hard = [rule for rule in rules if not rule.soft]
    return [*_limits_of_none(hard), *_target_conflicts(hard), *_crowding(hard, servers), *_divisions(hard)]


def division_of(rules: Sequence[Rule]) -> Rule | None:
    """The rule that divides a group into partitions, if one does."""
    return next((rule for rule in rules if rule.partitions is not None), None)


def _limits_of_none(hard: Sequence[Rule]) -> Iterator[Contradiction]:
    for rule in hard:
        for limit, value in rule.limits.items():
            if value == 0:
                sentence = f"{limit} of 0 lets no server of '{rule}' be placed; use 1 or more"
                yield Contradiction(ContradictionKind.LIMIT_OF_NONE, (rule,), sentence)


def _target_conflicts(hard: Sequence[Rule]) -> Iterator[Contradiction]:
    """Targets of one scope that exclude each other; forbidding two aggregates is no conflict."""
    targeted = [rule for rule in hard if rule.identifier is not None]
    for one, other in combinations(targeted, 2):
        if one.scope != other.scope:
            continue
        affinities = [one.kind, other.kind].count(Kind.AFFINITY)
        if affinities == 2 and one.identifier != other.identifier:
            sentence = f"'{one}' and '{other}' name two targets in one scope; keep one"
            yield Contradiction(ContradictionKind.TWO_TARGETS, (one, other), sentence)
        elif affinities == 1 and one.identifier == other.identifier:
            sentence = f"'{one}' and '{other}' require and forbid the same target; drop one"
            yield Contradiction(ContradictionKind.TARGET_FORBIDDEN, (one, other), sentence)


def _crowding(hard: Sequence[Rule], servers: int) -> Iterator[Contradiction]:
    """Affinity that puts more servers into one aggregate than a limit allows.

    One host lies in one aggregate of every scope, so affinity to a host meets the limits of all scopes.
    """
    for near in hard:
        if near.kind is not Kind.AFFINITY:
            continue
        for far in hard:
            limit = far.limit
            if limit and servers > limit and near.scope in (far.scope, HOST):
                sentence = (
                    f"'{near}' keeps {servers} servers {inside(far.scope)} one {far.scope} and '{far}' allows {limit}; "
                    f"raise the limit to {servers} or drop one"
                )
                yield Contradiction(ContradictionKind.TOGETHER_AND_APART, (near, far), sentence)
            if far.partitions and servers > 1 and near.scope in (far.scope, HOST):
                sentence = (
                    f"'{near}' keeps all servers {inside(far.scope)} one {far.scope} and '{far}' gives each of "
                    f"{far.partitions} partitions {far.scope}s of its own; drop one"
                )
                yield Contradiction(ContradictionKind.TOGETHER_AND_APART, (near, far), sentence)


def _divisions(hard: Sequence[Rule]) -> Iterator[Contradiction]:
    """A member has one partition number, so only one rule may divide a group."""
    dividing = [rule for rule in hard if rule.partitions is not None]
    for one, other in combinations(dividing, 2):
        sentence = f"'{one}' and '{other}' both divide the group into partitions; keep one"
        yield Contradiction(ContradictionKind.DIVIDED_TWICE, (one, other), sentence)
