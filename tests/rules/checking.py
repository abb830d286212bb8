"""A file in, everything that a check says about it out."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import UUID

from weighbridge.formats import open_sheet
from weighbridge.model.columns import ColumnReport
from weighbridge.model.pipeline import Pipeline
from weighbridge.model.progress import Progress
from weighbridge.model.read_options import DETECT_ALL, ReadOptions
from weighbridge.model.upload import Bins, Scope
from weighbridge.pipelines import ads
from weighbridge.rules.headers import field_counter, list_header
from weighbridge.rules.run_checks import check

SCOPE = Scope(UUID(int=1), UUID(int=2), UUID(int=3), "meta")


@dataclass(frozen=True)
class Outcome:
    bins: Bins
    counts: dict[str, int]
    rows: dict[str, list[dict[str, Any]]]  # staged, by entity
    rejections: list[dict[str, Any]]
    affected_dates: list[date]
    mapping: dict[str, str]
    warnings: dict[str, str]
    column_report: ColumnReport

    @property
    def metrics(self) -> list[dict[str, Any]]:
        return self.rows["daily_metric"]

    @property
    def codes(self) -> list[str]:
        return [rejection["code"] for rejection in self.rejections]


def check_text(text: str, platform: str | None = "meta", **options: Any) -> Outcome:
    """Check the file that has this text."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "export"
        path.write_bytes(text.encode())
        return check_file(path, platform, **options)


def check_file(
    path: Path,
    platform: str | None,
    *,
    pipeline: Pipeline = ads.pipeline,
    kind: str = "csv",
    scope: Scope = SCOPE,
    progress: Progress | None = None,
    options: ReadOptions = DETECT_ALL,
    **more: Any,
) -> Outcome:
    scope = Scope(scope.upload_id, scope.workspace_id, scope.client_id, platform)
    profile = pipeline.profile(platform) if platform else None
    with TemporaryDirectory() as folder:
        sheet = open_sheet(
            path,
            kind,
            count_fields=field_counter(pipeline, profile),
            scratch=Path(folder),
            headerless=list_header(pipeline, profile),
            options=options,
        )
        with check(
            pipeline, sheet, scope, scratch=Path(folder), progress=progress, options=options, **more
        ) as checked:
            return Outcome(
                bins=checked.bins,
                counts=checked.counts,
                rows={
                    entity.name: [row for batch in checked.staged(entity.name) for row in batch.to_pylist()]
                    for entity in pipeline.entities
                },
                rejections=[row for batch in checked.rejections() for row in batch.to_pylist()],
                affected_dates=checked.affected_dates,
                mapping=checked.mapping,
                warnings=checked.warnings,
                column_report=checked.column_report,
            )


HEADER = "Day,Campaign ID,Campaign name,Impressions,Amount spent (USD)"


def meta(*records: str, header: str = HEADER) -> str:
    """A small Meta export at campaign level."""
    return "\n".join([header, *records, ""])
