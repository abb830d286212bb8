"""The queries that pages repeat every second: they agree with the slow query and cost little with many rows."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from uuid import UUID

import httpx
import psycopg
import pytest

from tests.api.conftest import make_upload
from tests.conftest import worked_out
from tests.projects.conftest import Send, keyword_file, send, take_up, work
from weighbridge.access import keys
from weighbridge.app import App
from weighbridge.console import create
from weighbridge.delivery import conversions
from weighbridge.delivery.context import Context
from weighbridge.model.states import Status
from weighbridge.postgres.queries import load
from weighbridge.projects import overview, queue
from weighbridge.projects.groups import ProjectKey
from weighbridge.uploads import browse

PROJECTS, FILES = 50, 300
_FILL = (
    "INSERT INTO data_uploads (workspace_id, project_id, source, pipeline, filename, file_url, content_sha256,"
    " byte_size, status, created_at, started_at, finished_at, error_code, error_text, total_rows, rows_read, bins,"
    " promoted)"
    " SELECT %s, p, 'manual', 'keywords', 'file-' || n || '.csv', 'file:///x', sha256((p || '-' || n)::bytea), 1,"
    " CASE WHEN n %% 50 = 0 THEN 'failed' WHEN n %% 7 = 0 THEN 'pending' ELSE 'completed' END,"
    " now() - interval '1 day' + n * interval '1 s', now(), now(),"
    " CASE WHEN n %% 50 = 0 THEN 'bad' END, CASE WHEN n %% 50 = 0 THEN 'Bad.' END, 10, 10,"
    ' \'{"accepted": 9, "duplicate": 1}\', \'{"keyword": {"inserted": 5, "updated": 2, "unchanged": 2, "failed": 0}}\''
    " FROM generate_series(1, %s) p, generate_series(1, %s) n"
)
_HALF = (
    "bins = '{\"accepted\": 8}',"
    ' promoted = \'{"keyword": {"inserted": 3, "updated": 0, "unchanged": 1, "failed": 0}}\''
)
Query = Callable[..., list[tuple[Any, ...]]]


@pytest.fixture
async def reader(app: App, workspace: UUID) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the pages, without a socket."""
    transport = httpx.ASGITransport(worked_out(create(app)), raise_app_exceptions=False)
    async with app.db.tx() as tx:
        _, secret = await keys.create(tx, workspace, "reader", ("read",), None)
    async with httpx.AsyncClient(transport=transport, base_url="http://weighbridge") as client:
        assert (await client.post("/sign-in", data={"key": secret})).status_code == 303
        yield client


@pytest.fixture
def many(database_url: str, workspace: UUID) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO projects (workspace_id, id, name) SELECT %s, n, 'p' FROM generate_series(1, %s) n",
            (workspace, PROJECTS),
        )
        connection.execute("ALTER TABLE data_uploads DISABLE TRIGGER USER")
        connection.execute(_FILL, (workspace, PROJECTS, FILES))
        connection.execute("ALTER TABLE data_uploads ENABLE TRIGGER USER")
        connection.execute("VACUUM ANALYZE data_uploads, projects")


@pytest.fixture
def put(query: Query) -> Callable[[str, str], None]:
    """A file in the given state."""

    def put(filename: str, changes: str) -> None:
        query("ALTER TABLE data_uploads DISABLE TRIGGER USER")
        query(f"UPDATE data_uploads SET {changes} WHERE filename = '{filename}'")
        query("ALTER TABLE data_uploads ENABLE TRIGGER USER")

    return put


