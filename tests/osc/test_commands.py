"""What is written on the command line, and what it comes to."""

import argparse
import inspect
import io
from importlib.metadata import entry_points
from types import SimpleNamespace
from typing import Any

import pytest
from openstack.resource import Resource
from osc_lib.exceptions import CommandError

from roost.osc import clusters, commands, groups


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("affinity", {"name": "affinity", "rules": {}}),
        ("anti-affinity:rack", {"name": "anti-affinity", "scope": "rack", "rules": {}}),
        ("affinity:rack:a:b", {"name": "affinity", "scope": "rack", "identifier": "a:b", "rules": {}}),
        (
            "anti-affinity:rack,max_server_per_aggregate=2,max_skew=1",
            {"name": "anti-affinity", "scope": "rack", "rules": {"max_server_per_aggregate": 2, "max_skew": 1}},
        ),
    ],
)
def test_a_policy_is_written_with_its_scope_and_limits(text: str, policy: dict[str, Any]) -> None:
    assert groups.policy(text) == policy
    shown = {"scope": "host", "identifier": None, **policy}
    assert groups.policy_text(shown) == text


def test_a_limit_without_a_number_is_refused() -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="'max_skew' is not LIMIT=NUMBER"):
        groups.policy("anti-affinity,max_skew")


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (None, {}),
        (["{}"], {}),
        (["a=1;b=2=3"], {"a": "1", "b": "2=3"}),
        (["a=1", "b=2;3"], {"a": "1", "b": "2;3"}),
        (["a=1", "a=2"], {"a": ["1", "2"]}),
    ],
)
def test_pairs_are_given_several_times_or_with_semicolons(given: list[str] | None, found: dict[str, Any]) -> None:
    assert commands.pairs(given) == found


def test_a_pair_without_a_value_is_refused() -> None:
    with pytest.raises(CommandError, match="Use the key=value format"):
        commands.pairs(["a"])


def resize(**options: Any) -> dict[str, Any]:
    names = ("capacity", "adjustment", "percentage", "min_step", "min_size", "max_size")
    return clusters.resize_request(argparse.Namespace(**{**dict.fromkeys(names), "strict": False, **options}))


@pytest.mark.parametrize(
    ("options", "kind", "number"),
    [
        ({"capacity": 3}, "EXACT_CAPACITY", 3),
        ({"adjustment": -1}, "CHANGE_IN_CAPACITY", -1),
        ({"percentage": 50.0, "min_step": 1}, "CHANGE_IN_PERCENTAGE", 50.0),
        ({"min_size": 1}, None, None),
    ],
)
def test_a_resize_is_of_one_kind(options: dict[str, Any], kind: str | None, number: float | None) -> None:
    asked = resize(**options)
    assert (asked["adjustment_type"], asked["number"]) == (kind, number)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, "At least one parameter"),
        ({"capacity": 1, "adjustment": 1}, "Only one of"),
        ({"capacity": -1}, "larger than or equal to zero"),
        ({"adjustment": 0}, "Adjustment cannot be zero"),
        ({"percentage": 0.0}, "Percentage cannot be zero"),
        ({"capacity": 1, "min_step": 1}, "Min step is only used with percentage"),
        ({"min_size": -1}, "Min size cannot be less than zero"),
        ({"min_size": 3, "max_size": 2}, "Min size cannot be larger than max size"),
        ({"capacity": 2, "min_size": 3}, "Min size cannot be larger than the specified capacity"),
        ({"capacity": 4, "max_size": 3}, "Max size cannot be less than the specified capacity"),
    ],
)
def test_a_resize_that_contradicts_itself_is_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(CommandError, match=sentence):
        resize(**options)


def test_short_ids_are_cut_and_missing_ones_are_empty() -> None:
    things = [SimpleNamespace(id="0123456789", cluster_id=None, depends_on=["0123456789"])]
    _, rows = commands.listed(things, ["id", "cluster_id", "depends_on"], ("id", "cluster_id", "depends_on"))
    assert list(rows) == [("01234567", "", "01234567")]


@pytest.mark.parametrize(("word", "meaning"), [("true", True), ("Yes", True), ("0", False), ("off", False)])
def test_words_for_true_and_false(word: str, meaning: bool) -> None:
    assert commands.boolean(word) is meaning


def test_any_other_word_is_neither() -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="'maybe' is neither true nor false"):
        commands.boolean("maybe")


def _commands() -> list[tuple[str, type[Any]]]:
    return [
        (entry.name, entry.load())
        for group in ("openstack.roost.v1", "openstack.extension")
        for entry in entry_points(group=group)
        if entry.value.startswith("roost.osc.")
    ]


def test_every_command_declares_its_options_and_they_fit_together() -> None:
    app = SimpleNamespace(client_manager=None)
    for name, command in _commands():
        replaces_stock = any(base.__module__.startswith("openstackclient.compute") for base in command.__mro__)
        assert replaces_stock or "get_parser" not in vars(command), name
        # argparse refuses two options of one name.
        parser = command(app, None).get_parser(name)
        assert all(action.help for action in parser._actions), name


def test_a_command_has_the_options_of_its_base_classes_first() -> None:
    parser = groups.AddServer(SimpleNamespace(client_manager=None), None).get_parser("server group add server")
    given = parser.parse_args(["db", "db-1", "--partition", "2"])
    assert (given.server_group, given.server, given.partition) == ("db", "db-1", 2)


def test_options_that_exclude_each_other_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    parser = groups.PlanServerGroup(SimpleNamespace(client_manager=None), None).get_parser("server group plan")
    with pytest.raises(SystemExit):
        parser.parse_args(["db", "--create", "1", "--drain", "rack=r1"])
    assert "not allowed with argument" in capsys.readouterr().err


@pytest.mark.parametrize("answer", ["n\n", "\n", "", "perhaps\n"])
def test_a_prompt_that_is_not_answered_with_yes_is_a_failure(monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(answer))
    with pytest.raises(CommandError, match="Nothing was deleted"):
        commands.confirm(argparse.Namespace(force=False), "cluster")
    commands.confirm(argparse.Namespace(force=True), "cluster")


def test_a_limit_bounds_the_list_and_not_only_its_pages() -> None:
    given = argparse.Namespace(limit=3, marker=None, sort="name", filters=None)
    asked = commands.queries(given)
    assert asked == {"max_items": 3, "sort": "name"}
    assert "max_items" in inspect.signature(Resource.list).parameters, "what the SDK calls a limit is a page"
