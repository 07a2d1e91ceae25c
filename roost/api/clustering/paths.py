"""Paths into an object, such as `details.addresses.private[0].addr`: names, indexes, and `*` for all."""

import re
from typing import Any

from roost.clusters.errors import BadRequest

_PART = re.compile(r"\.?(?:\[(\d+|\*)\]|([^.\[\]]+))")


def follow(path: str, value: Any) -> list[Any]:
    """Every value that the path leads to, if any."""
    found = [value]
    for part in _parts(path):
        found = [further for each in found for further in _step(each, part)]
    return found


def _parts(path: str) -> list[str | int]:
    parts: list[str | int] = []
    rest = path.removeprefix("$")
    while rest:
        matched = _PART.match(rest)
        if matched is None:
            raise BadRequest(f"The path '{path}' cannot be understood at '{rest}'.")
        index, name = matched.groups()
        parts.append(name if name is not None else index if index == "*" else int(index))
        rest = rest[matched.end() :]
    if not parts:
        raise BadRequest("Required path attribute is missing.")
    return parts


def _step(value: Any, part: str | int) -> list[Any]:
    if part == "*":
        return list(value.values()) if isinstance(value, dict) else list(value) if isinstance(value, list) else []
    if isinstance(part, int):
        return [value[part]] if isinstance(value, list) and part < len(value) else []
    return [value[part]] if isinstance(value, dict) and part in value else []
