"""Load, download the rejects, fix them, load them: the rows of a key are loaded together, and no row is lost."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from decimal import Decimal
from typing import Any

import pytest

from weighbridge import Entity, Field, Pipeline, upsert
from weighbridge.delivery.context import Context
from weighbridge.model.states import Status
from weighbridge.model.upload import Upload
from weighbridge.postgres import pipeline_tables
from weighbridge.uploads import fixed_rows
from weighbridge.uploads.fixed_rows import Rejects
from weighbridge.uploads.operator_retry import reopen
from weighbridge.uploads.preview import promote_on_hold

from .conftest import Download, Load, Query, changed, table

Rejected = Callable[[Upload], Awaitable[Rejects]]
TILLS = Pipeline(
    name="tills",
    expects=(),
    entities=[
        Entity(
            table="tills",
            key=["till"],
            fields=[
                Field("till", header=["Till"], required=True),
                Field("sold", int, header=["Sold"], additive=True),
                Field("taken", Decimal, header=["Taken"], additive=True),
            ],
            upsert=upsert.replace,
        )
    ],
    min_valid=0,
)
DEVICES = "Till,Sold,Taken,Device\nA,5,2.00,mobile\nA,5,3.0x,desktop\nB,5,2.00,mobile\nB,5,3.00,desktop\n"
CASES = "Case Number,Plaintiff,Defendant,Judgment Amount,Filing Date\n"
SOLD = "SELECT till, sold, taken FROM tills ORDER BY till"


@pytest.fixture(autouse=True)
async def _installed(ctx: Context) -> None:
    object.__setattr__(ctx, "pipelines", {**ctx.pipelines, "tills": TILLS})
    async with ctx.db.tx() as tx:
        await pipeline_tables.install(tx, list(ctx.pipelines.values()))


@pytest.fixture
def rejects(ctx: Context) -> Rejected:
    """How many rejected rows of an upload are open, and how many are fixed."""

    async def counts(upload: Upload) -> Rejects:
        async with ctx.db.tx("weighbridge_tenant", upload.workspace_id) as tx:
            return (await fixed_rows.rejects(tx, [upload.id]))[upload.id]

    return counts


def cell(column: str, old: str, new: str) -> Callable[[dict[str, str]], dict[str, str]]:
    return lambda row: {**row, column: new if row[column] == old else row[column]}


async def test_a_sum_with_a_rejected_part_is_loaded_when_the_part_is_fixed(
    load: Load, download: Download, query: Query
) -> None:
    first = await load(DEVICES, pipeline="tills", sum_breakdowns=True)
    assert query(SOLD) == [("B", 10, 5)]
    rejects = await download(first)
    codes = [(row["Device"], row["weighbridge_code"]) for row in table(rejects)]
    assert codes == [("mobile", "incomplete_breakdown"), ("desktop", "bad_number")]
    again = await load(
        changed(rejects, cell("Till", "A", "A ")), pipeline="tills", force_partial=True
    )  # not fixed
    assert (again.status, query(SOLD)) == (Status.FAILED, [("B", 10, 5)])
    # Its rejects file is the second one: the option is that of the first file.
    second = await load(changed(await download(again), cell("Taken", "3.0x", "3.00")), pipeline="tills")
    assert (second.status, second.bins.accepted, second.bins.duplicate) == (Status.COMPLETED, 1, 1)
    assert query(SOLD) == [("A", 10, 5), ("B", 10, 5)]


async def test_a_row_of_totals_that_was_rejected_with_its_parts_is_not_added_to_them(
    load: Load, download: Download, query: Query, rejects: Rejected
) -> None:
    first = await load(f"{DEVICES}A,10,5.00,Total\n", pipeline="tills", sum_breakdowns=True)
    assert (first.bins.rejected, query(SOLD)) == (3, [("B", 10, 5)])
    second = await load(changed(await download(first), cell("Taken", "3.0x", "3.00")), pipeline="tills")
    assert (second.status, second.bins.totals) == (Status.COMPLETED, 1)
    assert query(SOLD) == [("A", 10, 5), ("B", 10, 5)]
    assert await rejects(first) == Rejects(open=0, fixed=3)


async def test_parts_of_which_one_may_be_their_total_are_loaded_when_that_is_named(
    load: Load, download: Download, query: Query
) -> None:
    text = DEVICES.replace("3.0x", "3.00") + "A,1,0.50,\n"
    first = await load(text, pipeline="tills", sum_breakdowns=True)
    rejects = await download(first)
    assert [row["weighbridge_code"] for row in table(rejects)] == ["unclear_breakdown"] * 3
    again = await load(rejects, pipeline="tills")
    assert again.status == Status.FAILED
    await load(changed(rejects, cell("Device", "", "unknown")), pipeline="tills")
    assert query(SOLD) == [("A", 11, Decimal("5.5")), ("B", 10, 5)]


async def test_a_conflict_with_a_rejected_row_is_settled_by_the_fixed_file(
    load: Load, download: Download, query: Query
) -> None:
    rows = "A-1,P,D,5.00,2024-01-01\nA-1,P,D,9x9,2024-01-01\nA-2,P,D,1,2024-01-01\n"
    first = await load(CASES + rows, pipeline="judgments", force_partial=True)
    amounts = "SELECT case_number, judgment_amount FROM judgments ORDER BY 1"
    assert query(amounts) == [("A-2", 1)]
    rejects = await download(first)
    both = await load(changed(rejects, cell("Judgment Amount", "9x9", "9.00")), pipeline="judgments")
    assert (both.status, both.error_code) == (Status.FAILED, "no_valid_rows")
    one = changed(rejects, lambda row: row if row["Judgment Amount"] == "5.00" else None)
    assert (await load(one, pipeline="judgments")).status == Status.COMPLETED
    assert query(amounts) == [("A-1", 5), ("A-2", 1)]


async def test_all_parts_of_a_sum_that_production_refuses_are_rejected(
    load: Load, download: Download, query: Query
) -> None:
    query("ALTER TABLE tills ADD CONSTRAINT few CHECK (sold < 15)")
    text = "Till,Sold,Taken,Device\nA,8,1,mobile\nB,1,1,mobile\nA,8,1,desktop\nB,1,1,desktop\n"
    first = await load(text, pipeline="tills", sum_breakdowns=True)
    assert (first.status, first.failed_rows) == (Status.PARTIAL, 1)
    rejects = await download(first)
    assert [(row["Till"], row["Device"], row["weighbridge_line"]) for row in table(rejects)] == [
        ("A", "mobile", "2"),
        ("A", "desktop", "4"),
    ]
    assert table(rejects)[1]["weighbridge_code"] == "sum_not_written"
    second = await load(changed(rejects, lambda row: {**row, "Sold": "7"}), pipeline="tills")
    assert second.status == Status.COMPLETED
    assert query(SOLD) == [("A", 14, 2), ("B", 2, 2)]


def ten_cases(bad: str) -> str:
    return CASES + "".join(
        f"K-{n},P{n},D,{bad if n < 3 else '5.00'},2024-01-0{n % 9 + 1}\n" for n in range(10)
    )


async def failed(load: Load) -> Upload:
    upload = await load(ten_cases("bad"), pipeline="judgments", source_batch_id="B1")
    assert (upload.status, upload.error_code) == (Status.FAILED, "too_many_invalid_rows")
    assert upload.error_text is not None
    assert upload.error_text.endswith(
        "No row of this file was loaded. Correct the complete file and load it again; or load the valid rows with "
        "force_partial, and then the corrected rejects."
    )
    return upload


async def test_the_fixed_rows_of_a_file_that_was_not_loaded_are_refused_until_it_is(
    ctx: Context, load: Load, download: Download, query: Query, run: Any
) -> None:
    first = await failed(load)
    fixed = changed(await download(first), cell("Judgment Amount", "bad", "5.00"))
    refused = await load(fixed, pipeline="judgments")
    assert (refused.status, refused.error_code) == (Status.FAILED, "original_not_loaded")
    assert refused.error_text == (
        f"The upload that these rows are from ({first.id}) failed, and its valid rows were not loaded: 7 rows would be "
        "missing. Correct the complete file and load it; or load the valid rows first (weighbridge uploads retry "
        f"{first.id} --force-partial) and then these (weighbridge uploads retry {refused.id})."
    )
    assert query("SELECT count(*) FROM judgments") == [(0,)]
    await reopen(ctx.db, first, force_partial=True, actor="test")
    assert (await run(first.id)).status == Status.PARTIAL
    await reopen(ctx.db, refused, force_partial=False, actor="test")
    assert (await run(refused.id)).status == Status.COMPLETED
    assert query("SELECT count(*), sum(judgment_amount) FROM judgments") == [(10, 50)]


async def test_the_fixed_rows_of_a_preview_are_refused_until_it_is_promoted(
    ctx: Context, load: Load, download: Download, query: Query, run: Any
) -> None:
    first = await load(
        f"{CASES}K-1,P,D,bad,2024-01-01\nK-2,P,D,5,2024-01-01\n",
        pipeline="judgments",
        preview=True,
        force_partial=True,
    )
    fixed = changed(await download(first), cell("Judgment Amount", "bad", "5.00"))
    early = await load(fixed, pipeline="judgments")
    assert (early.status, early.error_code) == (Status.FAILED, "original_not_loaded")
    assert "is staging_complete: its other rows are not loaded yet" in (early.error_text or "")
    await promote_on_hold(ctx, first, actor="test")
    await run(first.id)
    await reopen(ctx.db, early, force_partial=False, actor="test")
    assert (await run(early.id)).status == Status.COMPLETED
    assert query("SELECT count(*) FROM judgments") == [(2,)]


async def test_the_fixed_rows_of_a_file_without_a_valid_row_are_loaded(
    load: Load, download: Download, query: Query
) -> None:
    first = await load(f"{CASES}K-1,P,D,bad,2024-01-01\n", pipeline="judgments")
    assert (first.status, first.error_code) == (Status.FAILED, "no_valid_rows")
    fixed = changed(await download(first), cell("Judgment Amount", "bad", "5.00"))
    assert (await load(fixed, pipeline="judgments")).status == Status.COMPLETED
    assert query("SELECT count(*) FROM judgments") == [(1,)]


async def test_numbers_of_a_json_file_may_have_exponents_in_its_rejects_file_too(
    load: Load, download: Download, query: Query
) -> None:
    keys = '"Plaintiff": "P", "Defendant": "D"'
    text = (
        f'{{"Case Number": "J-1", {keys}, "Judgment Amount": 1e3, "Filing Date": "nope"}}\n'
        f'{{"Case Number": "J-2", {keys}, "Judgment Amount": 1.5E2, "Filing Date": "2024-01-02"}}\n'
    )
    first = await load(text, pipeline="judgments", filename="j.ndjson", force_partial=True)
    rejects = await download(first)
    assert table(rejects)[0]["Judgment Amount"] == "1e3"
    again = await load(rejects, pipeline="judgments")  # its own rejects file is read in the same way
    fixed = changed(await download(again), cell("Filing Date", "nope", "2024-01-01"))
    assert (await load(fixed, pipeline="judgments")).status == Status.COMPLETED
    assert query("SELECT case_number, judgment_amount FROM judgments ORDER BY 1") == [
        ("J-1", 1000),
        ("J-2", 150),
    ]


async def test_a_csv_file_has_no_exponents_in_its_rejects_file_either(load: Load, download: Download) -> None:
    first = await load(f"{CASES}K-1,P,D,1e3,2024-01-01\n", pipeline="judgments")
    assert (await load(await download(first), pipeline="judgments")).error_code == "no_valid_rows"


@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
async def test_a_record_that_does_not_fit_is_shown_with_the_delimiter_of_its_file(
    load: Load, download: Download, delimiter: str
) -> None:
    text = "Till;Sold;Taken\nA;1;12,50\n-4-A;2;12,50;y;z\n".replace(";", delimiter)
    [row] = table(await download(await load(text, pipeline="tills")))
    assert row["weighbridge_raw"] == "-4-A;2;12,50;y;z".replace(";", delimiter)
