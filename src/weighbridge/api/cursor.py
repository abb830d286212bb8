"""Opaque cursors: the end of a page as a string that the next request passes back."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import Any, TypeVar

from weighbridge.model.errors import RequestRefused

Cursor = TypeVar("Cursor")


def write(*parts: Any) -> str:
    return base64.urlsafe_b64encode("\x1f".join(map(str, parts)).encode()).decode().rstrip("=")


def read(
    name: str, word: str | None, place: Callable[..., Cursor], *types: Callable[[str], Any]
) -> Cursor | None:
    """Decode a cursor; RequestRefused(422) if it is invalid."""
    if word is None:
        return None
    try:
        parts = base64.urlsafe_b64decode(word + "=" * (-len(word) % 4)).decode().split("\x1f")
        if "\0" in "".join(parts):
            raise ValueError("Postgres cannot store NUL in text")
        return place(*(kind(part) for kind, part in zip(types, parts, strict=True)))
    except (ValueError, binascii.Error):
        message = f"query.{name}: expected the `next` value of the previous page."
        raise RequestRefused(422, "invalid_request", message) from None
