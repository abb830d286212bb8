"""Fourth step, of projects only: all files have ended → the keywords are grouped, once (S2 §6)."""

from __future__ import annotations

from weighbridge.db import grouping, projects
from weighbridge.db.grouping import Grouped, Place
from weighbridge.db.pool import Lease
from weighbridge.model.project import Project
from weighbridge.steps.context import Context

ROLE = "weighbridge_group"


async def finish(ctx: Context, lease: Lease, project: Project) -> Grouped | None:
    """Make the groups, or None where a file has not ended or nothing began since the last time."""
    async with ctx.db.fenced(lease, ROLE) as tx:
        if not await projects.may_group(tx, lease):
            return None
        await grouping.prepare(tx)
        grouped = await grouping.group(tx, Place(project.workspace_id, project.id))
        await projects.note_grouped(tx, lease)
    return grouped
