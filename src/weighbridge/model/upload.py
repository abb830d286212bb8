"""An upload, and the counts made while it is processed."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from datetime import date, datetime
from uuid import UUID

from weighbridge.model.columns import NO_COLUMNS, ColumnReport
from weighbridge.model.read_as import UNDECIDED, ReadAs
from weighbridge.model.read_options import DETECT_ALL, ReadOptions
from weighbridge.model.states import Status


@dataclass(frozen=True, kw_only=True)
class Sender:
    """The sender of a file and its destination, as known before its pipeline is recognised."""

    workspace_id: UUID
    created_by: UUID | None


@dataclass(frozen=True)
class Bins:
    """The result of every physical record of a file. They add up to the file, or the upload fails."""

    preamble: int = 0
    header: int = 0
    blank: int = 0
    totals: int = 0
    accepted: int = 0
    duplicate: int = 0
    rejected: int = 0

    @property
    def records(self) -> int:
        return sum(getattr(self, f.name) for f in fields(self))

    @property
    def data_rows(self) -> int:
        return self.accepted + self.duplicate + self.rejected

    @property
    def valid_share(self) -> float:
        return (self.accepted + self.duplicate) / self.data_rows if self.data_rows else 0.0

    def as_dict(self) -> dict[str, int]:
        return asdict(self)


@dataclass(frozen=True)
class Scope:
    """Values that all rows of an upload share; the ids of its rows are derived from them."""

    upload_id: UUID
    workspace_id: UUID
    client_id: UUID | None = None
    platform: str | None = None
    project_id: int | None = None

    def value(self, name: str) -> str | None:
        """`client_id`, `platform` or `project_id`, as text."""
        found = {"client_id": self.client_id, "platform": self.platform, "project_id": self.project_id}[name]
        return None if found is None else str(found)

    def values(self) -> dict[str, str]:
        """All of them as texts; missing ones are empty."""
        ids = {"upload_id": str(self.upload_id), "workspace_id": str(self.workspace_id)}
        return ids | {name: self.value(name) or "" for name in ("client_id", "platform", "project_id")}


@dataclass(frozen=True)
class Changes:
    """The effect of one or more batches on a production table."""

    inserted: int = 0
    updated: int = 0
    unchanged: int = 0
    superseded: int = 0  # rows that a later file has written, and that this one would have changed

    def as_dict(self) -> dict[str, int]:
        """`superseded` only where there are such rows: few uploads have any."""
        return {name: count for name, count in vars(self).items() if count or name != "superseded"}

    def __add__(self, other: Changes) -> Changes:
        return Changes(
            self.inserted + other.inserted,
            self.updated + other.updated,
            self.unchanged + other.unchanged,
            self.superseded + other.superseded,
        )


@dataclass(frozen=True)
class Watermark:
    """Progress of a promotion: the current entity, and its last staged row that is in production."""

    entity: str = ""
    seq: int = 0


@dataclass(frozen=True)
class Upload:
    """One row of `data_uploads`."""

    id: UUID
    workspace_id: UUID
    client_id: UUID | None
    platform: str | None
    pipeline: str
    source: str
    filename: str | None
    file_url: str | None
    content_sha256: bytes
    byte_size: int
    status: Status
    row_count: int | None
    error_code: str | None
    error_text: str | None
    created_by: UUID | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    force_partial: bool
    forced: bool
    failures: int
    crashes: int
    rows_read: int
    file_kind: str
    staged: dict[str, int]
    promoted: dict[str, dict[str, int]]
    watermark: Watermark
    bins: Bins
    total_rows: int
    promoted_rows: int
    failed_rows: int
    affected_dates: tuple[date, ...]
    columns: tuple[str, ...]
    warnings: int
    source_batch_id: str | None = None
    traceparent: str | None = None
    dismissed_at: datetime | None = None
    project_id: int | None = None
    attempts: int = 0
    storage_status: str = (
        "stored"  # pending_retry, retry_failed: the store could not accept it; removed: retention period over
    )
    preview: bool = False  # stops at staging_complete until a person decides
    on_hold: bool = False  # stopped, and no worker has it
    reading: ReadOptions = DETECT_ALL  # read options of its sender
    column_report: ColumnReport = NO_COLUMNS
    read_as: ReadAs = UNDECIDED  # how it was read
    position: int = 0  # in the order of arrival
    released_batch_id: str | None = None  # the batch name that an operator freed for the fixed file

    @property
    def set_aside(self) -> bool:
        """A preview that was discarded or expired: not a failure."""
        return self.preview and self.error_code in ("discarded", "preview_expired")

    @property
    def batch(self) -> str:
        """Its name in logs and alerts: the sender's batch name, or its id. Never the file's name."""
        return self.source_batch_id or str(self.id)

    @property
    def scope(self) -> Scope:
        return Scope(self.id, self.workspace_id, self.client_id, self.platform, self.project_id)
