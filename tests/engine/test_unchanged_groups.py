"""Receipts: a group is skipped only if its current content was completely written by one upload."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from weighbridge.model.upload import Scope
from weighbridge.pipelines import ads
from weighbridge.postgres import migrate
from weighbridge.postgres.transactions import Database
from weighbridge.uploads import unchanged_groups
from weighbridge.uploads.upsert_sql import SeqRange

DAY = "2026-01-01"


@dataclass
class Writer:
    """An upload with ten staged rows of one day that are written in batches."""

    db: Database
    scope: Scope

    async def write(self, after: int, upto: int, *, incomplete: bool = False) -> None:
        async with self.db.tx() as tx:
            await unchanged_groups.touch(
                tx, ads.pipeline, SeqRange(self.scope, after, upto), incomplete=incomplete
            )

    async def would_skip(self) -> bool:
        async with self.db.tx() as tx:
            return await unchanged_groups.matching_groups(tx, ads.pipeline, self.scope, 0) == [(0, 10)]


@pytest.fixture
def writer(db: Database, workspace: UUID, query: Any) -> Any:
    """`writer(b"x")`: another upload whose rows of the day have this digest."""

    def writer(digest: bytes, platform: str = "meta") -> Writer:
        upload = uuid4()
        query(
            "INSERT INTO weighbridge.staging_groups VALUES (%s, %s, %s, 1, 10, %s)",
            (upload, workspace, DAY, digest),
        )
        return Writer(db, Scope(upload, workspace, None, platform))

    return writer


async def test_a_group_written_in_one_batch_leaves_a_receipt(writer: Any) -> None:
    await writer(b"x").write(0, 10)
    assert await writer(b"x").would_skip()
    assert not await writer(b"y").would_skip()


async def test_a_group_written_in_several_batches_leaves_a_receipt_only_at_its_end(writer: Any) -> None:
    first = writer(b"x")
    await first.write(0, 4)
    assert not await writer(b"x").would_skip()
    await first.write(4, 8)
    await first.write(8, 10)
    assert await writer(b"x").would_skip()


async def test_a_write_of_another_upload_in_between_prevents_a_receipt(writer: Any) -> None:
    first, second = writer(b"x"), writer(b"y")
    await first.write(0, 5)
    await second.write(0, 5)
    await first.write(5, 10)
    await second.write(5, 10)
    assert not await writer(b"x").would_skip()
    assert not await writer(b"y").would_skip()


async def test_a_complete_pass_after_another_upload_leaves_a_receipt(writer: Any) -> None:
    first, second = writer(b"x"), writer(b"y")
    await first.write(0, 5)
    await second.write(0, 10)
    assert await writer(b"y").would_skip()
    await first.write(5, 10)
    assert not await writer(b"x").would_skip()
    assert not await writer(b"y").would_skip()
    await writer(b"x").write(0, 10)
    assert await writer(b"x").would_skip()


async def test_a_group_with_a_failed_row_is_never_skipped(writer: Any) -> None:
    first = writer(b"x")
    await first.write(0, 5)
    await first.write(5, 6, incomplete=True)
    await first.write(6, 10)
    assert not await writer(b"x").would_skip()


async def test_another_platform_has_its_own_receipts(writer: Any) -> None:
    await writer(b"x").write(0, 10)
    assert not await writer(b"x", platform="google").would_skip()


METRIC = (
    "INSERT INTO daily_metrics (workspace_id, platform, metric_date, upload_id, line, created_at, updated_at)"
    " SELECT %s, 'meta', DATE '2026-01-01' + n, gen_random_uuid(), 1, now(), now() FROM generate_series(1, 3) AS n"
)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE daily_metrics SET line = 2",
        "DELETE FROM daily_metrics",
        "TRUNCATE daily_metrics",
        "SET ROLE weighbridge_parse; RESET ROLE; UPDATE daily_metrics SET line = 2",
        "INSERT INTO daily_metrics SELECT (jsonb_populate_record(m, jsonb_build_object('metric_date', '2027-01-01'))).*"
        " FROM daily_metrics m LIMIT 1",
    ],
)
async def test_a_write_by_hand_deletes_the_receipts(
    writer: Any, query: Any, workspace: UUID, change: str
) -> None:
    query(METRIC, (workspace,))
    await writer(b"x").write(0, 10)
    query(change)
    assert not await writer(b"x").would_skip()


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE daily_metrics SET line = 2 WHERE workspace_id <> %s",
        "DELETE FROM daily_metrics WHERE workspace_id <> %s",
        METRIC.replace("SELECT %s", "SELECT coalesce(nullif(gen_random_uuid(), %s))"),
    ],
)
async def test_a_write_to_rows_of_another_workspace_deletes_no_receipt(
    writer: Any, query: Any, workspace: UUID, change: str
) -> None:
    for each in (workspace, uuid4()):
        query(METRIC, (each,))
    await writer(b"x").write(0, 10)
    query(change, (workspace,))
    assert await writer(b"x").would_skip()


async def test_a_row_moved_to_another_workspace_deletes_the_receipts_of_both(
    writer: Any, query: Any, workspace: UUID
) -> None:
    elsewhere = uuid4()
    query(METRIC, (elsewhere,))
    await writer(b"x").write(0, 10)
    query("UPDATE daily_metrics SET workspace_id = %s", (workspace,))
    assert not await writer(b"x").would_skip()
    await writer(b"x").write(0, 10)
    query("UPDATE daily_metrics SET workspace_id = %s", (elsewhere,))
    assert not await writer(b"x").would_skip()


async def test_promotion_deletes_no_receipt_through_the_trigger(
    writer: Any, query: Any, workspace: UUID
) -> None:
    query(METRIC, (workspace,))
    await writer(b"x").write(0, 10)
    query(
        f"SET weighbridge.workspace_id = '{workspace}'; SET ROLE weighbridge_promote;"
        " UPDATE daily_metrics SET line = 3"
    )
    assert await writer(b"x").would_skip()
    assert query("SELECT DISTINCT line FROM daily_metrics") == [(3,)]


async def test_an_open_change_by_hand_blocks_no_promotion_of_another_workspace(
    writer: Any, query: Any, workspace: UUID, database_url: str
) -> None:
    elsewhere = uuid4()
    for each in (workspace, elsewhere):
        query(METRIC, (each,))
    first = writer(b"x")
    await first.write(0, 10)
    with psycopg.connect(database_url) as other:
        other.execute(
            "DELETE FROM daily_metrics WHERE workspace_id = %s AND metric_date = '2026-01-02'", (elsewhere,)
        )
        async with first.db.tx() as tx:
            await tx.execute("SET LOCAL lock_timeout = '100ms'")
            await unchanged_groups.touch(tx, ads.pipeline, SeqRange(first.scope, 0, 10))
            assert await unchanged_groups.matching_groups(tx, ads.pipeline, first.scope, 0) == [(0, 10)]


async def test_the_table_of_a_pipeline_of_an_earlier_version_gets_the_new_triggers(
    db: Database, query: Any, workspace: UUID
) -> None:
    elsewhere = uuid4()
    query(
        "CREATE TABLE takings (workspace_id uuid);"
        "CREATE TRIGGER void_receipts AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON takings"
        " FOR EACH STATEMENT EXECUTE FUNCTION weighbridge.void_receipts()"
    )
    async with db.tx() as tx:
        await migrate.migrate(tx, reapply=True)
    for each in (workspace, elsewhere):
        query(
            "INSERT INTO weighbridge.receipts VALUES (%s, 'takings', '', '2026-01-01', %s)", (each, uuid4())
        )
    query("INSERT INTO takings VALUES (%s)", (workspace,))
    assert query("SELECT workspace_id FROM weighbridge.receipts") == [(elsewhere,)]
