"""Called by scan.py: how the records of a CSV file are separated, the result of a scan, and the maximum length."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from weighbridge.model.errors import FileRefused

Ints = npt.NDArray[np.int64]

LONGEST_RECORD = 1 << 20
LF, CR, SPACE = 10, 13, 32


@dataclass(frozen=True)
class RecordSyntax:
    """How records are separated. `width` is the number of cells of a record, 0 while it is not known."""

    delimiter: int
    quote: bytes
    width: int = 0
    strict: bool = False  # the file quotes cells: a quote inside an unquoted cell is an error
    stray: int = 0  # LF or CR: the character that is not a line end of this file; 0 while it is not known

    @classmethod
    def of(cls, delimiter: str, quote: str) -> RecordSyntax:
        return cls(ord(delimiter), quote.encode())


@dataclass(frozen=True)
class ScanResult:
    """The records of a buffer that begins with a record. The text after `end` is an incomplete record."""

    ends: list[int] | Ints  # the position after each record
    end: int
    line_ends: Ints  # the position of the last byte of each physical line end
    broken: list[tuple[int, str]] = field(default_factory=list)  # (index of the record, code)
    cuts: list[tuple[int, int]] = field(default_factory=list)  # ranges of spaces around quotes, to remove


def too_long(line: int) -> FileRefused:
    return FileRefused(
        "malformed_file",
        f"Line {line} is longer than {LONGEST_RECORD:,} bytes. Expected one record on each line; "
        "export the file again.",
    )
