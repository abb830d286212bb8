"""A project: its files as jobs, and their progress."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any
from uuid import UUID


@dataclass(frozen=True)
class Project:
    """One row of `projects`. Its number is unique within its workspace; its key is unique everywhere."""

    workspace_id: UUID
    id: int
    key: UUID
    name: str
    created_at: datetime
    grouped_at: datetime | None
    groupings: int
    failures: int  # consecutive failed groupings


@dataclass(frozen=True)
class File:
    """A file of a project and the state of its job."""

    job_id: UUID
    filename: str | None
    status: str  # queued, running, succeeded, failed
    attempts: int
    rows_total: int
    rows_processed: int
    inserted: int
    duplicate: int  # repeated in the file, or known from another one
    invalid: int
    error: str | None
    message: str | None


@dataclass(frozen=True)
class Duplicate:
    """A file that was already known: shown, never counted."""

    filename: str | None
    duplicate_of: UUID
    times: int


@dataclass(frozen=True)
class ProjectStatus:
    """The status of a project's files, from its jobs and its lease, at one moment."""

    project_id: int
    name: str
    leased: bool
    ungrouped: bool  # a job began after the last grouping
    grouped_at: datetime | None
    groupings: int
    files: tuple[File, ...]  # in order of arrival
    duplicates: tuple[Duplicate, ...]

    @property
    def locked(self) -> bool:
        return is_locked(leased=self.leased, under_way=self.count("queued") + self.count("running"))

    @property
    def status(self) -> str:
        return state_of(
            leased=self.leased,
            ungrouped=self.ungrouped,
            queued=self.count("queued"),
            running=self.count("running"),
            files=len(self.files),
        )

    def count(self, status: str) -> int:
        return sum(file.status == status for file in self.files)

    def as_dict(self) -> dict[str, Any]:
        """All fields and names of the status response, in one object."""
        queued, running, succeeded, failed = map(self.count, ("queued", "running", "succeeded", "failed"))
        current = next((file.filename for file in self.files if file.status == "running"), None)
        processed = [file.filename for file in self.files if file.status in ("succeeded", "failed")]
        return {
            "project_id": self.project_id,
            "locked": self.locked,
            "status": self.status,
            "current_file": current,
            "queued_jobs": queued,
            "running_jobs": running,
            "succeeded_jobs": succeeded,
            "failed_jobs": failed,
            "progress": {
                "rows_total": sum(file.rows_total for file in self.files),
                "rows_processed": sum(file.rows_processed for file in self.files),
            },
            "uploadedFiles": [file.filename for file in self.files],
            "uploadedFileCount": len(self.files),
            "processedFiles": processed,
            "processedFileCount": len(processed),
            "currentFileName": current,
            "queuedFiles": [file.filename for file in self.files if file.status == "queued"],
            "fileErrors": [
                {"filename": f.filename, "job_id": f.job_id, "error": f.error, "message": f.message}
                for f in self.files
                if f.status == "failed"
            ],
            "duplicateFiles": [asdict(duplicate) for duplicate in self.duplicates],
            "queuedJobs": queued,
            "runningJobs": running,
            "files": [asdict(file) for file in self.files],
            "grouped_at": self.grouped_at,
            "groupings": self.groupings,
        }


def is_locked(*, leased: bool, under_way: int) -> bool:
    """Whether the groups cannot be edited now."""
    return leased or under_way > 0


def state_of(*, leased: bool, ungrouped: bool, queued: int, running: int, files: int) -> str:
    """idle: no file yet; queued: no worker has it; then processing, grouping, complete."""
    if running or (leased and queued):
        return "processing"
    if queued:
        return "queued"
    if leased or ungrouped:
        return "grouping"
    return "complete" if files else "idle"


@dataclass(frozen=True)
class Job:
    """A row of `csv_processing_jobs`, for an administrator."""

    id: UUID
    project_id: int
    csv_upload_id: UUID
    status: str
    source_filename: str | None
    idempotency_key: str
    attempts: int
    error: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    upload_status: str
    error_code: str | None
    rows: int
    inserted: int
    duplicate: int
    invalid: int
