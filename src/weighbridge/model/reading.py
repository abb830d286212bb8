"""How a sender says that a file is written. What is not said is detected from the file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

DATE_ORDERS = ("dmy", "mdy", "ymd")
DECIMALS = (".", ",")


@dataclass(frozen=True)
class ReadOptions:
    """Each option overrides the detection of one thing; an empty one leaves it to detection."""

    encoding: str = ""  # a name from formats.encoding.ENCODINGS
    delimiter: str = ""  # one character
    decimal: str = ""  # '.' or ','
    date_order: str = ""  # dmy: 3/4/2025 is the third of April; mdy; ymd: 25/4/3
    sum_breakdowns: bool = False  # add up rows of one key that an unused column tells apart

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> ReadOptions:
        """From what `as_dict` gave."""
        return cls(**stored)

    def as_dict(self) -> dict[str, Any]:
        """Only the options that were given: what is stored on the upload."""
        return {each.name: value for each in fields(self) if (value := getattr(self, each.name))}


DETECT_ALL = ReadOptions()
