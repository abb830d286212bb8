"""One trace from the request to the worker to the log line, and to a collector where one is named."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.api.conftest import client, key, make_key
from tests.engine.conftest import Put, Run, meta_file
from tests.observe.conftest import Lines
from tests.observe.listener import Listener
from weighbridge.observe import traces

__all__ = ["client", "key", "make_key"]

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"


async def _send(client: httpx.AsyncClient, key: dict[str, str], **headers: str) -> httpx.Response:
    files = {"file": ("meta.csv", meta_file())}
    return await client.post(
        "/api/uploads", data={"platform": "meta"}, files=files, headers={**key, **headers}
    )


async def test_a_callers_trace_goes_from_the_request_to_the_workers_lines(
    client: httpx.AsyncClient, key: dict[str, str], run: Run, lines: Lines, query: Any
) -> None:
    answer = await _send(client, key, traceparent=PARENT)
    assert answer.headers["x-trace-id"] == TRACE
    assert query("SELECT traceparent FROM data_uploads") == [(PARENT,)]
    await run(UUID(answer.json()["upload_id"]))
    for event in ("request", "Job started", "Job completed"):
        [line] = lines(event)
        assert line["trace_id"] == TRACE


@pytest.mark.parametrize("header", [None, "nonsense", f"00-{'0' * 32}-00f067aa0ba902b7-01", PARENT.upper()])
async def test_a_request_without_a_valid_trace_begins_one(
    client: httpx.AsyncClient, key: dict[str, str], lines: Lines, header: str | None
) -> None:
    answer = await _send(client, key, **({"traceparent": header} if header else {}))
    trace = answer.headers["x-trace-id"]
    assert len(trace) == 32
    assert trace not in (TRACE, "0" * 32)
    assert [line["trace_id"] for line in lines("request")] == [trace]


async def test_requests_side_by_side_keep_their_own_traces(
    client: httpx.AsyncClient, key: dict[str, str], lines: Lines
) -> None:
    answers = await asyncio.gather(*(client.get("/api/uploads", headers=key) for _ in range(8)))
    found = {answer.headers["x-trace-id"] for answer in answers}
    assert len(found) == 8
    assert {line["trace_id"] for line in lines("request")} == found


# OpenTelemetry ----------------------------------------------------------------------------------------------


@contextmanager
def _exporting(listener: Listener, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{listener.port}")
    with traces.exported("weighbridge"):
        yield


def _spans(listener: Listener) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for body in listener.bodies:
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            for scope in resource.scope_spans:
                found.update({span.name: span for span in scope.spans})
    return found


async def test_spans_are_sent_where_an_endpoint_is_set(
    client: httpx.AsyncClient,
    key: dict[str, str],
    run: Run,
    listener: Listener,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with _exporting(listener, monkeypatch):
        answer = await _send(client, key, traceparent=PARENT)
        await run(UUID(answer.json()["upload_id"]))
    spans = _spans(listener)
    assert set(spans) == {"POST /api/uploads", "upload", "parse", "promote"}
    assert {span.trace_id.hex() for span in spans.values()} == {TRACE}
    parents = {name: span.parent_span_id for name, span in spans.items()}
    assert parents["POST /api/uploads"].hex() == "00f067aa0ba902b7"
    assert parents["upload"] == spans["POST /api/uploads"].span_id
    assert parents["parse"] == parents["promote"] == spans["upload"].span_id


async def test_a_span_that_failed_names_the_kind_of_error_and_nothing_of_it(
    put: Put, run: Run, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    with _exporting(listener, monkeypatch):
        await run(await put(b"Ann Canary,ann.canary@example.org\n", filename="Ann Canary.csv"))
    parse = _spans(listener)["parse"]
    assert parse.status.code == 2
    assert {each.key: each.value.string_value for each in parse.attributes}["error.type"] == "FileRefused"
    assert b"anary" not in b"".join(listener.bodies)


def test_nothing_is_exported_where_no_endpoint_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    with traces.exported("weighbridge"):
        assert traces._provider is None


def test_a_collector_that_is_away_holds_up_no_work_and_the_end_only_for_moments(
    monkeypatch: pytest.MonkeyPatch, listener: Listener
) -> None:
    listener.go_on.clear()
    began = time.monotonic()
    with _exporting(listener, monkeypatch), traces.span("x", None):
        pass
    assert time.monotonic() - began < 5
