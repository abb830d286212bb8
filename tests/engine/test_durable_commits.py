"""Commits that wait for the disk: as the server is configured, and before an upload is reported as failed."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine.conftest import Put, Run, meta_file
from tests.engine.steps import claim, trouble
from weighbridge.delivery.context import Context
from weighbridge.postgres import roles
from weighbridge.postgres.transactions import Database
from weighbridge.uploads import promote


@pytest.mark.parametrize(
    ("server", "durable", "used"),
    [
        ("remote_apply", True, "remote_apply"),
        ("local", True, "local"),
        ("on", True, "on"),
        ("off", True, "on"),
        ("remote_apply", False, "off"),
    ],
)
async def test_a_durable_commit_waits_as_the_server_is_configured(
    ctx: Context, put: Put, query: Any, database_url: str, server: str, durable: bool, used: str
) -> None:
    await put(meta_file())
    attempt = await claim(ctx)
    [(name,)] = query("SELECT current_database()")
    query(f"ALTER DATABASE {name} SET synchronous_commit = '{server}'")
    db = Database(database_url, size=1)
    await db.open()
    async with db.fenced(attempt.lease, roles.PROMOTE, durable=durable) as tx:
        row = await (await tx.execute("SHOW synchronous_commit")).fetchone()
    await db.close()
    assert row == (used,)


async def test_a_crash_before_an_upload_without_any_row_fails_does_not_lose_its_rejections(
    ctx: Context, put: Put, run: Run, query: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash undoes the commits that did not wait for the disk, and empties the unlogged tables."""
    trouble(query, "RAISE check_violation;")
    complete = promote._complete_rejections
    crashes = []

    async def crash_after(*args: Any) -> None:
        await complete(*args)
        if not crashes:
            crashes.append(query("SELECT count(*) FROM upload_rejections"))
            query(
                "DELETE FROM upload_rejections; DELETE FROM weighbridge.unbroken;"
                "UPDATE data_uploads SET watermark_entity = '', watermark_seq = 0, promoted = '{}'"
            )

    monkeypatch.setattr(promote, "_complete_rejections", crash_after)
    upload = await run(await put(meta_file(days=1, ads=2)))
    assert crashes == [[(2,)]]
    assert (upload.status, upload.error_code) == ("failed", "nothing_promoted")
    assert query("SELECT count(*) FROM upload_rejections WHERE raw IS NOT NULL") == [(2,)]
