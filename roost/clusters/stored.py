"""Values that are kept as JSON. Each is a frozen dataclass: it writes itself with `to_json`, and `from_json` reads it
back or raises an error that says what is wrong. Keys that a class does not know are ignored: a newer release, or a
third-party policy type, may have written them."""

import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields
from datetime import datetime
from functools import cache
from typing import Any, ClassVar, Self, Union, get_args, get_origin, get_type_hints

Reader = Callable[[Any, str], Any]


class MalformedData(ValueError):
    """Something that was kept as JSON is malformed."""


class Stored:
    """The base of the dataclasses that are kept as JSON. None and what is missing mean the default."""

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def to_json(self) -> dict[str, Any]:
        """What differs from the defaults, in JSON's own types."""
        found = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and value != _default(field):
                found[field.name] = _plain(value)
        return found

    @classmethod
    def from_json(cls, data: object, path: str = "") -> Self:
        """The value that was written; `MalformedData` names what is wrong and where."""
        if not isinstance(data, Mapping):
            raise MalformedData(f"{path or cls.__name__} must be a map, and is {data!r}.")
        kind: Any = cls
        given = {}
        for name, read in _readers(kind).items():
            value = data.get(name)
            if value is not None:
                given[name] = read(value, f"{path}.{name}" if path else name)
        return cls(**given)


def _default(field: "Field[Any]") -> Any:
    return field.default_factory() if field.default_factory is not MISSING else field.default


def _plain(value: Any) -> Any:
    if isinstance(value, Stored):
        return value.to_json()
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return value.isoformat() if isinstance(value, datetime) else value


@cache
def _readers(kind: type[Stored]) -> dict[str, Reader]:
    hints = get_type_hints(kind)
    return {field.name: _reader(hints[field.name]) for field in fields(kind)}


def _reader(hint: Any) -> Reader:
    origin, inner = get_origin(hint), get_args(hint)
    if hint in (Any, object):
        return lambda value, path: value
    if origin in (Union, types.UnionType):
        return _reader(next(each for each in inner if each is not type(None)))
    if origin is tuple:
        return _list_reader(_reader(inner[0]))
    if origin is not None:
        return _map_reader(_reader(inner[1]))
    if issubclass(hint, Stored):
        read: Reader = hint.from_json
        return read
    return _plain_reader(hint)


def _list_reader(item: Reader) -> Reader:
    def read(value: Any, path: str) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple):
            raise MalformedData(f"{path} must be a list, and is {value!r}.")
        return tuple(item(each, f"{path}[{place}]") for place, each in enumerate(value))

    return read


def _map_reader(item: Reader) -> Reader:
    def read(value: Any, path: str) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise MalformedData(f"{path} must be a map, and is {value!r}.")
        return {str(key): item(each, f"{path}.{key}") for key, each in value.items()}

    return read


def _plain_reader(kind: type) -> Reader:
    accepted: tuple[type, ...] = (int, float) if kind is float else (str,) if kind is datetime else (kind,)

    def read(value: Any, path: str) -> Any:
        if not isinstance(value, accepted) or (isinstance(value, bool) and kind is not bool):
            raise MalformedData(f"{path} must be of type {kind.__name__}, and is {value!r}.")
        try:
            return datetime.fromisoformat(str(value)) if kind is datetime else kind(value)
        except ValueError as error:
            raise MalformedData(f"{path} cannot be read: {error}.") from None

    return read
