"""How a file was read, where the cells alone do not show it; kept for the rows of its rejects file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True)
class ReadAs:
    """Decisions for the whole file. Empty: it did not matter."""

    decimal: str = ""  # as in ReadOptions
    date_order: str = ""
    preamble: tuple[str, ...] = ()  # the lines above the header that name the time zone
    delimiter: str = ""
    exponents: bool = False  # numbers may have exponents, as in JSON: 1e3
    indian: bool = False  # digits are grouped as in 12,34,567
    sum_breakdowns: bool = False  # as in ReadOptions
    linked: bool = False  # it has rows of a rejects file

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> ReadAs:
        """From the result of `as_dict`."""
        return cls(**{**stored, "preamble": tuple(stored.get("preamble", ()))})

    def as_dict(self) -> dict[str, Any]:
        return {each.name: value for each in fields(self) if (value := getattr(self, each.name))}


UNDECIDED = ReadAs()
