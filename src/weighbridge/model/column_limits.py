"""Limits of a column of a production table that holds less than the type of its field."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal


@dataclass(frozen=True)
class ColumnLimits:
    """Limits of one column; None is no limit."""

    sql_type: str  # as Postgres writes it: "numeric(10,2)", "character varying(20)"
    max_length: int | None = None  # characters
    places: int | None = None  # decimal places of a number, or of a second
    below: Decimal | None = None  # the absolute value of every number is less than this
    least: int | None = None
    most: int | None = None
    digits: int | None = None  # significant digits
