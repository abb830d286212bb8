"""What became of an upload, for programs and for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
class Outcome:
    """One file of a `load`: refused at the door, or an upload as it ended."""

    file: Path
    refusal: Refused | None = None
    upload: Upload | None = None
    duplicate: bool = False
    preview: Preview | None = None  # of one that is held
    warnings: tuple[Warned, ...] = ()  # the first ones

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
    """The first few, a sentence each."""
    return [
        f"Warning ({each.code}): {f'line {each.line}: ' if each.row_index >= 0 else ''}{each.message}"
        for each in warnings[:SHOWN_WARNINGS]
    ]


def more_warnings(outcome: Outcome) -> str:
    """How many warnings `warning_lines` leaves out."""
    assert outcome.upload is not None
    left_out = max(outcome.upload.warnings, len(outcome.warnings)) - SHOWN_WARNINGS
    return f"And {counted(left_out, 'more warning')} about" if left_out > 0 else "Warnings about"


def column_lines(columns: Sequence[ColumnUse]) -> list[str]:
    """Each column of a file and its use, a line each."""
    return [f"{each.header or '(no header)'}: {_use(each)}" for each in columns]


def _use(column: ColumnUse) -> str:
    told = f"{column.use} to {', '.join(column.fields)}" if column.fields else column.use
    return f"{told} ({column.note})" if column.note else told


def missing_lines(missing: Sequence[MissingField]) -> list[str]:
    """Each expected field that no column fills, a line each."""
    return [
        f"{each.field} (usual header: {each.header}{f'; nearest column: {each.guess}' if each.guess else ''})"
        for each in missing
    ]


def preview_as_json(preview: Preview) -> dict[str, Any]:
    """What a held upload would change."""
    return {
        "as_of": preview.as_of,
        "expires_at": preview.expires_at,
        "duplicate": preview.duplicate,
        "rejected": preview.rejected,
        "reasons": [vars(reason) for reason in preview.reasons],
        "entities": {entity: vars(each) for entity, each in preview.changes.items()},
    }


def print_preview(name: str, preview: Preview, pipeline: Pipeline) -> None:
    """What a held upload would change, and what to type next."""
    from weighbridge.cli.running import out

    id_, grain = preview.upload.id, preview.changes[pipeline.grain.name]
    kind = "updated" if grain.updated else "inserted"
    out().print(f"\n{name} would do this, as of {preview.as_of:%Y-%m-%d %H:%M:%S %Z}:", markup=False)
    out().print(changes_table(preview.changes, pipeline))
    for reason in preview.reasons:
        told = (
            f"rejected: {reason.rows:,} × {reason.code}, first in line {reason.first_line}: {reason.example}"
        )
        out().print(told, markup=False, soft_wrap=True)
    for what, command in (
        (f"What would be {kind}:", f"preview {id_} --rows {kind}"),
        ("Write it:", f"promote {id_}"),
        ("Or give it up:", f"discard {id_}"),
    ):
        out().print(f"{what:<23} weighbridge uploads {command}", markup=False)
    out().print(f"It is kept until {preview.expires_at:%Y-%m-%d %H:%M %Z}.", markup=False)


def status_text(status: Status, *, held: bool = False) -> str:
    return "[yellow]held[/]" if held else f"[{_COLOURS.get(status, 'cyan')}]{status.value}[/]"


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
        state = status_text(each.upload.status, held=each.upload.held) if each.upload else ""
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
    done = {
        entity.name: sum((changes(upload, entity.name) for upload in uploads), Changes())
        for entity in pipeline.entities
    }
    return changes_table(done, pipeline)


def changes_table(done: Mapping[str, Changes], pipeline: Pipeline) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("table")
    for name in ("inserted", "updated", "unchanged"):
        table.add_column(name, justify="right")
    for entity in pipeline.entities:
        total = done[entity.name]
        table.add_row(entity.table, *(f"{n:,}" for n in (total.inserted, total.updated, total.unchanged)))
    return table
