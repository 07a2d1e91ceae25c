"""Access rules: the only requests that a token of a restricted application credential is good for."""

import functools
import re
from collections.abc import Sequence


def allow(rules: Sequence[Sequence[str]] | None, service: str, method: str, path: str) -> bool:
    """Whether a request is among those that the rules name; without rules, all are. Whoever has a token may look at it
    and give it up."""
    if rules is None or (service == "identity" and path == "/v3/auth/tokens"):
        return True
    return any(kind == service and verb == method and _pattern(wanted).fullmatch(path) for kind, wanted, verb in rules)


@functools.lru_cache(maxsize=1024)
def _pattern(path: str) -> re.Pattern[str]:
    """`*` and `{name}` stand for one segment of a path, `**` for any number."""
    parts = re.split(r"(\*\*|\*|\{[^}]*\})", path.rstrip("/") or "/")
    return re.compile(
        "".join(".*" if part == "**" else "[^/]+" if index % 2 else re.escape(part) for index, part in enumerate(parts))
    )
