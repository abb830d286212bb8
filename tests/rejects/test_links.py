"""A fixed file is linked to the upload whose rows it fixes, and those rows leave its open rejects."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest

from tests.engine.steps import parse_by_hand
from weighbridge.delivery.context import Context
from weighbridge.engine.options import WorkerOptions
from weighbridge.model.states import Status
from weighbridge.model.upload import Upload
from weighbridge.rules.record_source import SMALL
from weighbridge.uploads import fixed_rows
from weighbridge.uploads.operator_retry import reopen
from weighbridge.worker import run_until

from .conftest import Download, Load, Query, Send, changed, table, written


@pytest.fixture(autouse=True)
def _installed(parts: Context) -> None:
    """All tests here are about the pipeline `parts`."""


def file(*prices: str) -> str:
    """A file with a row for each price; N-1 is its first."""
    return written([["Number", "Price"], *([f"N-{at + 1}", price] for at, price in enumerate(prices))])


def priced(prices: dict[str, str]) -> Callable[[dict[str, str]], dict[str, str]]:
    return lambda row: {**row, "Price": prices.get(row["Number"], row["Price"])}


@pytest.fixture
def standing(ctx: Context) -> Callable[..., Any]:
    """`await standing(upload)`: its open and fixed rejects, the uploads that it fixes, the uploads that fixed it."""

    async def standing(upload: Upload) -> tuple[int, int, dict[UUID, int], dict[UUID, int]]:
        async with ctx.db.tx("weighbridge_tenant", upload.workspace_id) as tx:
            rejects = (await fixed_rows.rejects(tx, [upload.id])).get(upload.id, fixed_rows.NO_REJECTS)
            links = await fixed_rows.links(tx, upload.id)
        both = ({link.upload_id: link.rows for link in found} for found in (links.fixes, links.fixed_by))
        return rejects.open, rejects.fixed, *both

    return standing


async def test_rows_that_are_fixed_leave_the_open_rejects(
    load: Load, download: Download, standing: Any
) -> None:
    first = await load(file("1", "x", "y", "z"))
    assert await standing(first) == (3, 0, {}, {})
    second = await load(changed(await download(first), priced({"N-2": "2", "N-4": "4"})), force_partial=True)
    assert await standing(second) == (1, 0, {first.id: 2}, {})
    assert await standing(first) == (1, 2, {}, {second.id: 2})
    assert [row["Number"] for row in table(await download(first))] == ["N-3"]
    assert [row["Number"] for row in table(await download(first, every=True))] == ["N-2", "N-3", "N-4"]


async def test_a_part_called_total_is_confirmed_by_loading_its_reject_again(
    load: Load, download: Download, standing: Any
) -> None:
    first = await load(written([["Number", "Price"], ["N-1", "1"], ["N-2", "2"], ["Total", "9"]]))
    [row] = table(await download(first))
    assert "load the rejects file with this row unchanged" in row["weighbridge_reason"]
    second = await load(await download(first))
    assert (second.status, second.bins.accepted) == ("completed", 1)
    assert await standing(first) == (0, 1, {}, {second.id: 1})


async def test_a_row_that_is_fixed_at_the_second_try_is_fixed_in_both_uploads(
    load: Load, download: Download, standing: Any
) -> None:
    first = await load(file("1", "x", "y"))
    second = await load(changed(await download(first), priced({"N-2": "2"})))
    third = await load(changed(await download(second), priced({"N-3": "3"})))
    assert await standing(third) == (0, 0, {second.id: 1, first.id: 1}, {})
    assert await standing(second) == (0, 1, {first.id: 1}, {third.id: 1})
    assert await standing(first) == (0, 2, {}, {second.id: 1, third.id: 1})


async def test_a_file_that_fails_fixes_nothing_and_is_linked(
    load: Load, download: Download, standing: Any
) -> None:
    first = await load(file("1", "x"))
    second = await load(await download(first))
    assert second.status == Status.FAILED
    assert await standing(second) == (1, 0, {first.id: 0}, {})
    assert await standing(first) == (1, 0, {}, {})


async def test_a_fixed_row_that_is_a_duplicate_counts_and_a_blank_one_does_not(
    load: Load, download: Download, standing: Any
) -> None:
    first = await load(file("1", "x", "y", "z"))
    text = changed(
        await download(first),
        lambda row: {
            **row,
            "Number": "" if row["Number"] == "N-4" else "N-9",
            "Price": "" if row["Number"] == "N-4" else "9",
        },
    )
    second = await load(text)
    assert (second.bins.accepted, second.bins.duplicate, second.bins.blank) == (1, 1, 1)
    assert (await standing(first))[:2] == (1, 2)


async def test_a_row_that_production_refuses_is_not_fixed(
    load: Load, download: Download, standing: Any, query: Query
) -> None:
    query("ALTER TABLE parts ADD CHECK (number <> 'N-3')")
    first = await load(file("1", "x", "y"))
    second = await load(changed(await download(first), priced({"N-2": "2", "N-3": "3"})))
    assert (second.status, second.failed_rows) == (Status.PARTIAL, 1)
    assert (await standing(first))[:2] == (1, 1)


async def test_another_try_of_the_fixing_upload_counts_anew(
    ctx: Context, load: Load, download: Download, standing: Any, query: Query, run: Any
) -> None:
    query("ALTER TABLE parts ADD CONSTRAINT no_three CHECK (number <> 'N-3')")
    first = await load(file("1", "x", "y"))
    second = await load(changed(await download(first), priced({"N-2": "2", "N-3": "3"})))
    query("ALTER TABLE parts DROP CONSTRAINT no_three")
    await reopen(ctx.db, second, force_partial=False, actor="test")
    assert (await run(second.id)).status == Status.COMPLETED
    assert await standing(first) == (0, 2, {}, {second.id: 2})
    assert query("SELECT count(*) FROM weighbridge.upload_fixes") == [(2,)]


async def test_another_try_of_the_original_upload_keeps_what_was_fixed(
    ctx: Context, load: Load, download: Download, standing: Any, query: Query, run: Any
) -> None:
    query("ALTER TABLE parts ADD CONSTRAINT no_four CHECK (number <> 'N-4')")
    first = await load(file("1", "x", "y", "4"))
    assert first.status == Status.PARTIAL
    second = await load(changed(await download(first), priced({"N-2": "2"})))
    third = await load(
        changed(
            await download(second), lambda row: priced({"N-3": "3"})(row) if row["Number"] == "N-3" else None
        )
    )
    assert await standing(first) == (1, 2, {}, {second.id: 1, third.id: 1})
    await reopen(ctx.db, first, force_partial=False, actor="test")
    assert await standing(first) == (0, 0, {}, {})  # not read again yet
    assert (await run(first.id)).status == Status.PARTIAL
    assert await standing(first) == (1, 2, {}, {second.id: 1, third.id: 1})


async def test_an_attempt_that_dies_leaves_one_set_of_links(
    ctx: Context,
    load: Load,
    send: Send,
    download: Download,
    standing: Any,
    query: Query,
    run: Any,
    clock: Any,
) -> None:
    """The file is staged and linked; then the worker dies and the staged rows are lost: it is parsed again."""
    first = await load(file("1", "x", "y"))
    fixing = await send(changed(await download(first), priced({"N-2": "2", "N-3": "3"})))
    await parse_by_hand(ctx)
    assert query("SELECT count(*) FROM weighbridge.upload_fixes") == [(2,)]
    assert (await standing(first))[:2] == (2, 0)  # nothing is loaded yet
    query("DELETE FROM staging.parts_part")
    clock.forward(minutes=5)
    upload = await run(fixing)
    assert (upload.status, upload.crashes) == (Status.COMPLETED, 1)
    assert query("SELECT count(*) FROM weighbridge.upload_fixes") == [(2,)]
    assert await standing(first) == (0, 2, {}, {fixing: 2})


async def test_two_files_that_fix_the_same_rows_at_once_fix_them_once(
    ctx: Context, load: Load, send: Send, download: Download, standing: Any
) -> None:
    first = await load(file("1", *["x"] * 40))
    rejects = await download(first)
    sent = [
        await send(changed(rejects, lambda row, price=price: {**row, "Price": price}))  # type: ignore[misc]
        for price in "234"
    ]
    options = WorkerOptions(poll=timedelta(seconds=0.05), slots=3)
    ended = await run_until(ctx, options, sent)
    assert {upload.status for upload in ended} == {Status.COMPLETED}
    opened, fixed, _, by = await standing(first)
    assert (opened, fixed, sum(by.values())) == (0, 40, 40)


async def test_the_upload_of_another_workspace_or_pipeline_is_never_touched(
    load: Load, download: Download, standing: Any, query: Query
) -> None:
    theirs = await load(file("1", "x"), of=uuid4())
    sales = await load(
        "Case Number,Plaintiff,Amount\nCV-1,A,1\nCV-2,B,x\n", pipeline="judgments", force_partial=True
    )
    rejects = await download(theirs)
    mine = await load(changed(rejects, priced({"N-2": "2"})))
    also = await load(changed(rejects.replace(str(theirs.id), str(sales.id)), priced({"N-2": "3"})))
    assert (mine.status, also.status) == (Status.COMPLETED, Status.COMPLETED)
    assert (await standing(mine))[2:] == (await standing(also))[2:] == ({}, {})
    assert (await standing(theirs))[:2] == (await standing(sales))[:2] == (1, 0)
    assert query("SELECT count(*) FROM weighbridge.upload_fixes") == [(0,)]


async def test_ids_and_numbers_that_are_none_are_no_links(
    load: Load, download: Download, standing: Any
) -> None:
    first = await load(file("1", "x"))
    fixed = changed(await download(first), priced({"N-2": "2"}))
    for wrong in ("", "x", "0", "-1", "1.5", "99999999999"):
        text = changed(fixed, lambda row, wrong=wrong: {**row, "weighbridge_row": wrong})  # type: ignore[misc]
        assert (await load(text)).status == Status.COMPLETED
    assert (
        await load(changed(fixed, lambda row: {**row, "weighbridge_upload": "mine"}))
    ).status == Status.COMPLETED
    assert (await standing(first))[:2] == (1, 0)


async def test_links_and_counts_over_http(
    load: Load, download: Download, client: httpx.AsyncClient, key: dict[str, str]
) -> None:
    first = await load(file("1", "x", "y"))
    second = await load(changed(await download(first), priced({"N-2": "2"})))
    shown = (await client.get(f"/api/uploads/{first.id}", headers=key)).json()
    assert (shown["open_rejects"], shown["fixed_rows"], shown["failed_rows"], shown["fixes"]) == (1, 1, 2, [])
    assert shown["fixed_by"] == [{"upload_id": str(second.id), "filename": "parts.csv", "rows": 1}]
    other = (await client.get(f"/api/uploads/{second.id}", headers=key)).json()
    assert other["fixes"] == [{"upload_id": str(first.id), "filename": "parts.csv", "rows": 1}]
    listed = (await client.get("/api/uploads", headers=key)).json()["uploads"]
    assert [(each["open_rejects"], each["fixed_rows"]) for each in listed] == [(1, 0), (1, 1)]
    address = f"/api/uploads/{first.id}/rejects"
    assert len(table((await client.get(address, headers=key)).text)) == 1
    assert len(table((await client.get(f"{address}?all=true", headers=key)).text)) == 2
    safe = await client.get(f"{address}?spreadsheet_safe=true", headers=key)
    assert table(safe.text)[0]["weighbridge_spreadsheet_safe"] == "yes"


async def test_a_rejects_file_that_is_read_in_several_passes_links_every_row(
    load: Load, download: Download, standing: Any
) -> None:
    rows = SMALL + 2_000
    first = await load(file(*["x"] * rows))
    text = changed(
        await download(first), lambda row: {**row, "Price": "x" if row["Number"] == "N-7" else "3"}
    )
    second = await load(text)
    assert (second.bins.accepted, second.bins.rejected) == (rows - 1, 1)
    assert await standing(first) == (1, rows - 1, {}, {second.id: rows - 1})
