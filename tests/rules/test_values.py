"""Every value is the one that the file says, or its record is rejected. The truth here is Python's, not our SQL."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from rules.cells import agree, check, pipeline, values
from rules.checking import check_text
from tests.proof.workers import LONG
from weighbridge import Normaliser, n
from weighbridge.model.column_limits import ColumnLimits
from weighbridge.model.errors import FileRefused
from weighbridge.rules import currencies, record_source

FAST = settings(
    max_examples=1000 if LONG else 40,
    deadline=None,
    derandomize=not LONG,
    suppress_health_check=[HealthCheck.too_slow],
)


# Dates ------------------------------------------------------------------------------------------------------

DATE_FORMATS = [
    "%Y-%m-%d", "%Y/%m/%d", "%Y%m%d", "%d-%b-%y", "%d-%b-%Y", "%d %B %Y", "%b %d, %Y", "%B %d, %Y",
    "%a, %b %d, %Y", "%A, %d %B %Y", "%G-W%V-%u", "%Y-%m-%dZ", "%Y-%m-%d+02:00", "%Y-%m-%dT00:00:00+02:00",
]  # fmt: skip
ORDERED = {
    "dmy": ["%d/%m/%Y", "%d-%m-%Y", "%d.%m.%Y", "%d/%m/%y", "%d-%m-%y", "%d.%m.%y"],
    "mdy": ["%m/%d/%Y", "%m-%d-%Y", "%m.%d.%Y", "%m/%d/%y", "%m-%d-%y", "%m.%d.%y"],
    "ymd": ["%y/%m/%d", "%y-%m-%d", "%y.%m.%d"],
}
days = st.dates(date(1969, 1, 1), date(2068, 12, 31))


@FAST
@given(st.data(), st.sampled_from(sorted(ORDERED)), st.booleans())
def test_a_date_is_what_python_wrote(data: st.DataObject, order: str, upper: bool) -> None:
    formats = st.sampled_from([*DATE_FORMATS, *ORDERED[order]])
    written = data.draw(st.lists(st.tuples(days, formats), min_size=1, max_size=20))
    cells = [
        day.strftime(form).upper() if upper and "T" not in form else day.strftime(form)
        for day, form in written
    ]
    outcome = check(cells, date, options={"date_order": order})
    agree(cells, [day for day, _ in written], outcome)


@FAST
@given(
    st.lists(st.tuples(days, st.sampled_from([0, 1, 2])), min_size=3, max_size=20),
    st.sampled_from(["dmy", "mdy"]),
)
def test_the_order_that_the_file_shows_is_used_or_the_file_is_refused(
    written: list[tuple[date, int]], order: str
) -> None:
    cells = [day.strftime(ORDERED[order][form]) for day, form in written]
    try:
        outcome = check(cells, date)
    except FileRefused as error:
        refused = error.code
    else:
        refused = ""
    if refused:
        assert refused == "ambiguous_dates"
        assert all(day.day <= 12 for day, _ in written)
    elif any(day.day > 12 for day, _ in written):
        agree(cells, [day for day, _ in written], outcome)
    else:  # the same in both orders, or with points
        assert all(day.day == day.month for day, form in written if form < 2)


@FAST
@given(st.lists(st.text("0123456789/-.: JanFebW,TZ+", max_size=14), min_size=1, max_size=20))
@example(
    ["31/02/2025", "0000-01-01", "45658", "infinity", "-infinity", "epoch", "now", "today", "0044-03-15 BC"]
)
def test_a_date_of_no_known_form_is_rejected(cells: list[str]) -> None:
    """A generous reader of our own: what it cannot read, nobody may."""
    outcome = check(cells, date, options={"date_order": "dmy"})
    for i, day in values(outcome).items():
        if day is not None:
            assert day in generous(cells[i]), cells[i]


def generous(cell: str) -> list[date]:
    forms = [*DATE_FORMATS, *ORDERED["dmy"], "%Y.%m.%d", "%d %b %Y", "%d %b %y", "%b %d %Y", "%b %d %y", "%Y %b %d",
             "%d %B %y", "%B %d %Y", "%B %d %y", "%Y %B %d", "%Y %m %d", "%d %m %Y", "%d %m %y"]  # fmt: skip
    body = cell.strip()
    for tail in ("Z", "T00:00", " 00:00", " 0:00", "T0:00", ", 00:00"):
        body = body.removesuffix(tail)
    body = body.partition("+")[0].strip()
    plain = " ".join(body.replace("-", " ").replace("/", " ").replace(".", " ").replace(",", " ").split())
    found = []
    for text in (cell.strip(), body, plain):
        for form in forms:
            try:
                found.append(datetime.strptime(text, form).date())  # noqa: DTZ007
            except ValueError:
                continue
    return found


@pytest.mark.parametrize(
    ("cell", "code", "said"),
    [
        ("45658", "spreadsheet_date", "number is how spreadsheet programs store a date"),
        ("31/02/2025", "bad_date", "expected a date, got '31/02/2025'"),
        ("infinity", "bad_date", "Use 2025-07-31."),
    ],
)
def test_a_date_that_is_none_is_rejected_with_the_reason(cell: str, code: str, said: str) -> None:
    [rejection] = check(["2025-01-01", cell], date, options={"date_order": "dmy"}).rejections
    assert rejection["code"] == code
    assert said in rejection["message"]


# Times ------------------------------------------------------------------------------------------------------

HOURS = {"": 0, "Z": 0, " UTC": 0, "+01:00": 1, " +0100": 1, "-05": -5, "+05:30": 5.5, " Asia/Tokyo": 9}
ZONES = {zone: timezone(timedelta(hours=hours)) for zone, hours in HOURS.items()}
CLOCKS: list[tuple[str, Callable[[datetime], datetime]]] = [
    ("%H:%M", lambda t: t.replace(second=0, microsecond=0)),
    ("%H:%M:%S", lambda t: t.replace(microsecond=0)),
    ("%H:%M:%S.%f", lambda t: t),
    ("%H:%M:%S.%f000", lambda t: t),
    ("%I:%M %p", lambda t: t.replace(second=0, microsecond=0)),
    ("%I:%M:%S %p", lambda t: t.replace(microsecond=0)),
]
times = st.datetimes(datetime(1970, 1, 2), datetime(2068, 12, 30))  # noqa: DTZ001


@FAST
@given(st.data(), st.sampled_from(["dmy", "mdy"]))
def test_a_time_is_what_python_wrote(data: st.DataObject, order: str) -> None:
    forms = st.sampled_from([*(f for f in DATE_FORMATS[:11]), *ORDERED[order]])
    pieces = st.tuples(times, forms, st.sampled_from(CLOCKS), st.sampled_from(sorted(ZONES)))
    cells, truths = [], []
    for moment, form, (clock, kept), zone in data.draw(st.lists(pieces, min_size=1, max_size=15)):
        space = " " if "%p" in clock and zone == "Z" else ""
        cells.append(f"{moment.strftime(form)} {moment.strftime(clock)}{space}{zone}")
        truths.append(kept(moment).replace(tzinfo=ZONES[zone]).astimezone(UTC))
    agree(cells, truths, check(cells, datetime, options={"date_order": order}))


@pytest.mark.parametrize(
    ("cell", "code"),
    [
        ("infinity", "bad_timestamp"),
        ("2025-01-31", "bad_timestamp"),
        ("2025-01-31 10:00:00.1234567Z", "too_many_digits"),
        ("45658.5", "spreadsheet_date"),
    ],
)
def test_a_time_that_cannot_be_kept_is_rejected(cell: str, code: str) -> None:
    assert check(["2025-01-31T10:00:00Z", cell], datetime).codes == [code]


# Numbers ----------------------------------------------------------------------------------------------------


def grouped(number: Decimal, mark: str, places: int) -> str:
    text = f"{number:,.{places}f}"
    return text if mark == "." else text.translate(str.maketrans(".,", ",."))


@FAST
@given(st.lists(st.decimals(-(10**14), 10**14, places=8), min_size=1), st.sampled_from(".,"), st.booleans())
@example([Decimal("0.00000049"), Decimal("999999999999.999999"), Decimal(10) ** 12], ".", False)
def test_a_number_is_the_decimal_of_its_text_or_rejected(
    numbers: list[Decimal], mark: str, group: bool
) -> None:
    cells = [grouped(x, mark, 8) if group else f"{x:f}".replace(".", mark) for x in numbers]
    truths = [x if fits(x, 18, 6) else None for x in numbers]
    outcome = check(cells, Decimal, options={"decimal": mark})
    agree(cells, truths, outcome)
    assert set(outcome.codes) <= {"too_many_digits"}


def fits(number: Decimal, precision: int, scale: int) -> bool:
    return number == number.quantize(Decimal(1).scaleb(-scale)) and abs(number) < Decimal(10) ** (
        precision - scale
    )


@FAST
@given(
    st.lists(st.integers(-(10**20), 10**20), min_size=1, max_size=20),
    st.sampled_from(["", ".0", ".00", ".5"]),
)
@example([2**63 - 1, 2**63, -(2**63), -(2**63) - 1], "")
def test_a_whole_number_is_the_integer_of_its_text_or_rejected(numbers: list[int], tail: str) -> None:
    cells = [f"{x}{tail}" for x in numbers]
    truths = [x if -(2**63) <= x < 2**63 and tail != ".5" else None for x in numbers]
    agree(cells, truths, check(cells, int, options={"decimal": "."}))


@FAST
@given(
    st.lists(
        st.tuples(st.decimals(-999, 999, places=4), st.integers(-12, 12), st.sampled_from("eE")), min_size=1
    )
)
@example([(Decimal(1), 3, "e"), (Decimal("1.5"), -2, "E"), (Decimal("0.5"), -7, "e")])
def test_json_numbers_may_have_an_exponent(numbers: list[tuple[Decimal, int, str]]) -> None:
    cells = [f"{x:f}{e}{power}" for x, power, e in numbers]
    text = json.dumps([{"No": i, "Value": "@"} for i in range(len(cells))])
    for cell in cells:
        text = text.replace('"@"', cell, 1)
    truths = [Decimal(cell) if fits(Decimal(cell), 18, 6) else None for cell in cells]
    outcome = check_text(text, None, kind="json", pipeline=pipeline(Decimal))
    agree(cells, truths, outcome)
    assert set(outcome.codes) <= {"too_many_digits"}


@pytest.mark.parametrize("cells", [[".5", "-.25"], ["5.", "7."], [",5", "1.234"], ["$.50", "1,234"]])
def test_a_fraction_without_its_zero_shows_the_decimal_mark(cells: list[str]) -> None:
    plain = [cell.strip("$") for cell in cells]
    swap = str.maketrans(".,", ",.") if "," in plain[0] else {}
    truths = [Decimal(cell.translate(swap).replace(",", "")) for cell in plain]
    agree(cells, truths, check(cells, Decimal, n.money))


def test_an_exponent_in_csv_is_rejected_as_a_spreadsheet_may_have_rounded() -> None:
    assert check(["1.5", "1e3"], Decimal).codes == ["bad_number"]


@FAST
@given(
    st.lists(st.text("0123456789.,-eE+ %$€EURINFan", max_size=10), min_size=1, max_size=20),
    st.sampled_from(".,"),
)
@example(["5.00 EUR", "5.00 INF", "NAN 5.00", "E$5"], ".")
def test_a_number_of_no_known_form_is_rejected(cells: list[str], mark: str) -> None:
    outcome = check(cells, Decimal, n.money, options={"decimal": mark})
    other = "," if mark == "." else "."
    for i, number in values(outcome).items():
        if number is not None:
            plain = (
                re.sub("|".join(currencies.CODES), "", cells[i])
                .translate(str.maketrans("", "", f"{other} $€"))
                .replace(mark, ".")
            )
            assert number == Decimal(plain), cells[i]


@pytest.mark.parametrize(
    ("cells", "codes"),
    [
        (["1,23,456", "12,34,567.50", "12,345"], []),
        (["1,23,45,678", "5"], []),
        (["1,23,456", "5.5"], ["bad_number"]),  # a single one may have lost a digit
        (["1,23,456", "12,34,567", "1,234,567"], ["bad_number"] * 2),
        (["1,23,456", "12,34,567", "123,456.0"], ["bad_number"] * 2),
    ],
)
def test_indian_grouping_is_read_only_where_the_whole_file_has_it(cells: list[str], codes: list[str]) -> None:
    outcome = check(cells, Decimal)
    assert outcome.codes == codes
    for i, number in values(outcome).items():
        assert number == Decimal(cells[i].replace(",", ""))


def test_a_large_file_with_indian_grouping_is_read_like_a_small_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_source, "SMALL", 1)
    monkeypatch.setattr(record_source, "ENOUGH", 2)
    assert check(["1.5", "2", "1,23,456", "12,34,567"], Decimal).codes == []
    # The first records look Indian; a later one shows that the file is not.
    assert check(["1,23,456", "12,34,567", "1,234,567"], Decimal).codes == ["bad_number"] * 2


# Rules of an author's own -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "expression", "cells", "truths"),
    [
        (int, "{x}", ["2", "2.5", "3.0"], [2, None, 3]),
        (int, "TRY_CAST({x} AS DOUBLE) * 10", ["1", "0.25"], [10, None]),
        (Decimal, "{x}", ["1.5", "0.00000049"], [Decimal("1.5"), None]),
        (date, "TRY_CAST({x} AS TIMESTAMP)", ["2025-01-31 00:00", "2025-01-31 10:00"], [date(2025, 1, 31), None]),
        (datetime, "{x}", ["2025-01-31 10:00Z", "infinity"], [datetime(2025, 1, 31, 10, tzinfo=UTC), None]),
    ],
)  # fmt: skip
def test_what_an_authors_rule_gives_is_not_rounded_either(
    kind: type, expression: str, cells: list[str], truths: list[Any]
) -> None:
    rule = Normaliser("own", expression, "a value", code="bad_own")
    agree(cells, truths, check(cells, kind, rule))


def test_a_field_of_whole_numbers_may_use_the_rule_for_amounts() -> None:
    agree(["$12.00", "$12.50"], [12, None], check(["$12.00", "$12.50"], int, n.money))


# Assumptions ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("small", [True, False])
@pytest.mark.parametrize(
    ("cells", "kind", "settings", "said"),
    [
        (["31/05/24"], date, {}, {"two_digit_years": "'31/05/24' was read as 2024-05-31"}),
        (["5-Jan-24"], date, {}, {"two_digit_years": "'5-Jan-24' was read as 2024-01-05"}),
        (["31/05/2024", "Jan 05 2024"], date, {}, {}),
        (["3/4/2025"], date, {"day_first": False}, {"date_order_assumed": "'3/4/2025' was read as 2025-03-04"}),
        (["3/4/2025", "3/31/2025"], date, {"day_first": False}, {}),
        (["3/4/2025", "2025-03-05"], date, {"day_first": True}, {"date_order_assumed": "was read as 2025-04-03"}),
        (["3/4/2025"], date, {"day_first": False, "options": {"date_order": "dmy"}}, {}),
        (["03.04.2025"], date, {}, {"date_order_assumed": "'03.04.2025' was read as 2025-04-03"}),
        (["1,234"], Decimal, {"decimal": "."}, {"decimal_assumed": "'1,234' was read as 1234"}),
        (["1,234", "7.5"], Decimal, {"decimal": "."}, {}),
        (["1,234"], Decimal, {"decimal": ".", "options": {"decimal": ","}}, {}),
        (["2025-01-31 10:00"], datetime, {}, {"zone_assumed": "'2025-01-31 10:00' was read as 2025-01-31 10:00:00+00"}),
        (["2025-01-31 10:00-05:00", "2025-01-31 10:00 Asia/Tokyo", "2025-01-31T10:00Z"], datetime, {}, {}),
    ],
)  # fmt: skip
def test_an_assumption_is_reported_with_an_example(
    cells: list[str],
    kind: type,
    settings: dict[str, Any],
    said: dict[str, str],
    small: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not small:
        monkeypatch.setattr(record_source, "SMALL", 1)
        monkeypatch.setattr(record_source, "ENOUGH", 1)
    outcome = check(cells, kind, **settings)
    assert outcome.warnings.keys() == said.keys()
    for code, part in said.items():
        assert part in outcome.warnings[code]
    if "date_order_assumed" in said:
        assert "--date-order" in outcome.warnings["date_order_assumed"]
    if "decimal_assumed" in said:
        assert "--decimal ," in outcome.warnings["decimal_assumed"]


def test_a_warning_about_personal_data_repeats_no_cell() -> None:
    outcome = check(["03/04/24", "2025-01-31"], date, day_first=True, personal=True)
    assert outcome.warnings.keys() == {"two_digit_years", "date_order_assumed"}
    assert "03/04" not in " ".join(outcome.warnings.values())


def test_a_zone_above_the_header_is_no_assumption() -> None:
    above = "Zone=America/New_York\n"
    outcome = check(["2025-01-31 10:00"], datetime, above=above, zone_above="Zone=(.+)")
    assert outcome.warnings == {}
    assert values(outcome) == {0: datetime(2025, 1, 31, 15, tzinfo=UTC)}


@pytest.mark.parametrize(
    ("cells", "kind", "options", "truth"),
    [
        (["3/4/2025"], date, {"date_order": "dmy"}, date(2025, 4, 3)),
        (["3/4/2025"], date, {"date_order": "mdy"}, date(2025, 3, 4)),
        (["25/04/03"], date, {"date_order": "ymd"}, date(2025, 4, 3)),
        (["3.4.2025"], date, {"date_order": "mdy"}, date(2025, 3, 4)),
        (["1,234"], Decimal, {"decimal": ","}, Decimal("1.234")),
        (["1,234"], Decimal, {"decimal": "."}, Decimal(1234)),
    ],
)
def test_the_senders_word_overrides_detection(
    cells: list[str], kind: type, options: dict[str, str], truth: Any
) -> None:
    assert values(check(cells, kind, options=options)) == {0: truth}
    with_others = check(
        [*cells, "31/12/2024"] if kind is date else [*cells, "7.5", "7,5"], kind, options=options
    )
    assert values(with_others)[0] == truth


def test_a_refusal_names_the_option_that_resolves_it() -> None:
    with pytest.raises(FileRefused, match="--date-order dmy or --date-order mdy"):
        check(["3/4/2025"], date)
    with pytest.raises(FileRefused, match=r"--decimal \. or --decimal ,"):
        check(["1,234"], Decimal)


# What the production column holds ---------------------------------------------------------------------------

CENTS = ColumnLimits("numeric(10,2)", places=2, below=Decimal(10) ** 8)
DOUBLE = ColumnLimits("double precision", digits=15)
SMALL = ColumnLimits("smallint", least=-32768, most=32767)
SHORT = ColumnLimits("character varying(3)", max_length=3)
MILLI = ColumnLimits("timestamp(3) with time zone", places=3)


@pytest.mark.parametrize(
    ("kind", "limits", "cells", "codes"),
    [
        (Decimal, CENTS, ["1.50", "1.505", "99999999.99", "100000000"], ["too_many_digits"] * 2),
        (Decimal, ColumnLimits("bigint", places=0), ["2", "2.5", "3.000000"], ["too_many_digits"]),
        (Decimal, DOUBLE, ["123456789012.123", "123456789012.1234"], ["too_many_digits"]),
        (int, SMALL, ["32767", "32768", "-32768", "-32769"], ["out_of_range"] * 2),
        (str, SHORT, ["äöü", "äöüß", "abc"], ["too_long"]),
        (datetime, MILLI, ["2025-01-31 10:00:00.123Z", "2025-01-31 10:00:00.1234Z"], ["too_many_digits"]),
    ],
)
def test_a_value_that_its_column_would_change_is_rejected(
    kind: type, limits: ColumnLimits, cells: list[str], codes: list[str]
) -> None:
    outcome = check(cells, kind, options={"decimal": "."}, column_limits={"one.value": limits})
    assert outcome.codes == codes
    assert all(f"as its column is {limits.sql_type}" in each["message"] for each in outcome.rejections)
