"""The options of `load` and `watch` → the request for a file."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weighbridge.uploads.check_request import Request

_FIELDS = {
    "workspace": "workspace_id",
    "client": "client_id",
    "project": "project_id",
    "batch": "source_batch_id",
}


def request_of(options: Mapping[str, Any], *, besides: Collection[str]) -> Request:
    """`options`: the command's parameters by name; `besides`: those that are no fields of a request.

    A TypeError if any other is no field either: a misspelt one must not be ignored.
    """
    from weighbridge.uploads.check_request import Request

    return Request(
        **{_FIELDS.get(name, name): value for name, value in options.items() if name not in besides}
    )
