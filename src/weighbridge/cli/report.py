"""What became of an upload, for programs and for people."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weighbridge.model.errors import Refused
from weighbridge.model.pipeline import Pipeline
from weighbridge.model.states import Status
from weighbridge.model.upload import Changes, Upload

if TYPE_CHECKING:
    from rich.table import Table

_COLOURS = {Status.COMPLETED: "green", Status.PARTIAL: "yellow", Status.FAILED: "red"}


@dataclass(frozen=True)
class Outcome:
    """One file of a `load`: refused at the door, or an upload as it ended."""

    file: Path
    refusal: Refused | None = None
    upload: Upload | None = None
    duplicate: bool = False

    @property
    def ok(self) -> bool:
        return self.upload is not None and self.upload.status != Status.FAILED


def changes(upload: Upload, entity: str) -> Changes:
    """What the upload did to one entity's table."""
    counts = upload.promoted.get(entity, {})
    return Changes(*(int(counts.get(name, 0)) for name in ("inserted", "updated", "unchanged")))


def as_json(outcome: Outcome, pipeline: Pipeline | None) -> dict[str, Any]:
    """The object that `load --json` prints; its names are a contract."""
    if outcome.refusal is not None:
        return {"file": str(outcome.file), "error": outcome.refusal.code, "message": outcome.refusal.message}
    upload = outcome.upload
    assert upload is not None
    assert pipeline is not None  # a file of no pipeline is refused
    grain = changes(upload, pipeline.grain.name)
    written = {entity.table: changes(upload, entity.name) for entity in pipeline.entities}
    return {
        "upload_id": str(upload.id),
        "status": upload.status.value,
        "duplicate": outcome.duplicate,
        "total_rows": upload.total_rows,
        "promoted_rows": upload.promoted_rows,
        "failed_rows": upload.failed_rows,
        "inserted": grain.inserted,
        "updated": grain.updated,
        "unchanged": grain.unchanged,
        "bins": upload.bins.as_dict(),
        **{f"{table}_upserted": each.inserted + each.updated for table, each in written.items()},
        "affected_dates": [day.isoformat() for day in upload.affected_dates],
        "error_text": upload.error_text,
    }


def status_text(status: Status) -> str:
    return f"[{_COLOURS.get(status, 'cyan')}]{status.value}[/]"


def outcome_table(outcomes: list[Outcome], pipeline: Pipeline) -> Table:
    """One line a file: what came, where it went."""
    from rich.markup import escape
    from rich.table import Table

    figures = _figures_in_project if "project_id" in pipeline.scope else _figures
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("file", overflow="fold")
    table.add_column("status")
    told = [figures(each.upload, pipeline) if each.upload else {} for each in outcomes]
    for name in max(told, key=len):
        table.add_column(name, justify="right")
    for each, numbers in zip(outcomes, told, strict=True):
        again = " (already here)" if each.duplicate else ""
        status = status_text(each.upload.status) + again if each.upload else "[red]refused[/]"
        table.add_row(escape(each.file.name), status, *(f"{number:,}" for number in numbers.values()))
    return table


def _figures(upload: Upload, pipeline: Pipeline) -> dict[str, int]:
    grain = changes(upload, pipeline.grain.name)
    return {
        "rows": upload.total_rows,
        "inserted": grain.inserted,
        "updated": grain.updated,
        "unchanged": grain.unchanged,
        "duplicate": upload.bins.duplicate,
        "rejected": upload.failed_rows,
    }


def _figures_in_project(upload: Upload, pipeline: Pipeline) -> dict[str, int]:
    """As its job counts them (S2 §5.1): what the project knows already is a duplicate, wherever it was told first."""
    grain = changes(upload, pipeline.grain.name)
    return {
        "rows": upload.total_rows,
        "inserted": grain.inserted,
        "duplicate": upload.bins.duplicate + grain.updated + grain.unchanged,
        "invalid": upload.failed_rows,
    }


def entity_table(uploads: list[Upload], pipeline: Pipeline) -> Table:
    """One line a production table: what the uploads did to it."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("table")
    for name in ("inserted", "updated", "unchanged"):
        table.add_column(name, justify="right")
    for entity in pipeline.entities:
        total = sum((changes(upload, entity.name) for upload in uploads), Changes())
        table.add_row(entity.table, *(f"{n:,}" for n in (total.inserted, total.updated, total.unchanged)))
    return table
