"""The result of an upload, as JSON and for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weighbridge.cli.table import plain_table
from weighbridge.model.columns import ColumnUse, MissingField
from weighbridge.model.counts import counted
from weighbridge.model.errors import Refused
from weighbridge.model.pipeline import Pipeline
from weighbridge.model.states import Status
from weighbridge.model.upload import Changes, Upload

if TYPE_CHECKING:
    from rich.table import Table

    from weighbridge.uploads.history import Warned
    from weighbridge.uploads.preview import Preview

WARNINGS = 100  # of one upload in JSON
SHOWN_WARNINGS = 5  # and for people
_COLOURS = {Status.COMPLETED: "green", Status.PARTIAL: "yellow", Status.FAILED: "red"}


@dataclass(frozen=True)
class FileResult:
    """The result of one file of `load`: refused on receipt, or an upload in its final state."""

    file: Path
    refusal: Refused | None = None
    upload: Upload | None = None
    duplicate: bool = False
    preview: Preview | None = None  # of an upload that is on hold
    warnings: tuple[Warned, ...] = ()  # the first ones

    @property
    def ok(self) -> bool:
        return self.upload is not None and self.upload.status != Status.FAILED


def changes(upload: Upload, entity: str) -> Changes:
    """What the upload did to one entity's table."""
    counts = upload.promoted.get(entity, {})
    return Changes(*(int(counts.get(name, 0)) for name in ("inserted", "updated", "unchanged", "superseded")))


def superseded(upload: Upload) -> str:
    """A sentence about rows that were not written, because later files have written them; empty if there are none."""
    rows = sum(int(counts.get("superseded", 0)) for counts in upload.promoted.values())
    if not rows:
        return ""
    return f"{counted(rows, 'row')} not written, as later files have them. See weighbridge uploads show {upload.id}"


def as_json(outcome: FileResult, pipeline: Pipeline | None) -> dict[str, Any]:
    """The object that `load --json` prints; its field names are a contract."""
    if outcome.refusal is not None:
        return {"file": str(outcome.file), "error": outcome.refusal.code, "message": outcome.refusal.message}
    upload = outcome.upload
    assert upload is not None
    assert pipeline is not None  # a file without a pipeline is refused
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
        "superseded": grain.superseded,
        "bins": upload.bins.as_dict(),
        **{f"{table}_upserted": each.inserted + each.updated for table, each in written.items()},
        "affected_dates": [day.isoformat() for day in upload.affected_dates],
        "error_code": upload.error_code,
        "error_text": upload.error_text,
        **reading_as_json(upload, outcome.warnings),
        **({"preview": preview_as_json(outcome.preview)} if outcome.preview else {}),
    }


def reading_as_json(upload: Upload, warnings: Sequence[Warned]) -> dict[str, Any]:
    """How the file was read: each column and its use, missing fields, the first warnings, the options given."""
    return {
        "columns": [{**asdict(each), "fields": list(each.fields)} for each in upload.column_report.columns],
        "missing_fields": [asdict(each) for each in upload.column_report.missing],
        "warnings": [
            {"code": each.code, "message": each.message, "line": each.line, "row_index": each.row_index}
            for each in warnings[:WARNINGS]
        ],
        "warnings_total": max(upload.warnings, len(warnings)),
        "reading": upload.reading.as_dict(),
    }


def warning_lines(warnings: Sequence[Warned]) -> list[str]:
    """The first warnings, one line each."""
    return [
        f"Warning ({each.code}): {f'line {each.line}: ' if each.row_index >= 0 else ''}{each.message}"
        for each in warnings[:SHOWN_WARNINGS]
    ]


def more_warnings(outcome: FileResult) -> str:
    """How many warnings `warning_lines` leaves out."""
    assert outcome.upload is not None
    left_out = max(outcome.upload.warnings, len(outcome.warnings)) - SHOWN_WARNINGS
    return f"And {counted(left_out, 'more warning')} about" if left_out > 0 else "Warnings about"


def column_lines(columns: Sequence[ColumnUse]) -> list[str]:
    """Each column of a file and its use, a line each."""
    return [f"{each.header or '(no header)'}: {_use(each)}" for each in columns]


