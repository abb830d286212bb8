"""Before dialect.py, for pipelines that accept lists: one value per line without a header → batches of one text column.

A keyword may contain commas, semicolons and quotes. So a file is a list if the pipeline
recognises no header and no delimiter occurs in most lines. Then each line is one record.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from weighbridge.formats import arrow_batch
from weighbridge.formats.cells import Dialect, split
from weighbridge.formats.dialect import DELIMITERS, HEAD, NO_DATA, SAMPLE, CountFields
from weighbridge.formats.invisible_characters import warning
from weighbridge.formats.record_syntax import CR, LF, RecordSyntax
from weighbridge.formats.scan import Block, blocks
from weighbridge.formats.to_utf8 import Utf8File
from weighbridge.formats.unreadable_records import unreadable

_NO_QUOTE = "\0"  # occurs in no file (to_utf8.py refuses it), so every record ends at a line end
_QUOTED = r'^\s*"((?:[^"]|"")*)"\s*$'  # a lone quote inside is text: "red" or "blue"


def open_list(text: Utf8File, count_fields: CountFields, header: str) -> ListSheet | None:
    """The file as a list of values for the column `header`; None if it looks like a table."""
    with text.path.open("rb") as file:
        file.seek(text.start)
        head = file.read(HEAD)
    lines = _first_lines(head)
    if not lines or (len(lines) == 1 and NO_DATA.fullmatch(lines[0])):
        return None
    return None if _is_table(lines, count_fields, header) else ListSheet(text, (header,), _stray(head))


@dataclass
class ListSheet:
    """A list. Quotes around a line are not part of its value."""

    text: Utf8File
    header: tuple[str, ...]
    stray: int  # LF or CR: the character that is not a line end of this file
    kind: str = "csv"
    delimiter: None = None
    header_line: int = 0
    preamble: tuple[str, ...] = ()
    extra_cells: int = 0
    records: int = field(default=0, init=False)
    invisible: int = field(default=0, init=False)  # invisible characters that were removed

    @property
    def encoding(self) -> str:
        return self.text.encoding

    @property
    def warnings(self) -> Mapping[str, str]:
        """Complete after batches() has ended."""
        return {**self.text.warnings, **warning(self.invisible)}

    def batches(self) -> Iterator[Any]:
        """Lines in the order of the file."""
        self.records = self.invisible = 0
        with self.text.path.open("rb") as file:
            file.seek(self.text.start)
            for block in blocks(
                file, RecordSyntax(ord(_NO_QUOTE), _NO_QUOTE.encode(), 1, stray=self.stray), line=1
            ):
                first, count = self.records, len(block.lines)
                self.records += count
                self.invisible += block.invisible
                read = np.delete(np.arange(count), [each.place for each in block.broken])
                yield arrow_batch.build(first + read, block.lines[read], 1, [_values(block)], None)
                if block.broken:
                    yield unreadable(block, first, width=1)


def _first_lines(head: bytes) -> list[str]:
    """The lines that are not blank; none if the head ends within the first line."""
    lines = [line for line in re.split(r"\r\n|\r|\n", head.decode(errors="ignore"))[:SAMPLE] if line.strip()]
    return lines if len(head) < HEAD or len(lines) > 1 else []


def _stray(head: bytes) -> int:
    feeds, returns = head.count(b"\n"), head.count(b"\r") - head.count(b"\r\n")
    return LF if returns > feeds else CR


def _is_table(lines: Sequence[str], count_fields: CountFields, header: str) -> bool:
    """A table has a header as its first line, or a header before lines with delimiters, or delimiters in most lines."""

    def names_it(cells: Sequence[str]) -> bool:
        return count_fields((*cells, header)) == count_fields(cells)  # the column is already among the cells

    if names_it([re.sub(_QUOTED, r"\1", lines[0])]):
        return True
    for delimiter in DELIMITERS:
        rows = [split(line, Dialect(delimiter)) for line in lines]
        if _mostly_cut(rows):
            return True
        headers = [number for number, row in enumerate(rows) if len(row) > 1 and names_it(row)]
        if any(number == 0 or _mostly_cut(rows[number:]) for number in headers):
            return True
    return False


def _mostly_cut(rows: Sequence[Sequence[str]]) -> bool:
    return sum(len(row) > 1 for row in rows) * 2 > len(rows)


def _values(block: Block) -> Any:
    """The lines of a block without line ends and without quotes around them."""
    offsets = np.append(block.starts, len(block.text)).astype(np.int32)
    text = pa.py_buffer(block.text)
    lines = pa.StringArray.from_buffers(len(block.starts), pa.py_buffer(offsets), text)
    lines = pc.utf8_rtrim(lines, "\r\n")
    if b'"' not in block.text:
        return lines
    unquoted = pc.replace_substring(pc.replace_substring_regex(lines, _QUOTED, r"\1"), '""', '"')
    return pc.if_else(pc.match_substring_regex(lines, _QUOTED), unquoted, lines)
