"""What the plug-in makes of Roost's answers, of others, and of none."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from oslo_config import cfg
from roost_nova import service
from roost_nova.service import Hanging, HttpService, Silent


class Answers(BaseHTTPRequestHandler):
    """Whatever the test has put on its server."""

    def do_GET(self) -> None:
        self.server.asked += 1  # type: ignore[attr-defined]
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
    asked = 0


@pytest.fixture
def stand() -> Iterator[Stand]:
    server = Stand(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


def asking(*ports: int) -> HttpService:
    conf = cfg.ConfigOpts()
    service.register(conf)
    conf([], default_config_files=[], default_config_dirs=[])
    conf.set_override("url", [f"http://127.0.0.1:{port}/" for port in ports], group="roost")
    conf.set_override("auth_type", "none", group="roost")
    return HttpService(conf)


def closed_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def test_answers_are_unwrapped(stand: Stand) -> None:
    roost = asking(stand.server_port)
    stand.answer = (200, {"adopted": ["s"]}, 0)
    assert roost.adopted(5) == {"s"}
    stand.answer = (200, {"choice": {"hosts": ["h"], "weights": [1.0]}}, 0)
    assert roost.choose({}, 5) == {"hosts": ["h"], "weights": [1.0]}


def test_a_group_that_is_none_of_roosts_is_no_failure(stand: Stand) -> None:
    stand.answer = (404, {}, 0)
    assert asking(stand.server_port).choose({}, 5) is None


@pytest.mark.parametrize("status", [400, 401, 403, 500])
def test_any_other_answer_is_none(stand: Stand, status: int) -> None:
    stand.answer = (status, {}, 0)
    with pytest.raises(Silent, match=str(status)):
        asking(stand.server_port).choose({}, 5)
    assert stand.asked == 1


def test_an_answer_that_comes_too_late_is_none(stand: Stand) -> None:
    stand.answer = (200, {"choice": {}}, 2.0)
    with pytest.raises(Hanging):
        asking(stand.server_port).choose({}, 0.2)


@pytest.mark.parametrize("status", [502, 503, 504])
def test_a_roost_that_restarts_is_asked_again(stand: Stand, status: int) -> None:
    stand.answer = (status, {}, 0)
    back = threading.Timer(0.4, lambda: setattr(stand, "answer", (200, {"choice": {"hosts": []}}, 0)))
    back.start()
    assert asking(stand.server_port).choose({}, 5) == {"hosts": []}
    back.join()


def test_a_roost_that_is_not_there_yet_is_waited_for() -> None:
    port = closed_port()
    started: list[Stand] = []

    def start() -> None:
        server = Stand(("127.0.0.1", port), Answers)
        server.answer = (200, {"choice": {"hosts": []}}, 0)
        started.append(server)
        server.serve_forever()

    timer = threading.Timer(0.5, start)
    timer.start()
    try:
        assert asking(port).choose({}, 10) == {"hosts": []}
    finally:
        timer.cancel()
        for server in started:
            server.shutdown()
            server.server_close()


def test_nobody_there() -> None:
    began = time.monotonic()
    with pytest.raises(Silent):
        asking(closed_port()).choose({}, 0.6)
    assert 0.5 < time.monotonic() - began < 3


def test_of_two_addresses_the_one_that_answers_is_used(stand: Stand) -> None:
    roost = asking(closed_port(), stand.server_port)
    stand.answer = (200, {"choice": {"hosts": []}}, 0)
    assert roost.choose({}, 5) == {"hosts": []}
    assert str(stand.server_port) in roost._addresses[0].endpoint_override, "and comes first from then on"


def test_an_address_that_hangs_leaves_time_for_the_other(stand: Stand) -> None:
    hung = Stand(("127.0.0.1", 0), Answers)
    threading.Thread(target=hung.serve_forever, daemon=True).start()
    hung.answer, stand.answer = (200, {}, 5.0), (200, {"choice": {"hosts": []}}, 0)
    assert asking(hung.server_port, stand.server_port).choose({}, 2) == {"hosts": []}
    hung.shutdown()
    hung.server_close()
