"""`/api/uploads/{id}/rejects`: the refused rows, streamed as CSV."""

from __future__ import annotations

from uuid import UUID

from fastapi import APIRouter
from fastapi.responses import StreamingResponse

from weighbridge.api.access import SECURITY, Key, TheApp, needs
from weighbridge.api.problems import documented
from weighbridge.api.uploads import find
from weighbridge.steps.rejects import rejects_csv

router = APIRouter(tags=["uploads"])


@router.get(
    "/api/uploads/{upload_id}/rejects",
    response_class=StreamingResponse,
    responses={
        200: {
            "description": "The file's own columns in their order, then line, code and reason. Cells that a "
            "spreadsheet would take for a formula have a leading apostrophe.",
            "content": {"text/csv": {"schema": {"type": "string"}}},
        },
        **documented(_404="No such upload.", _422="Not a UUID."),
    },
    openapi_extra={"security": SECURITY},
)
@needs("read")
async def get_rejects(upload_id: UUID, key: Key, app: TheApp) -> StreamingResponse:
    """The rows that were refused, to be mended and sent again."""
    upload = await find(app, key, upload_id)
    headers = {
        "Content-Disposition": f'attachment; filename="rejects-{upload.id}.csv"',
        "X-Content-Type-Options": "nosniff",
    }
    return StreamingResponse(
        rejects_csv(app.db, upload), media_type="text/csv; charset=utf-8", headers=headers
    )
