"""A fixed record does not replace another record of the file that it is from."""

from __future__ import annotations

from uuid import uuid4

import pytest

from weighbridge import Entity, Field, Pipeline, upsert
from weighbridge.delivery.context import Context
from weighbridge.model.states import Status
from weighbridge.postgres import pipeline_tables

from .conftest import Download, Load, Query, changed, table
from .test_whole_keys import SOLD, TILLS, cell

PEAKS = Pipeline(
    name="peaks",
    entities=[
        Entity(
            table="peaks",
            key=["till"],
            fields=[Field("till", header=["Till"], required=True), Field("sold", int, header=["Sold"])],
            upsert=upsert.keep_greatest,
        )
    ],
    min_valid=0,
)
TEXT = "Till,Sold,Taken\nA,5,2\n,7,3\nB,1,1\n"


@pytest.fixture(autouse=True)
async def _installed(ctx: Context) -> None:
    object.__setattr__(ctx, "pipelines", {**ctx.pipelines, "tills": TILLS, "peaks": PEAKS})
    async with ctx.db.tx() as tx:
        await pipeline_tables.install(tx, list(ctx.pipelines.values()))


@pytest.mark.parametrize("case", ["new", "in production already", "staging expired"])
async def test_a_row_that_is_fixed_to_the_key_of_another_row_of_its_file_is_rejected(
    load: Load, download: Download, query: Query, case: str
) -> None:
    if (
        case == "in production already"
    ):  # the first file changes nothing, and only its staged rows name the key
        await load("Till,Sold,Taken\nA,5,2\n", pipeline="tills")
    first = await load(TEXT, pipeline="tills")
    if case == "staging expired":
        query("DELETE FROM staging.tills_till WHERE upload_id = %s", (first.id,))
    fixed = changed(await download(first), cell("Till", "", "A"))
    second = await load(fixed, pipeline="tills")
    assert (second.status, second.error_code) == (Status.FAILED, "nothing_promoted")
    assert query(SOLD) == [("A", 5, 2), ("B", 1, 1)]
    [row] = table(await download(second))
    assert (row["Till"], row["weighbridge_code"]) == ("A", "conflicting_repeat")
    assert row["weighbridge_reason"] == (
        f"till: not written, its original upload {first.id} has loaded another row with the same key and other "
        "values. Correct the key; or correct the original file and load it again (line 2)."
    )
    third = await load(changed(await download(second), cell("Till", "A", "C")), pipeline="tills")
    assert third.status == Status.COMPLETED
    assert query(SOLD) == [("A", 5, 2), ("B", 1, 1), ("C", 7, 3)]


async def test_a_record_of_a_chain_of_rejects_files_is_compared_with_the_first_file_too(
    load: Load, download: Download, query: Query
) -> None:
    first = await load(TEXT, pipeline="tills")
    again = await load(await download(first), pipeline="tills")  # not fixed yet
    third = await load(changed(await download(again), cell("Till", "", "A")), pipeline="tills")
    assert (third.status, query(SOLD)) == (Status.FAILED, [("A", 5, 2), ("B", 1, 1)])


async def test_the_other_fixed_rows_are_loaded(load: Load, download: Download, query: Query) -> None:
    first = await load("Till,Sold,Taken\nA,5,2\n,7,3\n,8,4\n", pipeline="tills", force_partial=True)
    names = {"7": "C", "8": "A"}
    fixed = changed(await download(first), lambda row: {**row, "Till": names[row["Sold"]]})
    second = await load(fixed, pipeline="tills")
    assert (second.status, second.error_code, second.failed_rows) == (Status.PARTIAL, "rows_failed", 1)
    assert query(SOLD) == [("A", 5, 2), ("C", 7, 3)]


async def test_a_row_with_the_same_values_changes_nothing_and_is_fixed(
    load: Load, download: Download, query: Query
) -> None:
    first = await load("Till,Sold,Taken\nA,5,2\n,5,2\n", pipeline="tills")
    second = await load(changed(await download(first), cell("Till", "", "A")), pipeline="tills")
    assert (second.status, second.promoted_rows) == (Status.COMPLETED, 1)
    assert query(SOLD) == [("A", 5, 2)]


async def test_where_repeats_are_combined_the_fixed_row_is_combined_too(
    load: Load, download: Download, query: Query
) -> None:
    first = await load("Till,Sold\nA,5\n,7\n", pipeline="peaks", force_partial=True)
    fixed = changed(await download(first), cell("Till", "", "A"))
    assert (await load(fixed, pipeline="peaks")).status == Status.COMPLETED
    assert query("SELECT till, sold FROM peaks") == [("A", 7)]


async def test_a_fixed_row_can_be_corrected_by_fixing_it_again(
    load: Load, download: Download, query: Query
) -> None:
    rejects = await download(await load(TEXT, pipeline="tills"))
    await load(changed(rejects, cell("Till", "", "C")), pipeline="tills")
    better = await load(
        changed(changed(rejects, cell("Till", "", "C")), cell("Sold", "7", "70")), pipeline="tills"
    )
    assert better.status == Status.COMPLETED
    assert query(SOLD) == [("A", 5, 2), ("B", 1, 1), ("C", 70, 3)]


async def test_a_row_of_an_earlier_file_is_replaced_as_ever(
    load: Load, download: Download, query: Query
) -> None:
    await load("Till,Sold,Taken\nA,5,2\nC,1,1\n", pipeline="tills")
    query("ALTER TABLE tills ADD CONSTRAINT few CHECK (sold < 15)")
    first = await load("Till,Sold,Taken\nA,20,2\nB,1,1\n,9,9\n", pipeline="tills", force_partial=True)
    names = {"20": {"Sold": "6"}, "9": {"Till": "C"}}
    second = await load(
        changed(await download(first), lambda row: {**row, **names[row["Sold"]]}), pipeline="tills"
    )
    assert second.status == Status.COMPLETED
    assert query(SOLD) == [("A", 6, 2), ("B", 1, 1), ("C", 9, 9)]


@pytest.mark.parametrize("client", [False, True], ids=["no client", "client"])
@pytest.mark.parametrize("level", ["campaign", "ad"])
async def test_rows_of_ads_are_compared_whatever_their_key_lacks(
    load: Load, download: Download, query: Query, level: str, *, client: bool
) -> None:
    more, header = ("", "") if level == "campaign" else (",21,S,31,X", ",Ad set ID,Ad set name,Ad ID,Ad name")
    lines = [f"2025-07-0{day},111,A{more},{day}0,1,{spend}" for day, spend in ((1, 5), (2, 5), (3, "oops"))]
    text = "\n".join(
        [f"Day,Campaign ID,Campaign name{header},Impressions,Clicks (all),Amount spent (EUR)", *lines, ""]
    )
    scope = {"client_id": uuid4()} if client else {}
    first = await load(text, pipeline="ads", platform="meta", force_partial=True, **scope)
    fixed = changed(
        await download(first), lambda row: {**row, "Day": "2025-07-02", "Amount spent (EUR)": "9"}
    )
    second = await load(fixed, pipeline="ads", platform="meta", **scope)
    assert (second.status, second.error_code) == (Status.FAILED, "nothing_promoted")
    assert query("SELECT impressions, spend FROM daily_metrics ORDER BY metric_date") == [(10, 5), (20, 5)]
