"""Judgments as courts export them: which cells are read as what, and what becomes of them in production."""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from rules.checking import Outcome, check_text

from weighbridge.model.errors import FileRefused
from weighbridge.model.states import Status
from weighbridge.pipelines.judgments import pipeline
from weighbridge.testing.exports import Family, write_judgments

from .conftest import HEADER, ROW, Load, Query, case, judgments

COLUMNS = "case_number, plaintiff_name, defendant_name, judgment_amount, filing_date, court, county"


def check(text: str, kind: str = "csv") -> Outcome:
    return check_text(text, None, pipeline=pipeline, kind=kind)


def values(outcome: Outcome, column: str) -> list[Any]:
    """A column of the accepted records, in the order of the file."""
    return [row[column] for row in sorted(outcome.rows["judgment"], key=lambda row: row["row_index"])]


# Reading ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "cells"),
    [
        (HEADER, ROW),
        (
            "File #,Plaintiff,Defendant,Amount,Entry Date,Court,County",
            'CV-2024-001,Jane Roe,John Doe,"$1,234.56",3/4/2024,Civil Court,Kings',
        ),
        (
            "CASE NO.,Creditor,Debtor,Judgment Amount (USD),Date Filed,County",
            "CV-2024-001,Jane Roe,John Doe,1234.56,2024-03-04,Kings",
        ),
    ],
)
def test_the_header_families_name_the_same_columns(header: str, cells: str) -> None:
    [row] = check(judgments(cells, header=header)).rows["judgment"]
    wanted = {
        "case_number": "CV-2024-001",
        "plaintiff_name": "Jane Roe",
        "defendant_name": "John Doe",
        "judgment_amount": Decimal("1234.56"),
        "filing_date": date(2024, 3, 4),
        "county": "Kings",
    }
    assert {name: row[name] for name in wanted} == wanted
    assert row["court"] == ("Civil Court" if "Court" in header else None)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("$1,234.56", "1234.56"), ("1234.5", "1234.5"), ("$1,234", "1234"), ("1,234", "1234"), ("75", "75"),
        (" $ 99.00 ", "99"), ("1 234.50", "1234.5"), ("USD 5.00", "5"), ("5.00 USD", "5"), ("$0.00", "0"),
        ("1,234,567.89", "1234567.89"),
    ],
)  # fmt: skip
def test_amounts_are_read_as_american_courts_write_them(written: str, meant: str) -> None:
    assert values(check(judgments(case(judgment_amount=written))), "judgment_amount") == [Decimal(meant)]


@pytest.mark.parametrize(
    "written", ["3/4/2024", "03/04/2024", "3-4-2024", "2024-03-04", "2024-03-04T00:00:00", "Mar 4, 2024"]
)
def test_dates_are_read_month_first_or_as_iso(written: str) -> None:
    assert values(check(judgments(case(filing_date=written))), "filing_date") == [date(2024, 3, 4)]


def test_a_slip_does_not_change_how_the_other_lines_are_read() -> None:
    others = [case(str(n), judgment_amount="1,234.50", filing_date="3/14/2024") for n in range(1, 13)]
    outcome = check(
        judgments(
            *others,
            case("20", judgment_amount="12,34", filing_date="5/7/2024"),
            case("21", judgment_amount="1,000", filing_date="13/7/2024"),
        )
    )
    assert values(outcome, "judgment_amount") == [Decimal("1234.5")] * 12
    assert values(outcome, "filing_date") == [date(2024, 3, 14)] * 12
    assert outcome.codes == ["bad_amount", "bad_date"]


@pytest.mark.parametrize(
    ("slip", "code"),
    [({"judgment_amount": "12,34"}, "ambiguous_numbers"), ({"filing_date": "13/7/2024"}, "ambiguous_dates")],
)
def test_a_slip_that_is_all_the_evidence_refuses_the_file(slip: dict[str, str], code: str) -> None:
    others = [case(str(n), judgment_amount="1,234", filing_date="3/4/2024") for n in range(1, 13)]
    usual = {"judgment_amount": "1,000", "filing_date": "5/7/2024"}
    with pytest.raises(FileRefused) as refused:
        check(judgments(*others, case("20", **(usual | slip))))
    assert refused.value.code == code


def test_more_than_slips_say_how_the_other_lines_are_read_where_nothing_says_otherwise() -> None:
    """Of European dates a good half can be read only one way; the rest would be wrong, and nobody would know."""
    outcome = check(
        judgments(
            *[case(str(n), judgment_amount="1.500", filing_date=f"{n}/3/2024") for n in range(1, 10)],
            case("20", judgment_amount="1.234,56", filing_date="25/3/2024"),
        )
    )
    assert outcome.codes == []
    assert values(outcome, "judgment_amount") == [1500] * 9 + [Decimal("1234.56")]
    assert values(outcome, "filing_date") == [date(2024, 3, n) for n in (*range(1, 10), 25)]


