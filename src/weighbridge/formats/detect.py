"""Before a file is stored: its first bytes → CSV, JSON, or neither."""

from __future__ import annotations

import io
import re

from weighbridge.formats.encoding import HEAD, codec_of, codec_of_head, decode_head
from weighbridge.formats.json_layout import FIRST_LINES, mostly_objects
from weighbridge.formats.json_text import Window
from weighbridge.formats.signatures import CONTROL, what_is
from weighbridge.model.errors import FileRefused

_BINARY = re.compile(rb"[\x00-\x08\x0e-\x1f\x7f]")
_NO_TABLE = re.compile(r"\s*(?:<[!?/a-z]|%PDF-|%!PS|\{\\rtf|#!|-----BEGIN )", re.IGNORECASE)
_END_OF_FILE = re.compile(r"\x1a[\x1a\s]*\Z")  # what DOS programs write behind the last line
_JSON = re.compile(r'\s*(?:\[\s*)?\{\s*(?:"(?:[^"\\\n]|\\.)*"\s*:|\}\s*(?:$|[\],{]))')


def sniff(head: bytes, filename: str | None) -> str | None:
    """`"csv"`, `"json"`, or None for what is no text table, from the first 64 KB.

    The content decides. The name does only where a list of lists could as well be a list of [keywords], and where lines
    of JSON follow a first line that is none.
    """
    text = _END_OF_FILE.sub("", text_of(head[:HEAD]))
    if not text.strip() or CONTROL.search(text) or _NO_TABLE.match(text):
        return None
    named_json = (filename or "").lower().endswith((".json", ".jsonl", ".ndjson"))
    lines = named_json and mostly_objects([line for line in text.splitlines() if line.strip()][:FIRST_LINES])
    return "json" if lines or _JSON.match(text) or _is_list(text, named_json) else "csv"


def describe(head: bytes) -> str:
    """What a file is that is neither, and what to do about it; empty for one that has nothing in it."""
    head = head[:HEAD]
    text = text_of(head)
    nothing = not text.strip() and bool(head.strip(b"\0") or not head)  # a NUL alone reads as half of UTF-16
    return "" if nothing else what_is(head, text)


def text_of(head: bytes, encoding: str = "") -> str:
    """Some text in any case, in the encoding that the sender names or else the one that the parse step would detect.

    Bytes that are in no known encoding are refused later, with their line.
    """
    binary = _BINARY.search(head) is not None  # its words say nothing, and UTF-16 needs none
    found = codec_of(encoding) or codec_of_head(head, with_words=not binary)
    for codec in (found, "cp1252"):
        if (text := decode_head(head, codec)) is not None:
            return text.removeprefix("\ufeff")
    return head.decode("latin-1")


def _is_list(text: str, named_json: bool) -> bool:
    """A JSON list of anything. One list a line is JSON only by name."""
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
