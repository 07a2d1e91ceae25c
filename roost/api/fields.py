"""The fields of a resource as one table, which makes the answers of every version and their schemas."""

from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Generic, TypeVar

from roost.api.schemas import Schema, array, thing
from roost.api.versions import Version

S = TypeVar("S", contravariant=True)

OLDEST = Version(0, 0)
"""Older than every version: a field since then is shown in all of them."""


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


def column(name: str, schema: Schema, attribute: str | None = None, **more: Any) -> ShownField[Any]:
    """A field that shows an attribute: the one of the same name, unless another is named."""
    return ShownField(name, schema, attrgetter(attribute or name), **more)


def given(name: str, schema: Schema) -> ShownField[Any]:
    """A field that shows the attribute of the same name, and is left out where that is None."""
    return ShownField(name, schema, attrgetter(name), when=lambda item: getattr(item, name) is not None)


def always(name: str, value: Any, **more: Any) -> ShownField[Any]:
    """A field that has the same value in every answer."""
    return ShownField(name, {"const": value}, lambda _: value, **more)


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
        """What one looks like in this version; it may have `more`."""
        known = self.known(version)
        required = {each.name: each.schema for each in known if each.when is None}
        return thing(required, {each.name: each.schema for each in known if each.when is not None} | more)

    def one(self, key: str) -> Callable[[Version], Schema]:
        """What an answer with one of them is, by version."""
        return lambda version: thing({key: self.schema(version)})

    def many(self, key: str, **more: Schema) -> Callable[[Version], Schema]:
        """What an answer with a list of them is, by version; it may have `more`."""
        return lambda version: thing({key: array(self.schema(version))}, more)

    def show(self, item: S, version: Version = OLDEST) -> dict[str, Any]:
        """An item as this version shows it."""
        return {each.name: each.value(item) for each in self.known(version) if each.when is None or each.when(item)}
