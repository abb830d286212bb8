"""Log lines and counters of events: each event is logged once and, if it has a metric, counted.

Lines contain ids and counts. `source_batch_id` is the sender's name for the batch, or the upload's id; the name of a
file and its contents are never logged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from time import perf_counter
from uuid import UUID

import structlog

from weighbridge.model.project import Project
from weighbridge.model.upload import Upload
from weighbridge.observe import metrics, traces
from weighbridge.observe.logs import JOURNAL

log = structlog.get_logger(JOURNAL)

ROW_ERRORS = 20  # log lines for rejected rows of a file; its rejects have all of them
MESSAGE = 300  # characters of an error message


def job_started(upload: Upload, worker: str) -> None:
    metrics.CLAIMS.inc()
    log.info(
        "Job started",
        source_batch_id=upload.batch,
        file_hash=upload.content_sha256.hex(),
        worker_id=worker,
    )


def job_completed(upload: Upload, grain: str) -> None:
    """Completed or partial. Inserted and updated rows are those of the grain's table."""
    changed = upload.promoted.get(grain, {})
    metrics.ENDED.labels(upload.status).inc()
    log.info(
        "Job completed",
        source_batch_id=upload.batch,
        status=upload.status.value,
        record_count=upload.promoted_rows,
        inserted=changed.get("inserted", 0),
        updated=changed.get("updated", 0),
        rejected=upload.failed_rows,
        duration_ms=round(_seconds(upload) * 1000),
    )


def job_failed(batch: str, code: str, message: str) -> None:
    metrics.ENDED.labels("failed").inc()
    log.error("Job failed", source_batch_id=batch, error_type=code, error_message=message[:MESSAGE])


def duplicate_skipped(batch: str, reason: str) -> None:
    metrics.DUPLICATES.labels(reason).inc()
    log.info("Duplicate skipped", message="Skipping duplicate", source_batch_id=batch, reason=reason)


def stale_takeover(batch: str, hours: float, started_at: datetime, worker: str) -> None:
    metrics.TAKEOVERS.inc()
    log.warning(
        "Stale takeover",
        source_batch_id=batch,
        stale_hours=round(hours, 2),
        original_started_at=started_at.isoformat(),
        original_worker_id=worker,
    )


def row_errors(upload: Upload, errors: Sequence[tuple[int, str]], total: int) -> None:
    """The first rejected rows of a file, by line and code."""
    for line, code in errors[:ROW_ERRORS]:
        log.warning("Row-level error", source_batch_id=upload.batch, row_number=line, error_type=code)
    if total > ROW_ERRORS:
        log.warning("Row-level errors", source_batch_id=upload.batch, rows=total, logged=ROW_ERRORS)


def rows_counted(upload: Upload) -> None:
    for name, count in upload.bins.as_dict().items():
        metrics.ROWS.labels(upload.pipeline, name).inc(count)


def lease_lost(upload: Upload) -> None:
    metrics.LEASES_LOST.inc()
    log.warning("Lease lost", source_batch_id=upload.batch)


def job_released(upload: Upload) -> None:
    log.info("Job released", source_batch_id=upload.batch)


def waits_for_earlier_file(upload: Upload) -> None:
    log.info("Waits for an earlier file", source_batch_id=upload.batch)


def put_on_hold(upload: Upload) -> None:
    log.info("Preview on hold", source_batch_id=upload.batch, record_count=upload.bins.accepted)


def preview_promoted(upload: Upload) -> None:
    log.info("Preview promoted", source_batch_id=upload.batch)


def preview_discarded(upload: Upload, code: str) -> None:
    log.info("Preview discarded", source_batch_id=upload.batch, reason=code)


def postponed(upload: Upload, kind: str) -> None:
    metrics.RETRIES.labels(kind).inc()
    log.warning("Job postponed", source_batch_id=upload.batch, error_type=kind)


def lease_acquired(project: Project, worker: str) -> None:
    metrics.PROJECT_LEASES.inc()
    log.info("Project lease acquired", **_of(project), worker_id=worker)


def lease_refused(project: Project, worker: str | None) -> None:
    metrics.PROJECT_LEASES_REFUSED.inc()
    log.info("Project lease refused", **_of(project), lease_owner=worker)


def lease_released(project: Project, worker: str) -> None:
    log.info("Project lease released", **_of(project), worker_id=worker)


def lease_lost_of(project: Project) -> None:
    metrics.LEASES_LOST.inc()
    log.warning("Project lease lost", **_of(project))


def lease_recovered(project_key: UUID, worker: str) -> None:
    metrics.TAKEOVERS.inc()
    log.warning("Project lease recovered", project_key=str(project_key), original_worker_id=worker)


def run_failed(project: Project, error: str, pause: timedelta) -> None:
    metrics.GROUPINGS.labels("failed").inc()
    log.error("Project run failed", **_of(project), error_type=error, retry_seconds=pause.total_seconds())