def _use(column: ColumnUse) -> str:
    text = f"{column.use} to {', '.join(column.fields)}" if column.fields else column.use
    return f"{text} ({column.note})" if column.note else text


def missing_lines(missing: Sequence[MissingField]) -> list[str]:
    """Each expected field that no column fills, a line each."""
    return [
        f"{each.field} (usual header: {each.header}{f'; nearest column: {each.guess}' if each.guess else ''})"
        for each in missing
    ]


def preview_as_json(preview: Preview) -> dict[str, Any]:
    """What an upload on hold would change."""
    return {
        "as_of": preview.as_of,
        "expires_at": preview.expires_at,
        "duplicate": preview.duplicate,
        "rejected": preview.rejected,
        "reasons": [vars(reason) for reason in preview.reasons],
        "entities": {entity: each.as_dict() for entity, each in preview.changes.items()},
    }


def print_preview(name: str, preview: Preview, pipeline: Pipeline) -> None:
    """Print what an upload on hold would change, and the commands for the next step."""
    from weighbridge.cli.output import out

    id_, grain = preview.upload.id, preview.changes[pipeline.grain.name]
    kind = "updated" if grain.updated else "inserted"
    out().print(
        f"\nChanges that {name} would make, as of {preview.as_of:%Y-%m-%d %H:%M:%S %Z}:", markup=False
    )
    out().print(changes_table(preview.changes, pipeline))
    for reason in preview.reasons:
        text = (
            f"rejected: {reason.rows:,} × {reason.code}, first in line {reason.first_line}: {reason.example}"
        )
        out().print(text, markup=False, soft_wrap=True)
    for label, command in (
        (f"Show rows to be {kind}:", f"preview {id_} --rows {kind}"),
        ("Promote:", f"promote {id_}"),
        ("Discard:", f"discard {id_}"),
    ):
        out().print(f"{label:<25} weighbridge uploads {command}", markup=False)
    out().print(f"On hold until {preview.expires_at:%Y-%m-%d %H:%M %Z}.", markup=False)


def status_text(status: Status, *, on_hold: bool = False) -> str:
    return "[yellow]on hold[/]" if on_hold else f"[{_COLOURS.get(status, 'cyan')}]{status.value}[/]"


def outcome_table(outcomes: list[FileResult], pipeline: Pipeline) -> Table:
    """One line per file: status and row counts."""
    from rich.markup import escape

    figures = _figures_in_project if "project_id" in pipeline.scope else _figures
    table = plain_table()
    table.add_column("file", overflow="fold")
    table.add_column("status")
    counts = [figures(each.upload, pipeline) if each.upload else {} for each in outcomes]
    for name in max(counts, key=len):
        table.add_column(name, justify="right")
    for each, numbers in zip(outcomes, counts, strict=True):
        again = " (duplicate)" if each.duplicate else ""
        state = status_text(each.upload.status, on_hold=each.upload.on_hold) if each.upload else ""
        status = state + again if state else "[red]refused[/]"
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
    """The counts of the file's job: keywords that the project already has are duplicates, also from other files."""
    grain = changes(upload, pipeline.grain.name)
    return {
        "rows": upload.total_rows,
        "inserted": grain.inserted,
        "duplicate": upload.bins.duplicate + grain.updated + grain.unchanged,
        "invalid": upload.failed_rows,
    }


def entity_table(uploads: list[Upload], pipeline: Pipeline) -> Table:
    """One line per production table: the changes that the uploads made."""
    done = {
        entity.name: sum((changes(upload, entity.name) for upload in uploads), Changes())
        for entity in pipeline.entities
    }
    return changes_table(done, pipeline)


def changes_table(done: Mapping[str, Changes], pipeline: Pipeline) -> Table:

    table = plain_table()
    table.add_column("table")
    for name in ("inserted", "updated", "unchanged"):
        table.add_column(name, justify="right")
    for entity in pipeline.entities:
        total = done[entity.name]
        table.add_row(entity.table, *(f"{n:,}" for n in (total.inserted, total.updated, total.unchanged)))
    return table
