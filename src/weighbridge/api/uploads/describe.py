"""What FastAPI cannot see by itself: body and answers of the route that reads its request as a stream."""

from __future__ import annotations

from typing import Any

from weighbridge.api.problems import documented
from weighbridge.api.uploads.models import Deferred, Sent, SentMany
from weighbridge.model.reading import ABOUT, DATE_ORDERS
from weighbridge.uploads.read_options import DETECT

_UUID = {"type": "string", "format": "uuid"}
_FILE = {"type": "string", "format": "binary"}
_FIELDS: dict[str, dict[str, Any]] = {
    "workspace_id": {**_UUID, "description": "The key's own; there is no need to say it."},
    "client_id": {
        **_UUID,
        "description": "Whose rows they are, inside the workspace; for the pipeline conversions the site, and needed.",
    },
    "platform": {
        "type": "string",
        "description": "meta, google or tiktok; needed by the pipeline ads, unless that is recognised.",
    },
    "project_id": {
        "type": "integer",
        "minimum": 1,
        "description": "The project it belongs to; needed by the pipeline keywords. Its first file opens it.",
    },
    "source": {"type": "string", "enum": ["manual", "api", "webhook"], "default": "api"},
    "pipeline": {
        "type": "string",
        "default": "ads",
        "description": "Or auto: each file is recognised by its header, and its platform with it.",
    },
    "filename": {"type": "string", "description": "What to call it, instead of the file's own name."},
    "source_batch_id": {
        "type": "string",
        "maxLength": 200,
        "description": "What the sender calls its batch. It names one upload: a completed one is skipped.",
    },
    "created_by": {**_UUID, "description": "The user who sends it."},
    "force_partial": {
        "type": "boolean",
        "default": False,
        "description": "Promote the valid rows regardless.",
    },
    "force": {"type": "boolean", "default": False, "description": "Load content again that is already here."},
    "preview": {
        "type": "boolean",
        "default": False,
        "description": "Stop when it is staged, and show what it would change until somebody promotes or discards it.",
    },
    "encoding": {"type": "string", "description": ABOUT["encoding"]},
    "delimiter": {"type": "string", "description": ABOUT["delimiter"]},
    "decimal": {"type": "string", "description": ABOUT["decimal"]},
    "date_order": {"type": "string", "enum": [*DATE_ORDERS, DETECT], "description": ABOUT["date_order"]},
    "sum_breakdowns": {"type": "boolean", "default": False, "description": ABOUT["sum_breakdowns"]},
}

SEND_BODY: dict[str, Any] = {
    "required": True,
    "description": (
        "A form with any number of files, each CSV or JSON and at most 50 MB by default; fields come before "
        "files. Or one file as the body, its fields in the query."
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
    200: {"model": Sent, "description": "The same content is already here: the first upload."},
    201: {
        "model": Sent | SentMany,
        "description": "Taken in: one upload, or a list where several files came.",
    },
    202: {
        "model": Deferred | SentMany,
        "description": "Accepted. The file store is not available; the file is queued and stored automatically later.",
    },
    207: {"model": SentMany, "description": "Several files came and some were refused; each says its own."},
    **documented(
        _400="The multipart body cannot be read.",
        _408="The sender fell silent in the middle. Nothing of the request is kept.",
        _409="Its batch failed before, or is here with other content.",
        _413="A file is too large, or STORAGE_QUOTA_EXCEEDED; sent as soon as it is known. Nothing of it is kept.",
        _415="Neither CSV nor JSON, by its content; or not a form.",
        _422="A field is wrong or missing or comes after a file; an empty file; none of several accepted.",
        _500="STORAGE_QUEUE_FAILED: neither the store nor the disk could take it. Nothing is kept.",
    ),
}
