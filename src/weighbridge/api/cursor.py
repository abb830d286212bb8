"""Pages of lists, and opaque cursors: the end of a page as a string that the next request passes back."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from weighbridge.model.errors import RequestRefused

Cursor = TypeVar("Cursor")
Row = TypeVar("Row")


def page(found: Sequence[Row], limit: int) -> tuple[Sequence[Row], Row | None]:
    """The first `limit` rows, and the last of them if there is a next page. Queries read one extra row to show that."""
    rows = found[:limit]
    return rows, rows[-1] if len(found) > limit else None


def write(*parts: Any) -> str:
    return base64.urlsafe_b64encode("\x1f".join(map(str, parts)).encode()).decode().rstrip("=")


def read(
    name: str, text: str | None, make_cursor: Callable[..., Cursor], *types: Callable[[str], Any]
) -> Cursor | None:
    """Decode a cursor; RequestRefused(422) if it is invalid."""
    if text is None:
        return None
    try:
        parts = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode().split("\x1f")
        if "\0" in "".join(parts):
            raise ValueError("Postgres cannot store NUL in text")
        return make_cursor(*(kind(part) for kind, part in zip(types, parts, strict=True)))
    except (ValueError, binascii.Error):
        message = f"query.{name}: expected the `next` value of the previous page."
        raise RequestRefused(422, "invalid_request", message) from None
