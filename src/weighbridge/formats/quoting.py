"""Beside dialect.py: does the file put cells in quotes? Its last record may be the first that does.

A quote inside an unquoted cell is text in a file that quotes no cell, and damage in one that does (scan.py). So the
whole file decides. A search for bytes is enough: a chunk without quotes costs next to nothing.
"""

from __future__ import annotations

import re
from functools import cache
from typing import BinaryIO

from weighbridge.formats.cells import Dialect
from weighbridge.formats.invisible import visible
from weighbridge.formats.record_rules import CR, LF, LONGEST_RECORD, SPACE

CHUNK = 1 << 17  # stays in the cache of the processor: three times as fast as 1 << 21


def quotes_a_cell(file: BinaryIO, dialect: Dialect, width: int) -> bool:
    """Is a cell of the rest of the file, which begins with a record, in quotes?

    A cell over several lines counts only if none of its lines has the width of a record: stray quotes may have joined
    records.
    """
    quote, held = dialect.quote.encode(), b""
    while chunk := file.read(CHUNK):
        text = held + chunk if held else chunk
        whole = max(text.rfind(b"\n"), text.rfind(b"\r")) + 1
        held = text[whole:]
        if quote in text and _in(text[:whole], dialect, width):
            return True
        if len(held) > LONGEST_RECORD:
            return False  # no file with such a line is read
    return quote in held and _in(held, dialect, width)


def _in(lines: bytes, dialect: Dialect, width: int) -> bool:
    """Is a cell of these whole lines in quotes?"""
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
    """Does a line inside the cell have the width of a record?"""
    return any(line.count(dialect.delimiter.encode()) >= width - 1 for line in cell.splitlines()[1:-1])


@cache
def _pattern(dialect: Dialect) -> re.Pattern[bytes]:
    """A cell in quotes and its end. The text before it is a look-behind, because a search for a pattern
    that begins with one certain byte is ten times as fast.
    """
    q, d = re.escape(dialect.quote), re.escape(dialect.delimiter)
    padding = "" if dialect.delimiter == " " else " *"
    inside = rf"(?:[^{q}]++|{q}{q})*+"
    return re.compile(rf"{q}(?<=[{d}\r\n ]{q}){inside}{q}{padding}[{d}\r\n]".encode())