def test_a_file_that_is_written_in_two_ways_is_refused() -> None:
    text = judgments(case("1", judgment_amount="1,234.56"), case("2", judgment_amount="1.234,56"))
    with pytest.raises(FileRefused, match="Expected one decimal mark in the whole file") as refused:
        check(text)
    assert refused.value.code == "ambiguous_numbers"


def test_a_file_that_is_written_the_other_way_throughout_is_read_that_way() -> None:
    outcome = check(judgments(case("1", judgment_amount="1.234,56", filing_date="31/12/2024")))
    assert values(outcome, "judgment_amount") == [Decimal("1234.56")]
    assert values(outcome, "filing_date") == [date(2024, 12, 31)]


@pytest.mark.parametrize("nothing", ["", " ", "-", "--", "N/A", "n/a", "NA", "None", "none", "NULL", "null"])
def test_cells_that_say_nothing_are_null_in_every_column(nothing: str) -> None:
    names = HEADER.split(",")[1:]
    [row] = check(judgments(case("1", **dict.fromkeys(names, nothing)))).rows["judgment"]
    assert [row[name] for name in ("plaintiff_id", "plaintiff_name", "judgment_amount", "filing_date")] == [
        None
    ] * 4


@pytest.mark.parametrize("written", ["cv-2024-001", " CV-2024-001 ", "CV-2024-001\u00a0"])
def test_case_numbers_are_known_again_in_other_spellings(written: str) -> None:
    assert values(check(judgments(case(written))), "case_number") == ["CV-2024-001"]


def test_inner_space_of_a_case_number_is_one_space() -> None:
    assert values(check(judgments(case("cv  2024\t001"))), "case_number") == ["CV 2024 001"]


def test_json_is_read_like_csv() -> None:
    record = {
        "case_number": "cv-2024-001", "plaintiff_name": "Jane Roe", "plaintiff_email": "jane@example.com",
        "plaintiff_phone": "(212) 555-0100", "defendant_name": "John Doe", "judgment_amount": 1234.56,
        "filing_date": "2024-03-04", "county": "Kings",
    }  # fmt: skip
    as_json, as_csv = check(json.dumps([record]), "json"), check(judgments(ROW))
    for entity in ("judgment", "plaintiff"):
        [one], [other] = as_json.rows[entity], as_csv.rows[entity]
        assert {**one, "line": 2} == other


def test_the_same_case_twice_is_a_duplicate_and_with_other_values_a_conflict() -> None:
    twice = [case("1", judgment_amount="$5.00"), case("1", judgment_amount="5")]
    differ = [case("2", judgment_amount="5"), case(" 2", judgment_amount="6")]
    outcome = check(judgments(*twice, *differ))
    assert (outcome.bins.accepted, outcome.bins.duplicate, outcome.bins.rejected) == (1, 1, 2)
    assert outcome.codes == ["conflicting_repeat"] * 2
    assert "one record for each case number" in outcome.rejections[0]["message"]


def test_two_plaintiffs_of_one_case_are_a_conflict() -> None:
    outcome = check(
        judgments(case("1", plaintiff_email="a@example.com"), case("1", plaintiff_email="b@example.com"))
    )
    assert outcome.codes == ["conflicting_repeat"] * 2


# Writing ----------------------------------------------------------------------------------------------------


async def test_a_row_says_which_file_upload_and_line_it_came_from(load: Load, query: Query) -> None:
    first = await load(judgments(case("CV-1", county="Kings"), ROW), filename="january.csv")
    later = await load(judgments(case("CV-1", county="Queens")), filename="february.csv")
    assert query("SELECT case_number, source_file, upload_id, line FROM judgments ORDER BY 1") == [
        ("CV-1", "january.csv", later.id, 2),  # the file it first came in, the upload that last changed it
        ("CV-2024-001", "january.csv", first.id, 3),
    ]
    assert query("SELECT upload_id, line FROM plaintiffs") == [(first.id, 3)]


async def test_a_null_never_overwrites_a_known_value_and_a_new_value_does(load: Load, query: Query) -> None:
    header = f"{HEADER},court"
    await load(judgments(f"{ROW},Civil Court", header=header))
    judged = f"SELECT plaintiff_id, {COLUMNS} FROM judgments"
    people = "SELECT name, email, phone FROM plaintiffs"
    before = query(judged), query(people)
    assert None not in before[0][0]

    upload = await load(judgments("CV-2024-001,,jane@example.com,-,,N/A,,,", header=header))
    assert upload.promoted["judgment"]["unchanged"] == upload.promoted["plaintiff"]["unchanged"] == 1
    assert (query(judged), query(people)) == before
    upload = await load(judgments("CV-2024-001,,", header="case_number,defendant_name,judgment_amount"))
    assert upload.promoted["judgment"]["unchanged"] == 1
    assert query(judged) == before[0]

    news = "cv-2024-001,J. Roe,jane@example.com,718 555 0199,J. Doe,7,2024-05-06,Queens,Supreme"
    await load(judgments(news, header=header))
    assert query(f"SELECT {COLUMNS} FROM judgments") == [
        ("CV-2024-001", "J. Roe", "J. Doe", 7, date(2024, 5, 6), "Supreme", "Queens")
    ]
    assert query(people) == [("J. Roe", "jane@example.com", "718 555 0199")]


