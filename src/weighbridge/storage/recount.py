"""Compares the usage counters with the store (`weighbridge storage recount`).

It reads the database's clock, lists the blobs, and compares each workspace in one transaction in which nothing else is
counted. The listing is older than the comparison; weighbridge.recount_storage explains what the comparison still shows.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from weighbridge.postgres import clock
from weighbridge.storage import usage
from weighbridge.storage.context import Context
from weighbridge.storage.usage import CounterDifference

Listing = dict[UUID, list[tuple[str, int]]]


@dataclass(frozen=True)
class Recounted:
    """The differences in one workspace."""

    workspace_id: UUID
    users: tuple[CounterDifference, ...]
    orphans: tuple[tuple[str, int], ...]  # key and size of blobs without an upload
    missing: tuple[UUID, ...]  # uploads whose blob is missing
    removed: int = 0  # number of orphans removed


async def recount(
    ctx: Context, workspace_id: UUID | None, *, dry: bool = False, remove_orphans: bool = False
) -> list[Recounted]:
    """Compare and correct one workspace or all; returns those with differences. Raises RetryLater."""
    async with ctx.db.tx() as tx:
        began = await clock.now(tx)
        known = {workspace_id} if workspace_id else set(await usage.workspaces(tx))
    listing = await _listed(ctx, workspace_id)
    found = [await _compare(ctx, each, listing[each], began, dry=dry) for each in sorted({*known, *listing})]
    if remove_orphans and not dry:
        # Blobs of a workspace that is not in this database may belong to another database.
        found = [await _remove_orphans(ctx, each) if each.workspace_id in known else each for each in found]
    return [each for each in found if each.users or each.orphans or each.missing]


async def _listed(ctx: Context, workspace_id: UUID | None) -> Listing:
    """By workspace: key within it, and size."""
    listing: Listing = defaultdict(list)
    async for key, size in ctx.blobs.listing(workspace_id):
        owner, _, rest = key.partition("/")
        listing[UUID(owner)].append((rest, size))
    return listing


async def _compare(
    ctx: Context, workspace_id: UUID, listed: list[tuple[str, int]], began: datetime, *, dry: bool
) -> Recounted:
    async with ctx.db.tx(workspace_id=workspace_id) as tx:
        found = await usage.recount(tx, listed, began, dry=dry)
    missing: tuple[UUID, ...] = ()
    if found.missing:
        # A waiting file may have been stored after the listing: the second look finds it.
        there = {key for key, _ in (await _listed(ctx, workspace_id))[workspace_id]}
        missing = tuple(upload_id for upload_id, key in found.missing if key not in there)
    return Recounted(workspace_id, found.users, found.orphans, missing)


async def _remove_orphans(ctx: Context, found: Recounted) -> Recounted:
    """Safe after the comparison: an old key without an upload can get no new one (weighbridge.may_be_removed)."""
    for key, _ in found.orphans:
        await ctx.blobs.delete(f"{found.workspace_id}/{key}")
    return Recounted(found.workspace_id, found.users, found.orphans, found.missing, len(found.orphans))
