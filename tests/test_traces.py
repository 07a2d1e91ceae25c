"""One trace shows what a request led to, in whichever process; sent to an OTLP receiver."""

import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from roost import config, traces
from roost.compute.inventory import images
from roost.errors import Unavailable
from tests.clusters.house import clustering
from tests.conftest import Api

TRACE, CALLER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = {"traceparent": f"00-{TRACE}-{CALLER}-01"}


class Receiver(HTTPServer):
    """Takes what a collector would take."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.spans: list[Span] = []

    def received(self) -> dict[str, list[Span]]:
        """The spans of the trace by name, once all are sent."""
        traces.shut_down()
        found: dict[str, list[Span]] = {}
        for span in self.spans:
            if span.trace_id.hex() == TRACE:
                found.setdefault(span.name, []).append(span)
        return found


class Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        sent = ExportTraceServiceRequest.FromString(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.spans += [
            span for each in sent.resource_spans for scope in each.scope_spans for span in scope.spans
        ]
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        traces.set_up(f"http://127.0.0.1:{server.server_port}/v1/traces", "roost-test")
        yield server
        traces.shut_down()
        server.shutdown()
        thread.join()


def attributes(span: Span) -> dict[str, str]:
    return {each.key: each.value.string_value or str(each.value.int_value) for each in span.attributes}


async def test_a_create_is_seen_from_the_request_to_the_decision(api: Api, receiver: Receiver) -> None:
    server = {"name": "a", "flavorRef": "1", "imageRef": images.USUAL[0].id, "networks": "none"}
    answer = await api.request(
        "POST", "/compute/v2.1/servers", json={"server": server}, headers=TRACEPARENT, version="2.1003"
    )
    assert answer.status_code == 202
    found = receiver.received()
    (request,) = found["POST /compute/v2.1/servers"]
    assert request.parent_span_id.hex() == CALLER
    assert attributes(request)["openstack.request_id"] == answer.headers["x-openstack-request-id"]
    assert attributes(request)["http.response.status_code"] == "202"
    (scheduling,) = found["scheduling"]
    assert scheduling.parent_span_id == request.span_id
    transactions = [each for each in found["transaction"] if each.parent_span_id == scheduling.span_id]
    (decision,) = found["decision"]
    assert decision.parent_span_id in {each.span_id for each in transactions}
    assert attributes(decision)["servers"] == "1"


async def test_an_action_belongs_to_the_trace_of_its_request(database_url: str, receiver: Receiver) -> None:
    async with clustering(database_url) as house:
        profile = await house.profile()
        body = {"cluster": {"name": "web", "profile_id": profile["id"], "desired_capacity": 1}}
        answer = await house.call("POST", "/clusters", body, headers=TRACEPARENT)
        action = await house.done(answer)
    found = receiver.received()
    (request,) = found["POST /clustering/v1/clusters"]
    (carried_out,) = found["CLUSTER_CREATE"]
    # The engine reads of the request's transaction in the database.
    assert carried_out.parent_span_id in {each.span_id for each in (request, *found["transaction"])}
    assert attributes(carried_out) == {"action": action["id"], "target": action["target"], "attempt": "1"}
    (scheduling,) = found["scheduling"]
    assert scheduling.parent_span_id == carried_out.span_id


async def test_what_goes_on_all_the_time_makes_no_traces(database_url: str, receiver: Receiver) -> None:
    async with clustering(database_url) as house:
        await house.get("/clusters")
    traces.shut_down()
    assert [span.name for span in receiver.spans if not span.parent_span_id] == ["GET /clustering/v1/clusters"]


def test_without_an_endpoint_there_are_none() -> None:
    traces.set_up(config.load().tracing_endpoint, "roost-test")
    with traces.span("request", TRACEPARENT["traceparent"]):
        assert traces.current() is None


def test_an_endpoint_without_the_extra_is_refused_at_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(Unavailable, match=r"roost\[tracing\]"):
        traces.set_up("http://127.0.0.1:1/v1/traces", "roost-test")