async def test_what_was_inserted_updated_and_left_alone_is_counted(load: Load) -> None:
    counties = ("Kings", "Queens", "", "Bronx", "Bronx")
    await load(judgments(*(case(f"CV-{number}", county="Kings") for number in (1, 2, 3))))
    upload = await load(judgments(*(case(f"CV-{i}", county=county) for i, county in enumerate(counties, 1))))
    counts = {name: upload.promoted["judgment"][name] for name in ("inserted", "updated", "unchanged")}
    assert counts == {"inserted": 2, "updated": 1, "unchanged": 2}
    assert (upload.status, upload.promoted_rows) == (Status.COMPLETED, 5)


@pytest.mark.parametrize(
    ("known", "again", "key"),
    [
        ({"plaintiff_email": "jane@example.com"}, {"plaintiff_email": " Jane@EXAMPLE.com"}, "email:jane@example.com"),
        ({"plaintiff_phone": "(212) 555-0100"}, {"plaintiff_phone": "+1 212.555.0100"}, "phone:2125550100"),
        ({"plaintiff_name": "ACME, Inc."}, {"plaintiff_name": "Acme  Inc"}, "name:"),
        (
            {"plaintiff_name": "Jane Roe", "plaintiff_email": "jane@example.com"},
            {"plaintiff_name": "J. Roe-Doe", "plaintiff_email": "jane@example.com", "plaintiff_phone": "2125550100"},
            "email:jane@example.com",
        ),
    ],
)  # fmt: skip
async def test_a_plaintiff_is_known_again_in_another_file(
    load: Load, query: Query, known: dict[str, str], again: dict[str, str], key: str
) -> None:
    await load(judgments(case("CV-1", **known)))
    upload = await load(judgments(case("CV-2", **again)))
    assert upload.promoted["plaintiff"]["inserted"] == 0
    [(id_, dedupe_key)] = query("SELECT id, dedupe_key FROM plaintiffs")
    assert dedupe_key.startswith(key)
    assert query("SELECT plaintiff_id FROM judgments") == [(id_,), (id_,)]


async def test_the_same_plaintiff_in_two_workspaces_is_two(load: Load, query: Query) -> None:
    await load(judgments(ROW))
    await load(judgments(ROW), of=uuid4())
    assert query("SELECT count(DISTINCT id), count(DISTINCT dedupe_key) FROM plaintiffs") == [(2, 1)]
    assert query("SELECT count(*) FROM judgments") == [(2,)]


@pytest.mark.parametrize("family", ["vendor", "court"])
async def test_a_large_export_is_read_like_a_small_one(
    load: Load, query: Query, tmp_path: Path, family: Family
) -> None:
    """More records than are held in memory: read as a stream, in a database of its own."""
    written = write_judgments(tmp_path / "cases.csv", 11_000, family)
    upload = await load(written.path.read_text())
    assert (upload.status, upload.promoted_rows) == (Status.COMPLETED, written.rows)
    assert query("SELECT count(*), count(plaintiff_id), count(DISTINCT plaintiff_id) FROM judgments") == [
        (written.rows, written.rows, written.plaintiffs)
    ]


async def test_a_case_without_a_plaintiff_is_a_case(load: Load, query: Query) -> None:
    header = "case_number,defendant_name,judgment_amount,county"
    upload = await load(judgments("CV-1,Roe,5,Kings", header=header))
    assert upload.status == Status.COMPLETED
    assert query("SELECT case_number, plaintiff_id FROM judgments") == [("CV-1", None)]
    assert query("SELECT count(*) FROM plaintiffs") == [(0,)]


async def test_staging_is_seen_under_its_old_name_and_has_a_case_once_a_batch(
    load: Load, query: Query
) -> None:
    upload = await load(judgments(ROW, case("CV-2")))
    assert query("SELECT batch_id, case_number, line FROM intake.simplicity_validated_rows ORDER BY 2") == [
        (upload.id, "CV-2", 3),
        (upload.id, "CV-2024-001", 2),
    ]
    constraints = query(
        "SELECT pg_get_constraintdef(oid) FROM pg_constraint"
        " WHERE conrelid = 'staging.judgments_judgment'::regclass AND contype = 'u'"
    )
    assert constraints == [("UNIQUE NULLS NOT DISTINCT (upload_id, case_number)",)]
