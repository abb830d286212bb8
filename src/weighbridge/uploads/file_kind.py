"""The first bytes of a file → CSV or JSON; RequestRefused names any other kind."""

from __future__ import annotations

from weighbridge.formats import describe, sniff
from weighbridge.model.errors import RequestRefused
from weighbridge.model.pipeline import Pipeline
from weighbridge.observe.redact import quote_input


def kind_of(head: bytes, filename: str | None) -> str:
    """`"csv"` or `"json"`."""
    kind = sniff(head, filename)
    if kind is not None:
        return kind
    what = describe(head)
    if not what:
        raise empty_file(filename)
    raise RequestRefused(
        415, "unsupported_format", f"{shown_name(filename)}: expected CSV or JSON, got {what}"
    )


def accepted(kind: str, filename: str | None, pipeline: Pipeline) -> str:
    """The kind, if the pipeline accepts it; else RequestRefused."""
    if kind not in pipeline.accepts:
        takes = " or ".join(each.upper() for each in pipeline.accepts)
        message = f"{shown_name(filename)}: the pipeline {pipeline.name} expects {takes}, got {kind.upper()}."
        raise RequestRefused(415, "unsupported_format", message)
    return kind


def empty_file(filename: str | None) -> RequestRefused:
    return RequestRefused(422, "empty_file", f"{shown_name(filename)}: expected rows, got an empty file.")


def shown_name(filename: str | None) -> str:
    return f"file ({quote_input(filename)})" if filename else "file"
