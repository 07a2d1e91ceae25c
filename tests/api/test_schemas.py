"""What is said of a value that a schema refuses."""

import json
from random import Random
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from roost.api import schemas
from roost.api.app import APIS
from roost.api.compute.server_actions import ACTIONS
from roost.api.frame import Api as Frame
from roost.api.schemas import Validator, keystone_sentence, nova_sentence
from roost.errors import Invalid
from tests.api.test_openapi import changes

FLAVOR = Validator(
    schemas.thing(
        {
            "flavor": schemas.thing(
                {"name": schemas.NAME, "vcpus": schemas.POSITIVE_INTEGER},
                {"public": schemas.BOOLEAN, "id": schemas.UUID, "tags": schemas.array(schemas.STRING, maxItems=2)},
            )
        }
    )
)


def refusal(body: Any, sentence: schemas.Sentence = nova_sentence) -> str:
    with pytest.raises(Invalid) as caught:
        FLAVOR.check_body(body, sentence)
    return caught.value.message


def flavor(**more: Any) -> dict[str, Any]:
    return {"flavor": {"name": "a", "vcpus": 1, **more}}


FIELD = "Invalid input for field/attribute {}. Value: {}. {}"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (None, "None is not of type 'object'"),
        ({}, "'flavor' is a required property"),
        ({"flavor": []}, FIELD.format("flavor", "[]", "[] is not of type 'object'")),
        (flavor(vcpus=0), FIELD.format("vcpus", "0", "0 is less than the minimum of 1")),
        (flavor(vcpus="a"), FIELD.format("vcpus", "a", "'a' does not match '^[0-9]*$'")),
        (flavor(vcpus=""), FIELD.format("vcpus", "", "'' should be non-empty")),
        (flavor(vcpus=True), FIELD.format("vcpus", "True", "True is not of type 'integer', 'string'")),
        (flavor(vcpus=1.5), FIELD.format("vcpus", "1.5", "1.5 is not of type 'integer', 'string'")),
        (flavor(name=""), FIELD.format("name", "", "'' should be non-empty")),
        (flavor(name=" a"), schemas.NAME_ERROR),
        (flavor(name="a\n"), schemas.NAME_ERROR),
        (flavor(name="a\u200b"), schemas.NAME_ERROR),
        (flavor(id="a"), FIELD.format("id", "a", "'a' is not a 'uuid'")),
        (flavor(tags=["a", 1]), FIELD.format("1", "1", "1 is not of type 'string'")),
    ],
)
def test_nova_names_the_field_and_the_value(body: Any, words: str) -> None:
    assert refusal(body) == words


def test_unknown_keys_are_named() -> None:
    words = "Additional properties are not allowed ('colour' was unexpected); allowed are "
    assert words in refusal(flavor(colour="red"))
    assert refusal(flavor(colour="red")).partition(words)[2] == "id, name, public, tags, vcpus"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (flavor(vcpu=1), "Additional properties are not allowed ('vcpu' was unexpected); did you mean vcpus?"),
        ({**flavor(), "flavour": {}}, "('flavour' was unexpected); did you mean flavor?"),
        (flavor(public="fals"), "; did you mean false?"),
    ],
)
def test_a_name_that_is_nearly_right_gets_the_right_one(body: Any, words: str) -> None:
    assert words in refusal(body)
    assert words in refusal(body, keystone_sentence)


def test_what_fits_none_of_several_is_told_why() -> None:
    either = Validator({"anyOf": [schemas.UUID, {"type": "integer", "minimum": 1}]})
    with pytest.raises(Invalid) as caught:
        either.check_body("x", nova_sentence)
    expected = "'x' is not valid under any of the given schemas: 'x' is not a 'uuid', and 'x' is not of type 'integer'"
    assert caught.value.message == expected


def test_keystone_names_the_whole_path() -> None:
    assert refusal(flavor(vcpus=0), keystone_sentence) == (
        "Invalid input for field 'flavor/vcpus': 0 is less than the minimum of 1"
    )
    assert refusal({}, keystone_sentence) == "'flavor' is a required property"


def test_what_is_right_is_let_through() -> None:
    for more in ({}, {"vcpus": "3"}, {"public": "yes"}, {"public": False}, {"id": "0" * 32}, {"name": "é ü"}):
        FLAVOR.check_body(flavor(**more), nova_sentence)


