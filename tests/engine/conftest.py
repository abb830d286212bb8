"""What the engine's tests share: uploads to work on, and a worker to work on them."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from weighbridge.delivery.context import Context
from weighbridge.engine.options import WorkerOptions
from weighbridge.model.states import Status
from weighbridge.model.upload import Upload
from weighbridge.uploads import queue
from weighbridge.worker import run_until

HEADER = "Day,Campaign name,Campaign ID,Ad set name,Ad set ID,Ad name,Ad ID,Impressions,Link clicks,Amount spent (USD)"


def meta_line(day: str, ad: int, *, impressions: object = 100, spend: object = "1.50") -> str:
    """A row of a Meta daily export at ad level; 12020… are the lengths of real ids."""
    campaign, ad_set = ad // 4, ad // 2
    return (
        f"{day},Campaign {campaign},1202000000000{campaign:04}1,Ad set {ad_set},1202100000000{ad_set:04}1,"
        f"Ad {ad},1202200000000{ad:04}1,{impressions},{ad},{spend}"
    )


def meta_file(days: int = 3, ads: int = 4, extra: tuple[str, ...] = ()) -> bytes:
    lines = [meta_line(f"2026-01-{day + 1:02}", ad) for day in range(days) for ad in range(ads)]
    return ("\n".join([HEADER, *lines, *extra]) + "\n").encode()


Put = Callable[..., Awaitable[UUID]]
Run = Callable[..., Awaitable[Upload]]


@pytest.fixture
def put(ctx: Context, workspace: UUID, tmp_path: Path) -> Put:
    """`await put(content)`: store a file and record its upload, as intake does."""

    async def put(content: bytes, **overrides: Any) -> UUID:
        digest = hashlib.sha256(content).digest()
        file = tmp_path / f"{digest.hex()}.csv"
        file.write_bytes(content)
        values: dict[str, Any] = {
            "workspace_id": workspace,
            "client_id": None,
            "platform": "meta",
            "source": "manual",
            "pipeline": "ads",
            "filename": "meta.csv",
            "file_url": await ctx.blobs.put(f"{workspace}/2026/01/01/{digest.hex()}", file),
            "file_kind": "csv",
            "content_sha256": digest,
            "byte_size": len(content),
        }
        values |= overrides
        lane = ctx.pipelines[values["pipeline"]].lane(values["client_id"], values["platform"], None)
        new = queue.NewUpload(**{"lane": lane, **values})
        async with ctx.db.tx("weighbridge_intake", new.workspace_id) as tx:
            received = await queue.receive(tx, new)
        return received.upload_id if isinstance(received, queue.Known) else received

    return put


@pytest.fixture
def run(ctx: Context) -> Run:
    """`await run(upload_id)`: work until the upload has ended; the upload as it ended."""

    async def run(upload_id: UUID, **options: Any) -> Upload:
        chosen = WorkerOptions(poll=timedelta(seconds=0.05), **options)
        return (await run_until(ctx, chosen, [upload_id]))[0]

    return run


CLAIM = queue.ClaimRequest(
    worker="test",
    sources=(Status.PENDING, Status.STAGING_COMPLETE),
    pipelines=("ads",),
    lease=timedelta(seconds=60),
    per_workspace=3,
)
