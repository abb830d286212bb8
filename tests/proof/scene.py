"""What every proof plays on: a database in which one file has landed and the next one waits.

The waiting file meets everything that a load can meet: a day that is in production as it is, a day whose values
changed, a new day with new dimension rows, a repeated row, a row that parsing refuses, and a fact and a dimension row
that production refuses, for which their batches are split.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg

from tests.engine.conftest import HEADER, meta_line
from weighbridge.app import App, open_app
from weighbridge.engine.options import WorkerOptions
from weighbridge.settings import read
from weighbridge.uploads.check_request import Request
from weighbridge.uploads.receive import receive
from weighbridge.worker import run_until

WORKSPACE = UUID("0b5c2a52-6d0e-4c8e-9d5a-3f4b8c1d2e6f")
LANDED = "\n".join([HEADER, *(meta_line(f"2026-01-0{day}", ad) for day in (1, 2, 3) for ad in range(4))])
WAITING = "\n".join(
    [
        HEADER,
        *(meta_line("2026-01-01", ad) for ad in range(4)),  # as it is
        *(meta_line("2026-01-02", ad, impressions=13 if ad == 1 else 200) for ad in range(4)),
        *(meta_line("2026-01-04", ad) for ad in range(5)),  # with a new ad, ad set and campaign
        meta_line("2026-01-04", 0),  # a repeat
        meta_line("2026-01-05", 1, impressions=-1),  # refused by parsing
    ]
)
REFUSALS = (  # by production
    "ALTER TABLE daily_metrics ADD CONSTRAINT no_13 CHECK (impressions <> 13);"
    "ALTER TABLE ads ADD CONSTRAINT no_ad_4 CHECK (name <> 'Ad 4')"
)

PRODUCTION = ("campaigns", "ad_sets", "ads", "daily_metrics")
# Takeovers are alerted; what landed is announced as if nothing had happened.
LANDED_EVENTS = "(SELECT * FROM weighbridge.events WHERE type = 'IngestionCompleteEvent')"
LANDED_DELIVERIES = "(SELECT * FROM weighbridge.event_deliveries WHERE consumer <> 'alerts')"
# What is compared, and the columns that say when or by which attempt, which may differ.
TABLES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(PRODUCTION, ("created_at", "updated_at")),
    "data_uploads": (
        "created_at",
        "started_at",
        "staged_at",
        "finished_at",
        "run_after",
        "attempts",
        "crashes",
        "rows_read",
        "states",
    ),
    "upload_rejections": (),
    "upload_warnings": (),
    "weighbridge.receipts": (),
    LANDED_EVENTS: ("id", "created_at", "payload"),
    LANDED_DELIVERIES: ("id", "event_id", "run_after", "delivered_at", "failures", "last_error"),
    "weighbridge.audit_log": ("id", "at", "detail"),
}
PAYLOADS = f"SELECT payload - 'timestamp' FROM {LANDED_EVENTS} e ORDER BY upload_id"
ENDED = (
    "SELECT NOT EXISTS (SELECT FROM data_uploads WHERE status NOT IN ('completed', 'partial', 'failed'))"
    " AND NOT EXISTS (SELECT FROM weighbridge.event_deliveries WHERE delivered_at IS NULL)"
)

Snapshot = dict[str, list[Any]]


async def put(app: App, workspace: UUID, content: str) -> UUID:
    """Hand a file over, as `weighbridge load` does."""
    file = app.settings.home / f"{uuid4().hex}.csv"
    file.write_text(content)
    return (await receive(app.ctx, Request(workspace, platform="meta"), file)).upload_id


async def prepare(url: str, home: Path) -> None:
    """Land the first file, leave the second one waiting."""
    async with open_app(read(home=home, DATABASE_URL=url)) as app:
        first = await put(app, WORKSPACE, LANDED)
        await run_until(app.ctx, WorkerOptions(), [first])
        async with app.db.tx() as tx:
            await tx.execute(REFUSALS)
        await put(app, WORKSPACE, WAITING)


def named(url: str, database: str) -> str:
    """The same server, another database."""
    before, _, after = url.partition("?")
    return f"{before.rpartition('/')[0]}/{database}?{after}"


@dataclass
class Stage:
    """One copy of the scene's database, while a test plays on it."""

    url: str
    _connection: Any = field(default=None, repr=False)

    def query(self, statement: str, params: Any = None) -> list[tuple[Any, ...]]:
        try:
            cursor = self._connected().execute(statement, params)
        except psycopg.OperationalError:  # the server was restarted
            self.close()
            cursor = self._connected().execute(statement, params)
        return cursor.fetchall() if cursor.description else []

    def _connected(self) -> Any:
        if self._connection is None:
            self._connection = psycopg.connect(self.url, autocommit=True, application_name="test")
        return self._connection

    def holds(self, statement: str, params: Any = None) -> bool:
        return bool(self.query(f"SELECT ({statement})", params)[0][0])

    @property
    def ended(self) -> bool:
        """Every upload has ended and every event was delivered."""
        return bool(self.query(ENDED)[0][0])

    @property
    def fenced(self) -> bool:
        """A worker is inside a fenced transaction: its session bears the name of its lease."""
        return self.holds(
            "EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND xact_start IS NOT NULL"
            " AND application_name ~ '^weighbridge [0-9a-f-]{36}$')"
        )

    @property
    def deserted(self) -> bool:
        """No worker's session is left."""
        return not self.query(
            "SELECT pid FROM pg_stat_activity"
            " WHERE datname = current_database() AND application_name LIKE 'weighbridge%%'"
        )

    def end_idle_transactions(self) -> None:
        """Those outside of leases, as Postgres does itself after a minute. Those under a lease are ours to end."""
        self.query(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
            " AND state = 'idle in transaction' AND application_name = 'weighbridge'"
        )

    def forward(self, seconds: float) -> None:
        self.query("UPDATE weighbridge.clock SET shift = shift + make_interval(secs => %s)", (seconds,))

    def snapshot(self) -> Snapshot:
        """Everything that matters, apart from when it happened."""
        seen: Snapshot = {
            table: [
                row
                for (row,) in self.query(
                    f"SELECT to_jsonb(t) - %s::text[] AS r FROM {table} t ORDER BY 1", (list(when),)
                )
            ]
            for table, when in TABLES.items()
        }
        return {**seen, "payloads": [row for (row,) in self.query(PAYLOADS)]}

    def versions(self) -> list[tuple[Any, ...]]:
        """Which transaction wrote each production row last: another one means that it was written again."""
        return [
            (table, *row)
            for table in PRODUCTION
            for row in self.query(f"SELECT to_jsonb(t)::text, xmin::text FROM {table} t ORDER BY 1")
        ]

    def everything(self) -> list[tuple[Any, ...]]:
        """All rows of all tables, and which transaction wrote each: a fingerprint of the whole database."""
        tables = self.query(
            "SELECT format('%I.%I', schemaname, tablename) FROM pg_tables"
            " WHERE schemaname IN ('public', 'staging', 'weighbridge') ORDER BY 1"
        )
        return [
            (table, *row)
            for (table,) in tables
            for row in self.query(f"SELECT to_jsonb(t)::text, xmin::text FROM {table} t ORDER BY 1")
        ]

    def waits_for(self, table: str) -> bool:
        """Somebody waits for a lock on the table."""
        return self.holds(
            "EXISTS (SELECT FROM pg_locks l JOIN pg_database d ON d.oid = l.database AND d.datname = current_database()"
            " WHERE l.relation = %s::regclass AND NOT l.granted)",
            (table,),
        )

    def send_again(self) -> None:
        """The file that landed first, sent once more on purpose."""
        self.query(
            "INSERT INTO data_uploads"
            " (workspace_id, platform, source, pipeline, file_url, content_sha256, byte_size, forced)"
            " SELECT workspace_id, platform, source, pipeline, file_url, content_sha256, byte_size, true"
            " FROM data_uploads ORDER BY created_at LIMIT 1"
        )

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None


def differences(seen: Snapshot, expected: Snapshot) -> dict[str, Any]:
    """What is missing and what is too much, by table: easier to read than two snapshots."""
    return {
        table: {
            "missing": [row for row in expected[table] if row not in seen[table]],
            "too much": [row for row in seen[table] if row not in expected[table]],
        }
        for table in expected
        if seen[table] != expected[table]
    }


@dataclass(frozen=True)
class Scene:
    """The prepared database, ready to be copied, and how it looks when the waiting file landed undisturbed."""

    server: str
    template: str
    home: Path
    undisturbed: Snapshot

    @contextmanager
    def stage(self) -> Iterator[Stage]:
        with copied(self.server, self.template) as stage:
            yield stage


@contextmanager
def copied(server: str, template: str) -> Iterator[Stage]:
    name = f"test_{uuid4().hex[:12]}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
    stage = Stage(named(server, name))
    try:
        yield stage
    finally:
        stage.close()
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
