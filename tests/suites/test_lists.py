"""The lists of tests that cannot pass name suites that are run, and a reason for each test."""

from tests.suites.__main__ import HERE, SHORT, SUITES, _expected


def test_every_test_that_cannot_pass_has_a_reason() -> None:
    lists = {file.stem for file in (HERE / "expected").glob("*.txt")}
    assert lists == SUITES.keys()
    for suite in lists:
        for name, reason in _expected(suite).items():
            assert reason.endswith("."), (suite, name)
            assert name.startswith(SUITES[suite]), (suite, name)


def test_the_short_form_runs_what_can_pass() -> None:
    modules = tuple(module for modules in SUITES.values() for module in modules)
    assert [name for name in SHORT if name in _expected("chosen") or not name.startswith(modules)] == []
