"""The ready-made validators, each on its own."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import duckdb
import pytest

from weighbridge.model.rule import Validator
from weighbridge.rules import v
from weighbridge.rules.check_plan import Locale, filled


@pytest.mark.parametrize(
    ("rule", "value", "passes"),
    [
        (v.at_least(0), "0", True),
        (v.at_least(0), "-1", False),
        (v.at_least(Decimal("0.5")), "0.49", False),
        (v.at_least(date(2000, 1, 1)), "DATE '1999-12-31'", False),
        (v.at_most(10), "10", True),
        (v.at_most(10), "11", False),
        (v.one_of("open", "won't"), "'WON''T'", True),
        (v.one_of("open", "closed"), "'shut'", False),
        (v.matches(r"\d{2}-\d{3}", expected="a case number"), "'12-345'", True),
        (v.matches(r"\d{2}-\d{3}", expected="a case number"), "'12-3456'", False),
        (v.max_length(3), "'äöü'", True),
        (v.max_length(3), "'äöüß'", False),
        (v.not_in_future, "DATE '2025-07-31'", True),
        (v.not_in_future, "DATE '2025-08-01'", False),
        (v.at_least(0), "NULL::BIGINT", None),  # no value, nothing to object to
    ],
)
def test_a_value_passes_or_not(rule: Validator, value: str, passes: bool | None) -> None:
    with duckdb.connect() as db:
        sql = filled(rule.predicate, value, Locale(), date(2025, 7, 31))
        assert db.execute(f"SELECT {sql}").fetchall() == [(passes,)]


def test_a_validator_shows_its_name() -> None:
    assert repr([v.at_least(0), v.one_of("a", "b"), v.max_length(3), v.not_in_future]) == (
        "[at_least(0), one_of(a, b), max_length(3), not_in_future]"
    )
