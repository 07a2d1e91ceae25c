"""JSON Schema, as Nova uses it: what a body or a query may be, and the words in which a refusal is put."""

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import jsonschema_rs
from jsonschema import Draft202012Validator, FormatChecker
from jsonschema.exceptions import ValidationError
from oslo_utils import strutils

from roost.errors import Invalid
from roost.store.uuids import is_uuid
from roost.suggestions import explained, known_names

Schema = dict[str, Any]
Sentence = Callable[[ValidationError, str], str]
"""How an API puts into words what is wrong, and with what: a field/attribute or query parameters."""

NAME_ERROR = (
    "An invalid 'name' value was provided. The name must be: printable characters. "
    "Can not start or end with whitespace."
)


def _is_name(value: str) -> bool:
    return value.isprintable() and value == value.strip()


_FORMATS: Mapping[str, Callable[[str], bool]] = {"name": _is_name, "uuid": is_uuid}
_formats = FormatChecker(formats=())
for _name, _holds in _FORMATS.items():
    _formats.checks(_name)(lambda value, holds=_holds: not isinstance(value, str) or holds(value))


NAME: Schema = {"type": "string", "minLength": 1, "maxLength": 255, "format": "name"}
MOST_DIGITS = 18
"""Longer than any number that means something, and short enough to be read as one."""
_DIGITS: Schema = {"type": ["integer", "string"], "pattern": "^[0-9]*$", "minLength": 1, "maxLength": MOST_DIGITS}
POSITIVE_INTEGER: Schema = {**_DIGITS, "minimum": 1}
DIGITS: Schema = {"type": "string", "pattern": "^[0-9]*$"}
BOOLEAN: Schema = {
    "type": ["boolean", "string"],
    "enum": [
        *(True, "True", "TRUE", "true", "1", "ON", "On", "on", "YES", "Yes", "yes"),
        *(False, "False", "FALSE", "false", "0", "OFF", "Off", "off", "NO", "No", "no"),
    ],
}
UUID: Schema = {"type": "string", "format": "uuid"}
STRING: Schema = {"type": "string"}
NULLABLE_STRING: Schema = {"type": ["string", "null"]}
INTEGER: Schema = {"type": "integer"}
TRUTH: Schema = {"type": "boolean"}
NULL: Schema = {"type": "null"}
ANY: Schema = {}
NOUN = "x-noun"
"""What one property of an object is called where the refusal of an unknown one lists those that are known."""


def thing(required: Mapping[str, Schema], optional: Mapping[str, Schema] | None = None, **more: Any) -> Schema:
    """An object with these properties and no others."""
    return {
        "type": "object",
        "properties": {**required, **(optional or {})},
        "required": list(required),
        "additionalProperties": False,
        **more,
    }


def array(items: Schema, **more: Any) -> Schema:
    """A list of these."""
    # In this order: a list that is too long is refused before its items are looked at.
    return {"type": "array", **more, "items": items}


def by_name(values: Schema, **more: Any) -> Schema:
    """A map from names to these."""
    return {"type": "object", "additionalProperties": values, **more}


def version_document(*texts: str) -> Schema:
    """What an API says of one of its major versions."""
    links = array(thing({"rel": STRING, "href": STRING}, {"type": STRING}))
    kinds = array(thing({"base": STRING, "type": STRING}))
    named = dict.fromkeys(("id", "status", *texts), STRING)
    return thing({**named, "links": links}, {"media-types": kinds})


class Validator:
    """A schema, compiled when it is first used.

    Nearly everything that is asked for is valid, which a compiled validator sees 30 times faster. Its words are not
    Nova's: what it does not accept is judged by `jsonschema`, which Nova uses."""

    def __init__(self, schema: Schema) -> None:
        # Whether it is a schema at all is a question for the tests: asked here, it would cost seconds at each start.
        self.schema = schema

    @cached_property
    def _compiled(self) -> jsonschema_rs.Draft202012Validator:
        return jsonschema_rs.Draft202012Validator(self.schema, formats=dict(_FORMATS), validate_formats=True)

    @cached_property
    def _judge(self) -> Draft202012Validator:
        return Draft202012Validator(self.schema, format_checker=_formats)

    def check_body(self, body: Any, sentence: Sentence) -> None:
        """Raise `Invalid` for the first thing wrong with a body."""
        self._check(body, "field/attribute", sentence)

    def check_query(self, query: Mapping[str, str], sentence: Sentence) -> None:
        """Raise `Invalid` for the first thing wrong with a query."""
        self._check(query, "query parameters", sentence)

    def _check(self, value: Any, where: str, sentence: Sentence) -> None:
        if self._compiled.is_valid(value):
            return
        error = next(self._judge.iter_errors(value), None)
        if error is not None:
            raise Invalid(sentence(error, where))


def nova_sentence(error: ValidationError, where: str) -> str:
    """Nova's words; where the schema has a noun for its properties, also which ones there are."""
    if error.validator == "format" and error.validator_value == "name":
        return NAME_ERROR
    message = _message(error)
    if not error.absolute_path:
        return message
    return f"Invalid input for {where} {error.absolute_path[-1]}. Value: {error.instance}. {message}"


def _message(error: ValidationError) -> str:
    schema = error.schema if isinstance(error.schema, dict) else {}
    if error.validator != "additionalProperties" or NOUN not in schema or not isinstance(error.instance, dict):
        return explained(error)
    known = schema["properties"]
    wrong = min(name for name in error.instance if name not in known)
    return f"'{wrong}' is not a {schema[NOUN]}: {known_names(wrong, known)}"


def keystone_sentence(error: ValidationError, where: str) -> str:
    """Keystone's words, without the schema that it adds."""
    path = "/".join(str(step) for step in error.absolute_path)
    return f"Invalid input for field '{path}': {explained(error)}" if path else explained(error)


def boolean(value: Any) -> bool:
    """What a value that passed `BOOLEAN` means."""
    return bool(strutils.bool_from_string(value, strict=True))
