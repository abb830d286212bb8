"""OpenAPI description of the upload route, which reads its request as a stream."""

from __future__ import annotations

from typing import Any

from weighbridge.api.error_responses import documented
from weighbridge.api.uploads.models import Deferred, Sent, SentMany
from weighbridge.model.read_options import ABOUT_NEW, DATE_ORDERS
from weighbridge.uploads.read_options import DETECT

_UUID = {"type": "string", "format": "uuid"}
_FILE = {"type": "string", "format": "binary"}
_FIELDS: dict[str, dict[str, Any]] = {
    "workspace_id": {**_UUID, "description": "Optional: the key's workspace."},
    "client_id": {
        **_UUID,
        "description": "The client within the workspace that owns the rows. Pipeline conversions: the site, required.",
    },
    "platform": {
        "type": "string",
        "description": "meta, google or tiktok; required for the pipeline ads, unless it is detected.",
    },
    "project_id": {
        "type": "integer",
        "minimum": 1,
        "description": "The project; required for the pipeline keywords. The first file of a project creates it.",
    },
    "source": {"type": "string", "enum": ["manual", "api", "webhook"], "default": "api"},
    "pipeline": {
        "type": "string",
        "default": "ads",
        "description": "The pipeline; auto: detect pipeline and platform from the header of each file.",
    },
    "filename": {"type": "string", "description": "A name that replaces the file's own name."},
    "source_batch_id": {
        "type": "string",
        "maxLength": 200,
        "description": "The sender's name for the batch. A batch that is already completed is skipped.",
    },
    "created_by": {**_UUID, "description": "The user who sends it."},
    "force_partial": {
        "type": "boolean",
        "default": False,
        "description": "Promote the valid rows even if too many rows are invalid.",
    },
    "force": {
        "type": "boolean",
        "default": False,
        "description": "Load the file even if its content was loaded before.",
    },
    "preview": {
        "type": "boolean",
        "default": False,
        "description": "Hold the upload after staging, for a preview. It waits until it is promoted or discarded.",
    },
    "encoding": {"type": "string", "description": ABOUT_NEW["encoding"]},
    "delimiter": {"type": "string", "description": ABOUT_NEW["delimiter"]},
    "decimal": {"type": "string", "description": ABOUT_NEW["decimal"]},
    "date_order": {"type": "string", "enum": [*DATE_ORDERS, DETECT], "description": ABOUT_NEW["date_order"]},
    "sum_breakdowns": {"type": "boolean", "default": False, "description": ABOUT_NEW["sum_breakdowns"]},
}

SEND_BODY: dict[str, Any] = {
    "required": True,
    "description": (
        "A form with any number of files, each CSV or JSON and at most 50 MB by default; fields must precede "
        "files. Or one file as the body, with the fields in the query."
    ),
    "content": {
        "multipart/form-data": {
            "schema": {
                "type": "object",
                "required": ["file"],
                "properties": {**_FIELDS, "file": {"type": "array", "items": _FILE, "minItems": 1}},
            }
        },
        "text/csv": {"schema": _FILE},
        "application/octet-stream": {"schema": _FILE},
    },
}

SEND_PARAMETERS: list[dict[str, Any]] = [
    {"name": name, "in": "query", "required": False, "schema": schema} for name, schema in _FIELDS.items()
]

SEND_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {"model": Sent, "description": "Duplicate: the earlier upload with the same content."},
    201: {
        "model": Sent | SentMany,
        "description": "Accepted: one upload, or a list if several files were sent.",
    },
    202: {
        "model": Deferred | SentMany,
        "description": "Accepted. The file store is not available; the file is queued and stored automatically later.",
    },
    207: {"model": SentMany, "description": "Some of several files were refused; each has its own result."},
    **documented(
        _400="The multipart body is malformed.",
        _408="The sender stopped sending. Nothing is stored.",
        _409="The batch failed before, or exists with different content.",
        _413="A file is too large, or STORAGE_QUOTA_EXCEEDED; sent as soon as it is known. Nothing is stored.",
        _415="Neither CSV nor JSON, by its content; or not a form.",
        _422="A field is invalid, missing or sent after a file; the file is empty; or no file was accepted.",
        _500="STORAGE_QUEUE_FAILED: neither the file store nor the queue folder is available. Nothing is stored.",
    ),
}
