"""Counts of a promotion by entity. Immutable: a batch that is rolled back leaves no trace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from weighbridge.model.pipeline import Entity, Pipeline
from weighbridge.model.upload import Changes, Upload


@dataclass(frozen=True)
class PromotionCounts:
    pipeline: Pipeline
    changes: Mapping[str, Changes]
    failures: Mapping[str, int]

    @classmethod
    def of(cls, upload: Upload, pipeline: Pipeline) -> PromotionCounts:
        """The counts that earlier attempts committed."""
        saved = upload.promoted
        return cls(
            pipeline,
            {
                e.name: Changes(
                    *(
                        saved.get(e.name, {}).get(k, 0)
                        for k in ("inserted", "updated", "unchanged", "superseded")
                    )
                )
                for e in pipeline.entities
            },
            {e.name: saved.get(e.name, {}).get("failed", 0) for e in pipeline.entities},
        )

    def add(self, entity: Entity, changes: Changes) -> PromotionCounts:
        return PromotionCounts(
            self.pipeline, {**self.changes, entity.name: self.changes[entity.name] + changes}, self.failures
        )

    def unchanged(self, entity: Entity, rows: int) -> PromotionCounts:
        return self.add(entity, Changes(unchanged=rows))

    def fail(self, entity: Entity, rows: int) -> PromotionCounts:
        return PromotionCounts(
            self.pipeline, self.changes, {**self.failures, entity.name: self.failures[entity.name] + rows}
        )

    def failed(self, entity: Entity) -> int:
        return self.failures[entity.name]

    @property
    def all_failed(self) -> int:
        return sum(self.failures.values())

    @property
    def promoted_rows(self) -> int:
        """Records of the file that are in production: rows of the grain, written or found there as they are."""
        done = self.changes[self.pipeline.grain.name]
        return done.inserted + done.updated + done.unchanged

    @property
    def superseded(self) -> int:
        """Rows that were not written, as rows of later files are in their place."""
        return sum(changes.superseded for changes in self.changes.values())

    def as_dict(self) -> dict[str, dict[str, str | int]]:
        return {
            e.name: {"table": e.table, **self.changes[e.name].as_dict(), "failed": self.failures[e.name]}
            for e in self.pipeline.entities
        }
