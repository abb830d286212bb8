"""The fields of an upload, from a form, a query or tus metadata, with the same checks and messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weighbridge.access.keys import ApiKey
from weighbridge.app import App
from weighbridge.model.errors import RequestRefused, did_you_mean
from weighbridge.model.upload import Sender
from weighbridge.observe.redact import quote_input
from weighbridge.uploads import check_request
from weighbridge.uploads.check_request import AUTO, Checked, Request
from weighbridge.uploads.read_options import OPTIONS

FIELDS = (
    "workspace_id", "client_id", "platform", "source", "pipeline", "created_by", "force_partial", "force",
    "filename", "source_batch_id", "project_id", "preview", *OPTIONS,
)  # fmt: skip
_FLAGS = ("force_partial", "force", "preview", "sum_breakdowns")
_YES, _NO = ("true", "1", "yes", "on"), ("false", "0", "no", "off", "")


def known(name: str) -> None:
    if name not in FIELDS:
        hint = did_you_mean(name, FIELDS) or "; a file needs a file name."
        raise RequestRefused(422, "unknown_field", f"{quote_input(name)} is not a field{hint}")


def once(name: str, fields: Mapping[str, str]) -> None:
    if name in fields:
        shown = name if name in FIELDS else quote_input(name)
        raise RequestRefused(422, "repeated_field", f"{shown}: expected once, got more than once.")


def request_of(fields: Mapping[str, str], key: ApiKey) -> Request:
    """The fields as a request for intake. An empty field counts as missing."""
    values: dict[str, Any] = {name: value for name, value in fields.items() if value and name not in _FLAGS}
    for name, bound in key.bounds or ():
        if values.setdefault(name, bound) != bound:
            raise RequestRefused(
                403, "wrong_scope", f"{name}: this upload token is for {quote_input(bound)} only."
            )
    values |= {name: _flag(name, fields.get(name, "")) for name in _FLAGS}
    ours = {"key_id": str(key.id), "bound": _bound(key)}
    return Request(**{"workspace_id": key.workspace_id, "source": "api", **values, **ours})


def _bound(key: ApiKey) -> tuple[str, ...]:
    """Check a token's restrictions against the pipeline, unless that was done when the token was created."""
    named = dict(key.bounds or ())
    return tuple(named) if named.get("pipeline", AUTO) == AUTO else ()


def admitted(app: App, request: Request, key: ApiKey) -> Sender:
    """Check the fields before the first bytes of the file are known. RequestRefused as below."""
    found = check_request.check_sender(app.ctx, request)
    if found.workspace_id != key.workspace_id:
        raise RequestRefused(403, "wrong_workspace", "This key belongs to another workspace.")
    return found


def checked(app: App, request: Request, key: ApiKey) -> Checked:
    """RequestRefused if the request is invalid or not allowed for this key."""
    admitted(app, request, key)
    return check_request.check(app.ctx, request)


def _flag(name: str, value: str) -> bool:
    if value.lower() not in _YES + _NO:
        raise RequestRefused(
            422, "invalid_field", f"{name}: expected true or false, got {quote_input(value)}."
        )
    return value.lower() in _YES
