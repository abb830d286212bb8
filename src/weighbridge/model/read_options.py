"""Read options that a sender gives for a file. The others are detected from the file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

DATE_ORDERS = ("dmy", "mdy", "ymd")


@dataclass(frozen=True)
class ReadOptions:
    """Each option overrides one detection; an empty one is detected."""

    encoding: str = ""  # a name from model.encodings.ENCODINGS
    delimiter: str = ""  # one character
    decimal: str = ""  # '.' or ','
    date_order: str = ""  # dmy: 3/4/2025 is the third of April; mdy; ymd: 25/4/3
    sum_breakdowns: bool = False  # add up rows of one key that an unused column distinguishes

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> ReadOptions:
        """From the result of `as_dict`."""
        return cls(**stored)

    def as_dict(self) -> dict[str, Any]:
        """Only the options that were given, as stored on the upload."""
        return {each.name: value for each in fields(self) if (value := getattr(self, each.name))}


DETECT_ALL = ReadOptions()

# One sentence per option, for the command line, the API and the console.
ABOUT = {
    "encoding": "Encoding of the file, such as utf-8, windows-1252 or utf-16.",
    "delimiter": "Character between columns, or one of the words comma, semicolon, tab, pipe, space.",
    "decimal": "Decimal mark of numbers: point (1,234.56) or comma (1.234,56).",
    "date_order": "Order of day, month and year in dates such as 3/4/2025: dmy (3 April), mdy (4 March) or ymd.",
    "sum_breakdowns": "Add up rows that differ only in a column that no field uses, such as age or country.",
}
# The same with the default: of a new file, and of a retry.
ABOUT_NEW = {
    name: text if name == "sum_breakdowns" else f"{text} Default: detected from the file."
    for name, text in ABOUT.items()
}
ABOUT_RETRY = {
    name: f"{text} Default: the stored option{'' if name == 'sum_breakdowns' else '; detect removes it'}."
    for name, text in ABOUT.items()
}
