"""Bad input: a bad cell rejects its row, a file without its key column fails, and no sentence repeats a person."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from rules.checking import Outcome, check_text

from weighbridge.model.errors import FileRefused
from weighbridge.model.states import Status
from weighbridge.pipelines.judgments import pipeline

from .conftest import HEADER, ROW, Lines, Load, Query, case, judgments

PERSON = {
    "plaintiff_name": "Casey Jones",
    "plaintiff_email": "casey@example.com",
    "plaintiff_phone": "(212) 555-0100",
    "defendant_name": "Richard Miles",
}
GOOD = [case(f"CV-{number}") for number in range(1, 20)]  # enough of them for a bad one to be let through


def check(text: str, kind: str = "csv") -> Outcome:
    return check_text(text, None, pipeline=pipeline, kind=kind)


def refused(text: str, kind: str = "csv") -> FileRefused:
    with pytest.raises(FileRefused) as caught:
        check(text, kind)
    return caught.value


def said_of_nobody(sentence: str) -> bool:
    """No part of a person's cells is in the sentence."""
    parts = [part for cell in PERSON.values() for part in cell.lower().split()]
    return not any(part in sentence.lower() for part in [*parts, "example.com", "555"])


# Rows -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "cell", "code", "sentence"),
    [
        ("judgment_amount", "12,x", "bad_amount", "judgment_amount: expected an amount, got '12,x' (line 2)."),
        ("judgment_amount", "($5.00)", "bad_amount", "judgment_amount: expected an amount, got '($5.00)' (line 2)."),
        ("judgment_amount", "-5.00", "too_small", "judgment_amount: expected at least 0, got '-5.00' (line 2)."),
        ("judgment_amount", "-$5.00", "too_small", "judgment_amount: expected at least 0, got '-$5.00' (line 2)."),
        ("case_number", "Grand Total", "bad_case_number",
         "case_number: expected a case number, with a digit in it, got something else (line 2)."),
        ("case_number", "1.20253E+17", "mangled_id",
         "case_number: expected a number with all its digits, got '1.20253E+17' (line 2)."),
        ("case_number", "7" * 6000, "too_long", "case_number: expected at most 200 characters, got something else"),
        ("plaintiff_phone", "2.12556E+09", "mangled_id", "plaintiff.phone: expected a number with all its digits, got"),
        ("judgment_amount", "John Canary", "bad_amount", "judgment_amount: expected an amount, got something else"),
        ("judgment_amount", "212-555-0177", "bad_amount", "judgment_amount: expected an amount, got something else"),
        ("filing_date", "j@example.com", "bad_date", "filing_date: expected a date, got something else (line 2)."),
        ("filing_date", "13/13/2024", "bad_date", "filing_date: expected a date, got '13/13/2024' (line 2)."),
        ("filing_date", "2/30/2024", "bad_date", "filing_date: expected a date, got '2/30/2024' (line 2)."),
        ("filing_date", "2024-02-30", "bad_date", "filing_date: expected a date, got '2024-02-30' (line 2)."),
        ("filing_date", "3/4/1824", "too_small", "filing_date: expected at least 1900-01-01, got '3/4/1824' (line 2)."),
        ("plaintiff_email", "casey at example", "bad_email", "plaintiff.email: expected an e-mail address, got some"),
        ("plaintiff_email", "a@b.c d@e.f", "bad_email", "plaintiff.email: expected an e-mail address, got something"),
        ("plaintiff_phone", "555-01", "bad_phone", "plaintiff.phone: expected a phone number of 7 to 15 digits, got"),
        ("case_number", "", "missing_value", "case_number: expected a value, got nothing (line 2)."),
        ("case_number", "N/A", "missing_value", "case_number: expected a value, got nothing (line 2)."),
    ],
)  # fmt: skip
def test_a_bad_cell_rejects_its_row_and_only_amounts_and_dates_are_repeated(
    column: str, cell: str, code: str, sentence: str
) -> None:
    bad = {"number": "CV-20", **PERSON, column: cell}
    bad["number"] = bad.pop("case_number", "CV-20")
    outcome = check(judgments(case(**bad), *GOOD))
    assert (outcome.bins.accepted, outcome.bins.rejected) == (19, 1)
    [rejection] = outcome.rejections
    assert (rejection["line"], rejection["column_name"], rejection["code"]) == (2, column, code)
    assert rejection["message"].startswith(sentence)
    assert said_of_nobody(rejection["message"])


def test_every_fault_of_a_row_is_named_and_none_repeats_a_person() -> None:
    bad = {**PERSON, "plaintiff_email": "casey", "plaintiff_phone": "555", "judgment_amount": "x"}
    [rejection] = check(judgments(case("CV-20", **bad), *GOOD)).rejections
    assert [sentence.split(":")[0] for sentence in (rejection["message"], *rejection["more"])] == [
        "plaintiff.email",
        "plaintiff.phone",
        "judgment_amount",
    ]
    assert all(said_of_nobody(sentence) for sentence in (rejection["message"], *rejection["more"]))


def test_records_with_cells_missing_or_repeated_say_nothing_of_anyone() -> None:
    cut = f"CV-20,{PERSON['plaintiff_name']},{PERSON['plaintiff_email']}"
    twice = [case("CV-21", **PERSON), case("CV-21", **PERSON, county="Kings")]
    outcome = check(judgments(cut, *twice, *GOOD))
    assert outcome.codes == ["wrong_cell_count", "conflicting_repeat", "conflicting_repeat"]
    assert all(said_of_nobody(rejection["message"]) for rejection in outcome.rejections)


