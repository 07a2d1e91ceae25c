"""What the plug-in makes of Roost's answers, of others, and of none."""

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from oslo_config import cfg

from roost.nova import service
from roost.nova.choice import Silent
from roost.nova.service import HttpService


class Answers(BaseHTTPRequestHandler):
    """Whatever the test has put on its server."""

    def do_GET(self) -> None:
        status, body, delay = self.server.answer  # type: ignore[attr-defined]
        time.sleep(delay)
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_POST = do_GET

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Stand(ThreadingHTTPServer):
    """Where Roost should be."""

    answer: tuple[int, Any, float] = (200, {}, 0.0)


@pytest.fixture
def stand() -> Iterator[Stand]:
    server = Stand(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


def asking(port: int) -> HttpService:
    conf = cfg.ConfigOpts()
    service.register(conf)
    conf([], default_config_files=[], default_config_dirs=[])
    conf.set_override("url", f"http://127.0.0.1:{port}/", group="roost")
    conf.set_override("auth_type", "none", group="roost")
    return HttpService(conf)


def test_answers_are_unwrapped(stand: Stand) -> None:
    roost = asking(stand.server_port)
    stand.answer = (200, {"group": {"id": "g"}}, 0)
    assert roost.group("g", 5) == {"id": "g"}
    stand.answer = (200, {"topology": {"generation": 7}}, 0)
    assert roost.topology(-1, 5) == {"generation": 7}
    stand.answer = (200, {"reservation": {"version": 2}}, 0)
    assert roost.reserve("g", {}, 5) == (True, {"version": 2})
    stand.answer = (409, {"group": {}, "generation": 3}, 0)
    assert roost.reserve("g", {}, 5) == (False, {"group": {}, "generation": 3})


def test_a_group_that_is_none_of_roosts_is_no_failure(stand: Stand) -> None:
    stand.answer = (404, {}, 0)
    assert asking(stand.server_port).group("g", 5) is None
    assert asking(stand.server_port).reserve("g", {}, 5) is None


@pytest.mark.parametrize("status", [401, 403, 500, 503])
def test_any_other_answer_is_none(stand: Stand, status: int) -> None:
    stand.answer = (status, {}, 0)
    with pytest.raises(Silent, match=str(status)):
        asking(stand.server_port).group("g", 5)


def test_an_answer_that_comes_too_late_is_none(stand: Stand) -> None:
    stand.answer = (200, {"group": {}}, 2.0)
    with pytest.raises(Silent):
        asking(stand.server_port).group("g", 0.2)


def test_nobody_there(stand: Stand) -> None:
    roost = asking(stand.server_port)
    stand.shutdown()
    stand.server_close()
    with pytest.raises(Silent):
        roost.group("g", 5)