def test_a_query_is_named_as_such() -> None:
    query = Validator({"type": "object", "properties": {"limit": schemas.DIGITS}, "additionalProperties": False})
    query.check_query({"limit": "10"}, nova_sentence)
    with pytest.raises(Invalid) as caught:
        query.check_query({"limit": "abc"}, nova_sentence)
    assert caught.value.message == (
        "Invalid input for query parameters limit. Value: abc. 'abc' does not match '^[0-9]*$'"
    )
    with pytest.raises(Invalid) as caught:
        query.check_query({"foo": "1"}, nova_sentence)
    assert caught.value.message == "Additional properties are not allowed ('foo' was unexpected); allowed are limit"


@pytest.mark.parametrize(
    ("value", "meaning"), [(True, True), ("on", True), ("YES", True), ("0", False), (False, False)]
)
def test_booleans_come_in_many_forms(value: Any, meaning: bool) -> None:
    assert schemas.boolean(value) is meaning


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_every_schema_of_every_route_is_a_schema(api: Frame) -> None:
    for route in api.table.routes:
        served = [version for version in changes(api) if route.serves(version)]
        shapes = [shape for version in (served[0], served[-1]) for shape in route.answers(version).values() if shape]
        validators = [validator.schema for validator in (route.body, route.query) if validator is not None]
        for schema in {json.dumps(schema): schema for schema in [*validators, *shapes]}.values():
            Draft202012Validator.check_schema(schema)


def test_every_schema_of_every_action_is_a_schema() -> None:
    for action in ACTIONS.values():
        for _, validator in action.bodies:
            Draft202012Validator.check_schema(validator.schema)


_LEAVES: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        0,
        1,
        -1,
        2**63,
        10**30,
        1.0,
        1.5,
        1e300,
        [],
        {},
        "",
        " a",
        "a",
        "A-b.c_1",
        "a\n",
        "\u0663",
        "\U0001f600",
    ),
    *("1", "1\n", "007", "9" * 40, "a" * 300, "true", "2026-11-16T03:00:00Z", "10.0.0.1", "fe80::1", "https://a.b/c"),
    "70a599e0-31e7-49b7-b260-868f441e862b",
    "70A599E031E749B7B260868F441E862B",
)


def _near(schema: Any, random: Random, depth: int = 6) -> Any:
    """A value that comes close to what a schema asks for, and often is it."""
    if not isinstance(schema, dict) or not depth or random.random() < 0.1:
        return random.choice(_LEAVES)
    for word in ("anyOf", "oneOf", "allOf"):
        if word in schema:
            return _near(random.choice(schema[word]), random, depth - 1)
    if "enum" in schema or "const" in schema:
        return random.choice(schema.get("enum") or [schema["const"]])
    if "properties" in schema or "patternProperties" in schema or schema.get("type") == "object":
        chosen = {
            name: _near(each, random, depth - 1)
            for name, each in schema.get("properties", {}).items()
            if random.random() < (0.95 if name in schema.get("required", ()) else 0.3)
        }
        if random.random() < 0.2 or "properties" not in schema:
            chosen[random.choice(["a", "x-y", "", "1"])] = _near(schema.get("additionalProperties"), random, depth - 1)
        return chosen
    if "items" in schema:
        return [_near(schema["items"], random, depth - 1) for _ in range(random.randrange(4))]
    fitting = {
        "string": lambda each: isinstance(each, str),
        "integer": lambda each: isinstance(each, int) and not isinstance(each, bool),
        "boolean": lambda each: isinstance(each, bool),
    }.get(schema["type"] if isinstance(schema.get("type"), str) else "")
    return random.choice([each for each in _LEAVES if fitting is None or fitting(each)])


def test_nothing_is_accepted_at_once_that_the_judge_would_refuse() -> None:
    random, accepted, refused = Random(15), 0, 0
    routes = [route for api in APIS for route in api.table.routes]
    for validator in {id(each): each for route in routes for each in (route.body, route.query) if each}.values():
        for value in (_near(validator.schema, random) for _ in range(60)):
            if validator._compiled.is_valid(value):
                accepted += 1
                assert not list(validator._judge.iter_errors(value)), value
            else:
                refused += 1
    assert accepted > 1000
    assert refused > 1000
