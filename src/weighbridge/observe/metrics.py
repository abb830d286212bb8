"""What Prometheus is told: what this process has counted and timed, and what the database knows (db.figures).

docs/metrics.md lists all of it. Labels have few values and name nobody.
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

disable_created_metrics()  # type: ignore[no-untyped-call] # a second series for each counter, which nothing here reads

CLAIMS = Counter("weighbridge_claims", "Uploads that this process claimed.")
TAKEOVERS = Counter(
    "weighbridge_takeovers", "Attempts of others whose lease ran out, taken back by this process."
)
LEASES_LOST = Counter("weighbridge_leases_lost", "Attempts of this process that lost their lease.")
RETRIES = Counter("weighbridge_retries", "Attempts that ended in passing trouble.", ["kind"])
ENDED = Counter("weighbridge_uploads_ended", "Uploads that this process ended.", ["status"])
PROJECT_LEASES = Counter("weighbridge_project_leases", "Runs of projects that this process began.")
PROJECT_LEASES_REFUSED = Counter(
    "weighbridge_project_leases_refused",
    "Runs that this process wanted to begin while another had the lease.",
)
GROUPINGS = Counter("weighbridge_groupings", "Groupings of projects, by how they ended.", ["outcome"])
DUPLICATES = Counter("weighbridge_duplicates", "Files that were here already.", ["reason"])
ROWS = Counter("weighbridge_rows", "Records of files, by the bin in which they ended.", ["pipeline", "bin"])
STAGE_SECONDS = Histogram(
    "weighbridge_stage_seconds",
    "How long a step of an upload took.",
    ["step", "pipeline"],
    buckets=(0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800),
)

# S5's names, with underscores for its dots.
STORED = Counter("storage_upload_success", "Files that this process stored.", ["bucket"])
NOT_STORED = Counter(
    "storage_upload_failure", "Files that the store could not take when they came.", ["bucket", "reason"]
)
QUOTA_STORAGE = Counter("quota_storage_exceeded", "Files that were refused as one limit was reached.")
QUOTA_INTERPRETATION = Counter(
    "quota_interpretation_exceeded", "Retries that were refused as a user had no more of them this month."
)
REPLAYED = Counter("storage_queue_processed", "Replays of files that waited, by how they ended.", ["status"])

DELIVERED = Counter(
    "weighbridge_conversions_sent",
    "Conversions that this process sent, by what came of them.",
    ["provider", "status"],
)
CALLS = Counter(
    "weighbridge_provider_calls", "Calls of providers, by how they ended.", ["provider", "outcome"]
)
CALL_SECONDS = Histogram(
    "weighbridge_provider_call_seconds",
    "How long a call of a provider took.",
    ["provider"],
    buckets=(0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
)

# Zero before the first: Prometheus sees no increase in a series that begins with one.
for _outcome in ("done", "failed"):
    GROUPINGS.labels(_outcome)
for _status in ("stored", "put_off", "retry_failed", "lost"):
    REPLAYED.labels(_status)
for _kind in POLICIES:
    RETRIES.labels(_kind)
for _ended in sorted(TERMINAL):
    ENDED.labels(_ended)

# What the database knows: by the figure's name its metric, what it says, and the label of its parts if it has some.
GAUGES: dict[str, tuple[str, str, str | None]] = {
    "uploads": ("weighbridge_uploads", "Uploads, by state.", "state"),
    "backlog": ("weighbridge_backlog", "Uploads that have not ended.", None),
    "previews_held": ("weighbridge_previews_held", "Previews that wait for a decision.", None),
    "backlog_age": ("weighbridge_backlog_age_seconds", "How long the oldest upload has waited.", None),
    "failed_24h": ("weighbridge_failed_24h", "Uploads that failed in the last 24 hours.", None),
    "dead_letters": ("weighbridge_dead_letters", "Failed uploads that nobody has looked at.", None),
    "stale_runs": ("weighbridge_stale_runs", "Runs of over an hour that nobody works on.", None),
    "alerts_open": ("weighbridge_alerts_open", "Alerts that are open, by condition.", "condition"),
    "outbox_waiting": ("weighbridge_outbox_waiting", "Deliveries of events that wait.", None),
    "outbox_age": ("weighbridge_outbox_age_seconds", "Age of the oldest event that waits.", None),
    "attempts_live": ("weighbridge_attempts_live", "Attempts under way, by queue.", "queue"),
    "project_jobs": ("weighbridge_project_jobs", "Files of projects, by the state of their job.", "state"),
    "project_job_seconds": (
        "weighbridge_project_job_seconds",
        "How long a job that succeeded took, on average.",
        None,
    ),
    "storage_queue": ("storage_queue_depth", "Files that wait for the store.", None),
    "storage_usage": ("storage_usage_bytes", "Bytes that are stored, as they were counted.", None),
    "conversions": ("weighbridge_conversions", "Conversions that are not delivered, by state.", "state"),
    "conversions_age": (
        "weighbridge_conversions_age_seconds",
        "How long the oldest conversion that could be sent has waited.",
        None,
    ),
    "circuits": ("weighbridge_circuits", "Groups of a site and a provider, by their breaker.", "state"),
    "oldest_transaction": (
        "weighbridge_oldest_transaction_seconds",
        "Age of the oldest open transaction in the database.",
        None,
    ),
}

Figures = Mapping[str, float | Mapping[str, float]]


class _Known(Collector):
    """Gauges made for one scrape, so that none can go stale."""

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
    """All of it in the text format that Prometheus scrapes. A figure without a gauge is a KeyError."""
    known = CollectorRegistry()
    known.register(_Known(figures))
    return generate_latest(REGISTRY) + generate_latest(known)


@contextmanager
def served(host: str, port: int) -> Iterator[str]:
    """This process's own counters at an address of their own, for processes without an API; the address.

    Raises ConfigError where nothing can listen there.
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
