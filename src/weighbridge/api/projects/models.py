"""What is asked and answered about projects, as OpenAPI describes it."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Annotated
from uuid import UUID

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from weighbridge.uploads.request import HIGHEST_PROJECT


def _digits(value: object) -> object:
    """Nothing that only reads as a number: 7.0 and 1_000 are none, and true is not 1."""
    written = isinstance(value, str) and not (value.isascii() and value.isdigit())
    if written or isinstance(value, bool):
        raise PydanticCustomError("int_parsing", "not a whole number")
    return value


Number = Annotated[int, BeforeValidator(_digits), Field(ge=1, le=HIGHEST_PROJECT)]
Text = Annotated[str, Field(pattern=r"^[^\x00]*$")]  # Postgres knows no text with a NUL in it


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


class RowsOut(BaseModel):
    rows_total: int = Field(description="Rows of all files, as far as they have been read.")
    rows_processed: int = Field(description="Those of them that are through.")


class FileErrorOut(BaseModel):
    """A file that failed. It counts as processed."""

    filename: str | None
    job_id: UUID
    error: str | None
    message: str | None


class DuplicateFileOut(BaseModel):
    """A file that was here already: shown, never counted."""

    filename: str | None
    duplicate_of: UUID
    times: int


class FileOut(BaseModel):
    """One file of the project, as its job stands."""

    job_id: UUID
    filename: str | None
    status: JobStatus
    attempts: int
    rows_total: int
    rows_processed: int
    inserted: int
    duplicate: int = Field(description="Told twice in the file, or known from another one.")
    invalid: int
    error: str | None
    message: str | None


class ProcessingStatusOut(BaseModel):
    """How a project's files stand, all of it from their job rows, at one moment.

    Go on asking until `locked` is false and `processedFileCount` equals `uploadedFileCount`.
    """

    project_id: int
    locked: bool = Field(description="May the groups not be edited now?")
    status: ProjectStatus
    current_file: str | None
    queued_jobs: int
    running_jobs: int
    succeeded_jobs: int
    failed_jobs: int
    progress: RowsOut
    uploadedFiles: list[str | None] = Field(description="In order of arrival.")
    uploadedFileCount: int
    processedFiles: list[str | None] = Field(description="Those that have ended, well or not.")
    processedFileCount: int
    currentFileName: str | None
    queuedFiles: list[str | None]
    fileErrors: list[FileErrorOut]
    duplicateFiles: list[DuplicateFileOut]
    queuedJobs: int
    runningJobs: int
    files: list[FileOut]
    grouped_at: datetime | None
    groupings: int


# Projects and jobs -----------------------------------------------------------------------------------------


class ProjectIn(BaseModel):
    """A project to make, or another name for one."""

    model_config = ConfigDict(extra="forbid")
    name: str = Field(description="1 to 200 printable characters.")
    project_id: Number | None = Field(
        None, description="Its number; without one it gets the next of the workspace."
    )


class ProjectOut(BaseModel):
    project_id: int
    name: str
    created_at: datetime
    grouped_at: datetime | None
    groupings: int


class ProjectsOut(BaseModel):
    """A page, by number. `next` is the `after` of the next page."""

    projects: list[ProjectOut]
    next: str | None


class WholeProjectOut(ProjectOut):
    """A project and its files in figures."""

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
    """A page, in order of arrival. `next` is the `after` of the next page."""

    jobs: list[JobOut]
    next: str | None


class SkippedOut(BaseModel):
    """A failed job that stays as it is, and why."""

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


class GroupOut(BaseModel):
    """Keywords of one meaning."""

    id: UUID
    name: str = Field(description="Given by hand, or as its parent is spelled.")
    renamed: bool
    parent: str | None = Field(description="Its head: highest volume, then shortest, then first by alphabet.")
    tokens: str | None = Field(
        description="The words that its keywords share; null where it was made by hand."
    )
    confirmed: bool
    created_at: datetime
    keywords: int
    volume: int


class GroupsOut(BaseModel):
    """A page, in the order of the parents. `next` is the `after` of the next page."""

    groups: list[GroupOut]
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
    group_id: UUID | None = Field(description="Null until the files have ended.")
    by_hand: bool
    upload_id: UUID
    line: int


class KeywordsOut(BaseModel):
    """A page, in the order of the alphabet. `next` is the `after` of the next page."""

    keywords: list[KeywordOut]
    next: str | None


class MergeOut(BaseModel):
    """A word that counts as another."""

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
    name: str | None = Field(description="1 to 200 printable characters; null: it goes by its parent again.")


class MoveIn(BaseModel):
    """Where keywords go: into a group, into a new one, or, with neither, back to where grouping puts them."""

    model_config = ConfigDict(extra="forbid")
    keywords: list[Text] = Field(description="1 to 1000 of the project's keywords.")
    group_id: UUID | None = None
    new_group: str | None = None


class MovedOut(BaseModel):
    group: GroupOut | None = Field(description="Where they are now; null where grouping placed them.")


class RegroupIn(BaseModel):
    model_config = ConfigDict(extra="forbid")
    by_hand: bool = Field(False, description="Also what was moved by hand.")


class RegroupedOut(BaseModel):
    keywords: int = Field(description="Keywords that were put elsewhere.")
    groups: int = Field(description="The groups that they are in now.")