@contextmanager
def timed_grouping(project: Project) -> Iterator[Callable[[int, int], None]]:
    """Log and time a grouping. The caller reports the numbers of keywords and groups if one took place."""
    began = perf_counter()

    def counted(keywords: int, groups: int) -> None:
        seconds = perf_counter() - began
        metrics.GROUPINGS.labels("done").inc()
        metrics.STAGE_SECONDS.labels("group", "keywords").observe(seconds)
        log.info(
            "Project grouped",
            **_of(project),
            keywords=keywords,
            groups=groups,
            duration_ms=round(seconds * 1000),
        )

    with traces.span("group", None, project_id=str(project.id)):
        yield counted


def _of(project: Project) -> dict[str, str | int]:
    return {"workspace_id": str(project.workspace_id), "project_id": project.id}


def alert(condition: str, message: str, severity: str) -> None:
    """ERROR, WARNING or RECOVERED."""
    say = {"ERROR": log.error, "WARNING": log.warning}.get(severity, log.info)
    say("Alert", condition=condition, severity=severity, message=message)


def _seconds(upload: Upload) -> float:
    """From first claim to end, by the database's clock."""
    if upload.started_at is None or upload.finished_at is None:
        return 0.0
    return (upload.finished_at - upload.started_at).total_seconds()


def stored(bucket: str) -> None:
    metrics.STORED.labels(bucket).inc()


def not_stored(bucket: str, reason: str) -> None:
    metrics.NOT_STORED.labels(bucket, reason).inc()


def usage_not_counted(user_id: UUID, byte_size: int, reason: str) -> None:
    """The upload continues; `weighbridge storage recount` corrects the counters. `reason` is a kind of error."""
    log.warning("StorageUsageIncrementFailed", user_id=str(user_id), byte_size=byte_size, reason=reason)


def quota_reached() -> None:
    metrics.QUOTA_STORAGE.inc()


def interpretations_spent() -> None:
    metrics.QUOTA_INTERPRETATION.inc()


def enqueued(queue_id: UUID, bucket: str, object_path: str, byte_size: int, reason: str) -> None:
    log.info(
        "UploadQueueEnqueue",
        queue_id=str(queue_id),
        bucket=bucket,
        object_path=object_path,
        byte_size=byte_size,
        retry_count=0,
        reason=reason,
    )


def not_enqueued(bucket: str, reason: str) -> None:
    """Neither stored nor queued: the sender must send it again. Like every line of a request it has the trace id."""
    log.error("UploadQueueEnqueueFailed", bucket=bucket, error_code="STORAGE_QUEUE_FAILED", reason=reason)


def replayed(queue_id: UUID, status: str, retry_count: int, reason: str | None = None) -> None:
    """`stored`, `postponed`, `retry_failed` or `lost`."""
    metrics.REPLAYED.labels(status).inc()
    say = log.info if status == "stored" else log.error if status in ("retry_failed", "lost") else log.warning
    say("UploadQueueReplay", queue_id=str(queue_id), status=status, retry_count=retry_count, reason=reason)


def replay_recovered(queue_id: UUID, worker: str) -> None:
    metrics.TAKEOVERS.inc()
    log.warning("Stored file retry recovered", queue_id=str(queue_id), original_worker_id=worker)


def called(
    provider_key: str,
    site_id: UUID,
    batch_id: UUID,
    verdicts: Mapping[str, int],
    duration_ms: int,
    code: str | None,
) -> None:
    """One call to a provider, and the outcomes of its conversions."""
    well = set(verdicts) <= {"COMPLETED"}
    metrics.CALLS.labels(provider_key, "ok" if verdicts.get("COMPLETED") else _known(code)).inc()
    metrics.CALL_SECONDS.labels(provider_key).observe(duration_ms / 1000)
    for verdict, count in verdicts.items():
        metrics.DELIVERED.labels(provider_key, verdict).inc(count)
    say = log.info if well else log.warning
    say(
        "Conversions sent",
        provider_key=provider_key,
        site_id=site_id,
        batch_id=batch_id,
        completed=verdicts.get("COMPLETED", 0),
        failed=verdicts.get("FAILED", 0),
        retry=verdicts.get("RETRY", 0),
        duration_ms=duration_ms,
        outcome="ok" if well else code or "error",
    )


def _known(code: str | None) -> str:
    """Limits a label to a few values: providers have hundreds of codes."""
    return code if code in ("CONCURRENCY_LIMIT", "HELD_BACK") else "error"


def delivery_recovered(batch_id: UUID, worker: str) -> None:
    log.warning("Conversions recovered", batch_id=str(batch_id), original_worker_id=worker)


@contextmanager
def timed(step: str, pipeline: str) -> Iterator[None]:
    """Time a step, however it ends, and make it a span in the upload's trace."""
    began = perf_counter()
    try:
        with traces.span(step, traces.current(), pipeline=pipeline):
            yield
    finally:
        metrics.STAGE_SECONDS.labels(step, pipeline).observe(perf_counter() - began)
