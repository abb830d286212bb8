"""The ready-made normalisers, each on its own."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import duckdb
import pytest

from weighbridge.model.rule import Normaliser
from weighbridge.rules import n
from weighbridge.rules.check_plan import Locale, filled

POINT, COMMA, OPEN = Locale(decimal="."), Locale(decimal=","), Locale()
INDIAN = Locale(decimal=".", indian=True)
MONTH_FIRST, DAY_FIRST, YEAR_FIRST = Locale(day_first=False), Locale(day_first=True), Locale(year_first=True)


@pytest.fixture(scope="module")
def db() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        yield connection


def read(db: duckdb.DuckDBPyConnection, rule: Normaliser, text: str, locale: Locale = POINT) -> Any:
    sql = filled(rule.expression, "x", locale)
    return db.execute(f"SELECT {sql} FROM (SELECT $1::VARCHAR AS x)", [text]).fetchall()[0][0]


@pytest.mark.parametrize(
    ("text", "locale", "value"),
    [
        ("1234.5", POINT, "1234.5"),
        ("-1234.5", POINT, "-1234.5"),
        ("+5", POINT, "5"),
        ("\u22125.5", POINT, "-5.5"),
        ("1,234.56", POINT, "1234.56"),
        ("1,234,567", POINT, "1234567"),
        ("12,34,567.8", INDIAN, "1234567.8"),
        ("1,23,456", INDIAN, "123456"),
        ("12,345", INDIAN, "12345"),
        (".5", POINT, "0.5"),
        ("-.5", POINT, "-0.5"),
        (",5", COMMA, "0.5"),
        ("5.", POINT, "5"),
        ("1.50000000", POINT, "1.5"),
        ("0.000001", POINT, "0.000001"),
        ("999999999999.999999", POINT, "999999999999.999999"),
        ("1.234,56", COMMA, "1234.56"),
        ("1234,56", COMMA, "1234.56"),
        ("1 234,56", COMMA, "1234.56"),
        ("1\u00a0234,56", COMMA, "1234.56"),
        ("1\u202f234,56", COMMA, "1234.56"),
        ("1'234.56", POINT, "1234.56"),
        ("1’234.56", POINT, "1234.56"),
        ("1.234", POINT, "1.234"),
        ("1.234", COMMA, "1234"),
        ("1234", OPEN, "1234"),
        ("1 234", OPEN, "1234"),
        # No number, or none under this mark.
        ("1.234,56", POINT, None),
        ("1,234.56", COMMA, None),
        ("12,34", POINT, None),
        ("0,123", POINT, None),
        ("1,2345", POINT, None),
        ("1,234 567", POINT, None),
        ("1,234", OPEN, None),
        ("12.5", OPEN, None),
        ("12,x", POINT, None),
        ("1e5", POINT, None),
        ("1_000", POINT, None),
        ("0x10", POINT, None),
        ("NaN", POINT, None),
        ("--5", POINT, None),
        ("9999999999999", POINT, None),  # more than numeric(18,6) holds
        ("0.00000049", POINT, None),
        ("1.2345678", POINT, None),
        ("12,34,567.8", POINT, None),  # Indian grouping, in a file that does not use it
        ("1,234,567", INDIAN, None),
        (".5", OPEN, None),
        (".", POINT, None),
        ("Infinity", POINT, None),
    ],
)
def test_a_number_is_read_under_the_files_mark(
    db: duckdb.DuckDBPyConnection, text: str, locale: Locale, value: str | None
) -> None:
    assert read(db, n.number, text, locale) == (None if value is None else Decimal(value))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("$1,234.56", "1234.56"),
        ("-$5", "-5"),
        ("$-5", "-5"),
        ("US$12", "12"),
        ("R$ 12.50", "12.5"),
        ("12.50 EUR", "12.5"),
        ("USD 12", "12"),
        ("€12", "12"),
        ("12 zł", "12"),
        ("$.50", "0.5"),
        ("12x", None),
        ("kr.5", None),
        ("-$-5", None),
        ("$", None),
    ],
)
def test_an_amount_may_have_its_currency_with_it(
    db: duckdb.DuckDBPyConnection, text: str, value: str | None
) -> None:
    assert read(db, n.money, text) == (None if value is None else Decimal(value))


@pytest.mark.parametrize(
    ("text", "locale", "value"),
    [
        ("12.5%", POINT, "12.5"),
        ("12,5 %", COMMA, "12.5"),
        ("0.42", POINT, "0.42"),
        ("123.4%", POINT, "123.4"),
        ("< 10%", POINT, "10"),
        ("> 90%", POINT, "90"),
        ("ten %", POINT, None),
    ],
)
def test_a_percentage_may_lack_its_sign_or_be_a_bound(
    db: duckdb.DuckDBPyConnection, text: str, locale: Locale, value: str | None
) -> None:
    assert read(db, n.percent, text, locale) == (None if value is None else Decimal(value))


@pytest.mark.parametrize(
    ("text", "locale", "value"),
    [
        ("1356884", POINT, 1356884),
        ("1,356,884", POINT, 1356884),
        ("1.356.884", COMMA, 1356884),
        ("1.356", COMMA, 1356),
        ("12.0", POINT, 12),
        ("12.00", POINT, 12),
        ("1.000", POINT, None),  # a thousand, or nothing
        ("12.0000", POINT, 12),
        ("12.6", POINT, None),
        ("9223372036854775808", POINT, None),
    ],
)
def test_a_count_is_whole(
    db: duckdb.DuckDBPyConnection, text: str, locale: Locale, value: int | None
) -> None:
    assert read(db, n.integer, text, locale) == value


@pytest.mark.parametrize(
    ("text", "locale", "value"),
    [
        ("2025-07-31", OPEN, date(2025, 7, 31)),
        ("2025-07-31 00:00:00", OPEN, date(2025, 7, 31)),
        ("2025-07-31T00:00:00Z", OPEN, date(2025, 7, 31)),
        ("2025/07/31", OPEN, date(2025, 7, 31)),
        ("31.07.2025", OPEN, date(2025, 7, 31)),
        ("Jul 31, 2025", OPEN, date(2025, 7, 31)),
        ("July 31, 2025", OPEN, date(2025, 7, 31)),
        ("31 Jul 2025", OPEN, date(2025, 7, 31)),
        ("7/31/2025", MONTH_FIRST, date(2025, 7, 31)),
        ("07-31-2025", MONTH_FIRST, date(2025, 7, 31)),
        ("31/7/2025", DAY_FIRST, date(2025, 7, 31)),
        ("3/4/2025", MONTH_FIRST, date(2025, 3, 4)),
        ("3/4/2025", DAY_FIRST, date(2025, 4, 3)),
        ("3/4/2025", OPEN, None),
        ("31/7/2025", MONTH_FIRST, None),
        ("2025-02-30", OPEN, None),
        ("2025-07-31 13:00:00", OPEN, None),  # an hour of a day is no day
        ("-025-01-05", OPEN, None),
        ("7/31/25", MONTH_FIRST, date(2025, 7, 31)),
        ("01/05/24", DAY_FIRST, date(2024, 5, 1)),
        ("1-5-24", MONTH_FIRST, date(2024, 1, 5)),
        ("01.05.24", OPEN, date(2024, 5, 1)),
        ("01.05.24", MONTH_FIRST, date(2024, 1, 5)),
        ("31/12/68", DAY_FIRST, date(2068, 12, 31)),
        ("01/01/69", DAY_FIRST, date(1969, 1, 1)),
        ("25/04/03", YEAR_FIRST, date(2025, 4, 3)),
        ("03/04/2025", YEAR_FIRST, None),
        ("03.04.2025", YEAR_FIRST, None),
        ("01-Jan-25", OPEN, date(2025, 1, 1)),
        ("5-Jan-2024", OPEN, date(2024, 1, 5)),
        ("5-JANUARY-2024", OPEN, date(2024, 1, 5)),
        ("Wed, Jan 01, 2025", OPEN, date(2025, 1, 1)),
        ("Wednesday 1 January 2025", OPEN, date(2025, 1, 1)),
        ("Sept. 5, 2024", OPEN, date(2024, 9, 5)),
        ("Jan 1st, 2025", OPEN, date(2025, 1, 1)),
        ("2025-Jan-31", OPEN, date(2025, 1, 31)),
        ("Thu, Jan 01, 2025", OPEN, None),  # it was a Wednesday
        ("5-Janx-2024", OPEN, None),
        ("5-Foo-2024", OPEN, None),
        ("Jan 2025", OPEN, None),
        ("5-Jan-024", OPEN, None),
        ("20250101", OPEN, date(2025, 1, 1)),
        ("20250230", OPEN, None),
        ("18991231", OPEN, None),
        ("21010101", OPEN, None),
        ("2025-W01-3", OPEN, date(2025, 1, 1)),
        ("2025-W53-1", OPEN, None),  # the year has 52 weeks
        ("2025-01-01Z", OPEN, date(2025, 1, 1)),
        ("2025-01-01+02:00", OPEN, date(2025, 1, 1)),
        ("2025-01-01T00:00:00+02:00", OPEN, date(2025, 1, 1)),
        ("2025-01-01T10:00:00+02:00", OPEN, None),
        ("1/5/2024 0:00", DAY_FIRST, date(2024, 5, 1)),
        ("1/5/2024 12:00:00 AM", MONTH_FIRST, date(2024, 1, 5)),
        ("1/5/2024 12:00 America/New_York", DAY_FIRST, None),  # noon
        ("31/02/2025", DAY_FIRST, None),
        ("0000-01-01", OPEN, None),
        ("1/1/0000", DAY_FIRST, None),
        ("0044-03-15 (BC)", OPEN, None),
        ("10000-01-01", OPEN, None),
        ("infinity", OPEN, None),
        ("epoch", OPEN, None),
        ("now", OPEN, None),
        ("45658", OPEN, None),
        ("yesterday", OPEN, None),
    ],
)
def test_a_date_is_read_under_the_files_order(
    db: duckdb.DuckDBPyConnection, text: str, locale: Locale, value: date | None
) -> None:
    assert read(db, n.date, text, locale) == value


@pytest.mark.parametrize(
    ("text", "locale", "value"),
    [
        ("2025-01-31T14:30:05Z", OPEN, "2025-01-31 14:30:05"),
        ("2025-01-31 14:30", OPEN, "2025-01-31 14:30:00"),
        ("2025-01-31T14:30:05.123456000+01:00", OPEN, "2025-01-31 13:30:05.123456"),
        ("2025-01-31 14:30:05,25 UTC", OPEN, "2025-01-31 14:30:05.25"),
        ("2025-01-31 14:30:00 +0100", OPEN, "2025-01-31 13:30:00"),
        ("2025-01-31 14:30+01", OPEN, "2025-01-31 13:30:00"),
        ("2025-01-31 14:30 Europe/Berlin", OPEN, "2025-01-31 13:30:00"),
        ("2025-01-31 14:30 America/Argentina/Buenos_Aires", OPEN, "2025-01-31 17:30:00"),
        ("2025-01-31 2:30 America/Port-au-Prince", OPEN, "2025-01-31 07:30:00"),
        ("2025-01-31 2:30 PM America/New_York", OPEN, "2025-01-31 19:30:00"),
        ("31/01/2025 2:30 PM", DAY_FIRST, "2025-01-31 14:30:00"),
        ("01/31/25 12:05:00 am", MONTH_FIRST, "2025-01-31 00:05:00"),
        ("31-Jan-25 14:30", OPEN, "2025-01-31 14:30:00"),
        ("Fri, Jan 31, 2025, 2:30 p.m.", OPEN, "2025-01-31 14:30:00"),
        ("Jan 31,2025 2:30:00 PM", OPEN, "2025-01-31 14:30:00"),
        ("20250131 14:30", OPEN, "2025-01-31 14:30:00"),
        ("2025-1-1T14:30", OPEN, "2025-01-01 14:30:00"),
        ("20250131T143005Z", OPEN, "2025-01-31 14:30:05"),
        ("20250131T143005", OPEN, "2025-01-31 14:30:05"),
        ("20250131T1430", OPEN, "2025-01-31 14:30:00"),
        ("20250131T1430+0100", OPEN, "2025-01-31 13:30:00"),
        ("20250131T143005-05:30", OPEN, "2025-01-31 20:00:05"),
        ("20250131T143005.25+01", OPEN, "2025-01-31 13:30:05.25"),
        ("20250131T143005,123456Z", OPEN, "2025-01-31 14:30:05.123456"),
        ("2025-W05-5T14:30", OPEN, "2025-01-31 14:30:00"),
        ("31.01.2025 14:30", OPEN, "2025-01-31 14:30:00"),
        # Not a time, or not one that Postgres holds.
        ("2025-01-31", OPEN, None),
        ("2025-01-31T14:30:05.1234567Z", OPEN, None),
        ("2025-01-31 25:30", OPEN, None),
        ("2025-01-31 24:00", OPEN, None),
        ("2025-01-31 14:60", OPEN, None),
        ("2025-01-31 14:30 PM", OPEN, None),
        ("2025-01-31 14:30 Europe/Nowhere", OPEN, None),
        ("2025-01-31 14:30 CST", OPEN, None),
        ("2025-01-31 14:30 EST", OPEN, None),
        ("2025-01-31 14:30:00 MST", OPEN, None),
        ("2025-01-31 14:30 HST", OPEN, None),
        ("20250131T253000Z", OPEN, None),
        ("20250131T146000Z", OPEN, None),
        ("20250131T143061", OPEN, None),
        ("20250231T143000Z", OPEN, None),
        ("20250131T143", OPEN, None),
        ("20250131T143000EST", OPEN, None),
        ("12345678T143000Z", OPEN, None),
        ("2025-01-31 14:30+25:00", OPEN, None),
        ("2025-02-30 14:30", OPEN, None),
        ("3/4/2025 14:30", OPEN, None),
        ("0001-01-01 00:00:00+02:00", OPEN, None),
        ("9999-12-31 23:59:59-02:00", OPEN, None),
        ("9999-12-31 23:59:59.999999Z", OPEN, "9999-12-31 23:59:59.999999"),
        ("0000-01-01 10:00:00Z", OPEN, None),
        ("infinity", OPEN, None),
        ("epoch", OPEN, None),
        ("now", OPEN, None),
        ("14:30", OPEN, None),
    ],
)
def test_a_time_has_one_of_the_dates_before_it(
    db: duckdb.DuckDBPyConnection, text: str, locale: Locale, value: str | None
) -> None:
    db.execute("SET TimeZone = 'UTC'")
    sql = filled(n.timestamp.expression, "x", locale)
    shown = f"SELECT strftime({sql}, '%Y-%m-%d %H:%M:%S.%f') FROM (SELECT $1::VARCHAR AS x)"
    [(read,)] = db.execute(shown, [text]).fetchall()
    assert (read and datetime.fromisoformat(read)) == (value and datetime.fromisoformat(value))


@pytest.mark.parametrize(
    "text", ["1.20253E+17", "1.2e17", "1,20253E+17", "120253000000000000.0", "12E5", "x1"]
)
def test_an_id_that_lost_digits_is_no_id(db: duckdb.DuckDBPyConnection, text: str) -> None:
    assert read(db, n.platform_id, text) is None


def test_an_id_keeps_its_zeros(db: duckdb.DuckDBPyConnection) -> None:
    assert read(db, n.platform_id, "00120253000000000000") == "00120253000000000000"


def test_text_is_tidied(db: duckdb.DuckDBPyConnection) -> None:
    assert read(db, n.upper, "ab") == "AB"
    assert read(db, n.lower, "AB") == "ab"
    assert read(db, n.strip, " a ") == "a"
    assert read(db, n.fold_space, " a \u00a0\n b ") == "a b"
    truths = {
        True: ["Yes", "TRUE", "1", "t", "on"],
        False: ["No", "f", "0", "OFF"],
        None: ["maybe", "2", "oui"],
    }
    assert {value: [read(db, n.boolean, text) for text in texts] for value, texts in truths.items()} == {
        value: [value] * len(texts) for value, texts in truths.items()
    }


def test_a_rule_shows_its_name() -> None:
    assert repr([n.strip, n.money]) == "[strip, money]"
