"""`weighbridge recover` and `weighbridge clean`: maintenance that workers also do automatically."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weighbridge.cli.application import with_app
from weighbridge.cli.options import AsJson
from weighbridge.cli.output import out, print_json

if TYPE_CHECKING:
    from weighbridge.app import App


def recover(as_json: AsJson = False) -> None:
    """Return uploads to the queue if their worker has stopped responding."""

    async def work(app: App) -> list[Any]:
        from weighbridge.engine import recover

        async with app.db.tx() as tx:
            return list(await recover.recover(tx, app.settings.max_crashes))

    found = with_app(work)
    if as_json:
        print_json([vars(each) for each in found])
        return
    for each in found:
        result = "failed: too many crashes" if each.gave_up else "returned to its queue"
        out().print(f"{each.queue} {each.subject}: {each.worker} stopped responding, {result}", markup=False)
    if not found:
        out().print("Nothing to recover.")


def clean(as_json: AsJson = False) -> None:
    """Delete staged rows, stored files and history whose retention period is over, and abandoned scratch files.

    Production tables are never changed.
    """

    async def work(app: App) -> tuple[int, int, int, int]:
        from weighbridge import retention
        from weighbridge.storage.retention import retain
        from weighbridge.uploads.retention import clean, sweep

        rows, files, blobs = await clean(app.ctx), sweep(app.ctx.scratch), await retain(app.ctx)
        removed = await retention.expire(app.db, app.ctx.limits, at_once=True)
        return rows, files, blobs, sum(removed.values())

    rows, files, blobs, records = with_app(work)
    if as_json:
        print_json({"rows": rows, "scratch_files": files, "blobs": blobs, "records": records})
    else:
        out().print(
            f"{rows:,} staged rows, {files:,} scratch files, {blobs:,} stored files and {records:,} old records "
            "removed."
        )
