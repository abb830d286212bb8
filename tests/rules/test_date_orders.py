"""The order of day, month and year, where a file shows too little of it or contradicts what is usual."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from rules.cells import check, values
from weighbridge.model.errors import FileRefused
from weighbridge.rules import record_source

AMBIGUOUS = [f"0{i % 9 + 1}/1{i % 3}/2024" for i in range(92)]


@pytest.mark.parametrize("mark", [".", ","])
def test_a_large_file_that_changes_its_order_is_refused_with_either_decimal_mark(
    mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_source, "SMALL", 1)
    monkeypatch.setattr(record_source, "ENOUGH", 20)
    month_first, day_first = ["07/31/2024", "07/04/2024"] * 10, ["31/07/2024", "04/07/2024"] * 10
    outcome = check(month_first, date, persons=[f"1{mark}5"] * 20, person=Decimal)
    assert outcome.bins.accepted == 20
    # Half of the later dates fit the first order as well: without a second look they would load in it.
    with pytest.raises(FileRefused, match=r"'07/31/2024'.*'31/07/2024'") as refused:
        check(month_first + day_first, date, persons=[f"1{mark}5"] * 40, person=Decimal)
    assert refused.value.code == "ambiguous_dates"


@pytest.mark.parametrize("small", [True, False])
@pytest.mark.parametrize(
    ("cells", "kind", "usual", "said"),
    [
        (["13/07/2024"] * 8 + AMBIGUOUS, date, {"day_first": False}, "'13/07/2024', where the day is first"),
        (["07/13/2024", *AMBIGUOUS], date, {"day_first": True}, "'07/13/2024', where the month is first"),
        (["1,5"] + ["1,234"] * 12, Decimal, {"decimal": "."}, "'1,5', which needs a decimal comma"),
        (["1.5"] + ["1.234"] * 12, Decimal, {"decimal": ","}, "'1.5', which needs a decimal point"),
        (["13/05/2024"] * 9 + ["05/13/2024"] * 9 + ["03/04/2024"] * 4, date, {"day_first": False}, "'05/13/2024'"),
    ],
)  # fmt: skip
def test_a_file_whose_evidence_is_against_what_is_usual_is_refused(
    cells: list[str],
    kind: type,
    usual: dict[str, Any],
    said: str,
    small: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not small:
        monkeypatch.setattr(record_source, "SMALL", 1)
        monkeypatch.setattr(record_source, "ENOUGH", 1)
    with pytest.raises(FileRefused, match=r"--date-order|--decimal") as refused:
        check(cells, kind, **usual)
    assert refused.value.code in ("ambiguous_dates", "ambiguous_numbers")
    assert said in refused.value.message
    option = {"date_order": "mdy"} if kind is date else {"decimal": "."}
    assert "date_order_assumed" not in check(cells, kind, **usual, options=option).warnings


@pytest.mark.parametrize(
    ("cells", "kind", "usual", "value"),
    [
        (["13/07/2024"] * 2 + ["03/04/2024"] * 9, date, {"day_first": False}, date(2024, 4, 3)),
        (["07/13/2024", "13/07/2024"] + ["03/04/2024"] * 20, date, {"day_first": False}, date(2024, 3, 4)),
        (["1,5"] * 2 + ["1,234"] * 9, Decimal, {"decimal": "."}, Decimal("1.234")),
        (["1.5", "1,5"] + ["1,234"] * 20, Decimal, {"decimal": "."}, Decimal(1234)),
    ],
)
def test_a_tenth_of_evidence_decides_and_a_slip_does_not(
    cells: list[str], kind: type, usual: dict[str, Any], value: Any
) -> None:
    outcome = check(cells, kind, **usual)
    assert values(outcome)[len(cells) - 1] == value
    assert outcome.warnings == {}


# Years of two digits ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("usual", [{}, {"day_first": False}, {"day_first": True}])
@pytest.mark.parametrize(
    "cells",
    [["25-01-05", "25-01-06", "25-02-07"], ["25/01/05", "25/01/06"], ["24-12-31", "25-1-1", "25-1-2"], ["25-01-05"]],
)  # fmt: skip
def test_years_of_two_digits_that_may_come_first_are_refused(
    cells: list[str], usual: dict[str, bool]
) -> None:
    with pytest.raises(FileRefused, match="--date-order ymd") as refused:
        check(cells, date, **usual)
    assert refused.value.code == "ambiguous_dates"
    assert values(check(cells, date, **usual, options={"date_order": "ymd"}))[0].year == 2000 + int(
        cells[0][:2]
    )


@pytest.mark.parametrize(
    ("cells", "more", "year"),
    [
        (["25-01-05", "26-01-05"], {}, 2005),  # the first part runs: it is the day
        (["31/05/24"], {}, 2024),
        (["25-01-05", "25-01-06", "26-01-2007"], {}, 2005),  # a whole year shows where years are
        (["31/12/19", "31/12/20", "31/12/21"], {"today": date(2026, 1, 31)}, 2019),  # 2031 is to come
        (["01-31-05", "01-30-06"], {}, 2005),
        (["01/05/13", "01/05/14"], {"day_first": False}, 2013),  # reported as date_order_assumed
    ],
)
def test_years_of_two_digits_come_last_where_they_cannot_come_first(
    cells: list[str], more: dict[str, Any], year: int
) -> None:
    assert values(check(cells, date, **more))[0].year == year


def test_a_year_of_two_digits_first_may_have_a_month_and_a_day_of_one() -> None:
    cells = ["25/4/3", "25-4-13", "2025-04-03", "5/4/13", "5/5/13", "25/13/1"]
    outcome = check(cells, date, options={"date_order": "ymd"})
    april = {0: date(2025, 4, 3), 1: date(2025, 4, 13), 2: date(2025, 4, 3)}
    assert values(outcome) == april
    assert outcome.codes == ["bad_date"] * 3


@pytest.mark.parametrize(
    ("cells", "options", "asked"),
    [
        (["31/05/24", "01-Jan-25"], {}, True),
        (["01-Jan-25"], {}, False),
        (["31/05/24"], {"date_order": "dmy"}, False),
        (["25/4/3"], {"date_order": "ymd"}, False),
    ],
)
def test_the_order_is_asked_for_only_where_it_matters(
    cells: list[str], options: dict[str, str], asked: bool
) -> None:
    warning = check(cells, date, options=options).warnings["two_digit_years"]
    assert ("--date-order" in warning) is asked
