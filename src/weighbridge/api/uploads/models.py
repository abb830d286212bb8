"""Request and response models for uploads."""

from __future__ import annotations

from dataclasses import asdict
from datetime import date, datetime
from typing import Any, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from weighbridge.model.read_options import ABOUT_RETRY
from weighbridge.model.states import Status
from weighbridge.model.upload import Upload
from weighbridge.uploads.fixed_rows import Links, Rejects


class Sent(BaseModel):
    """An accepted file. With `duplicate`, the earlier upload with the same content."""

    upload_id: UUID
    status: Status
    duplicate: bool
    filename: str | None
    reason: str | None = Field(
        None,
        description="Why it is a duplicate: duplicate_content, duplicate_completed, duplicate_processing, "
        "duplicate_preview, …",
    )


class Deferred(BaseModel):
    """An accepted file that waits for the file store. Storing is retried automatically."""

    status: Literal["pending_retry"]
    queue_id: UUID
    storage_status: Literal["pending_retry"]
    upload_id: UUID


class NotSent(BaseModel):
    """A refused file of a request with several files."""

    filename: str | None
    error: str
    message: str


class SentMany(BaseModel):
    """Several files, in the order of the request."""

    uploads: list[Sent | Deferred | NotSent]


class BinsOut(BaseModel):
    """The records of the file by result; the counts add up to the whole file."""

    preamble: int
    header: int
    blank: int
    totals: int
    accepted: int
    duplicate: int
    rejected: int


class ProgressOut(BaseModel):
    rows_read: int
    staged: dict[str, int] = Field(description="Rows staged, by entity.")
    promoted_rows: int
    total_rows: int


class ChangesOut(BaseModel):
    """Changes to one production table."""

    inserted: int = 0
    updated: int = 0
    unchanged: int = 0
    superseded: int = Field(
        0, description="Rows that were not written, because a later file has written them."
    )
    failed: int = 0


class ColumnOut(BaseModel):
    """One column of the file."""

    header: str
    use: Literal["mapped", "kept", "unused"] = Field(
        description="mapped: it fills fields; kept: it is read for another purpose, see `note`; unused: it is not read."
    )
    fields: list[str] = Field(description="The fields that it fills, such as campaign.name.")
    note: str = Field(description="The purpose of a kept column; else empty.")


class MissingFieldOut(BaseModel):
    """A field that the pipeline expects and that no column of the file fills."""

    field: str
    header: str = Field(description="The most common header of this field.")
    guess: str = Field(description="A column of the file with a similar header; empty where there is none.")


class UploadOut(BaseModel):
    """Everything about an upload."""

    upload_id: UUID
    workspace_id: UUID
    client_id: UUID | None
    platform: str | None
    project_id: int | None
    pipeline: str
    source: str
    filename: str | None
    source_batch_id: str | None
    released_batch_id: str | None = Field(
        description="The batch name that it had before an operator released it for another file."
    )
    file_kind: str
    byte_size: int
    content_sha256: str
    status: Status
    storage_status: str = Field(
        description="stored; pending_retry: the file store is not available, storing is retried automatically; "
        "retry_failed: all retries failed; removed: deleted after the retention period."
    )
    row_count: int | None
    error_code: str | None
    error_text: str | None
    created_by: UUID | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    force_partial: bool
    forced: bool
    preview: bool = Field(description="The upload is put on hold for a preview after staging.")
    held: bool = Field(description="It is on hold now: `POST …/promote` or `POST …/discard`.")
    failures: int
    crashes: int
    total_rows: int
    promoted_rows: int
    failed_rows: int
    open_rejects: int = Field(description="Rejected rows that no later file has fixed.")
    fixed_rows: int = Field(description="Rejected rows that a later file has fixed.")
    warnings: int = Field(description="Number of warnings; `GET …/warnings` lists them.")
    bins: BinsOut
    progress: ProgressOut
    promoted: dict[str, ChangesOut] = Field(description="By entity.")
    affected_dates: list[date]
    columns: list[ColumnOut] = Field(description="Each column of the file, in its order, and its use.")
    missing_fields: list[MissingFieldOut] = Field(
        description="Fields that the pipeline expects and that no column of the file fills."
    )
    reading: dict[str, str | bool] = Field(
        description="Read options that were given for this file: encoding, delimiter, decimal, date_order, "
        "sum_breakdowns. An option that is not listed was detected from the file."
    )


