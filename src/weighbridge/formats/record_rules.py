"""Under the CSV reader: how the records of a file are separated, where they end, and how long one may be."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from weighbridge.model.errors import FileRefused

Ints = npt.NDArray[np.int64]

LONGEST_RECORD = 1 << 20
LF, CR, SPACE = 10, 13, 32


@dataclass(frozen=True)
class Rules:
    """How records are separated. `width` is how many cells a record has, 0 while that is not known."""

    delimiter: int
    quote: bytes
    width: int = 0
    strict: bool = False  # the file quotes cells: a quote inside an unquoted one is a fault
    stray: int = 0  # LF or CR: the one that does not end the lines of this file; 0 while that is not known

    @classmethod
    def of(cls, delimiter: str, quote: str) -> Rules:
        return cls(ord(delimiter), quote.encode())


@dataclass(frozen=True)
class Scan:
    """The records of a buffer that begins with one. What stands behind `end` is not complete yet."""

    ends: list[int] | Ints  # behind each record
    end: int
    line_ends: Ints  # the last byte of every physical line's end
    broken: list[tuple[int, str]] = field(default_factory=list)  # (place among the records, code)
    cuts: list[tuple[int, int]] = field(default_factory=list)  # spaces around quotes


def too_long(line: int) -> FileRefused:
    return FileRefused(
        "malformed_file",
        f"Line {line} is longer than {LONGEST_RECORD:,} bytes. Expected one record on each line; "
        "export the file again.",
    )
