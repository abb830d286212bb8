"""Running the steps of one upload by hand: to stop between them, to give them other limits, or to make them fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

from tests.engine.conftest import CLAIM
from weighbridge.delivery.context import Context
from weighbridge.uploads import queue
from weighbridge.uploads.attempt import Attempt
from weighbridge.uploads.parse import parse
from weighbridge.uploads.promote import promote

Query = Callable[..., list[tuple[Any, ...]]]


async def claim(ctx: Context) -> Attempt:
    async with ctx.db.tx() as tx:
        claimed = await queue.claim(tx, replace(CLAIM, pipelines=tuple(ctx.pipelines)))
    assert claimed.lease is not None
    assert claimed.upload is not None
    return Attempt(claimed.lease, claimed.upload)


async def reload(ctx: Context, attempt: Attempt) -> Attempt:
    async with ctx.db.tx() as tx:
        upload = await queue.get(tx, attempt.upload.id)
    assert upload is not None
    return Attempt(attempt.lease, upload)


async def parse_by_hand(ctx: Context) -> Attempt:
    attempt = await claim(ctx)
    await parse(attempt, ctx)
    return await reload(ctx, attempt)


async def promote_by_hand(ctx: Context, upload_id: UUID) -> Attempt:
    attempt = await parse_by_hand(ctx)
    assert attempt.upload.id == upload_id
    await promote(attempt, ctx)
    return await reload(ctx, attempt)


def trouble(query: Query, body: str, *, table: str = "daily_metrics", times: int = 1_000_000) -> None:
    """Make the first `times` inserts into a table run `body`. The sequence counts through rollbacks."""
    query(
        f"CREATE SEQUENCE public.troubles; GRANT USAGE ON SEQUENCE public.troubles TO PUBLIC;"
        f"CREATE FUNCTION public.trouble() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN"
        f" IF nextval('public.troubles') <= {times} THEN {body} END IF; RETURN NULL; END $$;"
        f"CREATE TRIGGER trouble AFTER INSERT ON {table} FOR EACH STATEMENT EXECUTE FUNCTION public.trouble()"
    )
