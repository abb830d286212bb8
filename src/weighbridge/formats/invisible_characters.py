"""Called by every reader: removes invisible characters from cells and counts them.

These are U+200B, U+200E, U+200F, U+202A to U+202E, U+2060, U+2066 to U+2069, U+FEFF and U+180E.
"""

from __future__ import annotations

import re

from weighbridge.model.counts import counted

# A search for a pattern that begins with one fixed byte is ten times as fast.
_E2 = re.compile(rb"\xe2(?:\x80[\x8b\x8e\x8f\xaa-\xae]|\x81[\xa0\xa6-\xa9])")
_EF, _E1 = b"\xef\xbb\xbf", b"\xe1\xa0\x8e"
_BYTES = re.compile(rb"%b|%b|%b" % (_E2.pattern, _EF, _E1))
_TEXT = re.compile("[\u200b\u200e\u200f\u202a-\u202e\u2060\u2066-\u2069\ufeff\u180e]")
_ESCAPED = re.compile(r"\\u(?:200[bef]|202[a-e]|206[06-9]|feff|180e)", re.IGNORECASE)
_CUT_CHARACTER = re.compile(rb"(?:\xe2[\x80\x81]?|\xef\xbb?|\xe1\xa0?)\Z")


def visible(text: bytes) -> tuple[bytes, int]:
    """UTF-8 text without invisible characters, and the number of removed characters."""
    if text.isascii() or not _has_invisible(text):
        return text, 0
    return _BYTES.subn(b"", text)


def visible_text(text: str) -> tuple[str, int]:
    """The same for text that is not ASCII."""
    return _TEXT.subn("", text)


def in_json(text: str) -> bool:
    """May a value of this JSON text contain invisible characters?"""
    raw = not text.isascii() and _has_invisible(text.encode())
    return raw or ("\\u" in text and _ESCAPED.search(text) is not None)


def cut_character(text: bytes) -> bytes:
    """The last bytes of the text, if they may be the first bytes of an invisible character."""
    cut = _CUT_CHARACTER.search(text[-2:])
    return cut[0] if cut else b""


def warning(removed: int) -> dict[str, str]:
    """The warning about removed characters: code → sentence; empty if there were none."""
    if not removed:
        return {}
    sentence = (
        f"{counted(removed, 'invisible character')}, such as U+200B, {'was' if removed == 1 else 'were'} removed "
        "from the cells."
    )
    return {"invisible_characters": sentence}


def _has_invisible(text: bytes) -> bool:
    return (
        _E2.search(text) is not None or (b"\xef" in text and _EF in text) or (b"\xe1" in text and _E1 in text)
    )
