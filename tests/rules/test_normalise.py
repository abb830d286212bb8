"""The ready-made normalisers, each on its own."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from typing import Any

import duckdb
import pytest

from weighbridge.model.rule import Normaliser
from weighbridge.rules import n
from weighbridge.rules.plan import Locale, filled

POINT, COMMA, OPEN = Locale(decimal="."), Locale(decimal=","), Locale()
MONTH_FIRST, DAY_FIRST = Locale(day_first=False), Locale(day_first=True)


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
        ("12,34,567.8", POINT, "1234567.8"),
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
        ("12x", None),
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
        ("7/31/25", MONTH_FIRST, None),
        ("yesterday", OPEN, None),
    ],
)
def test_a_date_is_read_under_the_files_order(
    db: duckdb.DuckDBPyConnection, text: str, locale: Locale, value: date | None
) -> None:
    assert read(db, n.date, text, locale) == value


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
    assert [read(db, n.boolean, text) for text in ("Yes", "0", "maybe")] == [True, False, None]


def test_a_rule_shows_its_name() -> None:
    assert repr([n.strip, n.money]) == "[strip, money]"
