"""Pipelines that users declare: staged, resumed and repeated like the built-in one."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from tests.engine.conftest import Put, Run
from tests.engine.steps import parse_by_hand
from weighbridge import ConfigError, Entity, Field, Normaliser, Pipeline, n
from weighbridge.db import declared
from weighbridge.model.states import Status
from weighbridge.steps.context import Context
from weighbridge.worker.attempt import work

SALES = b"Day,Sku,Amount\n2026-01-01,a,1\n2026-01-01,b,2\n2026-01-02,a,3\n"


def sales(**changes: Any) -> Pipeline:
    entity = Entity(
        table="sales",
        key=["day", "sku"],
        fields=[
            Field("day", date, header=["Day"], normalise=[n.date], required=True),
            Field("sku", header=["Sku"], **changes),
            Field("amount", int, header=["Amount"], normalise=[n.integer]),
        ],
    )
    return Pipeline(name="sales", entities=[entity], affected="day")


@pytest.fixture
async def own(ctx: Context) -> Context:
    """The context with the pipeline `sales`, installed."""
    object.__setattr__(ctx, "pipelines", {**ctx.pipelines, "sales": sales()})
    async with ctx.db.tx() as tx:
        await declared.install(tx, list(ctx.pipelines.values()))
    return ctx


async def test_a_pipeline_without_dimensions_whose_key_leads_with_its_day(
    own: Context, put: Put, run: Run
) -> None:
    upload = await run(await put(SALES, pipeline="sales", platform=None))
    assert (upload.status, upload.promoted["sale"]["inserted"]) == (Status.COMPLETED, 3)
    upload = await run(await put(SALES, pipeline="sales", platform=None, forced=True))
    assert upload.promoted["sale"]["unchanged"] == 3


async def test_rows_deleted_by_hand_from_a_table_of_ones_own_come_back(
    ctx: Context, put: Put, run: Run, query: Any
) -> None:
    """The table was there before: its trigger is made when the pipeline is installed."""
    query(
        "CREATE TABLE sales (workspace_id uuid, day date, sku text, amount bigint, upload_id uuid, line int,"
        " created_at timestamptz, updated_at timestamptz, UNIQUE NULLS NOT DISTINCT (workspace_id, day, sku))"
    )
    object.__setattr__(ctx, "pipelines", {"sales": sales()})
    async with ctx.db.tx() as tx:
        await declared.install(tx, [sales()])
    await run(await put(SALES, pipeline="sales", platform=None))
    query("DELETE FROM sales")
    upload = await run(await put(SALES, pipeline="sales", platform=None, forced=True))
    assert upload.promoted["sale"]["inserted"] == 3


async def test_a_changed_rule_begins_a_promotion_anew(
    own: Context, put: Put, run: Run, query: Any, clock: Any
) -> None:
    """Half of the rows are in; then a rule changes their order. None may be left out."""
    entity = replace(sales().grain, key=["sku"])
    by_sku = Pipeline(name="sales", entities=[replace(entity, table="by_sku", name="sale")])
    turned = Normaliser("same name", "reverse({x})")
    other = replace(
        by_sku,
        entities=[
            replace(
                by_sku.grain,
                fields=[
                    f if f.name != "sku" else replace(f, normalise=[turned]) for f in by_sku.grain.fields
                ],
            )
        ],
    )
    assert declared.fingerprint(by_sku) != declared.fingerprint(other)
    content = "Day,Sku,Amount\n" + "".join(f"2026-01-01,{i:02},{i}\n" for i in range(20))
    object.__setattr__(own, "pipelines", {"sales": by_sku})
    async with own.db.tx() as tx:
        await declared.install(tx, [by_sku])
    upload_id = await put(content.encode(), pipeline="sales", platform=None)
    small = replace(own, limits=replace(own.limits, batch_rows=10))
    attempt = await parse_by_hand(small)
    query(
        "CREATE SEQUENCE public.n; GRANT USAGE ON SEQUENCE public.n TO PUBLIC;"
        "CREATE FUNCTION public.stop() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF nextval('public.n') = 2 THEN"
        " RAISE EXCEPTION 'stop' USING ERRCODE = '57P01'; END IF; RETURN NULL; END $$;"
        "CREATE TRIGGER stop AFTER INSERT ON by_sku EXECUTE FUNCTION public.stop()"
    )
    await work(attempt, small, promotes=True)
    object.__setattr__(own, "pipelines", {"sales": other})
    async with own.db.tx() as tx:
        await declared.install(tx, [other])
    clock.forward(seconds=5)
    upload = await run(upload_id)
    assert upload.status == Status.COMPLETED
    assert query("SELECT count(DISTINCT line) FROM by_sku") == [(20,)]


async def test_a_table_that_cannot_take_the_rows_is_told_what_it_lacks(ctx: Context, query: Any) -> None:
    query("CREATE TABLE sales (workspace_id uuid, day date, skus text)")
    with pytest.raises(ConfigError, match="table sales has no column 'sku'; did you mean 'skus'"):
        async with ctx.db.tx() as tx:
            await declared.install(tx, [sales()])
    query("DROP TABLE sales")
    query(
        "CREATE TABLE sales (workspace_id uuid, day date, sku text, amount bigint, upload_id uuid, line int,"
        " created_at timestamptz, updated_at timestamptz)"
    )
    with pytest.raises(ConfigError, match="needs UNIQUE NULLS NOT DISTINCT"):
        async with ctx.db.tx() as tx:
            await declared.install(tx, [sales()])


async def test_migrating_while_an_upload_is_about_to_be_promoted_does_not_fail_it(
    own: Context, put: Put, run: Run, query: Any
) -> None:
    upload_id = await put(SALES, pipeline="sales", platform=None)
    attempt = await parse_by_hand(own)
    query("UPDATE weighbridge.pipelines SET fingerprint = 'other' WHERE name = 'sales'")
    async with own.db.tx() as tx:
        await declared.install(tx, list(own.pipelines.values()))
    await work(attempt, own, promotes=True)
    assert (await run(upload_id)).status == Status.COMPLETED