def test_a_json_record_that_is_none_says_nothing_of_anyone() -> None:
    good = {"case_number": "CV-1", "plaintiff": "A", "amount": 1}
    outcome = check(json.dumps([good, "Casey Jones", ["casey@example.com"]]), "json")
    assert outcome.codes == ["not_a_record"] * 2
    assert all(said_of_nobody(rejection["message"]) for rejection in outcome.rejections)


async def test_a_day_that_has_not_come_rejects_its_row(load: Load, query: Query) -> None:
    [[today]] = query("SELECT (weighbridge.now() AT TIME ZONE 'UTC')::date")
    tomorrow = f"{today + timedelta(days=1):%m/%d/%Y}"
    upload = await load(judgments(case("CV-20", filing_date=tomorrow), *GOOD))
    assert (upload.status, upload.failed_rows) == (Status.COMPLETED, 1)
    [(code, message)] = query("SELECT code, message FROM upload_rejections")
    assert code == "in_future"
    assert message.startswith(
        f"filing_date: expected a date that is not in the future, got '{tomorrow}' (line 2)."
    )


async def test_too_many_bad_rows_fail_the_file_and_force_partial_loads_the_others(
    load: Load, query: Query
) -> None:
    text = judgments(ROW, case("CV-2", judgment_amount="many"))
    upload = await load(text)
    assert (upload.status, upload.error_code) == (Status.FAILED, "too_many_invalid_rows")
    assert query("SELECT count(*) FROM judgments") == [(0,)]
    upload = await load(text, force_partial=True)
    assert (upload.status, upload.promoted_rows) == (Status.PARTIAL, 1)
    assert query("SELECT case_number FROM judgments") == [("CV-2024-001",)]


async def test_no_log_line_repeats_a_person_or_a_file(load: Load, query: Query, logged: Lines) -> None:
    bad = case("CV-20", **{**PERSON, "plaintiff_email": "casey"})
    await load(judgments(bad, case("CV-21", **PERSON), *GOOD), filename="casey jones.csv", batch="b-1")
    await load("CV-0,Casey,casey@example.com,Filed\nCV-1,Casey Jones,casey@example.com,Filed\n")
    events = [line["event"] for line in logged]
    assert {"Job started", "Row-level error", "Job completed", "Job failed"} <= set(events)
    assert all(said_of_nobody(repr(line)) for line in logged)
    [row] = [line for line in logged if line["event"] == "Row-level error"]
    assert (row["source_batch_id"], row["row_number"], row["error_type"]) == ("b-1", 2, "bad_email")


# Files ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("column", ["case_numbr", "Docket"])
def test_a_file_without_case_numbers_says_what_it_has_and_the_nearest_guess(column: str) -> None:
    header = HEADER.replace("case_number", column)
    refusal = refused(judgments(ROW, header=header))
    assert refusal.code == "missing_column"
    assert refusal.message == (
        "judgment.case_number: expected a column 'Case Number' or 'Case No' or 'Case #'; "
        f"did you mean {column!r}? The file has {', '.join(repr(name) for name in header.split(','))}."
    )


@pytest.mark.parametrize("column", ["CaseNumber", "File No", "CASE NO.", "case-number", "Docket #"])
def test_a_case_number_is_known_by_its_header_in_any_spelling(column: str) -> None:
    outcome = check(judgments(ROW, header=HEADER.replace("case_number", column)))
    assert [row["case_number"] for row in outcome.rows["judgment"]] == ["CV-2024-001"]


def test_where_nothing_is_near_there_is_no_guess() -> None:
    refusal = refused(judgments("Jane,John,5", header="plaintiff,defendant,amount"))
    assert refusal.message.endswith("'Case #'. The file has 'plaintiff', 'defendant', 'amount'.")


@pytest.mark.parametrize(
    "record",
    [
        'CV-1,Casey Jones,casey@example.com,(212) 555-0100,Richard Miles,"$1,234.56",3/4/2024,Kings',
        "CV-1,Casey,casey@example.com,Filed",  # near to a header, and one that is a header
        "CV-1,Casey,Miles,Filed",
        "CV-1,Casey,Miles",
        "CV-1,Casey Jones,Filed",
        "Casey Jones",
    ],
)
async def test_a_file_without_a_header_is_refused_and_none_of_its_cells_is_shown(
    load: Load, record: str
) -> None:
    upload = await load(f"{record}\n{record}\n")
    assert (upload.status, upload.error_code in ("no_header", "missing_column")) == (Status.FAILED, True)
    assert upload.error_text
    assert "Case Number" in upload.error_text
    assert "header should be" in upload.error_text or "should be the header" in upload.error_text
    assert said_of_nobody(upload.error_text)


async def test_a_header_below_a_title_is_found_though_any_row_might_be_one(load: Load, query: Query) -> None:
    upload = await load(f"Judgments of 2024\n\n{judgments(ROW)}")
    assert (upload.status, upload.bins.preamble) == (Status.COMPLETED, 2)
    assert query("SELECT case_number, line FROM judgments") == [("CV-2024-001", 4)]


def test_a_header_of_one_known_column_is_found_below_a_title() -> None:
    outcome = check("All cases\nof 2024\nFile #,Plaintiff,Amount,Remark\n1,A,2,none\n")
    assert (outcome.bins.preamble, outcome.bins.accepted) == (2, 1)


def test_a_file_with_nothing_below_its_header_has_no_data() -> None:
    assert refused(judgments()).code == "no_data"
