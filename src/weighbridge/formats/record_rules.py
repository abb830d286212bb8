"""Under the CSV reader: how the records of a file are separated, and how long one may be."""

from __future__ import annotations

from dataclasses import dataclass

from weighbridge.model.errors import FileRefused

LONGEST_RECORD = 1 << 20
LF, CR, SPACE = 10, 13, 32


@dataclass(frozen=True)
class Rules:
    """How records are separated. `width` is how many cells a record has, 0 while that is not known."""

    delimiter: int
    quote: bytes
    width: int = 0
    strict: bool = False  # the file quotes cells: a quote inside an unquoted one is a fault

    @classmethod
    def of(cls, delimiter: str, quote: str, width: int = 0, *, strict: bool = False) -> Rules:
        return cls(ord(delimiter), quote.encode(), width, strict)


def too_long(line: int) -> FileRefused:
    return FileRefused(
        "malformed_file",
        f"Line {line} is longer than {LONGEST_RECORD:,} bytes. Expected one record on each line; "
        "export the file again.",
    )
