"""Traces: one id from a request to the worker to every log line between (W3C trace context).

Where OTEL_EXPORTER_OTLP_ENDPOINT is set, each span is also sent there by OpenTelemetry; its other variables hold as
OpenTelemetry documents them. Without it nothing of OpenTelemetry is loaded.
"""

from __future__ import annotations

import os
import re
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from structlog.contextvars import bound_contextvars

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

_HEADER = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_GOODBYE = 3  # seconds for the last spans when a process ends; a collector that is away must not hold it up

_provider: TracerProvider | None = None
_current: ContextVar[str | None] = ContextVar("traceparent", default=None)


@contextmanager
def exported(service: str) -> Iterator[None]:
    """Send the spans of this process to the collector that the environment names, if it names one."""
    global _provider
    off = os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
    if off or not any(os.environ.get(name) for name in _ENDPOINTS):
        yield
        return
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    # The name that the environment gives wins: OTEL_SERVICE_NAME.
    resource = Resource({SERVICE_NAME: service}).merge(Resource.create())
    _provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    _provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    try:
        yield
    finally:
        provider, _provider = _provider, None
        ending = threading.Thread(target=provider.shutdown, daemon=True)  # it sends what is left
        ending.start()
        ending.join(_GOODBYE)


@dataclass
class Span:
    """A piece of work in a trace. Attributes are ids and counts: a trace leaves the house."""

    traceparent: str  # to hand on
    _exported: Any = None

    @property
    def trace_id(self) -> str:
        return self.traceparent.split("-")[1]

    def note(self, name: str | None = None, **attributes: str | int) -> None:
        """What is known of it only at its end."""
        if self._exported is not None:
            self._exported.set_attributes(attributes)
            if name:
                self._exported.update_name(name)


@contextmanager
def span(name: str, parent: str | None, **attributes: str | int) -> Iterator[Span]:
    """A span in the trace that `parent` names, or in a new one. Every log line inside carries the trace's id."""
    with _opened(name, parent if parent and _HEADER.fullmatch(parent) else None, attributes) as opened:
        token = _current.set(opened.traceparent)
        try:
            with bound_contextvars(trace_id=opened.trace_id):
                yield opened
        finally:
            _current.reset(token)


def current() -> str | None:
    """The traceparent of the span that we are in."""
    return _current.get()


@contextmanager
def _opened(name: str, parent: str | None, attributes: dict[str, str | int]) -> Iterator[Span]:
    if _provider is None:
        yield Span(parent or f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-01")
        return
    from opentelemetry.trace import StatusCode
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    headers = TraceContextTextMapPropagator()
    tracer = _provider.get_tracer("weighbridge")
    # Exceptions are not recorded: their messages quote values, and stack traces are not for others (S3 §5.3).
    with tracer.start_as_current_span(
        name,
        headers.extract({"traceparent": parent} if parent else {}),
        attributes=attributes,
        record_exception=False,
        set_status_on_exception=False,
    ) as started:
        carried: dict[str, str] = {}
        headers.inject(carried)
        try:
            yield Span(carried["traceparent"], started)
        except BaseException as error:
            started.set_status(StatusCode.ERROR)
            started.set_attribute("error.type", type(error).__name__)
            raise
