"""The layout of one platform's exports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Daily:
    """Each record is one day. Without a column for `field`, a period of a single day is accepted."""

    field: str  # "daily_metric.metric_date"
    starts: Sequence[str] = ()  # headers
    ends: Sequence[str] = ()
    longer: Sequence[
        str
    ] = ()  # headers of weeks and months: named when the file is refused for having no day
    hint: str = ""  # how to get a daily export


@dataclass(frozen=True)
class Results:
    """Columns that count the result each campaign is optimised for: purchases, clicks, reach."""

    field: str  # "daily_metric.conversions": the field that such a column fills
    headers: Sequence[str]
    indicators: Sequence[str] = ()  # headers of the column that names what was counted


@dataclass(frozen=True)
class Profile:
    """Header names by field ("campaign.name") and the habits of one platform."""

    name: str
    headers: Mapping[str, Sequence[str]]  # the best column first, when an export can have several
    nulls: Sequence[str] = ()  # cells that mean "no value", besides empty ones
    totals: Sequence[str] = ()  # regular expressions over a whole cell, in any cell of a record without a day
    nameless_totals: bool = False  # the record after the header is a totals row if it has no names
    daily: Daily | None = None
    breakdowns: Sequence[str] = ()  # headers that split a day further; shown if records contradict
    expects: Sequence[str] = ()  # fields ("daily_metric.spend") that every export has
    results: Results | None = None
