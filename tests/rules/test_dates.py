"""Dates of a small file: where all are written as 2025-01-31 a shorter rule reads them, with the same result."""

from __future__ import annotations

from datetime import date, datetime

import duckdb
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rules.cells import check, values
from rules.checking import check_text, meta
from weighbridge import Entity, Field, Pipeline, n
from weighbridge.model.errors import FileRefused
from weighbridge.model.rule import Normaliser
from weighbridge.rules import date_sql
from weighbridge.rules.check_plan import Locale, filled, literal

PLAIN = Locale(plain_dates=True)


@given(st.from_regex(r"(?s)\A....-..-..\Z", alphabet="0123456789-/JanZ "))
@example("0000-01-01")
@example("0001-01-01")
@example("2025-02-30")
@example("2025-07-31")
def test_a_plain_date_is_read_as_by_the_whole_rule(cell: str) -> None:
    read = [filled(date_sql.DATE, literal(cell), locale) for locale in (Locale(), PLAIN)]
    [(one, two)] = duckdb.sql(f"SELECT {read[0]}, {read[1]}").fetchall()
    assert one == two


def test_one_date_that_is_written_otherwise_is_read_among_plain_ones() -> None:
    outcome = check(["2025-07-31", "", "31 Jul 2025", "20250731", "2025-07-31T00:00:00Z"], date)
    assert outcome.codes == []
    assert set(values(outcome).values()) == {date(2025, 7, 31), None}


@pytest.mark.parametrize(
    ("fields", "cells"),
    [
        ([Field("day", str, header=["Day"], normalise=[n.date])], ["31/01/2025", "30/01/2025"]),
        ([Field("day", datetime, header=["Day"], normalise=[n.date])], ["31/01/2025", "30/01/2025"]),
        (
            [Field("day", date, header=["Day"]), Field("due", str, header=["Due"], normalise=[n.date])],
            ["2025-01-31,1 Feb 2025"],
        ),
        ([Field("day", date, header=["Day"], normalise=[Normaliser("t", "replace({x}, '-', '/')"), n.date])],
         ["2025-01-31"]),
    ],
)  # fmt: skip
def test_a_date_is_read_whatever_field_and_rules_it_belongs_to(fields: list[Field], cells: list[str]) -> None:
    own = Pipeline(
        "own", [Entity("owns", ["no"], [Field("no", header=["No"], required=True), *fields])], min_valid=0
    )
    header = ",".join(["No", *(field.header[0] for field in fields)])
    text = "\n".join([header, *(f"{no},{cell}" for no, cell in enumerate(cells)), ""])
    outcome = check_text(text, None, pipeline=own)
    assert (outcome.bins.accepted, outcome.codes) == (len(cells), [])


def test_the_last_day_of_a_period_may_be_written_otherwise() -> None:
    header = "Reporting starts,Reporting ends,Campaign name,Campaign ID,Impressions"
    assert check_text(meta("2025-07-01,1 Jul 2025,Spring,11,5", header=header)).bins.accepted == 1
    with pytest.raises(FileRefused, match="is not daily"):
        check_text(meta("2025-07-01,2 Jul 2025,Spring,11,5", header=header))
