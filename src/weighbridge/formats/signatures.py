"""Before a file is refused: the first bytes of a file that is neither CSV nor JSON → its format, and what to do."""

from __future__ import annotations

import re

from weighbridge.formats.file_bytes import decode_head

_PICTURE = "picture. Export the figures as CSV."
_UNPACK = "Unpack it and send the files in it."
_SAVE = "Save the sheet as CSV."
_SIGNATURES: tuple[tuple[bytes, str], ...] = (
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", f"an old Office file, such as an Excel workbook (.xls). {_SAVE}"),
    (b"PK\x05\x06", "an empty zip archive."),
    (b"\x1f\x8b", f"a gzip archive. {_UNPACK}"),
    (b"BZh", f"a bzip2 archive. {_UNPACK}"),
    (b"\xfd7zXZ\x00", f"an xz archive. {_UNPACK}"),
    (b"7z\xbc\xaf\x27\x1c", f"a 7-Zip archive. {_UNPACK}"),
    (b"Rar!\x1a\x07", f"a RAR archive. {_UNPACK}"),
    (b"\x28\xb5\x2f\xfd", f"a Zstandard archive. {_UNPACK}"),
    (b"\x89PNG", f"a PNG {_PICTURE}"),
    (b"\xff\xd8\xff", f"a JPEG {_PICTURE}"),
    (b"GIF8", f"a GIF {_PICTURE}"),
    (b"%PDF-", "a PDF. Export the report as CSV."),
    (b"%!PS", "a PostScript file. Export the report as CSV."),
    (b"{\\rtf", "a rich text file. Save it as CSV."),
    (b"PAR1", "a Parquet file. Export it as CSV."),
    (b"SQLite format 3\x00", "a SQLite database. Export the table as CSV."),
    (b"#!", "a script."),
    (b"-----BEGIN ", "a certificate or a key."),
)
_HTML = re.compile(r"\s*<(?:!doctype html|html|head|body|table|script|div)", re.IGNORECASE)
CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f]")


def format_of(head: bytes, text: str) -> str:
    """`an Excel workbook. Save the sheet as CSV.`, from the first 64 KB as bytes and as text."""
    if not head.strip(b"\x00"):
        return "NUL bytes only. Export the file again."
    if head.startswith(b"PK\x03\x04"):
        return _zipped(head)
    if _is_utf32(head):
        return "text in UTF-32. Save it as UTF-8."
    if found := next((what for sign, what in _SIGNATURES if head.lstrip().startswith(sign)), None):
        return found
    if text.lstrip().startswith("<"):
        return (
            "a web page. Was a login needed to download it? Export the report as CSV."
            if _HTML.match(text)
            else "XML. Export the report as CSV."
        )
    return _text_with_controls(text) or "a binary file of an unknown format. Export the data as CSV."


def _zipped(head: bytes) -> str:
    """Office files are zip archives whose parts have known names."""
    if b"xl/" in head:
        return f"an Excel workbook. {_SAVE}"
    if b"opendocument.spreadsheet" in head:
        return f"an OpenDocument spreadsheet. {_SAVE}"
    if b"word/" in head or b"ppt/" in head:
        return "an Office document. Export the figures as CSV."
    return f"a zip archive. {_UNPACK}"


def _is_utf32(head: bytes) -> bool:
    """By its byte order mark, or because it decodes as UTF-32, which hardly any other bytes do."""
    if head.startswith((b"\xff\xfe\x00\x00", b"\x00\x00\xfe\xff")):
        return True
    return any(decode_head(head, name) for name in ("utf-32-le", "utf-32-be"))


def _text_with_controls(text: str) -> str | None:
    """The message for text with a few control characters; None if there are none, or so many that it is binary."""
    controls = CONTROL.findall(text)
    if not controls or len(controls) > 2 + len(text) // 20:
        return None
    line = len(re.split(r"\r\n|\r|\n", text[: text.index(controls[0])]))
    name = "a NUL" if controls[0] == "\x00" else f"the control character U+{ord(controls[0]):04X}"
    return f"text with {name} on line {line}. Export the file again as plain text."
