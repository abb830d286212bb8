"""Third step: refuses a file with too few valid rows, and names the most common reasons."""

from __future__ import annotations

from collections.abc import Sequence

from weighbridge.model.counts import counted
from weighbridge.model.errors import Refused
from weighbridge.model.upload import Upload
from weighbridge.postgres import roles
from weighbridge.uploads import history
from weighbridge.uploads.attempt import Attempt
from weighbridge.uploads.context import Context
from weighbridge.uploads.stored_file import pipeline_of

REASONS = 3  # number of reasons shown for a refused file


async def check_threshold(attempt: Attempt, ctx: Context) -> None:
    """Refuse a file with too few valid rows, and give the most common reasons."""
    upload, pipeline = attempt.upload, pipeline_of(attempt.upload, ctx)
    bins = upload.bins
    enough = bins.valid_share >= pipeline.min_valid or upload.force_partial
    if bins.accepted and enough:
        return
    async with ctx.db.fenced(attempt.lease, roles.PROMOTE, durable=False) as tx:
        why = _most_common(await history.reasons(tx, upload.id, REASONS))
    if not bins.accepted:
        none = (
            "The only row is not valid."
            if bins.data_rows == 1
            else f"None of the {bins.data_rows} rows is valid."
        )
        raise Refused("no_valid_rows", f"{none} {why}{rejects_hint(upload)}")
    raise Refused(
        "too_many_invalid_rows",
        f"Only {bins.valid_share:.1%} of {bins.data_rows} rows are valid, expected at least "
        f"{pipeline.min_valid:.0%}. {why}{rejects_hint(upload)} No row of this file was loaded. "
        "Correct the complete file and load it again; or load the valid rows with force_partial, and then the "
        "corrected rejects.",
    )


def _most_common(reasons: Sequence[history.RejectionReason]) -> str:
    """`Most common: bad_date in 'Filed', 120 rows (…); …`, each with an example."""
    if not reasons:
        return ""
    shown = []
    for reason in reasons:
        column = f" in {reason.column_name!r}" if reason.column_name else ""
        shown.append(f"{reason.code}{column}, {counted(reason.rows, 'row')} ({reason.example.rstrip('.')})")
    return f"Most common: {'; '.join(shown)}. "


def rejects_hint(upload: Upload) -> str:
    return f"See why: GET /api/uploads/{upload.id}/rejects, or weighbridge uploads rejects {upload.id}."