class LinkOut(BaseModel):
    """Another upload, and how many rejected rows one of the two has fixed in the other."""

    upload_id: UUID
    filename: str | None
    rows: int


class UploadDetail(UploadOut):
    """An upload and the uploads that it is linked to through fixed rejects files."""

    fixes: list[LinkOut] = Field(description="Uploads whose rejected rows this one fixes.")
    fixed_by: list[LinkOut] = Field(description="Uploads that fixed rejected rows of this one.")


class UploadsOut(BaseModel):
    """A page, newest first. Pass `next` as `before` to get the next page."""

    uploads: list[UploadOut]
    next: str | None


class WarnedOut(BaseModel):
    """An assumption, an unused column, a missing field, or a fact about a loaded row.

    `row_index` is -1 where the warning is about the whole file.
    """

    row_index: int
    line: int
    code: str
    message: str


class WarningsOut(BaseModel):
    """A page, in the file's order. Pass `next` as `after` to get the next page."""

    warnings: list[WarnedOut]
    next: str | None


class RetryIn(BaseModel):
    """Changes for the next attempt. A read option replaces the stored one; `detect` removes it."""

    model_config = ConfigDict(extra="forbid")
    force_partial: bool = Field(
        False, description="Promote the valid rows even if too many rows are invalid."
    )
    as_newest: bool = Field(
        False,
        description="Count the file as arrived now, so that its rows replace rows of later files. Otherwise those "
        "stay as they are, and its rows count as superseded.",
    )
    encoding: str | None = Field(None, description=ABOUT_RETRY["encoding"])
    delimiter: str | None = Field(None, description=ABOUT_RETRY["delimiter"])
    decimal: str | None = Field(None, description=ABOUT_RETRY["decimal"])
    date_order: str | None = Field(None, description=ABOUT_RETRY["date_order"])
    sum_breakdowns: bool | None = Field(None, description=ABOUT_RETRY["sum_breakdowns"])


class RetryOut(BaseModel):
    upload_id: UUID
    status: Status


class DismissOut(BaseModel):
    upload_id: UUID
    status: Status
    dismissed: bool


class ReleaseOut(BaseModel):
    """`released_batch_id` is free: another file can be loaded under this name."""

    upload_id: UUID
    status: Status
    released_batch_id: str


class Health(BaseModel):
    status: str


def upload_detail(upload: Upload, rejects: Rejects, links: Links) -> UploadDetail:
    named = {name: [vars(link) for link in found] for name, found in vars(links).items()}
    return UploadDetail.model_validate({**upload_out(upload, rejects).model_dump(), **named})


def upload_out(upload: Upload, rejects: Rejects) -> UploadOut:
    same: dict[str, Any] = {
        name: getattr(upload, name) for name in UploadOut.model_fields if hasattr(upload, name)
    }
    progress = ProgressOut(
        rows_read=upload.rows_read,
        staged=upload.staged,
        promoted_rows=upload.promoted_rows,
        total_rows=upload.total_rows,
    )
    return UploadOut(
        **same
        | {
            "upload_id": upload.id,
            "held": upload.on_hold,
            "content_sha256": upload.content_sha256.hex(),
            "bins": upload.bins.as_dict(),
            "progress": progress,
            "affected_dates": list(upload.affected_dates),
            "columns": [asdict(each) for each in upload.column_report.columns],
            "missing_fields": [asdict(each) for each in upload.column_report.missing],
            "reading": upload.reading.as_dict(),
            "open_rejects": rejects.open,
            "fixed_rows": rejects.fixed,
        }
    )
