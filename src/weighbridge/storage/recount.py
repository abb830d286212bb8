"""Compares the usage counters with the store (`weighbridge storage recount`).

The database's clock is read, then the blobs are listed, then each workspace is compared in one transaction in which
nobody else counts. The listing is older than the comparison; weighbridge.recount_storage says what it still tells.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from weighbridge.postgres import clock
from weighbridge.storage import usage
from weighbridge.storage.context import Context
from weighbridge.storage.usage import Differing

Listing = dict[UUID, list[tuple[str, int]]]


@dataclass(frozen=True)
class Recounted:
    """One workspace: what did not agree."""

    workspace_id: UUID
    users: tuple[Differing, ...]
    orphans: tuple[tuple[str, int], ...]  # key and size of blobs that no upload names
    missing: tuple[UUID, ...]  # uploads whose blob is not there
    removed: int = 0  # of the orphans


async def recount(
    ctx: Context, workspace_id: UUID | None, *, dry: bool = False, remove_orphans: bool = False
) -> list[Recounted]:
    """Compare and mend, in one workspace or in all; those where something did not agree. Raises RetryLater."""
    async with ctx.db.tx() as tx:
        began = await clock.now(tx)
        known = {workspace_id} if workspace_id else set(await usage.workspaces(tx))
    listing = await _listed(ctx, workspace_id)
    found = [await _compare(ctx, each, listing[each], began, dry=dry) for each in sorted({*known, *listing})]
    if remove_orphans and not dry:
        # Of a workspace that the database does not know they may well be another database's.
        found = [await _rid_of_orphans(ctx, each) if each.workspace_id in known else each for each in found]
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
        # One that waited for the store may have been stored after it was listed: it is there the second time.
        there = {key for key, _ in (await _listed(ctx, workspace_id))[workspace_id]}
        missing = tuple(upload_id for upload_id, key in found.missing if key not in there)
    return Recounted(workspace_id, found.users, found.orphans, missing)


async def _rid_of_orphans(ctx: Context, found: Recounted) -> Recounted:
    """Safe after the comparison: an old key that nobody names can get no new upload (weighbridge.may_be_removed)."""
    for key, _ in found.orphans:
        await ctx.blobs.delete(f"{found.workspace_id}/{key}")
    return Recounted(found.workspace_id, found.users, found.orphans, found.missing, len(found.orphans))
