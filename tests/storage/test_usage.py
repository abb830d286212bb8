"""Storage counters: changed only by functions, exact under concurrency and at the change of the month."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conftest import WAITING
from tests.storage.counting import CSV, USAGE, increment, month_of, send, until_next_month
from weighbridge.app import App
from weighbridge.delivery.context import Context
from weighbridge.model.errors import Refused
from weighbridge.postgres import roles
from weighbridge.postgres.errors import RowFault
from weighbridge.postgres.transactions import Database
from weighbridge.storage import quota
from weighbridge.storage.quota import DEFAULT_USER, readable

# Specified: incrementStorageUsage calls the function with the correct parameters and surfaces errors -----------


async def test_increment_storage_usage_calls_with_correct_params(
    db: Database, workspace: UUID, query: Any
) -> None:
    user = uuid4()
    await increment(db, workspace, user, 700)
    await increment(db, workspace, user, 42)
    [(workspace_id, user_id, calculated)] = query(
        "SELECT workspace_id, user_id, last_calculated FROM storage_usage"
    )
    assert (workspace_id, user_id) == (workspace, user)
    assert datetime.now(UTC) - calculated < timedelta(minutes=1)
    assert query(USAGE) == [(742, 2, 742, 0, month_of(datetime.now(UTC)))]


@pytest.mark.parametrize(("user", "size"), [(None, 5), (DEFAULT_USER, None)])
async def test_increment_storage_usage_surfaces_errors(
    db: Database, workspace: UUID, query: Any, user: Any, size: Any
) -> None:
    with pytest.raises(RowFault):
        await increment(db, workspace, user, size)
    assert query(USAGE) == []


async def test_nothing_is_counted_without_a_workspace(db: Database, query: Any) -> None:
    with pytest.raises(Refused, match="acts for no workspace"):
        async with db.tx("weighbridge_intake") as tx:
            await tx.execute("SELECT weighbridge.increment_storage_usage(%s, 5)", (DEFAULT_USER,))


async def test_a_removed_file_leaves_the_total_and_stays_in_its_month(
    db: Database, workspace: UUID, query: Any
) -> None:
    for size in (700, 42, -700):
        await increment(db, workspace, DEFAULT_USER, size)
    assert query(USAGE)[0][:3] == (42, 1, 742)
    await increment(db, workspace, DEFAULT_USER, -1000)  # more than there is: a counter is never below zero
    assert query(USAGE)[0][:3] == (0, 0, 742)


# Only functions change the counters --------------------------------------------------------------------------


MOVES_OF_COUNTERS = [
    "INSERT INTO storage_usage (workspace_id, user_id) VALUES (gen_random_uuid(), gen_random_uuid())",
    "UPDATE storage_usage SET total_bytes = 0",
    "UPDATE storage_usage SET interpretation_count_month = 0",
    "DELETE FROM storage_usage",
    "TRUNCATE storage_usage",
    "DELETE FROM weighbridge.counted_blobs",
    "UPDATE weighbridge.storage_limits SET month_bytes = -1",
    "DELETE FROM weighbridge.storage_reservations",
]


@pytest.mark.parametrize("role", roles.NAMES)
async def test_no_role_can_write_a_counter_directly(
    db: Database, database_url: str, workspace: UUID, query: Any, role: str
) -> None:
    await increment(db, workspace, DEFAULT_USER, 700)
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(
            "SELECT set_config('role', %s, false), set_config('weighbridge.workspace_id', %s, false)",
            (role, str(workspace)),
        )
        for statement in MOVES_OF_COUNTERS:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(statement.encode())
    assert query(USAGE)[0][0] == 700


async def test_a_tenant_reads_only_the_counters_of_its_workspace(
    db: Database, workspace: UUID, database_url: str
) -> None:
    for owner in (workspace, uuid4()):
        await increment(db, owner, DEFAULT_USER, 700)
    async with db.tx("weighbridge_tenant", workspace) as tx:
        rows = await (await tx.execute("SELECT workspace_id FROM storage_usage")).fetchall()
    assert rows == [(workspace,)]


# Concurrency and months --------------------------------------------------------------------------------------


async def test_parallel_increments_lose_nothing(database_url: str, workspace: UUID, query: Any) -> None:
    users = [uuid4() for _ in range(3)]

    async def many(n: int) -> None:
        async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as connection:
            await connection.execute(
                "SELECT set_config('weighbridge.workspace_id', %s, false)", (str(workspace),)
            )
            for i in range(15):
                user = users[(n + i) % 3]
                await connection.execute("SELECT weighbridge.increment_storage_usage(%s, %s)", (user, n + i))
                await connection.execute("SELECT weighbridge.increment_interpretation_count(%s)", (user,))

    await asyncio.gather(*(many(n) for n in range(20)))
    sums = query(
        "SELECT sum(total_bytes), sum(total_sources), sum(month_bytes), sum(interpretation_count_month)"
        " FROM storage_usage"
    )
    size = sum(n + i for n in range(20) for i in range(15))
    assert sums == [(size, 300, size, 300)]


@pytest.mark.parametrize(
    "first", ["increment_storage_usage(%(user)s, 10)", "increment_interpretation_count(%(user)s)"]
)
async def test_the_first_call_in_a_month_starts_the_new_month(
    db: Database, workspace: UUID, query: Any, clock: Any, first: str
) -> None:
    call = f"SELECT set_config('weighbridge.workspace_id', %(workspace)s, false), weighbridge.{first}"
    values = {"workspace": str(workspace), "user": DEFAULT_USER}
    await increment(db, workspace, DEFAULT_USER, 700)
    query(call, values)
    bytes_before, count_before = query("SELECT month_bytes, interpretation_count_month FROM storage_usage")[0]
    assert (bytes_before, count_before) in ((710, 0), (700, 1))
    clock.forward(until_next_month(query))
    query(call, values)
    total, _, month, count, named = query(USAGE)[0]
    stored = "storage" in first
    assert (month, count) == ((10, 0) if stored else (0, 1))
    assert total == 700 + (20 if stored else 0)
    assert [(named,)] == query("SELECT weighbridge.billing_month()")


async def test_the_month_changes_in_utc_whatever_the_time_zone_of_the_session(
    db: Database, database_url: str, workspace: UUID, query: Any, clock: Any
) -> None:
    clock.forward(until_next_month(query) - timedelta(hours=4))  # an hour before midnight UTC
    before = query("SELECT weighbridge.billing_month()")
    with psycopg.connect(database_url) as connection:
        connection.execute("SET timezone = 'Pacific/Auckland'")  # where the next month has begun
        assert connection.execute("SELECT weighbridge.billing_month()").fetchall() == before
        resets = connection.execute("SELECT weighbridge.next_month()").fetchone()
    assert resets is not None
    assert resets[0].astimezone(UTC).strftime("%d %H:%M") == "01 00:00"


async def test_a_transaction_from_before_the_month_change_does_not_undo_it(
    db: Database, database_url: str, workspace: UUID, query: Any, clock: Any
) -> None:
    """It waits for the row while a later transaction, after midnight, starts the new month."""
    await increment(db, workspace, DEFAULT_USER, 700)
    asks = "SELECT set_config('weighbridge.workspace_id', %s, false)"
    async with (
        await psycopg.AsyncConnection.connect(database_url) as newer,
        await psycopg.AsyncConnection.connect(database_url) as older,
    ):
        for connection in (newer, older):
            await connection.execute(asks, (str(workspace),))
        await newer.execute("SELECT FROM storage_usage FOR UPDATE")
        waiting = asyncio.create_task(
            older.execute("SELECT weighbridge.increment_storage_usage(%s, 5)", (DEFAULT_USER,))
        )
        while not query(WAITING):
            await asyncio.sleep(0.01)
        clock.forward(until_next_month(query))
        await newer.execute("SELECT weighbridge.increment_storage_usage(%s, 11)", (DEFAULT_USER,))
        await newer.commit()
        await waiting
        await older.commit()
    assert query(USAGE)[0][:3] == (716, 3, 16)
    assert query("SELECT billing_month = weighbridge.billing_month() FROM storage_usage") == [(True,)]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["store", "remove", "interpret", "month"]), st.integers(0, 2), st.integers(1, 10**9)
    ),
    max_size=30,
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_the_counters_agree_with_a_model(database_url: str, steps: list[tuple[str, int, int]]) -> None:
    """Any sequence of stored and removed files, reads and months, compared with a small model."""
    workspace = uuid4()
    users = [uuid4() for _ in range(3)]
    held: list[list[int]] = [[], [], []]
    months, counts, touched = [0, 0, 0], [0, 0, 0], [False] * 3
    with psycopg.connect(database_url) as connection:
        connection.execute("SELECT set_config('weighbridge.workspace_id', %s, false)", (str(workspace),))
        for step, who, size in steps:
            if step == "month":
                connection.execute("UPDATE weighbridge.clock SET shift = shift + '32 days'")
                months, counts = [0, 0, 0], [0, 0, 0]
                continue
            if step == "remove":
                if not held[who]:
                    continue
                size = -held[who].pop()
            elif step == "store":
                held[who].append(size)
                months[who] += size
            touched[who] = True
            if step == "interpret":
                counts[who] += 1
                connection.execute("SELECT weighbridge.increment_interpretation_count(%s)", (users[who],))
            else:
                connection.execute("SELECT weighbridge.increment_storage_usage(%s, %s)", (users[who], size))
        rows = connection.execute(
            "SELECT user_id, total_bytes, total_sources, month_bytes, interpretation_count_month"
            " FROM weighbridge.usage_and_limits(NULL, NULL, NULL, NULL) WHERE user_id IS NOT NULL"
        ).fetchall()
        connection.rollback()
    expected = {users[n]: (sum(held[n]), len(held[n]), months[n], counts[n]) for n in range(3) if touched[n]}
    assert {row[0]: row[1:] for row in rows} == expected


# In the transaction that records the upload ------------------------------------------------------------------


async def test_a_stored_upload_is_counted_for_its_user(ctx: Context, workspace: UUID, query: Any) -> None:
    user = uuid4()
    await send(ctx, workspace, created_by=user)
    await send(ctx, workspace, CSV + b"2025-01-02,Spring,1\n")
    found = query("SELECT user_id, total_bytes, total_sources FROM storage_usage ORDER BY total_bytes")
    assert found == [(user, len(CSV), 1), (DEFAULT_USER, len(CSV) + 20, 1)]


async def test_the_same_content_again_is_not_counted_again(ctx: Context, workspace: UUID, query: Any) -> None:
    assert not (await send(ctx, workspace)).duplicate
    assert (await send(ctx, workspace)).duplicate
    assert query(USAGE)[0][:2] == (len(CSV), 1)


async def test_a_blob_of_two_uploads_is_counted_once_for_the_first(
    ctx: Context, workspace: UUID, query: Any
) -> None:
    first, second = uuid4(), uuid4()
    await send(ctx, workspace, created_by=first)
    await send(ctx, workspace, created_by=second, client_id=uuid4())
    await send(ctx, workspace, created_by=second, force=True)
    assert query("SELECT count(*), count(DISTINCT file_url) FROM data_uploads") == [(3, 1)]
    assert query("SELECT user_id, total_bytes, total_sources FROM storage_usage") == [(first, len(CSV), 1)]


async def test_concurrent_uploads_of_the_same_blob_count_it_once(
    ctx: Context, workspace: UUID, query: Any
) -> None:
    await asyncio.gather(*(send(ctx, workspace, client_id=uuid4(), created_by=uuid4()) for _ in range(12)))
    assert query("SELECT count(*), count(DISTINCT file_url) FROM data_uploads") == [(12, 1)]
    assert query("SELECT sum(total_bytes), sum(total_sources), count(*) FROM storage_usage") == [
        (len(CSV), 1, 1)
    ]


async def test_the_same_content_on_another_day_is_another_blob(
    ctx: Context, workspace: UUID, query: Any, clock: Any
) -> None:
    await send(ctx, workspace)
    clock.forward(days=1)
    await send(ctx, workspace, force=True)
    assert query(USAGE)[0][:2] == (2 * len(CSV), 2)


async def test_an_upload_that_is_not_recorded_is_not_counted(
    ctx: Context, workspace: UUID, query: Any
) -> None:
    async def recorded() -> None:
        async with ctx.db.tx("weighbridge_intake", workspace) as tx:
            await quota.count(tx, uuid4(), None, 700, "s3://b/x", None)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        await recorded()
    assert query(USAGE) == []
    assert query("SELECT FROM weighbridge.counted_blobs") == []


async def test_a_failure_to_count_is_logged_and_blocks_nothing(
    ctx: Context, workspace: UUID, query: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    from weighbridge.observe.logs import configure

    configure("info")
    query("ALTER TABLE storage_usage ADD CONSTRAINT broken CHECK (total_bytes < 1)")
    user = uuid4()
    received = await send(ctx, workspace, created_by=user)
    assert query("SELECT status FROM data_uploads WHERE id = %s", (received.upload_id,)) == [("pending",)]
    assert query(USAGE) == []
    [line] = [line for line in capsys.readouterr().err.splitlines() if "StorageUsageIncrementFailed" in line]
    told = json.loads(line)
    assert told["level"] == "WARNING"
    fields = {"user_id": str(user), "byte_size": len(CSV), "reason": "check_violation"}
    assert told.items() >= fields.items()
    query("ALTER TABLE storage_usage DROP CONSTRAINT broken")  # what the recount finds: test_recount.py


async def test_a_blob_that_was_not_counted_is_counted_again(
    ctx: Context, workspace: UUID, query: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    from weighbridge.observe.logs import configure

    configure("info")
    query("ALTER TABLE storage_usage ADD CONSTRAINT broken CHECK (total_bytes < 1)")
    for content in (CSV, CSV + b"2025-01-02,Spring,1\n"):
        await send(ctx, workspace, content)
    query(  # its upload does not exist any more
        "INSERT INTO weighbridge.uncounted_blobs (upload_id, workspace_id, user_id, bytes) VALUES (%s, %s, %s, 7)",
        (uuid4(), workspace, DEFAULT_USER),
    )
    await quota.count_again(ctx.db)  # it fails again, and says so
    assert query("SELECT count(*) FROM weighbridge.uncounted_blobs") == [(2,)]
    [line] = [line for line in capsys.readouterr().err.splitlines() if "storage.uncounted" in line]
    assert json.loads(line).items() >= {"failed": 2, "sqlstate": "23514"}.items()
    query("ALTER TABLE storage_usage DROP CONSTRAINT broken")
    await asyncio.gather(*(quota.count_again(ctx.db) for _ in range(3)))
    assert query(USAGE)[0][:2] == (2 * len(CSV) + 20, 2)
    assert query("SELECT count(*) FROM weighbridge.uncounted_blobs") == [(0,)]
    assert query("SELECT count(*) FROM weighbridge.storage_reservations") == [(0,)]


async def test_a_workspace_that_is_recounted_for_long_blocks_no_upload_for_long(
    ctx: Context, database_url: str, workspace: UUID, query: Any
) -> None:
    """Its counting waits for the recount, longer than a statement may wait."""
    db = Database(database_url, statement_timeout_ms=300)
    await db.open()
    with psycopg.connect(database_url) as recount:
        recount.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 4))", (str(workspace),))
        await send(replace(ctx, db=db), workspace)
    await db.close()
    assert query(USAGE) == []
    await quota.count_again(ctx.db)
    assert query(USAGE)[0][:2] == (len(CSV), 1)


# Figures and moved stores ------------------------------------------------------------------------------------


async def test_the_gauge_is_the_sum_of_the_stored_bytes(app: App, workspace: UUID) -> None:
    from weighbridge import service_figures

    for owner in (workspace, uuid4()):
        await increment(app.db, owner, DEFAULT_USER, 700)
    async with app.db.tx() as tx:
        assert (await service_figures.of_service(tx)).storage_usage == 1400


@pytest.mark.parametrize(
    ("size", "told"),
    [(0, "0 bytes"), (1000, "1,000 bytes"), (1536, "1.5 KB"), (500 * 2**20, "500 MB"), (2**20 - 1, "1,024 KB"),
     (999_999_999, "954 MB"), (3 * 2**50, "3,072 TB")],
)  # fmt: skip
def test_sizes_are_shown_in_the_units_of_the_settings(size: int, told: str) -> None:
    assert readable(size) == told


async def test_blobs_are_the_same_after_the_store_is_moved(ctx: Context, workspace: UUID, query: Any) -> None:
    key = f"{workspace}/2026/01/01/{'a' * 64}"
    async with ctx.db.tx("weighbridge_intake", workspace) as tx:
        for store in ("file:///old", "s3://bucket/prefix"):
            await quota.count(tx, uuid4(), None, 700, f"{store}/{key}", None)
    assert query(USAGE)[0][:2] == (700, 1)
