"""Specs: the properties of a policy or a profile, as a typed schema.

    spec_schema = {
        "criteria": String("How victims are chosen.", default="RANDOM", constraints=[AllowedValues(["RANDOM"])]),
        "hooks": Map("What to wait for.", schema={"timeout": Integer("Seconds.", default=0)}),
    }

A spec comes in an envelope of `type`, `version`, `properties` and, optionally, `description`. Properties are
resolved in this order: what is given, else the default, else an error if the property is required, else None.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from oslo_utils import strutils

from roost.errors import Invalid
from roost.suggestions import instead


class InvalidSpec(Invalid):
    """The spec does not follow the schema of its type, or names what the cloud does not have."""


@dataclass(frozen=True, slots=True)
class AllowedValues:
    """A constraint: the value is one of these."""

    allowed: Sequence[Any]

    def check(self, value: Any) -> None:
        """Raise `InvalidSpec` unless the value is allowed."""
        if value not in self.allowed:
            choices = ", ".join(str(choice) for choice in self.allowed)
            raise InvalidSpec(f"'{value}' must be one of the allowed values: {choices}")

    def describe(self) -> dict[str, Any]:
        """The constraint as clients read it."""
        return {"type": "AllowedValues", "constraint": list(self.allowed)}


class Property:
    """One item of a spec; the base of `String`, `Boolean`, `Integer`, `Number`, `List` and `Map`."""

    TYPE: ClassVar[str]

    def __init__(
        self,
        description: str = "",
        *,
        default: Any = None,
        required: bool = False,
        updatable: bool = False,
        constraints: Sequence[AllowedValues] = (),
        min_version: str | None = None,
        max_version: str | None = None,
    ) -> None:
        self.description = description
        self.default = default
        self.required = required
        self.updatable = updatable
        self.constraints = tuple(constraints)
        self.min_version = min_version
        self.max_version = max_version

    def resolve(self, value: Any, version: str | None = None) -> Any:
        """The value in its own type, or `InvalidSpec`."""
        converted = self.convert(value)
        for constraint in self.constraints:
            constraint.check(converted)
        return converted

    def convert(self, value: Any) -> Any:
        """The value in its own type, before the constraints are checked."""
        raise NotImplementedError

    def in_version(self, version: str) -> bool:
        """Whether a spec of that version has this property."""
        return not self.misfit("", version)

    def misfit(self, key: str, version: str) -> str:
        """Why a spec of that version cannot have this property, or nothing."""
        if self.min_version and version_number(version) < version_number(self.min_version):
            return f"{key} (min_version={self.min_version}) is not supported by spec version {version}."
        if self.max_version and version_number(version) > version_number(self.max_version):
            return f"{key} (max_version={self.max_version}) is not supported by spec version {version}."
        return ""

    def describe(self, version: str | None = None) -> dict[str, Any]:
        """The property as clients read it."""
        text: dict[str, Any] = {"type": self.TYPE}
        if self.description:
            text["description"] = self.description
        if self.default is not None:
            text["default"] = self.default
        text["required"] = self.required
        text["updatable"] = self.updatable
        if self.constraints:
            text["constraints"] = [constraint.describe() for constraint in self.constraints]
        return text


Schema = Mapping[str, Property]


class String(Property):
    """Text; numbers are taken as their text."""

    TYPE = "String"

    def convert(self, value: Any) -> str:
        """Anything but nothing has a text."""
        if value is None or isinstance(value, Mapping | list):
            raise InvalidSpec(f"The value '{value}' is not a valid string.")
        return value if isinstance(value, str) else str(value)


class Boolean(Property):
    """True or false, also in words."""

    TYPE = "Boolean"

    def convert(self, value: Any) -> bool:
        """Read yes and no, on and off, and their like."""
        try:
            return bool(strutils.bool_from_string(value, strict=True))
        except ValueError:
            raise InvalidSpec(f"The value '{value}' is not a valid Boolean") from None


class Integer(Property):
    """A whole number, also as its text."""

    TYPE = "Integer"

    def convert(self, value: Any) -> int:
        """Read 7 and "7", not 7.5 and not true."""
        try:
            if isinstance(value, bool) or (isinstance(value, float) and not value.is_integer()):
                raise ValueError
            return int(value)
        except (TypeError, ValueError, OverflowError):
            raise InvalidSpec(f"The value '{value}' is not a valid Integer") from None


class Number(Property):
    """A number, whole or not, also as its text."""

    TYPE = "Number"

    def convert(self, value: Any) -> float:
        """Read 7, 7.5 and their texts; a whole number stays whole."""
        try:
            if isinstance(value, bool):
                raise ValueError
            number = float(value)
            if number != number or number in (float("inf"), float("-inf")):
                raise ValueError
            return int(number) if number.is_integer() and "." not in str(value) else number
        except (TypeError, ValueError, OverflowError):
            raise InvalidSpec(f"The value '{value}' is not a valid number.") from None


class List(Property):
    """A list whose items all follow one schema."""

    TYPE = "List"

    def __init__(self, description: str = "", *, schema: Property | None = None, **more: Any) -> None:
        super().__init__(description, **more)
        self.schema = schema

    def resolve(self, value: Any, version: str | None = None) -> list[Any]:
        """Every item in its own type; an empty text is an empty list, as in Senlin."""
        if value == "":
            value = []
        if not isinstance(value, list | tuple):
            raise InvalidSpec(f"'{value}' is not a List")
        items = [self.schema.resolve(item, version) for item in value] if self.schema else list(value)
        for constraint in self.constraints:
            for item in items:
                constraint.check(item)
        return items

    def describe(self, version: str | None = None) -> dict[str, Any]:
        """The schema of all items stands under `*`."""
        text = super().describe(version)
        return {**text, "schema": {"*": self.schema.describe(version)}} if self.schema else text


class Map(Property):
    """A map; with a schema, only of the keys that it names.

    In a schema, a plain value is short for a property with that default: {"inactive": "boot"}.
    """

    TYPE = "Map"

    def __init__(self, description: str = "", *, schema: Mapping[str, Any] | None = None, **more: Any) -> None:
        super().__init__(description, **more)
        self.schema = None if schema is None else {key: _property(item) for key, item in schema.items()}

    def resolve(self, value: Any, version: str | None = None) -> dict[str, Any]:
        """Every known key in its own type; the text of a JSON object will do."""
        if isinstance(value, str):
            try:
                value = json.loads(value)
            except ValueError:
                raise InvalidSpec(f"'{value}' is not a Map") from None
        if not isinstance(value, Mapping):
            raise InvalidSpec(f"'{value}' is not a Map")
        return dict(value) if self.schema is None else resolve(self.schema, value, version)

    def describe(self, version: str | None = None) -> dict[str, Any]:
        """The schema of each key stands under its name."""
        text = super().describe(version)
        return text if self.schema is None else {**text, "schema": describe(self.schema, version)}


def _property(item: Any) -> Property:
    if isinstance(item, Property):
        return item
    kinds: dict[type, type[Property]] = {bool: Boolean, int: Integer, float: Number, str: String}
    if type(item) not in kinds:
        raise InvalidSpec(f"The schema of a Map has properties or plain defaults, not {item!r}")
    return kinds[type(item)](default=item)


def resolve(schema: Schema, given: Mapping[str, Any], version: str | None = None) -> dict[str, Any]:
    """All properties of a schema in their own types; raise `InvalidSpec` for the first thing wrong."""
    resolved = {}
    for key, item in schema.items():
        if key in given:
            if version and (misfit := item.misfit(key, version)):
                raise InvalidSpec(misfit)
            resolved[key] = item.resolve(given[key], version)
        elif version and item.misfit(key, version):
            continue
        elif item.default is not None:
            resolved[key] = item.resolve(item.default, version)
        elif item.required:
            raise InvalidSpec(f"Required spec item '{key}' not provided")
        else:
            resolved[key] = None
    for key in given:
        if key not in schema:
            raise InvalidSpec(f"Unrecognizable spec item '{key}'{instead(str(key), schema)}")
    return resolved


def describe(schema: Schema, version: str | None = None) -> dict[str, Any]:
    """A schema as clients read it: of one version, or of all."""
    return {key: item.describe(version) for key, item in schema.items() if version is None or item.in_version(version)}


@dataclass(frozen=True, slots=True)
class Envelope:
    """A spec before its type is known: what is in it is not yet looked at."""

    type: str
    version: str
    properties: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The type and version as one string, such as senlin.policy.affinity-1.0."""
        return f"{self.type}-{self.version}"


