"""Promotion: dimensions then facts, exactly once, counted separately."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

from tests.engine.conftest import HEADER, Put, Run, meta_file, meta_line
from weighbridge.delivery.context import Context
from weighbridge.model.states import Status

FACTS = "SELECT metric_date::text, impressions, spend::text FROM daily_metrics ORDER BY metric_date, spend, impressions"


async def test_a_file_becomes_campaigns_ad_sets_ads_and_daily_metrics(put: Put, run: Run, query: Any) -> None:
    upload = await run(await put(meta_file(days=3, ads=4)))
    assert upload.status == Status.COMPLETED
    assert query(
        "SELECT (SELECT count(*) FROM campaigns), (SELECT count(*) FROM ad_sets), (SELECT count(*) FROM ads),"
        " (SELECT count(*) FROM daily_metrics)"
    ) == [(1, 2, 4, 12)]
    assert query(
        "SELECT count(*) FROM daily_metrics m"
        " JOIN ads a ON a.workspace_id = m.workspace_id AND a.id = m.ad_id AND a.ad_set_id = m.ad_set_id"
        " JOIN ad_sets s ON s.workspace_id = m.workspace_id AND s.id = m.ad_set_id"
        " JOIN campaigns c ON c.workspace_id = m.workspace_id AND c.id = m.campaign_id AND c.id = s.campaign_id"
    ) == [(12,)]


async def test_every_production_row_has_the_upload_and_line_that_wrote_it(
    put: Put, run: Run, query: Any
) -> None:
    upload = await run(await put(meta_file(days=2, ads=2)))
    assert query("SELECT DISTINCT upload_id FROM daily_metrics") == [(upload.id,)]
    assert query("SELECT line FROM daily_metrics ORDER BY line") == [(2,), (3,), (4,), (5,)]


async def test_rows_loaded_again_are_unchanged_and_keep_their_first_upload(
    put: Put, run: Run, query: Any
) -> None:
    first = await run(await put(meta_file()))
    again = await run(await put(meta_file(), forced=True))
    assert again.status == Status.COMPLETED
    assert again.promoted["daily_metric"] | {"table": ""} == {
        "table": "", "inserted": 0, "updated": 0, "unchanged": 12, "failed": 0,
    }  # fmt: skip
    assert query("SELECT DISTINCT upload_id FROM daily_metrics") == [(first.id,)]


async def test_inserted_updated_and_unchanged_rows_are_counted_separately(put: Put, run: Run) -> None:
    await run(await put(meta_file(days=2, ads=2)))
    changed = [
        HEADER,
        meta_line("2026-01-01", 0),
        meta_line("2026-01-01", 1, impressions=7),
        meta_line("2026-01-09", 0),
    ]
    upload = await run(await put("\n".join(changed).encode()))
    counts = upload.promoted["daily_metric"]
    assert (counts["inserted"], counts["updated"], counts["unchanged"]) == (1, 1, 1)
    assert upload.promoted_rows == 3


async def test_a_day_that_changed_since_the_last_load_is_written_again(
    put: Put, run: Run, query: Any
) -> None:
    """A receipt is invalid once another write changed its day."""
    original = await put(meta_file(days=2, ads=2))
    await run(original)
    newer = f"{HEADER}\n{meta_line('2026-01-01', 0, impressions=999)}\n".encode()
    await run(await put(newer))
    upload = await run(await put(meta_file(days=2, ads=2), forced=True))
    counts = upload.promoted["daily_metric"]
    assert (counts["updated"], counts["unchanged"]) == (1, 3)
    assert query("SELECT max(impressions) FROM daily_metrics") == [(100,)]


async def test_the_same_file_corrects_rows_that_were_changed_by_hand(put: Put, run: Run, query: Any) -> None:
    await run(await put(meta_file(days=2, ads=2)))
    query("UPDATE daily_metrics SET impressions = 1 WHERE metric_date = '2026-01-01'")
    query("DELETE FROM daily_metrics WHERE metric_date = '2026-01-02'")
    upload = await run(await put(meta_file(days=2, ads=2), forced=True))
    counts = upload.promoted["daily_metric"]
    assert (counts["inserted"], counts["updated"], counts["unchanged"]) == (2, 2, 0)
    assert query(FACTS) == [(f"2026-01-0{day}", 100, "1.500000") for day in (1, 1, 2, 2)]


async def test_a_null_does_not_replace_a_known_value(put: Put, run: Run, query: Any) -> None:
    await run(await put(meta_file(days=1, ads=1)))
    header = "Day,Campaign ID,Ad set ID,Ad ID,Impressions"
    row = "2026-01-01,120200000000000001,120210000000000001,120220000000000001,101"
    upload = await run(await put(f"{header}\n{row}\n".encode()))
    assert upload.status == Status.COMPLETED
    assert query("SELECT impressions, spend::text FROM daily_metrics") == [(101, "1.500000")]
    assert query("SELECT name FROM ads") == [("Ad 0",)]


async def test_workspaces_and_clients_do_not_share_rows(put: Put, run: Run, query: Any) -> None:
    await run(await put(meta_file(days=1, ads=1)))
    await run(await put(meta_file(days=1, ads=1), client_id=uuid4()))
    await run(await put(meta_file(days=1, ads=1), workspace_id=uuid4()))
    assert query("SELECT count(*), count(DISTINCT id) FROM campaigns") == [(3, 3)]
    assert query("SELECT count(*) FROM daily_metrics") == [(3,)]


async def test_batches_have_the_size_of_the_setting(
    ctx: Context, put: Put, query: Any, database_url: str
) -> None:
    from tests.engine.steps import promote_by_hand

    query(
        "CREATE TABLE public.seen (n bigint);"
        "CREATE FUNCTION public.see() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS"
        " $$ BEGIN INSERT INTO public.seen SELECT count(*) FROM new_rows; RETURN NULL; END $$;"
        "CREATE TRIGGER see AFTER INSERT ON daily_metrics REFERENCING NEW TABLE AS new_rows"
        " FOR EACH STATEMENT EXECUTE FUNCTION public.see()"
    )
    small = replace(ctx, limits=replace(ctx.limits, batch_rows=5))
    await promote_by_hand(small, await put(meta_file(days=3, ads=4)))
    assert query("SELECT n FROM public.seen") == [(5,), (5,), (2,)]


async def test_a_dimension_row_with_facts_cannot_be_deleted(put: Put, run: Run, query: Any) -> None:
    import psycopg
    import pytest

    await run(await put(meta_file(days=1, ads=1)))
    for table in ("ads", "ad_sets", "campaigns"):
        with pytest.raises(psycopg.errors.ForeignKeyViolation):
            query(f"DELETE FROM {table}")
    query("DELETE FROM daily_metrics")
    for table in ("ads", "ad_sets", "campaigns"):
        query(f"DELETE FROM {table}")


async def test_a_dimension_row_cannot_have_an_id_that_differs_from_its_key_hash(
    workspace: UUID, query: Any
) -> None:
    import psycopg
    import pytest

    with pytest.raises(psycopg.errors.CheckViolation, match="campaigns_id_from_key"):
        query(
            "INSERT INTO campaigns (workspace_id, id, platform, external_id, upload_id, line, created_at, updated_at)"
            " VALUES (%s, gen_random_uuid(), 'meta', '1', gen_random_uuid(), 1, now(), now())",
            (workspace,),
        )


async def test_natural_key_hashes_are_the_same_in_staging_and_in_postgres(
    put: Put, run: Run, query: Any
) -> None:
    await run(await put(meta_file(days=1, ads=2)))
    assert query(
        "SELECT bool_and(s.natural_key_hash = encode(weighbridge.natural_key_hash('campaign', c.workspace_id::text, '',"
        " 'meta', c.external_id), 'hex')) FROM staging_rows s JOIN campaigns c ON true WHERE entity_type = 'campaign'"
    ) == [(True,)]
    assert query(
        "SELECT entity_type, count(*), min(length(natural_key_hash)) FROM staging_rows GROUP BY 1 ORDER BY 1"
    ) == [
        ("ad", 2, 64),
        ("ad_set", 1, 64),
        ("campaign", 1, 64),
        ("daily_metric", 2, 64),
    ]


async def test_the_resume_check_query_of_s1_runs_as_printed(put: Put, run: Run, query: Any) -> None:
    upload = await run(await put(meta_file(days=2, ads=2)))
    assert query(
        "SELECT MAX(row_index) as last_processed FROM staging_rows"
        " WHERE upload_id = %s AND validation_status != 'pending'",
        (upload.id,),
    ) == [(3,)]
