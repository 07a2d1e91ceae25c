"""The `roost` command: what people can mend is one sentence, and samples can be read back."""

import dataclasses
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from roost import config
from roost.api.app import default_rules
from roost.store import schema
from roost.store.embedded import EmbeddedPostgres


def roost(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    own = {key: value for key, value in os.environ.items() if not key.startswith("ROOST_")}
    command = [sys.executable, "-m", "roost", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env=own | environment)


def said(done: "subprocess.CompletedProcess[str]") -> str:
    """The one sentence of a command that could not do its work."""
    assert done.returncode == 1
    assert done.stderr.startswith("roost: ")
    assert done.stderr.count("\n") == 1
    return done.stderr.removeprefix("roost: ").rstrip("\n")


def test_the_sample_configuration_has_every_option_and_can_be_read(tmp_path: Path) -> None:
    done = roost("config", "sample")
    assert done.returncode == 0
    sections = re.findall(r"^\[(\w+)\]$", done.stdout, re.MULTILINE)
    assert sections[0] == "DEFAULT"
    assert {*config.OPTIONS, "oslo_policy", "keystone_authtoken"} <= set(sections)
    for options in config.OPTIONS.values():
        for option in options:
            assert re.search(rf"^#{option.name} =", done.stdout, re.MULTILINE), option.name
    file = tmp_path / "roost.conf"
    file.write_text(done.stdout)
    assert config.load(file).max_limit == config.load().max_limit
    set_to_defaults = re.sub(r"^#(\w+ = )(?!<None>)", r"\1", done.stdout, flags=re.MULTILINE)
    file.write_text(set_to_defaults)
    for option in dataclasses.fields(config.Settings):
        if option.name != "source":
            assert getattr(config.load(file), option.name) == getattr(config.load(), option.name)


def test_the_sample_policy_has_every_rule_and_can_be_read() -> None:
    done = roost("policy", "sample")
    assert done.returncode == 0
    uncommented = re.sub(r'^#(".*)$', r"\1", done.stdout, flags=re.MULTILINE)
    rules = yaml.safe_load(uncommented)
    assert rules == {rule.name: rule.check_str for rule in default_rules()}
    assert "# POST  /identity/v3/projects" in done.stdout


def test_the_state_of_the_schema_is_said_and_brought_up_to_date(postgres: EmbeddedPostgres, database_url: str) -> None:
    expected = schema.expected()
    done = roost("db", "status", ROOST_DATABASE_URL=database_url)
    assert (done.returncode, done.stdout) == (0, f"The schema is at {expected}: up to date.\n")
    empty = postgres.url.replace("/roost?", "/postgres?")
    done = roost("db", "status", ROOST_DATABASE_URL=empty)
    assert done.returncode == 1
    assert done.stdout == f"The schema is at nothing, this program needs {expected}: roost db upgrade\n"
    done = roost("db", "upgrade", ROOST_DATABASE_URL=database_url)
    assert (done.returncode, done.stdout) == (0, f"The schema is at {expected}.\n")


def test_the_database_may_be_named_in_the_file(tmp_path: Path, database_url: str) -> None:
    file = tmp_path / "roost.conf"
    file.write_text(f"[database]\nurl = {database_url}\n")
    assert roost("db", "status", "--config", str(file)).returncode == 0


@pytest.mark.parametrize("command", [["api"], ["engine"], ["db", "status"], ["db", "upgrade"]])
def test_a_command_without_a_database_says_how_to_name_one(command: list[str]) -> None:
    expected = "No database is named: set [database] url in the file given with --config, or ROOST_DATABASE_URL."
    assert said(roost(*command)) == expected


@pytest.mark.parametrize("command", [["api"], ["engine"], ["db", "status"], ["db", "upgrade"]])
def test_a_database_that_does_not_answer_is_one_sentence(command: list[str]) -> None:
    done = roost(*command, ROOST_DATABASE_URL="postgresql://me:secret@127.0.0.1:1/roost")
    assert said(done).startswith("The database does not answer: ")
    assert "secret" not in done.stderr


def test_a_database_address_that_is_none_is_one_sentence() -> None:
    message = said(roost("db", "status", ROOST_DATABASE_URL="nonsense"))
    assert message == "The address of the database cannot be read: write postgresql://user:password@host/name."


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[api]\nmax_limit = many\n", "max_limit"),
        ("[api]\nmax_limit = -1\n", "max_limit"),
        ("[auth]\nstrategy = none\n", "strategy"),
        ("no section\n", "The configuration cannot be used: "),
        ("[api\n", "The configuration cannot be used: "),
    ],
)
def test_a_configuration_file_that_is_wrong_is_one_sentence(tmp_path: Path, text: str, expected: str) -> None:
    file = tmp_path / "roost.conf"
    file.write_text(text)
    assert expected in said(roost("db", "status", "--config", str(file)))


def test_a_configuration_file_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    missing = tmp_path / "none.conf"
    assert said(roost("serve", "--config", str(missing))) == f"There is no configuration file {missing}."


def test_without_a_command_it_says_what_there_is() -> None:
    done = roost()
    assert done.returncode == 2
    assert "usage: roost" in done.stderr
    assert roost("--version").stdout.startswith("roost ")
