"""`/uploads/{id}`: the state of one upload, the result of its rows, and the available actions."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Annotated
from urllib.parse import urlencode
from uuid import UUID

from fastapi import Query, Request
from fastapi.responses import HTMLResponse, Response
from starlette.datastructures import FormData

from weighbridge.access.keys import ApiKey
from weighbridge.api import cursor
from weighbridge.api.access import Key, TheApp
from weighbridge.api.uploads.manage import find_upload
from weighbridge.console import layout
from weighbridge.console.uploads import read_options as uploads_read_options
from weighbridge.model.read_options import ReadOptions
from weighbridge.model.states import LIVE, Status
from weighbridge.model.upload import Bins, Upload
from weighbridge.postgres import roles
from weighbridge.uploads import browse, fixed_rows, history, operator_retry
from weighbridge.uploads import release_batch as uploads_release_batch
from weighbridge.uploads.read_options import TEXTS, read_options

router = layout.router()
PAGE = 50
REASONS = 50
# In the order of a file: text above the header, header, rows, other lines.
_BINS = ("preamble", "header", "accepted", "duplicate", "rejected", "totals", "blank")
assert set(_BINS) == {each.name for each in fields(Bins)}


@router.get("/uploads/{upload_id}")
@layout.page("read")
async def show(request: Request, upload_id: UUID, key: Key, app: TheApp) -> HTMLResponse:
    upload = await find_upload(app, key, upload_id)
    async with app.db.tx(roles.TENANT, key.workspace_id) as tx:
        reasons = await history.reasons(tx, upload.id, REASONS)
        warnings = await history.warnings(tx, upload.id, None, PAGE)
        again = (await browse.sent_again(tx, [upload.id])).get(upload.id, [])
        rejects = (await fixed_rows.rejects(tx, [upload.id])).get(upload.id, fixed_rows.NO_REJECTS)
        links = await fixed_rows.links(tx, upload.id)
    async with app.db.tx() as tx:  # tenants cannot read attempts; the upload was checked above
        moments = [_visible_to(moment, key) for moment in await history.trace(tx, upload.id)]
    return await layout.show(
        request,
        "upload.html",
        upload=upload,
        active=_under_way(upload),
        bins=[(name, getattr(upload.bins, name), f"bin-{name}") for name in _BINS],
        reasons=[(reason, _rows_address(upload, reason)) for reason in reasons],
        more_reasons=len(reasons) == REASONS,
        warnings=warnings,
        again=again,
        rejects=rejects,
        rejects_removed=fixed_rows.REMOVED if fixed_rows.removed(upload, rejects) else None,
        links=links,
        moments=moments,
        retry=_retry(upload),
        reading=uploads_read_options.facts(upload.reading),
        choices=uploads_read_options.stored_choices(upload.reading),
    )


@router.get("/uploads/{upload_id}/rows")
@layout.page("read")
async def rows(
    request: Request,
    upload_id: UUID,
    key: Key,
    app: TheApp,
    code: Annotated[str, Query(max_length=200, pattern=layout.NO_NUL)],
    column: Annotated[str | None, Query(max_length=500, pattern=layout.NO_NUL)] = None,
    after: Annotated[str | None, Query()] = None,
) -> HTMLResponse:
    """Rejected rows with one reason, as in the file."""
    upload = await find_upload(app, key, upload_id)
    async with app.db.tx(roles.TENANT, key.workspace_id) as tx:
        behind = cursor.read("after", after, browse.RejectionCursor, int, str)
        found = await browse.rejected_for(
            tx, upload.id, browse.RejectionFilter(code, column), behind, PAGE + 1
        )
        rejects = (await fixed_rows.rejects(tx, [upload.id])).get(upload.id, fixed_rows.NO_REJECTS)
    removed = fixed_rows.REMOVED if fixed_rows.removed(upload, rejects) else None
    page = found[:PAGE]
    asked = {"code": code, **({"column": column} if column is not None else {})}
    last = cursor.write(page[-1].row_index, page[-1].stage) if len(found) > PAGE else None
    more = f"?{urlencode({**asked, 'after': last})}" if last else ""
    return await layout.show(
        request,
        "rejected.html",
        upload=upload,
        code=code,
        column=column,
        rows=page,
        more=more,
        removed=removed,
    )


@router.post("/uploads/{upload_id}/retry")
@layout.page("operate")
async def retry(request: Request, upload_id: UUID, key: Key, app: TheApp) -> Response:
    upload = await find_upload(app, key, upload_id)
    form = await request.form()
    forced = form.get("force_partial") == "true"
    options = _options(upload, form)
    await operator_retry.reopen(
        app.db, upload, force_partial=forced, actor=f"key {key.id}", limited=True, reading=options
    )
    sentence = "The upload is queued again."
    if options is not None and options != upload.reading:
        sentence = "The upload is queued again with the new read options."
    elif upload.error_code == "discarded":
        sentence = "The upload is queued again and will be loaded without another preview."
    elif upload.preview:
        sentence = "The upload is queued again and will be put on hold for a preview."
    elif forced or upload.force_partial:
        sentence = "The upload is queued again. Its valid rows will be loaded."
    return await layout.back(request, f"/uploads/{upload_id}", sentence)


def _options(upload: Upload, form: FormData) -> ReadOptions | None:
    """All five read options of a form that has them: browsers do not send an unchecked checkbox."""
    if not any(name in form for name in TEXTS):
        return None
    given = {name: str(form.get(name, "")) for name in TEXTS}
    return read_options({**given, "sum_breakdowns": form.get("sum_breakdowns") == "true"}, upload.reading)


@router.post("/uploads/{upload_id}/dismiss")
@layout.page("operate")
async def dismiss(request: Request, upload_id: UUID, key: Key, app: TheApp) -> Response:
    await operator_retry.dismiss(app.db, await find_upload(app, key, upload_id), actor=f"key {key.id}")
    return await layout.back(
        request, f"/uploads/{upload_id}", "The upload is dismissed and no longer listed as a dead letter."
    )


@router.post("/uploads/{upload_id}/release-batch")
@layout.page("operate")
async def release_batch(request: Request, upload_id: UUID, key: Key, app: TheApp) -> Response:
    name = await uploads_release_batch.release_batch(
        app.db, await find_upload(app, key, upload_id), actor=f"key {key.id}"
    )
    sentence = f"The batch name {name} is free: the fixed file can be loaded under it."
    return await layout.back(request, f"/uploads/{upload_id}", sentence)


def _visible_to(moment: history.Moment, key: ApiKey) -> history.Moment:
    """Hide worker names and responses of consumers from keys without the scope admin."""
    if key.may("admin"):
        return moment
    if moment.what in ("delivered", "not delivered"):
        return replace(moment, detail=moment.detail.partition(":")[0])
    return replace(moment, detail="") if moment.what.startswith("attempt") else moment


def _under_way(upload: Upload) -> bool:
    return upload.status in LIVE and not upload.on_hold


def _rows_address(upload: Upload, reason: history.RejectionReason) -> str:
    column = {} if reason.column_name is None else {"column": reason.column_name}
    return f"/uploads/{upload.id}/rows?{urlencode({'code': reason.code, **column})}"


def _retry(upload: Upload) -> dict[str, bool]:
    """Which kinds of retry are possible."""
    may = upload.status in (Status.FAILED, Status.PARTIAL) and upload.storage_status != "removed"
    forcible = may and not upload.force_partial and upload.bins.rejected > 0
    return {"possible": may, "by_force": forcible, "after_all": upload.error_code == "discarded"}
