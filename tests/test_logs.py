"""One line a record, whatever a client put into it."""

import json
import logging
from collections.abc import Iterator

import pytest

from roost import logs


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level


def written(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().err.splitlines()


def test_json_lines_have_the_message_the_request_and_the_extras(capsys: pytest.CaptureFixture[str]) -> None:
    logs.set_up("INFO", "json")
    logs.request_id.set("req-1")
    logging.getLogger("roost.test").info("GET %s", "/a\nb", extra={"status": 200})
    (line,) = written(capsys)
    record = json.loads(line)
    assert record.pop("time").endswith("+00:00")
    assert record == {
        "level": "INFO",
        "logger": "roost.test",
        "request_id": "req-1",
        "message": "GET /a\nb",
        "status": 200,
    }


def test_text_lines_say_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    logs.set_up("INFO", "text")
    logs.request_id.set("req-1")
    logging.getLogger("roost.test").info("GET /a", extra={"status": 200})
    (line,) = written(capsys)
    assert line.endswith("INFO    roost.test [req-1] GET /a status=200")


@pytest.mark.parametrize("sent", ["/a\nb", "/a\r\nb", "/a\x1b[2Jb", "/a\u2028b", "/a\x85b", "/a\ud800b"])
def test_a_client_can_forge_neither_a_line_nor_what_a_terminal_shows(
    capsys: pytest.CaptureFixture[str], sent: str
) -> None:
    logs.set_up("INFO", "text")
    logging.getLogger("roost.test").info("GET %s", sent, extra={"sent": sent})
    (line,) = written(capsys)
    assert line.isprintable()


def test_a_traceback_is_part_of_its_record(capsys: pytest.CaptureFixture[str]) -> None:
    for style in ("json", "text"):
        logs.set_up("INFO", style)
        try:
            raise ValueError("a\n2026-01-01 forged")
        except ValueError:
            logging.getLogger("roost.test").exception("failed")
        lines = written(capsys)
        if style == "json":
            assert "ValueError: a" in json.loads(lines[0])["traceback"]
            assert len(lines) == 1
        else:
            assert all(line.startswith("    ") for line in lines[1:])


def test_a_traceback_shows_a_terminal_nothing_but_text(capsys: pytest.CaptureFixture[str]) -> None:
    logs.set_up("INFO", "text")
    try:
        raise ValueError("a\x1b[2J\r2026-01-01 forged\u2028b")
    except ValueError:
        logging.getLogger("roost.test").exception("failed")
    assert all(line.isprintable() for line in written(capsys))


def test_what_is_below_the_level_is_not_logged(capsys: pytest.CaptureFixture[str]) -> None:
    logs.set_up("WARNING", "text")
    logging.getLogger("roost.test").info("quiet")
    assert written(capsys) == []
