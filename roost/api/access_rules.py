"""Access rules: the only requests that a token of a restricted application credential may make."""

import functools
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_LONGEST_PATH = 2048
"""No route is longer."""


def allow(rules: Sequence[Sequence[str]] | None, service: str, method: str, path: str) -> bool:
    """Whether a request is among those that the rules name; without rules, all are. A token may always be shown and
    revoked."""
    if rules is None or (service == "identity" and path == "/v3/auth/tokens"):
        return True
    return any(kind == service and verb == method and _pattern(wanted).matches(path) for kind, wanted, verb in rules)


@dataclass(frozen=True, slots=True)
class _PathPattern:
    """A path with wildcards. Tenants write them, so they are not regular expressions, which could take for ever: all
    ways to match are followed at once, and bit n of a state says that the first n parts of the pattern can match."""

    taken: Mapping[str, int]
    """The parts that a character moves past."""
    repeated: Mapping[str, int]
    """The parts that a character may be one more of."""
    optional: int
    """The parts that may match nothing."""
    whole: int

    def matches(self, path: str) -> bool:
        """Whether this is the whole path."""
        if len(path) > _LONGEST_PATH:
            return False
        state = self._skip(1)
        for character in path:
            kind = character if character in self.taken else "/" if character == "/" else ""
            state = self._skip((state & self.taken[kind]) << 1 | state & self.repeated[kind])
        return bool(state & self.whole)

    def _skip(self, state: int) -> int:
        while (more := state | (state & self.optional) << 1) != state:
            state = more
        return state


@functools.lru_cache(maxsize=1024)
def _pattern(path: str) -> _PathPattern:
    """`*` and `{name}` stand for one segment of a path, `**` for any number."""
    parts: list[str] = []
    for index, part in enumerate(re.split(r"(\*\*|\*|\{[^}]*\})", path.rstrip("/") or "/")):
        parts += part if index % 2 == 0 else ["**"] if part == "**" else ["one", "more"]
    characters = {"", "/", *(part for part in parts if len(part) == 1)}
    taken: dict[str, int] = defaultdict(int)
    repeated: dict[str, int] = defaultdict(int)
    for place, part in enumerate(parts):
        for character in characters:
            taken[character] |= (part == character or (part == "one" and character != "/")) << place
            repeated[character] |= (part == "**" or (part == "more" and character != "/")) << place
    optional = sum(1 << place for place, part in enumerate(parts) if part in ("**", "more"))
    return _PathPattern(taken, repeated, optional, 1 << len(parts))
