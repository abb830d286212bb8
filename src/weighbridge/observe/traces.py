"""Traces: one id from the request through the worker to every log line (W3C trace context).

If OTEL_EXPORTER_OTLP_ENDPOINT is set, OpenTelemetry also sends each span there; its other variables work as
OpenTelemetry documents them. Without it OpenTelemetry is not loaded.
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
_EXIT_SECONDS = 3  # seconds to send the last spans at exit; an unreachable collector must not block it

_provider: TracerProvider | None = None
_current: ContextVar[str | None] = ContextVar("traceparent", default=None)


@contextmanager
def exported(service: str) -> Iterator[None]:
    """Send the spans of this process to the collector in the environment, if there is one."""
    global _provider
    off = os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
    if off or not any(os.environ.get(name) for name in _ENDPOINTS):
        yield
        return
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    # OTEL_SERVICE_NAME in the environment has priority.
    resource = Resource({SERVICE_NAME: service}).merge(Resource.create())
    _provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    _provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    try:
        yield
    finally:
        provider, _provider = _provider, None
        ending = threading.Thread(target=provider.shutdown, daemon=True)  # it sends the remaining spans
        ending.start()
        ending.join(_EXIT_SECONDS)


@dataclass
class Span:
    """A unit of work in a trace. Attributes are ids and counts: traces leave the machine."""

    traceparent: str  # to pass on
    _exported: Any = None

    @property
    def trace_id(self) -> str:
        return self.traceparent.split("-")[1]

    def note(self, name: str | None = None, **attributes: str | int) -> None:
        """Add attributes that are known only at the end."""
        if self._exported is not None:
            self._exported.set_attributes(attributes)
            if name:
                self._exported.update_name(name)


@contextmanager
def span(name: str, parent: str | None, **attributes: str | int) -> Iterator[Span]:
    """A span in the trace of `parent`, or in a new one. Every log line inside has the trace id."""
    with _opened(name, parent if parent and _HEADER.fullmatch(parent) else None, attributes) as opened:
        token = _current.set(opened.traceparent)
        try:
            with bound_contextvars(trace_id=opened.trace_id):
                yield opened
        finally:
            _current.reset(token)


def current() -> str | None:
    """The traceparent of the current span."""
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
    # Exceptions are not recorded: their messages quote values, and stack traces must not leave the machine.
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
