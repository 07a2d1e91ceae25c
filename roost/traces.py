"""Traces for OpenTelemetry: what a request led to, and how long each part of it took.

Off unless `[tracing] endpoint` is set. A cause is a W3C `traceparent`: it comes with a request, goes on with what waits
in a queue, and is stored with an action, so that one trace shows all of it, whichever process did it.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from roost import __version__
from roost.errors import Unavailable

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

_provider: "TracerProvider | None" = None

_NAME = "name"
_Attributes = dict[str, Any]


def set_up(endpoint: str | None, service: str) -> None:
    """Send spans to an OTLP receiver (over HTTP), as this service."""
    global _provider
    if endpoint is None:
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        raise Unavailable("[tracing] endpoint needs OpenTelemetry: pip install 'roost[tracing]'.") from None
    _provider = TracerProvider(resource=Resource.create({"service.name": service, "service.version": __version__}))
    _provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint)))


def shut_down() -> None:
    """Send what has not been sent yet."""
    global _provider
    if _provider is not None:
        _provider.shutdown()
        _provider = None


def current() -> str | None:
    """The span that this is part of, as a cause of others."""
    if _provider is None:
        return None
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return carrier.get("traceparent")


def span(name: str, *causes: str | None, **attributes: Any) -> AbstractContextManager[_Attributes]:
    """A span that begins a trace, or goes on with that of its first cause; it is linked to the others. More attributes
    can be put into what it gives, and another `name`."""
    return nullcontext({}) if _provider is None else _span(name, [each for each in causes if each], attributes)


def part(name: str, **attributes: Any) -> AbstractContextManager[_Attributes]:
    """A span inside the current one; does nothing outside a span, so background polling makes no traces."""
    return nullcontext({}) if current() is None else span(name, current(), **attributes)


@contextmanager
def _span(name: str, causes: list[str], attributes: _Attributes) -> Iterator[_Attributes]:
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, get_current_span
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    assert _provider is not None
    contexts = [TraceContextTextMapPropagator().extract({"traceparent": each}, Context()) for each in causes]
    links = [Link(get_current_span(each).get_span_context()) for each in contexts[1:]]
    parent = contexts[0] if contexts else Context()
    with _provider.get_tracer("roost").start_as_current_span(name, parent, links=links) as made:
        more = dict(attributes)
        try:
            yield more
        finally:
            made.update_name(more.pop(_NAME, name))
            made.set_attributes({key: value for key, value in more.items() if value is not None})
