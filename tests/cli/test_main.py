"""The `roost` command: what people can mend is one sentence, and samples can be read back."""

import argparse
import dataclasses
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from roost import config
from roost.api.app import default_rules
from roost.cli import completion, main, serve
from roost.errors import Invalid
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


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[databse]\nurl = x\n", "there is no section [databse]; did you mean database?"),
        ("[api]\nmax_limits = 3\n", "[api] has no option 'max_limits'; did you mean max_limit?"),
        ("[log]\ncolour = 3\n", "[log] has no option 'colour'; there are format, level"),
        ("[oslo_policy]\npolicy_fil = p\n", "[oslo_policy] has no option 'policy_fil'; did you mean policy_file?"),
        (
            "[keystone_authtoken]\nauth_type = password\nauth_ulr = x\n[api]\nregio = x\n",
            "[keystone_authtoken] has no option 'auth_ulr'; did you mean auth_url?; "
            "[api] has no option 'regio'; did you mean region?",
        ),
    ],
)
def test_a_name_in_the_configuration_that_nothing_reads_is_refused(tmp_path: Path, text: str, expected: str) -> None:
    file = tmp_path / "roost.conf"
    file.write_text(text)
    with pytest.raises(Invalid) as refused:
        config.load(file)
    assert refused.value.message == f"The configuration cannot be used: {expected}"


def test_what_libraries_read_is_theirs(tmp_path: Path) -> None:
    file = tmp_path / "roost.conf"
    file.write_text(
        "[DEFAULT]\ncontrol_exchange = x\n[oslo_messaging_rabbit]\nssl = true\n[keystone_authtoken]\n"
        "auth_type = password\nauth_url = http://keystone\nusername = roost\n"
        "memcached_servers = a\n[oslo_policy]\npolicy_file = p.yaml\n"
    )
    config.load(file)


def test_config_check_lists_all_that_is_wrong(tmp_path: Path) -> None:
    file, permissions = tmp_path / "roost.conf", tmp_path / "policy.yaml"
    file.write_text(
        "[api]\nlisten = nonsense\nrequest_seconds = 5\n[clusters]\ncloud = openstack\npolicies = nope:Nope\n"
        f"[oslo_policy]\npolicy_file = {permissions}\n"
    )
    permissions.write_text('"clusters:crate": "role:x"\n"mine": "role:y"\n"clusters:create": "rule:mine"\n')
    done = roost("config", "check", str(file))
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        f"{file}: 'nonsense' is not an address to listen on: write HOST:PORT, such as 127.0.0.1:8774.",
        f"{file}: The configuration names 'nope:Nope', which cannot be imported: No module named 'nope'.",
        f"{file}: [database] statement_seconds must be less than [api] request_seconds.",
        f"{file}: [clusters] cloud = openstack needs os_cloud: the cloud of clouds.yaml to use.",
        f"{file}: {permissions} has 'clusters:crate', which is no permission; did you mean clusters:create?",
    ]
    file.write_text("[api]\nlisten = 0.0.0.0:8774\n")
    permissions.unlink()
    done = roost("config", "check", str(file))
    assert (done.returncode, done.stdout) == (0, f"{file}: nothing is wrong.\n")


def test_what_roost_serve_gives_projects_gives_way_to_the_file(tmp_path: Path) -> None:
    file = tmp_path / "roost.conf"
    file.write_text("[quota]\ncores = 7\n")
    quota = config.load(file, serve.QUOTAS).quota
    assert (quota["cores"], quota["instances"]) == (7, 200)
    assert config.load().quota["instances"] == 10


def test_a_configuration_file_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    missing = tmp_path / "none.conf"
    assert said(roost("serve", "--config", str(missing))) == f"There is no configuration file {missing}."


def test_the_version_names_its_commit() -> None:
    assert re.fullmatch(r"roost \d+\.\d+\.\d+ \([0-9a-f]{12}(-dirty)?\)\n", roost("--version").stdout)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["db", "ba"], "backup"),
        (["db", "backup", "--d"], "--data"),
        (["co"], "config completion"),
        (["top", "--on"], "--once"),
    ],
)
def test_a_shell_completes_commands_and_options(words: list[str], expected: str) -> None:
    ask = f"COMP_WORDS=(roost {' '.join(words)}); COMP_CWORD={len(words)}; _roost; echo ${{COMPREPLY[@]}}"
    script = completion.script("bash", main.parser()) + ask
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == expected


def test_every_help_fits_a_screen_and_has_an_example(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for name, each in commands(main.parser()):
        text = each.format_help()
        assert text.count("\n") <= 24, name
        assert name in text.partition("example")[2], name


def commands(parser: argparse.ArgumentParser, name: str = "roost") -> Iterator[tuple[str, argparse.ArgumentParser]]:
    yield name, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word, inner in action.choices.items():
                yield from commands(inner, f"{name} {word}")


def test_progress_is_for_terminals_only(database_url: str) -> None:
    environment = {**os.environ, "ROOST_DATABASE_URL": database_url}
    command = [sys.executable, "-m", "roost", "audit"]
    quiet = subprocess.run(command, capture_output=True, env=environment, check=True)
    assert quiet.stderr == b""
    ours, theirs = os.openpty()
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=theirs, env=environment, check=True)
    os.close(theirs)
    shown = os.read(ours, 1000).decode()
    os.close(ours)
    assert "auditing: " in shown
    assert shown.endswith("\r\x1b[K")


def test_without_a_command_it_says_what_there_is() -> None:
    done = roost()
    assert done.returncode == 2
    assert "usage: roost" in done.stderr
    assert roost("--version").stdout.startswith("roost ")
