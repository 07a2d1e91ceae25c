"""The fields of a resource as one table, which makes the answers of every version and their schemas."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from roost.api.schemas import Schema, thing
from roost.api.versions import Version

S = TypeVar("S", contravariant=True)

OLDEST = Version(0, 0)
"""Older than every version: what has this is shown in all of them."""


@dataclass(frozen=True, slots=True)
class ShownField(Generic[S]):
    """One field: what it is called, how its value is found, and which versions show it."""

    name: str
    schema: Schema
    value: Callable[[S], Any]
    since: Version = OLDEST
    until: Version | None = None
    when: Callable[[S], bool] | None = None
    """Whether an answer has it, where not all do."""

    def known(self, version: Version) -> bool:
        """Whether this version shows it."""
        return self.since <= version and (self.until is None or version <= self.until)


class FieldTable(Generic[S]):
    """The fields of a resource, in the order in which they are shown."""

    def __init__(self, *fields: ShownField[S]) -> None:
        self.fields = fields
        self._known: dict[Version, list[ShownField[S]]] = {}

    def known(self, version: Version) -> list[ShownField[S]]:
        """The fields that this version shows; lists ask this for every item."""
        if version not in self._known:
            self._known[version] = [each for each in self.fields if each.known(version)]
        return self._known[version]

    def schema(self, version: Version = OLDEST, **more: Schema) -> Schema:
        """What an answer in this version has; it may have `more`."""
        known = self.known(version)
        required = {each.name: each.schema for each in known if each.when is None}
        return thing(required, {each.name: each.schema for each in known if each.when is not None} | more)

    def show(self, item: S, version: Version = OLDEST) -> dict[str, Any]:
        """An item as this version shows it."""
        return {each.name: each.value(item) for each in self.known(version) if each.when is None or each.when(item)}
