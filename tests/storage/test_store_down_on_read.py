"""A bucket is down when a stored file is to be read: the upload waits, then continues."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest

from tests.conftest import Clock
from tests.engine.conftest import meta_file
from tests.storage.s3 import S3
from tests.storage.test_deferred_files import Query
from weighbridge.delivery.context import Context
from weighbridge.engine.options import WorkerOptions
from weighbridge.storage.store import open_store
from weighbridge.uploads.check_request import Request
from weighbridge.uploads.receive import receive
from weighbridge.worker import Worker


async def test_an_outage_of_the_bucket_after_storing_fails_no_upload(
    ctx: Context,
    s3: S3,
    workspace: UUID,
    query: Query,
    clock: Clock,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The three retries for a connection would be over in seven seconds."""
    for name, value in s3.environment().items():
        monkeypatch.setenv(name, value)
    ctx = replace(ctx, blobs=open_store(s3.bucket_url, tmp_path, timedelta(seconds=2)))
    file = tmp_path / "export.csv"
    file.write_bytes(meta_file(1, 2))
    await receive(ctx, Request(workspace, platform="meta"), file)
    s3.kill()
    waits = []
    for _ in range(5):
        assert await Worker(ctx, WorkerOptions()).run_once()
        [(status, wait)] = query("SELECT status, run_after - weighbridge.now() FROM data_uploads")
        assert status == "pending"
        waits.append(round(wait.total_seconds()))
        clock.forward(wait + timedelta(seconds=1))
    assert waits == [5, 15, 45, 135, 405]
    s3.start()
    assert await Worker(ctx, WorkerOptions()).run_once()
    assert query("SELECT status, promoted_rows FROM data_uploads") == [("completed", 2)]
