"""A column that the file does not have changes nothing; a blank cell means what its platform means by it."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from tests.engine.conftest import Put, Run
from weighbridge import Entity, Field, Pipeline, n, upsert
from weighbridge.delivery.context import Context
from weighbridge.model.pipeline import ComputedDefault
from weighbridge.model.states import Status
from weighbridge.model.upsert import Upsert
from weighbridge.postgres import pipeline_tables

POLICIES = [upsert.replace, upsert.keep_known_values, upsert.insert_only, upsert.keep_greatest]


def stock(policy: Upsert) -> Pipeline:
    fields = [
        Field("day", date, header=["Day"], normalise=[n.date], required=True),
        Field("sku", header=["Sku"], required=True),
        Field("amount", int, header=["Amount"]),
        Field("colour", header=["Colour"]),
        Field("size", header=["Size"]),
        Field("label", header=["Label"], otherwise=ComputedDefault("upper({stock.size})")),
    ]
    entity = Entity(table="stock", key=["day", "sku"], fields=fields, upsert=policy)
    return Pipeline(name="stocked", entities=[entity], affected="day")


@pytest.mark.parametrize("policy", POLICIES, ids=repr)
async def test_a_column_that_the_file_does_not_have_changes_nothing(
    ctx: Context, put: Put, run: Run, query: Any, policy: Upsert
) -> None:
    object.__setattr__(ctx, "pipelines", {**ctx.pipelines, "stocked": stock(policy)})
    async with ctx.db.tx() as tx:
        await pipeline_tables.install(tx, list(ctx.pipelines.values()))
    sent = {"pipeline": "stocked", "platform": None}
    first = b"Day,Sku,Amount,Colour,Size,Label\n2026-01-01,a,1,red,s,small\n2026-01-01,b,2,blue,m,\n"
    await run(await put(first, **sent))
    upload = await run(await put(b"Day,Sku,Amount\n2026-01-01,a,5\n2026-01-01,b,2\n", **sent))
    assert upload.status == Status.COMPLETED
    assert [each.field for each in upload.column_report.missing] == [
        "stock.colour",
        "stock.size",
        "stock.label",
    ]
    amount = 1 if policy is upsert.insert_only else 5
    assert query("SELECT sku, amount, colour, size, label FROM stock ORDER BY sku") == [
        ("a", amount, "red", "s", "small"),
        ("b", 2, "blue", "m", "M"),
    ]
    # The same rows with a blank colour are different rows, also for the digest that recognises unchanged days.
    await run(await put(b"Day,Sku,Amount,Colour\n2026-01-01,a,5,\n2026-01-01,b,2,\n", **sent))
    colours = [(None,), (None,)] if policy is upsert.replace else [("red",), ("blue",)]
    assert query("SELECT colour FROM stock ORDER BY sku") == colours


async def test_a_value_computed_from_a_column_of_the_file_replaces_the_earlier_value(
    ctx: Context, put: Put, run: Run, query: Any
) -> None:
    object.__setattr__(ctx, "pipelines", {**ctx.pipelines, "stocked": stock(upsert.replace)})
    async with ctx.db.tx() as tx:
        await pipeline_tables.install(tx, list(ctx.pipelines.values()))
    sent = {"pipeline": "stocked", "platform": None}
    await run(await put(b"Day,Sku,Amount,Label\n2026-01-01,a,1,small\n", **sent))
    await run(await put(b"Day,Sku,Amount,Size\n2026-01-01,a,1,xl\n", **sent))
    assert query("SELECT size, label FROM stock") == [("xl", "XL")]


async def test_a_blank_measure_of_an_ads_export_clears_the_earlier_value(
    put: Put, run: Run, query: Any
) -> None:
    header = "Day,Campaign ID,Campaign name,Campaign delivery,Impressions,Amount spent (USD)"
    first = f"{header}\n2026-01-01,11,Spring,active,5,1.50\n"
    await run(await put(first.encode()))
    await run(await put(f"{header}\n2026-01-01,11,,,5,\n".encode()))
    assert query("SELECT impressions, spend FROM daily_metrics") == [(5, None)]
    assert query("SELECT name, status FROM campaigns") == [("Spring", "active")]
    await run(await put(first.encode(), forced=True))
    assert query("SELECT impressions, spend FROM daily_metrics") == [(5, Decimal("1.5"))]


async def test_the_error_of_a_refused_file_has_its_three_most_common_reasons(put: Put, run: Run) -> None:
    header = "Day,Campaign ID,Campaign name,Impressions,Amount spent (USD)"
    bad = [
        *["2026-01-01,11,Spring,many,1"] * 4,
        *["2026-01-02,11,Spring,5,much"] * 3,
        *["2026-13-01,11,Spring,5,1"] * 2,
        "2026-01-03,x,Spring,5,1",
    ]
    upload = await run(await put("\n".join([header, *bad, ""]).encode()))
    assert (upload.status, upload.error_code) == (Status.FAILED, "no_valid_rows")
    text = str(upload.error_text)
    assert (
        "Most common: bad_integer in 'Impressions', 4 rows (impressions: expected a whole number, got 'many'"
        in text
    )
    assert "bad_amount in 'Amount spent (USD)', 3 rows" in text
    assert "bad_date in 'Day', 2 rows" in text
    assert "bad_id" not in text
    assert [each.header for each in upload.column_report.columns] == header.split(",")
