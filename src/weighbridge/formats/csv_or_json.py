"""Before a file is stored: its first bytes → CSV, JSON, or neither."""

from __future__ import annotations

import io
import re

from weighbridge.formats.json_layout import FIRST_LINES, mostly_objects
from weighbridge.formats.json_values import Window
from weighbridge.formats.signatures import CONTROL, format_of
from weighbridge.formats.to_utf8 import HEAD, codec_of, codec_of_head, decode_head
from weighbridge.model.errors import FileRefused

_BINARY = re.compile(rb"[\x00-\x08\x0e-\x1f\x7f]")
_NO_TABLE = re.compile(r"\s*(?:<[!?/a-z]|%PDF-|%!PS|\{\\rtf|#!|-----BEGIN )", re.IGNORECASE)
_END_OF_FILE = re.compile(r"\x1a[\x1a\s]*\Z")  # DOS programs write ^Z after the last line
_JSON = re.compile(r'\s*(?:\[\s*)?\{\s*(?:"(?:[^"\\\n]|\\.)*"\s*:|\}\s*(?:$|[\],{]))')


def sniff(head: bytes, filename: str | None) -> str | None:
    """`"csv"`, `"json"`, or None for a file that is neither, from the first 64 KB.

    The content decides. The name decides only in two cases: a list of lists, which may also be a text list of
    [keywords], and a file whose first line is not JSON and whose other lines are.
    """
    text = _END_OF_FILE.sub("", text_of(head[:HEAD]))
    if not text.strip() or CONTROL.search(text) or _NO_TABLE.match(text):
        return None
    named_json = (filename or "").lower().endswith((".json", ".jsonl", ".ndjson"))
    lines = named_json and mostly_objects([line for line in text.splitlines() if line.strip()][:FIRST_LINES])
    return "json" if lines or _JSON.match(text) or _is_list(text, named_json) else "csv"


def describe(head: bytes) -> str:
    """The format of a file that is neither, and what to do about it; empty for an empty file."""
    head = head[:HEAD]
    text = text_of(head)
    empty = not text.strip() and bool(head.strip(b"\0") or not head)  # a single NUL decodes as half of UTF-16
    return "" if empty else format_of(head, text)


def text_of(head: bytes, encoding: str = "") -> str:
    """The head as text, in the encoding that the sender names, or in the one that the parse step would detect.

    Never fails: the parse step refuses bytes in no known encoding, with their line.
    """
    binary = _BINARY.search(head) is not None  # then words are no evidence, and UTF-16 is found without them
    found = codec_of(encoding) or codec_of_head(head, with_words=not binary)
    for codec in (found, "cp1252"):
        if (text := decode_head(head, codec)) is not None:
            return text.removeprefix("\ufeff")
    return head.decode("latin-1")


def _is_list(text: str, named_json: bool) -> bool:
    """Is it a JSON list? One list per line is JSON only if the file name says so."""
    window = Window(io.StringIO(text))
    try:
        window.skip("[")
        if window.peek() == "]":
            window.skip("]")
        else:
            window.take()
            if window.skip(",]") == ",":
                return True
    except FileRefused:
        return False
    return named_json or not window.peek()
