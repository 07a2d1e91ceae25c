"""Specs: what each kind of property takes, what it refuses and in which words, and how it is shown."""

from typing import Any

import pytest

from roost.clusters import spec
from roost.clusters.spec import (
    AllowedValues,
    Boolean,
    Integer,
    InvalidSpec,
    List,
    Map,
    Number,
    Operation,
    Property,
    String,
)


@pytest.mark.parametrize(
    ("kind", "given", "value"),
    [
        (String(), "x", "x"),
        (String(), 7, "7"),
        (String(), 1.0, "1.0"),
        (Boolean(), True, True),
        (Boolean(), "yes", True),
        (Boolean(), "off", False),
        (Boolean(), 0, False),
        (Integer(), 7, 7),
        (Integer(), "7", 7),
        (Integer(), 7.0, 7),
        (Number(), 7, 7),
        (Number(), "7.5", 7.5),
        (Number(), "7", 7),
        (List(schema=Integer()), ["1", 2], [1, 2]),
        (List(), [1, "a"], [1, "a"]),
        (Map(), {"a": 1}, {"a": 1}),
        (Map(), '{"a": 1}', {"a": 1}),
        (Map(schema={"a": Integer(default=3), "b": String()}), {}, {"a": 3, "b": None}),
    ],
)
def test_values_become_their_own_type(kind: Property, given: Any, value: Any) -> None:
    found = kind.resolve(given)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("kind", "given", "message"),
    [
        (String(), None, "The value 'None' is not a valid string."),
        (String(), ["x"], "The value '['x']' is not a valid string."),
        (Boolean(), "maybe", "The value 'maybe' is not a valid Boolean"),
        (Integer(), "x", "The value 'x' is not a valid Integer"),
        (Integer(), 7.5, "The value '7.5' is not a valid Integer"),
        (Integer(), None, "The value 'None' is not a valid Integer"),
        (Integer(), True, "The value 'True' is not a valid Integer"),
        (Number(), "x", "The value 'x' is not a valid number."),
        (Number(), float("nan"), "The value 'nan' is not a valid number."),
        (Number(), True, "The value 'True' is not a valid number."),
        (List(), "x", "'x' is not a List"),
        (Map(), ["x"], "'['x']' is not a Map"),
        (Map(), "x", "'x' is not a Map"),
        (String(constraints=[AllowedValues(("a", "b"))]), "c", "'c' must be one of the allowed values: a, b"),
        (List(schema=String(), constraints=[AllowedValues(("a",))]), ["c"], "'c' must be one of the allowed values: a"),
        (Map(schema={"a": String(required=True)}), {}, "Required spec item 'a' not provided"),
        (Map(schema={"a": String()}), {"b": 1}, "Unrecognizable spec item 'b'; allowed are a"),
    ],
)
def test_values_that_cannot_be_are_refused_in_the_known_words(kind: Property, given: Any, message: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        kind.resolve(given)
    assert caught.value.message == message


def test_properties_of_other_versions() -> None:
    schema = {"old": String(max_version="1.0", default="x"), "new": Integer(min_version="1.10", default=1)}
    assert spec.resolve(schema, {}, "1.0") == {"old": "x"}
    assert spec.resolve(schema, {}, "1.10") == {"new": 1}
    assert list(spec.describe(schema, "1.9")) == []
    for given, version, message in (
        ({"new": 1}, "1.9", "new (min_version=1.10) is not supported by spec version 1.9."),
        ({"old": 1}, "1.1", "old (max_version=1.0) is not supported by spec version 1.1."),
    ):
        with pytest.raises(InvalidSpec) as caught:
            spec.resolve(schema, given, version)
        assert caught.value.message == message


def test_plain_values_in_a_map_are_defaults() -> None:
    strategy = Map(schema={"inactive": "boot", "deleted": "create", "tries": 3, "wait": True, "share": 0.5})
    assert strategy.resolve({"deleted": "recreate"}) == {
        "inactive": "boot",
        "deleted": "recreate",
        "tries": 3,
        "wait": True,
        "share": 0.5,
    }
    with pytest.raises(InvalidSpec, match="properties or plain defaults"):
        Map(schema={"x": object()})


def test_a_schema_as_clients_read_it() -> None:
    schema = {
        "criteria": String("How.", default="A", constraints=[AllowedValues(("A", "B"))], updatable=True),
        "zones": List("Where.", required=True, schema=Map("A zone.", schema={"name": String("Its name.")})),
        "free": Map(),
    }
    assert spec.describe(schema) == {
        "criteria": {
            "type": "String",
            "description": "How.",
            "default": "A",
            "required": False,
            "updatable": True,
            "constraints": [{"type": "AllowedValues", "constraint": ["A", "B"]}],
        },
        "zones": {
            "type": "List",
            "description": "Where.",
            "required": True,
            "updatable": False,
            "schema": {
                "*": {
                    "type": "Map",
                    "description": "A zone.",
                    "required": False,
                    "updatable": False,
                    "schema": {
                        "name": {"type": "String", "description": "Its name.", "required": False, "updatable": False}
                    },
                }
            },
        },
        "free": {"type": "Map", "required": False, "updatable": False},
    }


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "The provided spec is not a map."),
        ({"version": "1.0"}, "The 'type' key is missing from the provided spec map."),
        ({"type": "x"}, "The 'version' key is missing from the provided spec map."),
        ({"type": "x", "version": "1.0"}, "Required spec item 'properties' not provided"),
        (
            {"type": "x", "version": "1.0", "properties": {}, "more": 1},
            "Unrecognizable spec item 'more'; allowed are description, properties, type, version",
        ),
        ({"type": "x", "version": "1.0", "properties": []}, "'[]' is not a Map"),
    ],
)
def test_envelopes_that_cannot_be_opened(given: Any, message: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        spec.unwrap(given)
    assert caught.value.message == message


@pytest.mark.parametrize("version", ["1.0", 1.0])
def test_an_envelope(version: Any) -> None:
    opened = spec.unwrap({"type": "x.y", "version": version, "properties": {"a": 1}, "description": "mine"})
    assert (opened.name, opened.properties) == ("x.y-1.0", {"a": 1})


def test_the_parameters_of_an_operation() -> None:
    reboot = Operation("Reboot.", {"type": String("How.", default="SOFT"), "who": String("Who.", required=True)})
    assert reboot.check({"who": "me"}) == {"type": "SOFT", "who": "me"}
    assert reboot.describe() == {
        "description": "Reboot.",
        "parameters": {
            "type": {"type": "String", "description": "How.", "default": "SOFT", "required": False},
            "who": {"type": "String", "description": "Who.", "required": True},
        },
    }
    for given, message in (
        ({}, "Required parameter 'who' not provided"),
        ({"q": 1, "who": "me"}, "Unrecognizable parameter 'q'; allowed are type, who"),
    ):
        with pytest.raises(InvalidSpec) as caught:
            reboot.check(given)
        assert caught.value.message == message
