"""Workers are killed while they process files with the same rows. Production is as if one worker had done all in order.

Each file overwrites some rows of the others. Lost leases are expired by hand, so that no test waits for them.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.conftest import HEADER, meta_line
from tests.proof.scene import WORKSPACE, Stage, put
from tests.proof.workers import LONG, LONG_LEASE, Fleet, until
from weighbridge.app import open_app
from weighbridge.settings import read

FILES = 6
KILLS = 5
Rows = dict[tuple[str, int], int]


def _files(chosen: random.Random) -> Iterator[Rows]:
    keys = [(f"2026-03-{day:02}", ad) for day in range(1, 5) for ad in range(4)]
    for number in range(FILES):
        rows = {
            key: 10 * number + chosen.randrange(2) for key in chosen.sample(keys, chosen.randrange(2, 14))
        }
        yield rows | {("2026-04-01", 1): number}


async def _put_all(url: str, home: Path, files: list[Rows]) -> None:
    async with open_app(read(home=home, DATABASE_URL=url)) as app:
        for rows in files:
            lines = [meta_line(day, ad, impressions=count) for (day, ad), count in rows.items()]
            await put(app, WORKSPACE, "\n".join([HEADER, *lines]))


@pytest.mark.parametrize("seed", range(20 if LONG else 2))
def test_killed_workers_leave_the_rows_of_the_latest_file(
    database_url: str, home: Path, tmp_path: Path, seed: int
) -> None:
    chosen = random.Random(seed)
    files = list(_files(chosen))
    expected: Rows = {}
    for rows in files:
        expected |= rows
    stage, fleet = Stage(database_url), Fleet(home, tmp_path)
    asyncio.run(_put_all(database_url, home, files))
    wrote = "SELECT count(*) FROM weighbridge.attempts"
    try:
        workers = [fleet.start(database_url, **LONG_LEASE) for _ in range(3)]
        for _ in range(KILLS):
            before = stage.query(wrote)
            until(lambda before=before: stage.ended or stage.query(wrote) != before or chosen.random() < 0.02)  # type: ignore[misc]
            victim = chosen.choice(workers)
            victim.kill()
            workers.remove(victim)
            stage.query(
                "UPDATE weighbridge.attempts SET lease_until = weighbridge.now() - interval '1 s'"
                " WHERE closed_at IS NULL AND worker LIKE %s",
                (f"%{victim.pid}%",),
            )
            workers.append(fleet.start(database_url, **LONG_LEASE))
        until(lambda: stage.ended, within=60)
    finally:
        fleet.kill()
    found = stage.query(
        "SELECT m.metric_date::text, substring(a.name FROM 4)::int, m.impressions FROM daily_metrics m"
        " JOIN ads a ON a.workspace_id = m.workspace_id AND a.id = m.ad_id"
    )
    assert {(day, ad): count for day, ad, count in found} == expected
    assert stage.query("SELECT DISTINCT status FROM data_uploads") == [("completed",)]
    stage.close()
