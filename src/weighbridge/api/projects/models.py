"""Request and response models for projects."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Annotated
from uuid import UUID

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from weighbridge.uploads.check_request import HIGHEST_PROJECT


def _digits(value: object) -> object:
    """Accept only whole numbers: not 7.0, 1_000 or true."""
    written = isinstance(value, str) and not (value.isascii() and value.isdigit())
    if written or isinstance(value, bool):
        raise PydanticCustomError("int_parsing", "not a whole number")
    return value


Number = Annotated[int, BeforeValidator(_digits), Field(ge=1, le=HIGHEST_PROJECT)]
Text = Annotated[str, Field(pattern=r"^[^\x00]*$")]  # Postgres cannot store NUL in text


class JobStatus(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


class ProjectStatus(StrEnum):
    IDLE = "idle"
    QUEUED = "queued"
    PROCESSING = "processing"
    GROUPING = "grouping"
    COMPLETE = "complete"


# Status ----------------------------------------------------------------------------------------------------


class ProjectRowsOut(BaseModel):
    rows_total: int = Field(description="Rows of all files read so far.")
    rows_processed: int = Field(description="Rows processed so far.")


class FileErrorOut(BaseModel):
    """A failed file. It counts as processed."""

    filename: str | None
    job_id: UUID
    error: str | None
    message: str | None


class DuplicateFileOut(BaseModel):
    """A duplicate file: shown, not counted."""

    filename: str | None
    duplicate_of: UUID
    times: int


class JobFileOut(BaseModel):
    """One file of the project with the status of its job."""

    job_id: UUID
    filename: str | None
    status: JobStatus
    attempts: int
    rows_total: int
    rows_processed: int
    inserted: int
    duplicate: int = Field(description="Keywords repeated in the file or known from another file.")
    invalid: int
    error: str | None
    message: str | None


class ProcessingStatusOut(BaseModel):
    """The status of a project's files, read from their jobs at one moment.

    Poll until `locked` is false and `processedFileCount` equals `uploadedFileCount`.
    """

    project_id: int
    locked: bool = Field(description="True while the groups cannot be edited.")
    status: ProjectStatus
    current_file: str | None
    queued_jobs: int
    running_jobs: int
    succeeded_jobs: int
    failed_jobs: int
    progress: ProjectRowsOut
    uploadedFiles: list[str | None] = Field(description="In order of receipt.")
    uploadedFileCount: int
    processedFiles: list[str | None] = Field(description="Files that succeeded or failed.")
    processedFileCount: int
    currentFileName: str | None
    queuedFiles: list[str | None]
    fileErrors: list[FileErrorOut]
    duplicateFiles: list[DuplicateFileOut]
    queuedJobs: int
    runningJobs: int
    files: list[JobFileOut]
    grouped_at: datetime | None
    groupings: int


# Projects and jobs -----------------------------------------------------------------------------------------


class ProjectIn(BaseModel):
    """A project to create or rename."""

    model_config = ConfigDict(extra="forbid")
    name: str = Field(description="1 to 200 printable characters.")
    project_id: Number | None = Field(
        None, description="The project's number. Default: the next free number of the workspace."
    )


class ProjectOut(BaseModel):
    project_id: int
    name: str
    created_at: datetime
    grouped_at: datetime | None
    groupings: int


class ProjectsOut(BaseModel):
    """A page, by number. Pass `next` as `after` to get the next page."""

    projects: list[ProjectOut]
    next: str | None


class WholeProjectOut(ProjectOut):
    """A project with counts of its files."""

    status: ProjectStatus
    locked: bool
    files: int
    duplicate_files: int
    queued_jobs: int
    running_jobs: int
    succeeded_jobs: int
    failed_jobs: int
    rows_total: int
    rows_processed: int
    inserted: int
    duplicate: int
    invalid: int


class JobOut(BaseModel):
    """A row of `csv_processing_jobs`."""

    id: UUID
    project_id: int
    csv_upload_id: UUID
    status: JobStatus
    source_filename: str | None
    idempotency_key: str = Field(description="The SHA-256 of the file.")
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


class JobsOut(BaseModel):
    """A page, in order of receipt. Pass `next` as `after` to get the next page."""

    jobs: list[JobOut]
    next: str | None


class SkippedOut(BaseModel):
    """A failed job that was not retried, and the reason."""

    job_id: UUID
    error: str
    message: str


class RetriedOut(BaseModel):
    project_id: int
    retried: list[UUID]
    skipped: list[SkippedOut]


class KickedOut(BaseModel):
    project_id: int
    status: ProjectStatus
    locked: bool


# Groups ----------------------------------------------------------------------------------------------------


class KeywordGroupOut(BaseModel):
    """A group of keywords with the same meaning."""

    id: UUID
    name: str = Field(description="Set by a user, or the parent keyword.")
    renamed: bool
    parent: str | None = Field(
        description="The leading keyword: highest volume, then shortest, then first in alphabetical order."
    )
    tokens: str | None = Field(
        description="The words that its keywords share; null if the group was created manually."
    )
    confirmed: bool
    created_at: datetime
    keywords: int
    volume: int


class KeywordGroupsOut(BaseModel):
    """A page, ordered by parent keyword. Pass `next` as `after` to get the next page."""

    groups: list[KeywordGroupOut]
    next: str | None


class KeywordOut(BaseModel):
    keyword_normalized: str
    keyword: str
    tokens: str
    volume: int | None
    difficulty: Decimal | None
    cpc: Decimal | None
    clicks: int | None
    impressions: int | None
    group_id: UUID | None = Field(description="Null until the files are processed.")
    by_hand: bool
    upload_id: UUID
    line: int


class KeywordsOut(BaseModel):
    """A page, in alphabetical order. Pass `next` as `after` to get the next page."""

    keywords: list[KeywordOut]
    next: str | None


class MergeOut(BaseModel):
    """A word that is merged into another."""

    token: str
    into: str


class MergesOut(BaseModel):
    merges: list[MergeOut]


class MergeIn(BaseModel):
    model_config = ConfigDict(extra="forbid")
    tokens: list[Text] = Field(description="1 to 1000 single words.")
    into: Text


class UnmergeIn(BaseModel):
    model_config = ConfigDict(extra="forbid")
    tokens: list[Text] = Field(description="1 to 1000 single words.")


class RenameIn(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str | None = Field(
        description="1 to 200 printable characters; null: named after its parent keyword."
    )


class MoveIn(BaseModel):
    """The target of a move: a group, a new group or, with neither, automatic grouping."""

    model_config = ConfigDict(extra="forbid")
    keywords: list[Text] = Field(description="1 to 1000 of the project's keywords.")
    group_id: UUID | None = None
    new_group: str | None = None


class MovedOut(BaseModel):
    group: KeywordGroupOut | None = Field(
        description="The target group; null after a return to automatic grouping."
    )


class RegroupIn(BaseModel):
    model_config = ConfigDict(extra="forbid")
    by_hand: bool = Field(False, description="Include keywords that were moved manually.")


class RegroupedOut(BaseModel):
    keywords: int = Field(description="Number of keywords that changed their group.")
    groups: int = Field(description="Number of groups that they are in now.")
