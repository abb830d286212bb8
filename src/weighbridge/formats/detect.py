"""Before a file is stored: its first bytes → CSV, JSON, or neither."""

from __future__ import annotations

import codecs
import re

from weighbridge.formats.encoding import HEAD, decodes, utf16_of


def sniff(head: bytes, filename: str | None) -> str | None:
    """`"csv"`, `"json"`, or None for what is no text table at all. The content decides."""
    text = _text_of(head[:HEAD])
    if text is None or _NO_TABLE.match(text) or _CONTROL.search(text) or not text.strip():
        return None
    return "json" if _JSON.match(text) else "csv"


_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f]")
_NO_TABLE = re.compile(r"\s*(?:<[!?a-z]|%PDF-|%!PS|\{\\rtf|#!|-----BEGIN )", re.IGNORECASE)
_JSON = re.compile(r'\s*(?:\[\s*)?\{\s*(?:"(?:[^"\\\n]|\\.)*"\s*:|\})|\s*\[\s*\]')


def _text_of(head: bytes) -> str | None:
    for encoding in (utf16_of(head), "utf-8", "cp1252"):
        if encoding is not None and decodes(head, encoding):
            return codecs.getincrementaldecoder(encoding)().decode(head).removeprefix("\ufeff")
    return None
