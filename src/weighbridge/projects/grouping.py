"""Groups the keywords of a project, once, when all its files have ended."""

from __future__ import annotations

from weighbridge.model.project import Project
from weighbridge.postgres import roles
from weighbridge.postgres.transactions import Lease
from weighbridge.projects import groups, queue
from weighbridge.projects.groups import Grouped, ProjectKey
from weighbridge.uploads.context import Context


async def group_keywords(ctx: Context, lease: Lease, project: Project) -> Grouped | None:
    """Make the groups. None if a file has not ended, or nothing began since the last grouping."""
    async with ctx.db.fenced(lease, roles.GROUP) as tx:
        if not await queue.may_group(tx, lease):
            return None
        await groups.prepare(tx)
        grouped = await groups.group_ungrouped(tx, ProjectKey(project.workspace_id, project.id))
        await queue.note_grouped(tx, lease)
    return grouped
