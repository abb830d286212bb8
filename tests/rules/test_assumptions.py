"""An ambiguous value of a file is reported, or its record is rejected."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest

from rules.cells import check, values
from rules.checking import check_text
from weighbridge.model.errors import FileRefused
from weighbridge.pipelines import keywords


def test_the_usual_order_beside_iso_dates_is_reported() -> None:
    outcome = check(["2025-01-01", "2025-02-01", "04/01/2025"], date, day_first=False)
    assert values(outcome)[2] == date(2025, 4, 1)
    assert "'04/01/2025' was read as 2025-04-01" in outcome.warnings["date_order_assumed"]


def test_a_range_is_reported_with_the_number_that_is_stored() -> None:
    text = "Keyword,Volume,KD %\nfoo,1K - 10K,<10%\nbar,100 \u2013 1K,50%\nbaz,1.2K,5\n"
    warning = check_text(text, None, pipeline=keywords.pipeline).warnings["ranges_reduced"]
    assert "'Volume' (2 different texts): '100 \u2013 1K' was read as 100" in warning
    assert "'KD %': '<10%' was read as 10" in warning


def test_numbers_that_are_no_range_are_not_reported() -> None:
    text = "Keyword,Volume,KD %,CPC\nfoo,1.2K,50%,$1.20\nbar,-,5,\n"
    assert check_text(text, None, pipeline=keywords.pipeline).warnings == {}


@pytest.mark.parametrize(
    ("cell", "code"),
    [
        ("2025-03-30 02:30 Europe/Berlin", "no_such_time"),
        ("3/30/2025 2:30 AM Europe/Berlin", "no_such_time"),
        ("2025-10-26 02:30 Europe/Berlin", "ambiguous_time"),
        ("2025-11-02 01:00:00 America/New_York", "ambiguous_time"),
        ("2025-03-30 01:59 Europe/Berlin", ""),
        ("2025-03-30 03:00 Europe/Berlin", ""),
        ("2025-10-26 01:59 Europe/Berlin", ""),
        ("2025-10-26 03:00 Europe/Berlin", ""),
        ("2025-10-26T02:30:00+02:00", ""),
        ("2025-03-30 02:30", ""),  # UTC
        ("20251026T023000+0200", ""),
        ("2025-07-31 2:30 PM Asia/Tokyo", ""),
    ],
)
def test_a_time_that_clocks_skip_or_come_to_twice_is_rejected(cell: str, code: str) -> None:
    outcome = check([cell, "2025-07-31T10:00:00Z"], datetime, options={"date_order": "mdy"})
    assert outcome.codes == ([code] if code else [])
    if code:
        assert f"got '{cell}'" in outcome.rejections[0]["message"]


def test_a_time_of_digits_without_a_zone_is_reported_too() -> None:
    outcome = check(["20250330T023000", "20250330T023000Z"], datetime)
    assert "'20250330T023000' was read as" in outcome.warnings["zone_assumed"]
    assert "zone_assumed" not in check(["20250330T023000+0100"], datetime).warnings
    assert check(["20250330T023000.1234567Z"], datetime).codes == ["too_many_digits"]
    cells = ["20250330T0230", "20251026T023000", "20251026T023000Z", "20251026T0430"]
    outcome = check(cells, datetime, above="Zone=Europe/Berlin\n", zone_above="Zone=(.+)")
    assert outcome.codes == ["no_such_time", "ambiguous_time"]
    assert values(outcome) == {
        2: datetime(2025, 10, 26, 2, 30, tzinfo=UTC),
        3: datetime(2025, 10, 26, 3, 30, tzinfo=UTC),
    }


@pytest.mark.parametrize("zone", ["EST", "CST", "est", "EST5EDT", "HST"])
def test_an_abbreviation_above_the_header_is_no_zone(zone: str) -> None:
    with pytest.raises(FileRefused) as refused:
        check(["2025-01-31 10:00"], datetime, above=f"Zone={zone}\n", zone_above="Zone=(.+)")
    assert refused.value.code == "unknown_time_zone"
    for known in ("UTC", "GMT", "Etc/GMT+5", "America/New_York", "+0100"):
        check(["2025-01-31 10:00"], datetime, above=f"Zone={known}\n", zone_above="Zone=(.+)")


def test_the_zone_above_the_header_has_such_times_too() -> None:
    cells = ["2025-03-30 02:30", "2025-10-26 02:30:00", "2025-10-26 02:30Z", "2025-10-26 04:30"]
    outcome = check(cells, datetime, above="Zone=Europe/Berlin\n", zone_above="Zone=(.+)")
    assert outcome.codes == ["no_such_time", "ambiguous_time"]
    assert values(outcome) == {
        2: datetime(2025, 10, 26, 2, 30, tzinfo=UTC),
        3: datetime(2025, 10, 26, 3, 30, tzinfo=UTC),
    }
