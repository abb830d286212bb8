"""Pipelines of users are staged, resumed and repeated like the built-in ones."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from tests.engine.conftest import Put, Run
from tests.engine.steps import parse_by_hand
from weighbridge import ConfigError, Entity, Field, Normaliser, Pipeline, n, upsert, v
from weighbridge.delivery.context import Context
from weighbridge.model.states import Status
from weighbridge.postgres import pipeline_tables
from weighbridge.uploads import queue
from weighbridge.uploads.run_attempt import work

SALES = b"Day,Sku,Amount\n2026-01-01,a,1\n2026-01-01,b,2\n2026-01-02,a,3\n"


def sales(**changes: Any) -> Pipeline:
    entity = Entity(
        table="takings",
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
        await pipeline_tables.install(tx, list(ctx.pipelines.values()))
    return ctx


async def test_a_pipeline_without_dimensions_whose_key_starts_with_the_day(
    own: Context, put: Put, run: Run
) -> None:
    upload = await run(await put(SALES, pipeline="sales", platform=None))
    assert (upload.status, upload.promoted["taking"]["inserted"]) == (Status.COMPLETED, 3)
    upload = await run(await put(SALES, pipeline="sales", platform=None, forced=True))
    assert upload.promoted["taking"]["unchanged"] == 3


async def test_rows_deleted_by_hand_from_a_user_table_are_loaded_again(
    ctx: Context, put: Put, run: Run, query: Any
) -> None:
    """The table existed before: its trigger is created when the pipeline is installed."""
    query(
        "CREATE TABLE takings (workspace_id uuid, day date, sku text, amount bigint, upload_id uuid, line int,"
        " created_at timestamptz, updated_at timestamptz, UNIQUE NULLS NOT DISTINCT (workspace_id, day, sku))"
    )
    object.__setattr__(ctx, "pipelines", {"sales": sales()})
    async with ctx.db.tx() as tx:
        await pipeline_tables.install(tx, [sales()])
    await run(await put(SALES, pipeline="sales", platform=None))
    query("DELETE FROM takings")
    upload = await run(await put(SALES, pipeline="sales", platform=None, forced=True))
    assert upload.promoted["taking"]["inserted"] == 3


async def test_a_changed_rule_restarts_the_promotion(
    own: Context, put: Put, run: Run, query: Any, clock: Any
) -> None:
    """Half of the rows are loaded; then a changed rule changes their order. No row may be skipped."""
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
    assert pipeline_tables.fingerprint(by_sku) != pipeline_tables.fingerprint(other)
    content = "Day,Sku,Amount\n" + "".join(f"2026-01-01,{i:02},{i}\n" for i in range(20))
    object.__setattr__(own, "pipelines", {"sales": by_sku})
    async with own.db.tx() as tx:
        await pipeline_tables.install(tx, [by_sku])
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
        await pipeline_tables.install(tx, [other])
    clock.forward(seconds=5)
    upload = await run(upload_id)
    assert upload.status == Status.COMPLETED
    assert query("SELECT count(DISTINCT line) FROM by_sku") == [(20,)]


async def test_the_error_of_an_unsuitable_table_names_what_is_missing(ctx: Context, query: Any) -> None:
    query("CREATE TABLE takings (workspace_id uuid, day date, skus text)")
    with pytest.raises(ConfigError, match="table takings has no column 'sku'; did you mean 'skus'"):
        async with ctx.db.tx() as tx:
            await pipeline_tables.install(tx, [sales()])
    query("DROP TABLE takings")
    query(
        "CREATE TABLE takings (workspace_id uuid, day date, sku text, amount bigint, upload_id uuid, line int,"
        " created_at timestamptz, updated_at timestamptz)"
    )
    with pytest.raises(ConfigError, match="needs UNIQUE NULLS NOT DISTINCT"):
        async with ctx.db.tx() as tx:
            await pipeline_tables.install(tx, [sales()])


async def test_migrating_while_an_upload_is_about_to_be_promoted_does_not_fail_it(
    own: Context, put: Put, run: Run, query: Any
) -> None:
    upload_id = await put(SALES, pipeline="sales", platform=None)
    attempt = await parse_by_hand(own)
    query("UPDATE weighbridge.pipelines SET fingerprint = 'other' WHERE name = 'sales'")
    async with own.db.tx() as tx:
        await pipeline_tables.install(tx, list(own.pipelines.values()))
    await work(attempt, own, promotes=True)
    assert (await run(upload_id)).status == Status.COMPLETED


def rolls(name: str = "rolls", hint: str = "Use 1.", **changes: Any) -> Pipeline:
    entity = Entity(
        table="rolls",
        key=["day", "sku"],
        fields=[
            Field("day", date, header=["Day"], normalise=[n.date], required=True),
            Field("sku", header=["Sku"]),
            Field("amount", int, header=["Amount"], normalise=[replace(n.integer, hint=hint)]),
        ],
        upsert=upsert.replace,
    )
    return Pipeline(name=name, entities=[entity], **{"affected": "day", **changes})


@pytest.mark.parametrize(
    "other", [rolls(hint="Use 2."), rolls("others")], ids=["a rollback", "another pipeline"]
)
async def test_rows_written_by_another_declaration_are_not_treated_as_unchanged(
    ctx: Context, put: Put, run: Run, query: Any, other: Pipeline
) -> None:
    """The first declaration, another one that changes the rows, and the first again."""
    for pipeline, amount, forced in ((rolls(), 1, False), (other, 2, False), (rolls(), 1, True)):
        known = {**ctx.pipelines, pipeline.name: pipeline}
        object.__setattr__(ctx, "pipelines", known)
        async with ctx.db.tx() as tx:
            await pipeline_tables.install(tx, list(known.values()))
        content = f"Day,Sku,Amount\n2026-01-01,a,{amount}\n".encode()
        upload = await run(await put(content, pipeline=pipeline.name, platform=None, forced=forced))
        assert upload.status == Status.COMPLETED
        assert query("SELECT amount FROM rolls") == [(amount,)]
    assert upload.promoted["roll"]["updated"] == 1


async def test_pipelines_that_cannot_share_a_table_or_staging_are_refused(ctx: Context) -> None:
    things = Entity(table="things", name="b_c", key=["k"], fields=[Field("k")])
    others = Entity(table="others", name="c", key=["k"], fields=[Field("k")])
    for pair, sentence in (
        ([rolls(), rolls("others", affected=None)], "Pipelines rolls and others both write to rolls"),
        ([Pipeline("a", [things]), Pipeline("a_b", [others])], 'one name, "staging"."a_b_c"'),
    ):
        with pytest.raises(ConfigError, match=sentence):
            async with ctx.db.tx() as tx:
                await pipeline_tables.install(tx, [*ctx.pipelines.values(), *pair])


@pytest.mark.parametrize(
    "key",
    [
        "UNIQUE (workspace_id, client_id, sku)",
        "UNIQUE NULLS NOT DISTINCT (workspace_id, client_id, sku) DEFERRABLE",
    ],
)
async def test_a_key_that_allows_duplicate_rows_is_refused(ctx: Context, query: Any, key: str) -> None:
    query(
        "CREATE TABLE shop (workspace_id uuid NOT NULL, client_id uuid, sku text NOT NULL, upload_id uuid, line int,"
        f" created_at timestamptz, updated_at timestamptz, {key})"
    )
    entity = Entity(table="shop", scope=["client_id"], key=["sku"], fields=[Field("sku")])
    with pytest.raises(ConfigError, match="needs UNIQUE NULLS NOT DISTINCT"):
        async with ctx.db.tx() as tx:
            await pipeline_tables.install(tx, [*ctx.pipelines.values(), Pipeline("shop", [entity])])


async def test_an_ordinary_unique_key_is_enough_if_its_columns_are_not_null(ctx: Context, query: Any) -> None:
    query(
        "CREATE TABLE shop (workspace_id uuid NOT NULL, sku text NOT NULL, upload_id uuid, line int,"
        " created_at timestamptz, updated_at timestamptz, UNIQUE (workspace_id, sku))"
    )
    entity = Entity(table="shop", key=["sku"], fields=[Field("sku")])
    async with ctx.db.tx() as tx:
        assert await pipeline_tables.install(tx, [*ctx.pipelines.values(), Pipeline("shop", [entity])]) == [
            "shop"
        ]


async def test_a_parse_that_continues_after_midnight_loses_no_row(
    ctx: Context, put: Put, run: Run, query: Any, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row dated tomorrow becomes valid, so every later row has another number."""
    entity = Entity(
        table="bookings",
        key=["no"],
        fields=[
            Field("no", header=["No"]),
            Field("day", date, header=["Day"], normalise=[n.date], validate=[v.not_in_future]),
        ],
    )
    pipelines = {"bookings": Pipeline("bookings", [entity], min_valid=0.1)}
    object.__setattr__(ctx, "pipelines", pipelines)
    object.__setattr__(ctx, "limits", replace(ctx.limits, stage_rows=20_000))
    async with ctx.db.tx() as tx:
        await pipeline_tables.install(tx, list(pipelines.values()))
    [(today, tomorrow)] = query(
        "SELECT t::date, t::date + 1 FROM (SELECT weighbridge.now() AT TIME ZONE 'UTC') x (t)"
    )
    rows = [f"{number:06},{today if number else tomorrow}" for number in range(45_000)]
    upload_id = await put(("No,Day\n" + "\n".join(rows)).encode(), pipeline="bookings", platform=None)
    noted = queue.note_staged

    async def killed_at_the_second(tx: Any, lease: Any, staged: dict[str, int]) -> None:
        if staged["booking"] > 20_000:
            raise RuntimeError("killed")
        await noted(tx, lease, staged)

    with monkeypatch.context() as patched:
        patched.setattr(queue, "note_staged", killed_at_the_second)
        with pytest.raises(RuntimeError):
            await parse_by_hand(ctx)
    assert query("SELECT staged FROM data_uploads") == [({"booking": 20_000},)]
    clock.forward(days=1)
    upload = await run(upload_id)
    assert (upload.status, upload.bins.accepted) == (Status.COMPLETED, 45_000)
    assert query("SELECT count(*) FROM bookings") == [(45_000,)]
