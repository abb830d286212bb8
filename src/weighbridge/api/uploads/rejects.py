"""`/api/uploads/{id}/rejects`: the rejected rows, streamed as CSV."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse

from weighbridge.api.access import SECURITY, Key, TheApp, needs
from weighbridge.api.error_responses import documented
from weighbridge.api.uploads.manage import find_upload
from weighbridge.uploads.write_rejects_file import RejectsForm, rejects_csv

router = APIRouter(tags=["uploads"])


@router.get(
    "/api/uploads/{upload_id}/rejects",
    response_class=StreamingResponse,
    responses={
        200: {
            "description": "The columns of the file in their order, then weighbridge_upload, weighbridge_row, "
            "weighbridge_line, weighbridge_code, weighbridge_reason and weighbridge_raw. Loading the file again drops "
            "these columns.",
            "content": {"text/csv": {"schema": {"type": "string"}}},
        },
        **documented(_404="No such upload.", _422="A parameter is invalid."),
    },
    openapi_extra={"security": SECURITY},
)
@needs("read")
async def get_rejects(
    upload_id: UUID,
    key: Key,
    app: TheApp,
    every: Annotated[
        bool, Query(alias="all", description="Include the rows that a later file has fixed.")
    ] = False,
    spreadsheet_safe: Annotated[
        bool,
        Query(
            description="Write an apostrophe before each cell that a spreadsheet program would run as a formula. "
            "Loading the file again removes it."
        ),
    ] = False,
) -> StreamingResponse:
    """Download the rejected rows, to fix them and load the file again."""
    upload = await find_upload(app, key, upload_id)
    headers = {
        "Content-Disposition": f'attachment; filename="rejects-{upload.id}.csv"',
        "X-Content-Type-Options": "nosniff",
    }
    return StreamingResponse(
        rejects_csv(app.db, upload, RejectsForm(every, spreadsheet_safe)),
        media_type="text/csv; charset=utf-8",
        headers=headers,
    )
