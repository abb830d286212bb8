"""Called by delimited.py, after dialect.py: does the file put any cell in quotes?

A quote inside an unquoted cell is text if the file quotes no cell, and an error if it does (scan.py). The last record
may be the first with quotes, so the whole file is searched. A chunk without a quote takes almost no time.
"""

from __future__ import annotations

import re
from functools import cache
from typing import BinaryIO

from weighbridge.formats.cells import Dialect
from weighbridge.formats.invisible_characters import visible
from weighbridge.formats.record_syntax import CR, LF, LONGEST_RECORD, SPACE

CHUNK = 1 << 17  # fits into the processor cache: three times as fast as 1 << 21


def quotes_a_cell(file: BinaryIO, dialect: Dialect, width: int) -> bool:
    """Is any cell in quotes? `file` is positioned at the beginning of a record.

    A quoted cell of several lines counts only if none of its lines has as many cells as a record: otherwise stray
    quotes may have joined records.
    """
    quote, held = dialect.quote.encode(), b""
    while chunk := file.read(CHUNK):
        text = held + chunk if held else chunk
        whole = max(text.rfind(b"\n"), text.rfind(b"\r")) + 1
        held = text[whole:]
        if quote in text and _in(text[:whole], dialect, width):
            return True
        if len(held) > LONGEST_RECORD:
            return False  # a file with such a line is refused later
    return quote in held and _in(held, dialect, width)


def _in(lines: bytes, dialect: Dialect, width: int) -> bool:
    """Is any cell of these complete lines in quotes?"""
    text = b"\n" + visible(lines)[0] + b"\n"
    begins = (ord(dialect.delimiter), LF, CR)
    for quoted in _pattern(dialect).finditer(text):
        before = quoted.start() - 1
        while text[before] == SPACE and SPACE not in begins:
            before -= 1
        if text[before] in begins and not _has_a_record(quoted[0], dialect, width):
            return True
    return False


def _has_a_record(cell: bytes, dialect: Dialect, width: int) -> bool:
    """Does a line inside the cell have as many cells as a record?"""
    return any(line.count(dialect.delimiter.encode()) >= width - 1 for line in cell.splitlines()[1:-1])


@cache
def _pattern(dialect: Dialect) -> re.Pattern[bytes]:
    """A cell in quotes and its end. The text before it is a look-behind: a search for a pattern that begins with one
    fixed byte is ten times as fast.
    """
    q, d = re.escape(dialect.quote), re.escape(dialect.delimiter)
    padding = "" if dialect.delimiter == " " else " *"
    inside = rf"(?:[^{q}]++|{q}{q})*+"
    return re.compile(rf"{q}(?<=[{d}\r\n ]{q}){inside}{q}{padding}[{d}\r\n]".encode())
