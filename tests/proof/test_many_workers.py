"""Twelve workers on thirty uploads of three workspaces: never more than three at once in a workspace, each done once.

Every opening and closing of an attempt is told by NOTIFY, which Postgres delivers in the order of the commits: the
whole history is checked, not samples of it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg

from tests.engine.conftest import HEADER, meta_line
from tests.proof.scene import Stage, put
from tests.proof.workers import LONG_LEASE, Fleet, until
from weighbridge.app import open_app
from weighbridge.settings import read

WORKSPACES = [UUID(int=n) for n in (1, 2, 3)]
UPLOADS = 10  # in each workspace
WORKERS = 12
ADS = 4
AUDIT = """
CREATE FUNCTION public.tell() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
    PERFORM pg_notify('history', concat_ws(' ', CASE WHEN NEW.closed_at IS NULL THEN 'open' ELSE 'close' END,
                                           NEW.workspace_id, NEW.subject));
    RETURN NULL;
END $$;
CREATE TRIGGER tell_opened AFTER INSERT ON weighbridge.attempts
    FOR EACH ROW WHEN (NEW.queue = 'uploads') EXECUTE FUNCTION public.tell();
CREATE TRIGGER tell_closed AFTER UPDATE OF closed_at ON weighbridge.attempts
    FOR EACH ROW WHEN (NEW.queue = 'uploads' AND OLD.closed_at IS NULL AND NEW.closed_at IS NOT NULL)
    EXECUTE FUNCTION public.tell()
"""

LISTENING = (
    f"SELECT count(*) = {WORKERS} FROM pg_stat_activity"
    " WHERE application_name = 'weighbridge listen' AND datname = current_database()"
)


def _file(number: int) -> str:
    """A day of its own in each upload; the campaigns, ad sets and ads are the same in all of them."""
    lines = [meta_line(f"2026-03-{number + 1:02}", ad, impressions=1000 + number) for ad in range(ADS)]
    return "\n".join([HEADER, *lines])


async def _put_all(url: str, home: Path) -> None:
    async with open_app(read(home=home, DATABASE_URL=url)) as app:
        for number in range(UPLOADS):
            for workspace in WORKSPACES:
                await put(app, workspace, _file(number))


def test_twelve_workers_process_thirty_uploads_once_each(
    database_url: str, home: Path, tmp_path: Path
) -> None:
    stage, fleet = Stage(database_url), Fleet(home, tmp_path)
    stage.query(AUDIT)
    asyncio.run(_put_all(database_url, home))
    with _history(database_url) as history:
        try:
            with _gate(database_url):
                for _ in range(WORKERS):
                    fleet.start(database_url, **LONG_LEASE)
                # Nine are at work, and three workers ask in vain until one of the nine is done.
                until(
                    lambda: stage.holds(
                        "SELECT count(*) = 9 FROM weighbridge.attempts WHERE closed_at IS NULL"
                    )
                )
                until(lambda: stage.holds(LISTENING))
            until(lambda: stage.ended, within=60)
        finally:
            fleet.kill()
        waits = sum(worker.said.count("Waits for an earlier file") for worker in fleet.started)
        _check_history([note.payload.split() for note in history], waits)
    _check_outcome(stage)
    stage.close()


@contextmanager
def _history(url: str) -> Iterator[Iterator[psycopg.Notify]]:
    with psycopg.connect(url, autocommit=True, application_name="test") as connection:
        connection.execute("LISTEN history")
        yield connection.notifies(timeout=1)


@contextmanager
def _gate(url: str) -> Iterator[None]:
    """Nobody can write facts, so that uploads pile up at work."""
    with psycopg.connect(url, application_name="test") as connection:
        connection.execute("LOCK TABLE daily_metrics IN SHARE ROW EXCLUSIVE MODE")
        yield


def _check_history(history: list[list[str]], waits: int) -> None:
    at_work: Counter[str] = Counter()
    most: Counter[str] = Counter()
    opened: Counter[str] = Counter()
    for what, workspace, upload in history:
        at_work[workspace] += 1 if what == "open" else -1
        most[workspace] = max(most[workspace], at_work[workspace])
        opened[upload] += what == "open"
    assert dict(most) == {str(workspace): 3 for workspace in WORKSPACES}  # no more, and the limit was reached
    assert len(opened) == len(WORKSPACES) * UPLOADS
    assert (
        opened.total() == len(opened) + waits
    )  # one attempt each, and one more for each that waited too long for its turn
    assert not any(at_work.values())


def _check_outcome(stage: Stage) -> None:
    everything: list[Any] = stage.query(
        "SELECT workspace_id, metric_date::text, impressions, count(*), count(DISTINCT ad_id),"
        " count(DISTINCT upload_id) FROM daily_metrics GROUP BY 1, 2, 3 ORDER BY 2, 1"
    )
    assert everything == [
        (workspace, f"2026-03-{number + 1:02}", 1000 + number, ADS, ADS, 1)
        for number in range(UPLOADS)
        for workspace in WORKSPACES
    ]
    assert stage.query(
        "SELECT status, crashes, failures, promoted_rows, count(*) FROM data_uploads GROUP BY 1, 2, 3, 4"
    ) == [("completed", 0, 0, ADS, 30)]
    assert stage.query(
        "SELECT count(*), count(DISTINCT upload_id) FROM weighbridge.events WHERE type = 'IngestionCompleteEvent'"
    ) == [(30, 30)]
    assert stage.query("SELECT count(*) FROM weighbridge.audit_log WHERE action = 'ingestion.complete'") == [
        (30,)
    ]
    assert stage.query(
        "SELECT (SELECT count(*) FROM campaigns), (SELECT count(*) FROM ad_sets), (SELECT count(*) FROM ads)"
    ) == [(3, 6, 12)]
