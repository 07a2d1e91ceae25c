"""Request bodies: which fields they have, which values each takes, and the clustering API's messages for others.

A field that is null counts as not given, and numbers may come as text: its clients send both.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from oslo_utils import strutils

from roost.api.schemas import STRING, Schema, thing
from roost.clusters.errors import BadRequest
from roost.suggestions import instead

_NAME = re.compile(r"[a-zA-Z\u4e00-\u9fa5\d._~-]*")
LARGEST = 2**31 - 1

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Reader(Generic[T]):
    """Reads the value of a field: takes the field's name and what was sent, which `schema` describes."""

    read: Callable[[str, Any], T]
    schema: Schema

    def __call__(self, field: str, value: Any) -> T:
        return self.read(field, value)


@dataclass(frozen=True, slots=True)
class BodyField:
    """One field of a body."""

    read: Reader[Any]
    required: bool = False


def described(fields: Mapping[str, BodyField]) -> Schema:
    """What a body with these fields looks like, for the OpenAPI document."""
    return thing(
        {name: field.read.schema for name, field in fields.items() if field.required},
        {name: field.read.schema for name, field in fields.items() if not field.required},
    )


def enveloped(key: str, fields: Mapping[str, BodyField]) -> Schema:
    """The same, inside `{key: ...}`."""
    return thing({key: described(fields)})


def envelope(body: Any, key: str, *, change: bool = False) -> dict[str, Any]:
    """What is inside `{key: ...}`."""
    if not isinstance(body, dict) or key not in body or body[key] is None:
        if change:
            raise BadRequest(f"Malformed request data, missing '{key}' key in request body.")
        raise BadRequest(f"Request body missing '{key}' key.")
    return as_map(key, body[key])


def read(fields: Mapping[str, BodyField], given: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that were given, each read; raises `BadRequest` for the first thing wrong."""
    unknown = [key for key in given if key not in fields]
    if unknown:
        names = ", ".join(repr(key) for key in unknown)
        verb = "was" if len(unknown) == 1 else "were"
        hint = instead(unknown[0], fields)
        raise BadRequest(f"Additional properties are not allowed ({names} {verb} unexpected){hint}")
    for name, field in fields.items():
        if field.required and given.get(name) is None:
            raise BadRequest(f"'{name}' is a required property")
    return {name: fields[name].read(name, value) for name, value in given.items() if value is not None}


def single(body: Any, noun: str, known: Sequence[str], *, end: str = ".") -> tuple[str, Any]:
    """The one key of a body that says what to do, and its value; some messages end in a full stop, as Senlin's do."""
    if not isinstance(body, dict) or not body:
        raise BadRequest(f"No {noun} specified{end}")
    if len(body) > 1:
        raise BadRequest(f"Multiple {noun}s specified{end}")
    [(key, value)] = body.items()
    if known and key not in known:
        raise BadRequest(f"Unrecognized {noun} '{key}' specified")
    return key, value


def _name(field: str, value: Any) -> str:
    if not isinstance(value, str):
        raise BadRequest(f"The value '{value}' is not a valid string.")
    if not value:
        raise BadRequest(f"The value for the {field} field must be at least 1 characters long.")
    if len(value) > 255:
        raise BadRequest(f"The value for the {field} field must be less than 255 characters long.")
    if _NAME.fullmatch(value) is None:
        raise BadRequest(
            f"The value for the '{field}' ({value}) contains illegal characters. It must contain only alphanumeric or "
            '"_-.~" characters and must start with letter.'
        )
    return value


def _text(field: str, value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise BadRequest(f"The value '{value}' of '{field}' is not a valid string.")
    return str(value)


def _map(field: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadRequest(f"The value of '{field}' is not a map: '{value}'.")
    return value


def _boolean(field: str, value: Any) -> bool:
    try:
        return bool(strutils.bool_from_string(value, strict=True))
    except ValueError as error:
        raise BadRequest(str(error)) from None


def _number(field: str, value: Any) -> float:
    try:
        if isinstance(value, (bool, dict, list)):
            raise ValueError
        number = float(value)
        if number != number or number in (float("inf"), float("-inf")):
            raise ValueError
    except (ValueError, OverflowError):
        raise BadRequest(f"could not convert string to float: '{value}'") from None
    return number


as_name = Reader(_name, {"type": "string", "minLength": 1, "maxLength": 255, "pattern": f"^{_NAME.pattern}$"})
"""A name."""
as_text = Reader(_text, STRING)
"""Any text; numbers are taken as text."""
as_map = Reader(_map, {"type": "object"})
"""A map."""
as_boolean = Reader(_boolean, {"type": ["boolean", "string"]})
"""A truth value, or a word for one."""
as_number = Reader(_number, {"type": ["number", "string"]})
"""Any number."""


def as_integer(least: int | None = None, most: int | None = None) -> Reader[int]:
    """A whole number between bounds: at most what a column of the database holds."""
    highest = LARGEST if most is None else most

    def read_integer(field: str, value: Any) -> int:
        try:
            if isinstance(value, (bool, dict, list)) or (isinstance(value, float) and not value.is_integer()):
                raise ValueError
            number = int(value)
        except (ValueError, OverflowError):
            raise BadRequest(f"The value for {field} must be an integer: '{value}'.") from None
        if least is not None and number < least:
            raise BadRequest(f"Value must be >= {least} for field '{field}'.")
        if number > highest:
            raise BadRequest(f"Value must be <= {highest} for field '{field}'.")
        return number

    bounds = {"maximum": highest} | ({} if least is None else {"minimum": least})
    return Reader(read_integer, {"type": ["integer", "string"], **bounds})


def one_of(*allowed: str) -> Reader[str]:
    """One of a fixed set."""

    def read_choice(field: str, value: Any) -> str:
        if value not in allowed:
            raise BadRequest(f"Value '{value}' is not acceptable for field '{field}'.")
        return str(value)

    return Reader(read_choice, {"enum": list(allowed)})
