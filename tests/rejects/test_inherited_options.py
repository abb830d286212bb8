"""The rows of a rejects file are read with the format of the original file, which they alone may not show."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from weighbridge import Entity, Field, Pipeline, n
from weighbridge.delivery.context import Context
from weighbridge.model.read_options import ReadOptions
from weighbridge.model.states import Status
from weighbridge.postgres import pipeline_tables
from weighbridge.uploads import parse

from .conftest import Download, Load, Query, Send, changed, table

CALLS = Pipeline(
    name="calls",
    expects=(),
    entities=[
        Entity(
            table="calls",
            key=["number"],
            fields=[
                Field("number", header=["Number"], required=True),
                Field("at", datetime, header=["At"], normalise=[n.timestamp]),
                Field("day", date, header=["Day"], normalise=[n.date]),
                Field("price", Decimal, header=["Price"], normalise=[n.money]),
            ],
        )
    ],
    zone_above=r"TimeZone=(\S+)",
    min_valid=0,
)
# 12,34 and 13/4/2025 show how the file is written; the rejected row 2 does not.
COMMAS = 'Number,At,Day,Price\n1,,13/4/2025,"12,34"\n2,never,3/4/2025,"1,234"\n'
POINTS = 'Number,At,Day,Price\n1,,4/13/2025,12.34\n3,never,3/4/2025,"1,234"\n'


@pytest.fixture(autouse=True)
async def _installed(ctx: Context) -> None:
    object.__setattr__(ctx, "pipelines", {**ctx.pipelines, "calls": CALLS})
    async with ctx.db.tx() as tx:
        await pipeline_tables.install(tx, list(ctx.pipelines.values()))


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> list[ReadOptions]:
    """The read options of every check since the test began."""
    found: list[ReadOptions] = []
    check = parse.check

    def noted(*args: Any, **given: Any) -> Any:
        found.append(given["options"])
        return check(*args, **given)

    monkeypatch.setattr(parse, "check", noted)
    return found


def without_time(row: dict[str, str]) -> dict[str, str]:
    return {**row, "At": ""}


@pytest.mark.parametrize("form", [{}, {"spreadsheet_safe": True}])
async def test_the_time_zone_above_the_header_comes_with_the_rows(
    load: Load, download: Download, query: Query, form: dict[str, bool]
) -> None:
    text = "Calls of a day\nParameters:TimeZone=America/New_York\nNumber,At,Price\n1,2026-01-31 10:00:00,x\n"
    first = await load(text, pipeline="calls")
    rejects = await download(first, **form)
    assert rejects.removeprefix("\ufeff").startswith(
        "Parameters:TimeZone=America/New_York\r\nNumber,At,Price,"
    )
    again = await load(rejects, pipeline="calls")  # unchanged: its own rejects have the zone as well
    second = await load((await download(again, **form)).replace(",x,", ",2,"), pipeline="calls")
    assert (second.status, second.bins.preamble) == (Status.COMPLETED, 1)
    assert query("SELECT at FROM calls") == [(datetime(2026, 1, 31, 15, tzinfo=UTC),)]


async def test_decimal_mark_and_date_order_are_those_of_the_original(
    load: Load, download: Download, used: list[ReadOptions]
) -> None:
    first = await load(COMMAS, pipeline="calls")
    assert (first.read_as.decimal, first.read_as.date_order, first.bins.rejected) == (",", "dmy", 1)
    await load(changed(await download(first), without_time), pipeline="calls")
    assert used == [ReadOptions(), ReadOptions(decimal=",", date_order="dmy")]


async def test_rows_that_could_be_read_in_two_ways_have_the_values_of_the_original(
    load: Load, download: Download, query: Query
) -> None:
    for text in (COMMAS, POINTS):
        fixed = changed(await download(await load(text, pipeline="calls")), without_time)
        assert (await load(fixed, pipeline="calls")).status == Status.COMPLETED
    assert query("SELECT number, day, price FROM calls WHERE number <> '1' ORDER BY number") == [
        ("2", date(2025, 4, 3), Decimal("1.234")),
        ("3", date(2025, 3, 4), Decimal(1234)),
    ]


INDIAN = 'Number,At,Day,Price\n1,,2025-04-13,"12,34,567"\n2,,2025-04-13,"23,45,678.5"\n4,never,,"1,23,456"\n'


async def test_a_lone_number_with_indian_grouping_is_read_as_in_the_original(
    load: Load, download: Download, query: Query
) -> None:
    first = await load(INDIAN, pipeline="calls")
    assert (first.read_as.indian, first.bins.rejected) == (True, 1)
    again = await load(await download(first), pipeline="calls")  # unchanged: it is read in the same way
    assert again.read_as.indian
    fixed = await load(changed(await download(again), without_time), pipeline="calls")
    assert (fixed.status, fixed.bins.rejected) == (Status.COMPLETED, 0)
    assert query("SELECT price FROM calls WHERE number = '4'") == [(Decimal(123456),)]


async def test_rows_of_another_file_beside_them_have_no_indian_grouping(
    load: Load, download: Download
) -> None:
    other = POINTS.replace('"1,234"', '"1,23,456"')  # a single one may have lost a digit
    rejects = [await download(await load(text, pipeline="calls")) for text in (INDIAN, other)]
    both = await load(rejects[0] + rejects[1].split("\r\n", 1)[1], pipeline="calls")
    assert (both.bins.rejected, both.read_as.indian) == (2, False)


async def test_options_that_the_sender_gives_come_first_and_of_the_original_none_about_its_bytes(
    load: Load, send: Send, run: Any, download: Download, query: Query, used: list[ReadOptions]
) -> None:
    first = await load(COMMAS, pipeline="calls")
    given = """{"encoding": "cp1252", "delimiter": ";", "sum_breakdowns": true}"""
    query("UPDATE data_uploads SET reading = %s::jsonb", (given,))
    sent = await send(changed(await download(first), without_time), pipeline="calls")
    query("""UPDATE data_uploads SET reading = '{"decimal": "."}' WHERE id = %s""", (sent,))
    await run(sent)
    assert used[1:] == [ReadOptions(decimal=".", date_order="dmy", sum_breakdowns=True)]


async def test_rows_of_files_that_are_written_differently_are_refused_in_one_file(
    load: Load, download: Download
) -> None:
    rejects = [await download(await load(text, pipeline="calls")) for text in (COMMAS, POINTS)]
    both = rejects[0] + rejects[1].split("\r\n", 1)[1]
    assert len(table(both)) == 2
    refused = await load(both, pipeline="calls")
    assert (refused.status, refused.error_code) == (Status.FAILED, "mixed_rejects")
    assert refused.error_text == (
        "Expected rejected rows of files that were read in the same way, got rows of files with different decimal "
        "marks: ',' and '.'. Load the rejects of each upload as a file of its own."
    )