async def agrees(ctx: Context, workspace: UUID, project: int) -> queue.ProjectStatus:
    """The list, the page and its files agree with `project_status` for every file."""
    place = ProjectKey(workspace, project)
    async with ctx.db.tx("weighbridge_tenant", workspace) as tx:
        slow = await queue.status(tx, project)
        files = await overview.files(tx, place, None, 0, 1000)
        failed = await overview.files(tx, place, "failed", 0, 1000)
        copies = await overview.copies(tx, place, 1000)
    async with ctx.db.tx(workspace_id=workspace) as tx:
        [listed] = await overview.listed(tx, workspace, project - 1, 1)
        whole = await overview.details(tx, place)
    assert slow is not None
    assert whole is not None
    told = slow.as_dict()
    for fast in (listed, whole):
        assert (fast.project_id, fast.name, fast.grouped_at, fast.groupings) == (
            *(slow.project_id, slow.name, slow.grouped_at, slow.groupings),
        )
        assert (fast.status, fast.locked, fast.failed) == (slow.status, slow.locked, slow.count("failed"))
        assert (fast.queued, fast.running) == (slow.count("queued"), slow.count("running"))
        assert (fast.processed, fast.uploaded) == (told["processedFileCount"], told["uploadedFileCount"])
        assert fast.rows_processed == told["progress"]["rows_processed"]
    assert (whole.rows_total, whole.current_file) == (told["progress"]["rows_total"], told["current_file"])
    sums = tuple(sum(getattr(f, name) for f in slow.files) for name in ("inserted", "duplicate", "invalid"))
    assert (whole.inserted, whole.duplicate, whole.invalid) == sums
    assert tuple(files) == slow.files
    assert failed == [file for file in slow.files if file.status == "failed"]
    names = {file.job_id: file.filename for file in slow.files}
    assert [(c.filename, c.duplicate_of, c.times, c.original) for c in copies] == [
        (d.filename, d.duplicate_of, d.times, names[d.duplicate_of]) for d in slow.duplicates
    ]
    return slow


async def test_the_list_of_projects_agrees_with_the_page_of_each_project(
    ctx: Context,
    workspace: UUID,
    send: Send,
    work: Callable[..., Awaitable[None]],
    put: Callable[[str, str], None],
    take_up: Any,
) -> None:
    await send(keyword_file([("one", 1), ("two", 2), ("one", 1)]), "a.csv")
    broken = await send(b"Nonsense,Columns\n1,2\n", "broken.csv")
    assert (await agrees(ctx, workspace, 1)).status == "queued"
    await work(broken)
    assert (await agrees(ctx, workspace, 1)).count("failed") == 1
    # A failed file is sent again: the first of the two no longer counts. A duplicate never counts.
    again = await send(b"Nonsense,Columns\n1,2\n", "broken again.csv")
    await send(keyword_file([("one", 1), ("two", 2), ("one", 1)]), "copy.csv")
    assert (await agrees(ctx, workspace, 1)).status == "queued"
    await work(again)
    told = await agrees(ctx, workspace, 1)
    assert [file.filename for file in told.files] == ["a.csv", "broken again.csv"]
    # A preview does not count as a file of the project while it is on hold and after it is discarded.
    await send(keyword_file([("three", 1)]), "held.csv", preview=True)
    put("held.csv", "status = 'staging_complete', run_after = 'infinity'")
    assert len((await agrees(ctx, workspace, 1)).files) == 2
    put("held.csv", "status = 'failed', error_code = 'discarded', finished_at = now()")
    assert len((await agrees(ctx, workspace, 1)).files) == 2
    # One file half promoted by a worker, and one parsed file without a worker.
    for name in ("running.csv", "parsed.csv"):
        await send(keyword_file([(name, 1)]), name)
    await take_up()
    put("running.csv", f"status = 'promoting', total_rows = 9, rows_read = 9, {_HALF}")
    put("parsed.csv", "status = 'staging_complete'")
    told = await agrees(ctx, workspace, 1)
    assert (told.status, told.count("running"), told.count("queued")) == ("processing", 1, 1)
    assert told.files[2].rows_processed == 1 + 4


async def best(of: Callable[[], Awaitable[Any]]) -> float:
    times = []
    for _ in range(4):
        began = time.perf_counter()
        await of()
        times.append(time.perf_counter() - began)
    return min(times)


async def test_the_list_of_many_projects_reads_no_file_rows(
    app: App, workspace: UUID, many: None, reader: httpx.AsyncClient
) -> None:
    """The whole page, in less than half of the time that the files of its projects take alone."""

    async def every_file() -> None:
        async with app.db.tx("weighbridge_tenant", workspace) as tx:
            for project in range(1, PROJECTS + 1):
                await queue.status(tx, project)

    async def look() -> None:
        answer = await reader.get("/projects")
        assert answer.status_code == 200, answer.text
        assert answer.text.count('id="project-') == PROJECTS
        assert "258 / 300" in answer.text

    assert await best(look) < await best(every_file) / 2