_ENVELOPE: Schema = {
    "type": String(required=True),
    "version": String(required=True),
    "description": String(),
    "properties": Map(required=True),
}


def unwrap(spec: Any) -> Envelope:
    """Read the envelope, or raise `InvalidSpec`."""
    if not isinstance(spec, Mapping):
        raise InvalidSpec("The provided spec is not a map.")
    for key in ("type", "version"):
        if key not in spec:
            raise InvalidSpec(f"The '{key}' key is missing from the provided spec map.")
    opened = resolve(
        _ENVELOPE, {key: value for key, value in spec.items() if key != "description" or value is not None}
    )
    return Envelope(opened["type"], opened["version"], opened["properties"])


def version_number(text: str) -> tuple[int, ...]:
    """`1.10` is later than `1.9`."""
    return tuple(int(part) for part in text.split("."))


@dataclass(frozen=True, slots=True)
class Operation:
    """Something that a profile can do to a node when asked, and its parameters."""

    description: str
    parameters: Schema

    def check(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters in their own types, or `InvalidSpec`."""
        for key in given:
            if key not in self.parameters:
                raise InvalidSpec(f"Unrecognizable parameter '{key}'{instead(str(key), self.parameters)}")
        for key, item in self.parameters.items():
            if item.required and key not in given:
                raise InvalidSpec(f"Required parameter '{key}' not provided")
        return resolve(self.parameters, given)

    def describe(self) -> dict[str, Any]:
        """The operation as clients read it."""
        parameters = {key: item.describe() for key, item in self.parameters.items()}
        for text in parameters.values():
            del text["updatable"]
        return {"description": self.description, "parameters": parameters}
