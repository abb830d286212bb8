"""Load, download the rejects, fix them, load them: production has what the file said, in every format and form."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.engine.conftest import HEADER as META
from tests.engine.conftest import meta_line
from weighbridge.delivery.context import Context
from weighbridge.model.rejects_layout import ADDED, SAFE
from weighbridge.model.states import Status

from .conftest import Download, Load, Query, changed, table, written

HEADER = ["Number", "Code", "Line", "Reason", "weighbridge_line", "Price"]
# Every one is rejected for its price.
CELLS = [
    ["=1+1", "=c", "+7", "-r", "@me", "x"],
    ["+N-2", "'quoted", "''=twice", "'=once", "'", "x"],
    ["-N-3", 'say "hi"', "two\nlines", "two\r\nlines", "a,b;c|d", "x"],
    ["@N-4", " led by a space", "followed by one ", "\ttab", "\rreturn", "x"],
    ["'N-5", "-5", "+49 30 1234", "-1,5", "12%", "x"],
    ["N 6", "line", "code", "reason", "yes", "x"],
]
GOOD = ["N-0", "", "", "", "", "1"]
FORMS = [{}, {"spreadsheet_safe": True}]


@pytest.fixture(autouse=True)
def _installed(parts: Context) -> None:
    """All tests here are about the pipeline `parts`."""


def with_price(row: dict[str, str]) -> dict[str, str]:
    return {**row, "Price": "2.50"}


def production(query: Query) -> list[list[str | None]]:
    return [
        list(row)
        for row in query(
            "SELECT number, code, production_line, reason, their_line, price::text FROM parts"
            " WHERE number <> 'N-0' ORDER BY line"
        )
    ]


@pytest.mark.parametrize("form", FORMS)
async def test_fixed_rows_are_loaded_exactly_as_the_file_had_them(
    load: Load, download: Download, query: Query, form: dict[str, bool]
) -> None:
    first = await load(written([HEADER, GOOD, *CELLS]))
    assert (first.status, first.bins.rejected) == (Status.COMPLETED, len(CELLS))
    text = await download(first, **form)
    # The sender's own weighbridge_line and ours have one name: by position, ours is the last.
    fixed = text.replace(",x,", ",2.50,")
    second = await load(fixed)
    assert (second.status, second.bins.rejected, second.columns) == (Status.COMPLETED, 0, tuple(HEADER))
    expected = [[(cell.strip(" \t\r\n") or None) for cell in row[:-1]] + ["2.500000"] for row in CELLS]
    assert production(query) == expected


@pytest.mark.parametrize("form", FORMS)
async def test_rejects_that_are_loaded_unchanged_are_rejected_with_the_same_cells(
    load: Load, download: Download, query: Query, form: dict[str, bool]
) -> None:
    first = await load(written([HEADER, GOOD, *CELLS]))
    second = await load(await download(first, **form))
    assert (second.status, second.error_code) == (Status.FAILED, "no_valid_rows")
    raws = "SELECT raw FROM upload_rejections WHERE upload_id = %s ORDER BY row_index"
    assert query(raws, (second.id,)) == query(raws, (first.id,)) == [(row,) for row in CELLS]
    # A rejects file of a rejects file has one set of added columns, and they name the newest upload.
    again = await download(second, **form)
    assert again.split("\r\n")[0] == (await download(first, **form)).split("\r\n")[0]
    assert {row["weighbridge_upload"] for row in table(again)} == {str(second.id)}


async def test_the_default_form_has_the_cells_as_they_are_and_the_safe_form_says_that_it_is_safe(
    load: Load, download: Download
) -> None:
    first = await load(written([HEADER[:1] + HEADER[-1:], ["=1+1", "x"], ["-5", "y"]]))
    rows = table(await download(first))
    assert [row.pop("weighbridge_reason")[:27] for row in rows] == ["price: expected an amount, "] * 2
    assert rows == [
        {
            "Number": number, "Price": price, "weighbridge_upload": str(first.id), "weighbridge_row": str(at + 1),
            "weighbridge_line": str(at + 2), "weighbridge_code": "bad_amount", "weighbridge_raw": "",
        }
        for at, (number, price) in enumerate([("=1+1", "x"), ("-5", "y")])
    ]  # fmt: skip
    safe = await download(first, spreadsheet_safe=True)
    assert safe.startswith("\ufeffNumber,Price,")
    assert [(row["Number"], row[SAFE]) for row in table(safe)] == [("'=1+1", "yes"), ("-5", "yes")]
    assert list(table(safe)[0])[2:] == [*ADDED, SAFE]


async def test_a_header_that_is_a_formula_is_read_again(load: Load, download: Download, query: Query) -> None:
    first = await load(written([["Number", "=Total", "Price"], ["N-1", "=9", "x"]]))
    second = await load(changed(await download(first, spreadsheet_safe=True), with_price))
    assert (second.columns, production(query)[0][0]) == (("Number", "=Total", "Price"), "N-1")


@pytest.mark.parametrize("lines", [False, True])
async def test_the_rejects_of_a_json_file_are_loaded_as_csv(
    load: Load, download: Download, query: Query, lines: bool
) -> None:
    records = [
        {"Number": "=J-1", "Code": "'x", "Line": 1.50, "Reason": ["a", 1.10], "Price": "x"},
        {"Number": "J-2", "Code": None, "Line": "", "Price": "x"},
    ]
    text = "\n".join(map(json.dumps, records)) if lines else json.dumps(records)
    first = await load(text, filename="parts.ndjson" if lines else "parts.json")
    assert (first.file_kind, first.bins.rejected) == ("json", 2)
    second = await load(changed(await download(first), with_price))
    assert (second.file_kind, second.status) == ("csv", Status.COMPLETED)
    assert production(query) == [
        ["=J-1", "'x", "1.5", '["a", 1.1]', None, "2.500000"],
        ["J-2", None, None, None, None, "2.500000"],
    ]


@pytest.mark.parametrize("form", FORMS)
async def test_a_record_that_does_not_fit_is_never_loaded_shifted(
    load: Load, download: Download, query: Query, form: dict[str, bool]
) -> None:
    text = "Number,Code,Price\nN-1,2\nN-2,a,b,3\nN-3,c,x\n"
    first = await load(text)
    assert first.bins.rejected == 3
    rejects = await download(first, **form)
    rows = table(rejects)
    assert [(row["Number"], row["Code"], row["Price"]) for row in rows] == [
        ("", "", ""),
        ("", "", ""),
        ("N-3", "c", "x"),
    ]
    assert [row["weighbridge_raw"] for row in rows] == ["N-1,2", "N-2,a,b,3", ""]
    unchanged = await load(rejects)
    assert unchanged.bins.blank == 0
    codes = "SELECT row_index, code, raw FROM upload_rejections WHERE upload_id = %s AND code = 'not_fixed' ORDER BY 1"
    assert query(codes, (unchanged.id,)) == [
        (0, "not_fixed", [None, None, None, "N-1,2"]),
        (1, "not_fixed", [None, None, None, "N-2,a,b,3"]),
    ]
    assert [row["weighbridge_raw"] for row in table(await download(unchanged))] == ["N-1,2", "N-2,a,b,3", ""]
    assert not query("SELECT FROM parts")

    def fixed(row: dict[str, str]) -> dict[str, str] | None:
        number, *_, price = (row["weighbridge_raw"] or "N-3,3").split(",")
        return {**row, "Number": number, "Price": price}

    last = await load(changed(rejects, fixed))
    assert last.status == Status.COMPLETED
    assert query("SELECT number, price::int FROM parts ORDER BY 1") == [("N-1", 2), ("N-2", 3), ("N-3", 3)]


async def test_a_json_record_that_does_not_fit_keeps_its_text(load: Load, download: Download) -> None:
    first = await load('[{"Number": "N-1", "Price": "x"}, 17, ["a"]]', filename="parts.json")
    rows = table(await download(first))
    assert [(row["Number"], row["weighbridge_raw"]) for row in rows] == [
        ("N-1", ""),
        ("", "17"),
        ("", '["a"]'),
    ]


async def test_a_json_record_with_more_keys_than_the_first_keeps_its_cells(
    load: Load, download: Download
) -> None:
    records: list[dict[str, Any]] = [{"Number": f"N-{n}", "Price": 1} for n in range(1001)]
    records += [{"Number": "late", "Price": "x", "Other": 1}, {"Number": "later", "Code": "c"}]
    first = await load(json.dumps(records), filename="parts.json")
    rows = table(await download(first))
    assert [(row["Number"], row["weighbridge_raw"]) for row in rows] == [
        ("late", ""),
        ("", '{"Number": "later", "Code": "c"}'),
    ]


async def test_rows_that_a_person_adds_to_a_rejects_file_are_loaded_as_they_are(
    load: Load, download: Download, query: Query
) -> None:
    first = await load("Number,Price\nN-1,x\n")
    text = changed(await download(first, spreadsheet_safe=True), with_price)
    text += "'=2,2\r\n'=3,3,,,,,,,\r\n"  # with the cells of the file only, or with empty ones behind
    second = await load(text)
    assert (second.status, second.bins.accepted) == (Status.COMPLETED, 3)
    assert query("SELECT number FROM parts ORDER BY price") == [("'=2",), ("N-1",), ("'=3",)]


async def test_a_row_of_a_rejects_file_that_lost_a_cell_is_rejected_whole(
    load: Load, download: Download, query: Query
) -> None:
    first = await load("Number,Code,Price\nN-1,c,x\n")
    text = (await download(first)).replace("N-1,c,x,", "N-1,2,")
    second = await load(text)
    ((code, message, raw),) = query(
        "SELECT code, message, raw FROM upload_rejections WHERE upload_id = %s", (second.id,)
    )
    assert (code, message.split(" (")[0]) == ("wrong_cell_count", "Expected 3 cells as in the header, got 2")
    assert raw[:3] == ["N-1", "2", str(first.id)]
    assert raw[3].startswith("1,2,bad_amount,")


async def test_one_added_name_alone_is_a_column_of_the_sender(load: Load, query: Query) -> None:
    upload = await load("Number,weighbridge_line,Price\nN-1,mine,1\n")
    assert upload.columns == ("Number", "weighbridge_line", "Price")
    assert query("SELECT their_line FROM parts") == [("mine",)]


async def test_a_rejects_file_is_recognised_for_its_pipeline(
    load: Load, download: Download, query: Query
) -> None:
    """Without being told which: the added columns count neither for nor against a pipeline."""
    first = await load("Number,Code,Line,Reason,Price\nN-1,a,b,c,x\n")
    second = await load(changed(await download(first), with_price), pipeline="auto")
    assert (second.pipeline, second.status) == ("parts", Status.COMPLETED)


async def test_the_rejects_of_a_pipeline_with_dimensions_are_linked_too(
    load: Load, download: Download, query: Query
) -> None:
    lines = [meta_line("2026-01-01", ad, spend="x" if ad > 1 else "1") for ad in range(4)]
    kind = {"pipeline": "ads", "platform": "meta"}
    first = await load("\n".join([META, *lines]), force_partial=True, **kind)
    second = await load((await download(first)).replace(",x,", ",2.5,"), **kind)
    assert (second.status, second.bins.accepted) == (Status.COMPLETED, 2)
    assert query("SELECT spend::float, count(*) FROM daily_metrics GROUP BY 1 ORDER BY 1") == [
        (1, 2),
        (2.5, 2),
    ]
    assert query("SELECT DISTINCT fixed_by FROM upload_rejections") == [(second.id,)]


async def test_a_list_without_a_header_is_fixed_as_a_table(
    load: Load, download: Download, query: Query
) -> None:
    """A list of keywords has no header; its rejects file has one, and quotes around what has a comma in it."""
    long = "a, b " * 300
    kind = {"pipeline": "keywords", "project_id": 7, "filename": "words.txt"}
    first = await load(f"red shoes\n{long}\n", **kind)
    assert (first.columns, first.bins.rejected) == (("Keyword",), 1)
    second = await load(changed(await download(first), lambda row: {**row, "Keyword": "=a, b"}), **kind)
    assert second.status == Status.COMPLETED
    assert query("SELECT keyword FROM keywords ORDER BY keyword") == [("=a, b",), ("red shoes",)]
