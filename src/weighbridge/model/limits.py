"""Limits from the settings that the steps apply."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from weighbridge.model.retry import STORAGE_RETRIES


@dataclass(frozen=True)
class Allowance:
    """How many bytes may be stored; None: no limit."""

    month: int | None = None  # in a calendar month (UTC)
    total: int | None = None  # in the store at any time


@dataclass(frozen=True)
class Limits:
    max_upload_bytes: int = 50 * 1024 * 1024
    batch_rows: int = 1000
    stage_rows: int = 40_000  # rows staged per transaction
    parse_memory_mb: int = 96
    staging_days: int = 7
    attempt_days: int = 30
    event_days: int = 30
    rejection_days: int = 365
    audit_days: int = 730
    blob_days: int | None = None
    storage_retries: int = STORAGE_RETRIES
    resumable: timedelta = timedelta(hours=24)
    workspace: Allowance = Allowance()
    user: Allowance = Allowance()
