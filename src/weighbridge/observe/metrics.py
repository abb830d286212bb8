"""Metrics for Prometheus: counters and timings of this process, and figures from the database (service_figures).

docs/metrics.md lists them all. Labels have few values and identify no person.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from prometheus_client import (
    REGISTRY,
    CollectorRegistry,
    Counter,
    Histogram,
    disable_created_metrics,
    generate_latest,
    start_http_server,
)
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from weighbridge.model.errors import ConfigError
from weighbridge.model.retry import POLICIES
from weighbridge.model.states import TERMINAL

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"  # of the text format, as `exposition` writes it

disable_created_metrics()  # type: ignore[no-untyped-call] # a second, unused series per counter

CLAIMS = Counter("weighbridge_claims", "Uploads that this process claimed.")
TAKEOVERS = Counter(
    "weighbridge_takeovers", "Expired attempts, except of deliveries, that this process recovered."
)
LEASES_LOST = Counter("weighbridge_leases_lost", "Attempts of this process that lost their lease.")
RETRIES = Counter("weighbridge_retries", "Attempts that ended in a temporary failure.", ["kind"])
ENDED = Counter("weighbridge_uploads_ended", "Uploads that this process ended.", ["status"])
PROJECT_LEASES = Counter("weighbridge_project_leases", "Runs of projects that this process began.")
PROJECT_LEASES_REFUSED = Counter(
    "weighbridge_project_leases_refused",
    "Runs not started because another process held the lease.",
)
GROUPINGS = Counter("weighbridge_groupings", "Groupings of projects, by outcome.", ["outcome"])
DUPLICATES = Counter("weighbridge_duplicates", "Files that were already known.", ["reason"])
ROWS = Counter("weighbridge_rows", "Records of files, by the bin in which they ended.", ["pipeline", "bin"])
STAGE_SECONDS = Histogram(
    "weighbridge_stage_seconds",
    "Duration of a step of an upload.",
    ["step", "pipeline"],
    buckets=(0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800),
)

# Names fixed by docs/contracts.md.
STORED = Counter("storage_upload_success", "Files that this process stored.", ["bucket"])
NOT_STORED = Counter(
    "storage_upload_failure", "Files that the store could not accept on receipt.", ["bucket", "reason"]
)
QUOTA_STORAGE = Counter("quota_storage_exceeded", "Files refused because a storage limit was reached.")
QUOTA_INTERPRETATION = Counter(
    "quota_interpretation_exceeded", "Retries refused because a monthly limit was reached."
)
REPLAYED = Counter("storage_queue_processed", "Retries of waiting files, by outcome.", ["status"])

DELIVERED = Counter(
    "weighbridge_conversions_sent",
    "Conversions that this process sent, by outcome.",
    ["provider", "status"],
)
CALLS = Counter("weighbridge_provider_calls", "Calls to providers, by outcome.", ["provider", "outcome"])
CALL_SECONDS = Histogram(
    "weighbridge_provider_call_seconds",
    "Duration of a call to a provider.",
    ["provider"],
    buckets=(0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
)

# Start at zero: Prometheus sees no increase in a series that begins with one.
for _outcome in ("done", "failed"):
    GROUPINGS.labels(_outcome)
for _status in ("stored", "postponed", "retry_failed", "lost"):
    REPLAYED.labels(_status)
for _kind in POLICIES:
    RETRIES.labels(_kind)
for _ended in sorted(TERMINAL):
    ENDED.labels(_ended)

# Figures from the database: name of the figure → metric, description, and the label of its parts, if any.
GAUGES: dict[str, tuple[str, str, str | None]] = {
    "uploads": ("weighbridge_uploads", "Uploads, by state.", "state"),
    "backlog": ("weighbridge_backlog", "Uploads that have not ended and are not on hold.", None),
    "previews_on_hold": ("weighbridge_previews_held", "Previews that wait for a decision.", None),
    "backlog_age": (
        "weighbridge_backlog_age_seconds",
        "Waiting time of the oldest upload that a worker can claim.",
        None,
    ),
    "failed_24h": ("weighbridge_failed_24h", "Uploads that failed in the last 24 hours.", None),
    "dead_letters": (
        "weighbridge_dead_letters",
        "Failed uploads that are neither retried nor dismissed.",
        None,
    ),
    "stale_runs": (
        "weighbridge_stale_runs",
        "Runs that started over an hour ago and have no live lease.",
        None,
    ),
    "alerts_open": ("weighbridge_alerts_open", "Open alerts, by condition.", "condition"),
    "outbox_waiting": ("weighbridge_outbox_waiting", "Event deliveries that are waiting.", None),
    "outbox_age": ("weighbridge_outbox_age_seconds", "Age of the oldest waiting event delivery.", None),
    "attempts_live": ("weighbridge_attempts_live", "Live attempts, by queue.", "queue"),
    "project_jobs": ("weighbridge_project_jobs", "Files of projects, by the state of their job.", "state"),
    "project_job_seconds": (
        "weighbridge_project_job_seconds",
        "Average duration of successful jobs.",
        None,
    ),
    "storage_queue": ("storage_queue_depth", "Files that wait for the file store.", None),
    "storage_usage": ("storage_usage_bytes", "Stored bytes, by the usage counters.", None),
    "conversions": ("weighbridge_conversions", "Undelivered conversions, by state.", "state"),
    "conversions_age": (
        "weighbridge_conversions_age_seconds",
        "Waiting time of the oldest conversion that is due.",
        None,
    ),
    "circuits": (
        "weighbridge_circuits",
        "Groups (site and provider) that have had a failure, by breaker state.",
        "state",
    ),
    "oldest_transaction": (
        "weighbridge_oldest_transaction_seconds",
        "Age of the oldest open transaction in the database.",
        None,
    ),
}

Figures = Mapping[str, float | Mapping[str, float]]


class _Known(Collector):
    """Gauges made for one scrape, so that none becomes stale."""

    def __init__(self, figures: Figures) -> None:
        self.figures = figures

    def collect(self) -> Iterator[GaugeMetricFamily]:
        for figure, value in self.figures.items():
            name, about, label = GAUGES[figure]
            gauge = GaugeMetricFamily(name, about, labels=[label] if label else None)
            for part, number in value.items() if isinstance(value, Mapping) else [(None, value)]:
                gauge.add_metric([] if part is None else [part], number)
            yield gauge


def exposition(figures: Figures) -> bytes:
    """All metrics in the Prometheus text format. A figure without a gauge is a KeyError."""
    known = CollectorRegistry()
    known.register(_Known(figures))
    return generate_latest(REGISTRY) + generate_latest(known)


@contextmanager
def served(host: str, port: int) -> Iterator[str]:
    """Serves this process's counters at their own address, for processes without an API; yields the address.

    Raises ConfigError if the address cannot be used.
    """
    try:
        server, thread = start_http_server(port, host)
    except OSError as error:
        raise ConfigError(
            f"Metrics cannot be served on {host}:{port}: {error.strerror}. "
            "Choose another address with --metrics-port and --metrics-host."
        ) from error
    try:
        yield _shown(server.server_address)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _shown(address: Any) -> str:
    name, port = address[:2]
    return f"http://{f'[{name}]' if ':' in name else name}:{port}/metrics"
