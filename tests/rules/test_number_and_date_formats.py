"""The decimal mark and the order of day and month are decided once for a file, or the file is refused."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pytest

from rules.checking import Outcome, check_text, meta
from weighbridge.model.errors import FileRefused
from weighbridge.rules import record_source

HEADER = "Day;Campaign name;Impressions;Amount spent (EUR)"


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """A large file is guessed at by its first records, and read again where the guess was wrong."""
    monkeypatch.setattr(record_source, "SMALL", 1)
    monkeypatch.setattr(record_source, "ENOUGH", 1)


def spends(*cells: str, impressions: str = "5") -> list[Decimal]:
    records = [f"2025-07-{day:02};Spring;{impressions};{cell}" for day, cell in enumerate(cells, 1)]
    return [row["spend"] for row in check_text(meta(*records, header=HEADER)).metrics]


def days(*cells: str) -> Outcome:
    return check_text(meta(*(f"{cell};Spring;5;1" for cell in cells), header=HEADER))


@pytest.mark.parametrize(
    ("cells", "values"),
    [
        (["1,234", "1,234.56"], ["1234", "1234.56"]),
        (["1.234", "1.234,56"], ["1234", "1234.56"]),
        (["1.234", "7,5"], ["1234", "7.5"]),
        (["1.234", "0.5"], ["1.234", "0.5"]),
        (["1.234", "1.234.567"], ["1234", "1234567"]),
        (["1 234,5", "1.234"], ["1234.5", "1234"]),
        (["1\u202f234,5", "2\u00a0345"], ["1234.5", "2345"]),
        (["1'234.5", "1.234"], ["1234.5", "1.234"]),
        (["1234", "12"], ["1234", "12"]),
    ],
)
def test_one_telling_cell_decides_the_mark_of_all(cells: list[str], values: list[str]) -> None:
    assert spends(*cells) == [Decimal(value) for value in values]


@pytest.mark.parametrize(("impressions", "value"), [("1,234", "1234"), ("1.234", "1.234")])
def test_a_count_is_evidence_as_it_has_no_fraction(impressions: str, value: str) -> None:
    # 1,234 impressions: the comma groups. 1.234 impressions: the point does.
    expected = Decimal(value) if impressions == "1,234" else Decimal(1234)
    cell = "1,234" if impressions == "1,234" else "1.234"
    assert spends(cell, impressions=impressions) == [expected]


def test_columns_that_no_field_uses_are_evidence_too() -> None:
    header = "Day;Campaign name;Amount spent (EUR);Frequency;CTR"
    text = meta("2025-07-01;Spring;1.234;1,02;0,42 %", header=header)
    assert check_text(text).metrics[0]["spend"] == Decimal(1234)


def test_numbers_that_nothing_explains_are_refused_with_an_example() -> None:
    with pytest.raises(FileRefused, match=r"got '1\.234'.*Export amounts with two decimals") as refused:
        spends("1.234", "12", "2.345")
    assert refused.value.code == "ambiguous_numbers"


def test_a_total_that_nothing_explains_does_no_harm() -> None:
    outcome = check_text(
        meta("2025-07-01;Spring;5;600", "2025-07-02;Spring;5;634", ";;10;1.234", header=HEADER)
    )
    assert [row["spend"] for row in outcome.metrics] == [Decimal(600), Decimal(634)]
    assert outcome.bins.totals == 1


def test_two_marks_in_one_file_are_refused_with_both_examples() -> None:
    with pytest.raises(FileRefused, match=r"'1\.5', which needs a decimal point, and '2,5'") as refused:
        spends("1.5", "2,5")
    assert refused.value.code == "ambiguous_numbers"


def test_a_stray_cell_against_much_evidence_is_rejected_alone() -> None:
    records = [f"2025-07-{day:02};Spring;5;1.5" for day in range(1, 21)]
    outcome = check_text(meta(*records, "2025-07-21;Spring;5;2,5", header=HEADER))
    assert (outcome.bins.accepted, outcome.codes) == (20, ["bad_amount"])


@pytest.mark.parametrize(
    ("cells", "values"),
    [
        (["7/4/2025", "7/31/2025"], [date(2025, 7, 4), date(2025, 7, 31)]),
        (["4/7/2025", "31/7/2025"], [date(2025, 7, 4), date(2025, 7, 31)]),
        (["04-07-2025", "31-07-2025"], [date(2025, 7, 4), date(2025, 7, 31)]),
        (["2025-07-30", "7/31/2025"], [date(2025, 7, 30), date(2025, 7, 31)]),
        (["7/7/2025"], [date(2025, 7, 7)]),
        (["04.07.2025"], [date(2025, 7, 4)]),
    ],
)
def test_the_order_of_dates_is_decided_by_those_that_tell(cells: list[str], values: list[date]) -> None:
    assert days(*cells).affected_dates == values


def test_dates_that_nothing_explains_are_refused_with_an_example() -> None:
    with pytest.raises(FileRefused, match=r"got '3/4/2025'.*Export dates as 2025-07-31") as refused:
        days("3/4/2025", "3/5/2025", "4/4/2025")
    assert refused.value.code == "ambiguous_dates"


@pytest.mark.parametrize(
    "cells",
    [
        ("2025-01-01", "2025-02-01", "2025-03-01", "04/01/2025", "05/01/2025"),
        ("2025-01-01", "01/02/2025"),
        ("2025-07-01", "7/2/2025"),
        (*(f"2025-01-{day:02}" for day in range(1, 32)), "02/01/2025", "03/01/2025", "04/01/2025"),
        ("2025-01-01", "04/01/2025", "2025-02-01", "05/01/2025", "2025-03-01", "06/01/2025", "2025-07-01"),
        ("2025-07-01", "7/2/2025", "2025-07-03", "7/4/2025", "2025-07-05"),
    ],
)
def test_iso_dates_do_not_show_the_order_of_the_others(cells: tuple[str, ...]) -> None:
    with pytest.raises(FileRefused, match=r"no date that shows the order.*--date-order") as refused:
        days(*cells)
    assert refused.value.code == "ambiguous_dates"


@pytest.mark.parametrize("form", ["7/{}/2025", "{}/7/2025"])
def test_a_daily_file_of_two_formats_is_one_run_of_days_and_that_is_reported(form: str) -> None:
    cells = [form.format(day) if day % 2 else f"2025-07-{day:02}" for day in range(1, 11)]
    outcome = days(*cells)
    assert outcome.affected_dates == [date(2025, 7, day) for day in range(1, 11)]
    assert "assumed to be first" in outcome.warnings["date_order_assumed"]


def test_two_orders_in_one_file_are_refused_with_both_examples() -> None:
    with pytest.raises(FileRefused, match=r"'7/31/2025'.*'30/7/2025'") as refused:
        days("7/31/2025", "30/7/2025")
    assert refused.value.code == "ambiguous_dates"


def test_json_numbers_have_a_point() -> None:
    text = (
        '[{"date_start": "2025-07-01", "date_stop": "2025-07-01", "campaign_name": "Spring", "spend": 1.234}]'
    )
    assert check_text(text, kind="json").metrics[0]["spend"] == Decimal("1.234")


@pytest.mark.usefixtures("large")
def test_a_first_guess_is_given_up_for_what_the_whole_file_says() -> None:
    assert spends("12", "1.234", "7,5") == [Decimal(12), Decimal(1234), Decimal("7.5")]
    assert spends("1,234", "1,234.56") == [Decimal(1234), Decimal("1234.56")]
    assert days("7/4/2025", "7/31/2025").affected_dates == [date(2025, 7, 4), date(2025, 7, 31)]


@pytest.mark.usefixtures("large")
def test_a_large_file_that_nothing_explains_is_refused_too() -> None:
    for refuse, code in (
        (lambda: spends("12", "1.234"), "ambiguous_numbers"),
        (lambda: spends("1.5", "2,5"), "ambiguous_numbers"),
        (lambda: days("2025-01-01", "3/4/2025"), "ambiguous_dates"),
        (lambda: days("7/31/2025", "30/7/2025"), "ambiguous_dates"),
    ):
        with pytest.raises(FileRefused) as refused:
            refuse()
        assert refused.value.code == code