async def test_files_of_a_project_are_shown_a_page_at_a_time(
    workspace: UUID, many: None, reader: httpx.AsyncClient
) -> None:
    async def names(path: str) -> list[str]:
        shown = (await reader.get(path)).text
        return [part.split("<")[0] for part in shown.split("<bdi>") if part.startswith("file-")]

    assert await names("/projects/1") == [f"file-{n}.csv" for n in range(1, 201)]
    assert await names("/projects/1?from_file=200") == [f"file-{n}.csv" for n in range(201, FILES + 1)]
    assert await names("/projects/1?state=failed") == [f"file-{n}.csv" for n in range(50, 301, 50)]
    first, second = [(await reader.get(f"/projects/1{more}")).text for more in ("", "?from_file=200")]
    assert ("Later files" in first, "Earlier files" in first) == (True, False)
    assert ("Later files" in second, "Earlier files" in second) == (False, True)


async def test_a_file_that_waits_for_the_store_counts_as_in_progress(
    app: App, workspace: UUID, make_upload: Callable[..., UUID]
) -> None:
    """Neither the count nor the list of queued files contains it, as in its row."""
    waits = make_upload(storage_status="pending_retry", run_after="infinity")
    queued = make_upload(filename="queued.csv")
    make_upload(status="processing")

    async with app.db.tx("weighbridge_tenant", workspace) as tx:
        standing = await browse.state_counts(tx, workspace)
        others = await browse.page_of_uploads(
            tx, workspace, browse.UploadFilter((Status.PENDING,), deferred=False), 10
        )
        theirs = await browse.page_of_uploads(
            tx, workspace, browse.UploadFilter((Status.PENDING,), deferred=True), 10
        )
    assert (standing.uploaded, standing.queued, standing.running) == (3, 1, 2)
    assert [upload.id for upload in others] == [queued]
    assert [upload.id for upload in theirs] == [waits]


@pytest.mark.parametrize("status", ["QUEUED", "FAILED"])
def test_the_status_of_groups_is_read_from_indexes_beside_a_very_large_site(
    database_url: str, workspace: UUID, status: str
) -> None:
    with psycopg.connect(database_url) as connection:
        sites = connection.execute(
            "INSERT INTO sites (workspace_id, name, providers)"
            " SELECT %s, 'site ' || n, '{google_ads}' FROM generate_series(1, 20) n RETURNING id",
            (workspace,),
        ).fetchall()
        connection.execute("SET LOCAL session_replication_role = replica")  # of the queue alone
        connection.execute(
            "INSERT INTO offline_conversion_queue (workspace_id, site_id, provider_key, sale_id, order_id,"
            " click_type, click_id, occurred_at, status)"
            " SELECT %s, %s, 'google_ads', gen_random_uuid(), n::text, 'gclid', 'x', now(), %s"
            " FROM generate_series(1, 30000) n",
            (workspace, sites[0][0], status),
        )
        connection.execute("ANALYZE offline_conversion_queue")
        connection.execute(  # as a transaction of the service
            "SELECT set_config('role', 'weighbridge_deliver', true), set_config('weighbridge.workspace_id', %s, true),"
            " set_config('enable_seqscan', 'off', true)",
            (str(workspace),),
        )
        asked = dict.fromkeys(("site", "provider", "after_site", "after_provider"))
        params = {**asked, "workspace": workspace, "limit": 101, "most": conversions.MOST_COUNTED}
        explain = "EXPLAIN (FORMAT TEXT) " + load("weighbridge.delivery.conversions")["group_statuses"]
        plan = "\n".join(line for (line,) in connection.execute(explain, params).fetchall())
    assert "Seq Scan on offline_conversion_queue" not in plan, plan


__all__ = ["make_upload", "send", "take_up", "work"]  # fixtures
