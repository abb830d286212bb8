"""Receipts: a group is skipped only if its current content was completely written by one upload."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import pytest

from weighbridge.model.upload import Scope
from weighbridge.pipelines import ads
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


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE daily_metrics SET line = 1",
        "DELETE FROM daily_metrics",
        "TRUNCATE daily_metrics",
        "SET ROLE weighbridge_parse; RESET ROLE; UPDATE daily_metrics SET line = 1",
    ],
)
async def test_a_write_by_hand_deletes_the_receipts(writer: Any, query: Any, change: str) -> None:
    await writer(b"x").write(0, 10)
    query(change)
    assert not await writer(b"x").would_skip()
