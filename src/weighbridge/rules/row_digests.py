"""Groups of staged rows and their digests: what promotion compares with the receipts of earlier uploads."""

# ruff: noqa: S608 (names of the declaration are quoted in the SQL, by plan.quoted)

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from weighbridge.model.pipeline import Entity
from weighbridge.rules.check_plan import literal, quoted
from weighbridge.rules.check_result import CheckResult


def group_digests(checked: CheckResult, declaration: str) -> Iterator[Any]:
    """Arrow batches of upload_id, workspace_id, group_key, first_seq, last_seq, digest.

    A group is a date of the pipeline's `affected` field, if that is the first column of the grain's key, so that the
    rows of a group are adjacent. The digest covers every value of every row of the group, independent of their order
    (two sums of 64-bit hashes), and the declaration, as another declaration may write the same rows differently. Where
    a newer DuckDB
    hashes otherwise, digests differ, and rows are compared one by one.
    """
    pipeline = checked.plan.pipeline
    grain = pipeline.grain
    if not pipeline.grouped or not checked.counts[grain.name]:
        return
    assert pipeline.affected is not None
    row = ", ".join(quoted(column) for column in grain.columns)
    # A column that the file lacks changes nothing, a blank cell may: rows with the one are not rows with the other.
    meaning = f"{declaration} {' '.join(checked.column_report.filled)}"
    parts = f"{literal(meaning)}, count(*), sum(hash({row}, 1)), sum(hash(2, {row}))"
    yield from checked.select(
        f"""SELECT any_value(upload_id) AS upload_id, any_value(workspace_id) AS workspace_id,
            CAST({quoted(pipeline.affected)} AS VARCHAR) AS group_key, min(seq) AS first_seq, max(seq) AS last_seq,
            unhex(sha256(concat_ws(':', {parts}))) AS digest
        FROM ({checked.staged_sql(grain.name)})
        GROUP BY {quoted(pipeline.affected)} ORDER BY first_seq""",
    )


def rows_digest(checked: CheckResult) -> bytes:
    """The digest of all rows of all entities, in order. If an earlier attempt has the same digest, its staged rows and
    its watermark are valid for this one.
    """
    found = [
        checked.db.execute(_sums(checked, entity)).fetchall()
        for entity in checked.plan.pipeline.entities
        if checked.counts[entity.name]
    ]
    return hashlib.sha256(repr((checked.bins, sorted(checked.counts.items()), found)).encode()).digest()


def _sums(checked: CheckResult, entity: Entity) -> str:
    row = ", ".join(["seq", *(quoted(column) for column in entity.columns)])
    return f"SELECT sum(hash({row}, 1)), sum(hash(2, {row})) FROM ({checked.staged_sql(entity.name)})"


def skip_ranges(batches: Iterator[Any], ranges: Sequence[tuple[int, int]]) -> Iterator[tuple[int, Any]]:
    """Each batch without the rows whose seq is in one of the ranges (both ends included), and its last seq."""
    edges = np.array([edge for first, last in ranges for edge in (first, last + 1)])
    for batch in batches:
        seq = batch.column("seq").to_numpy()
        # Left of all edges or between two ranges: an even number of edges is behind.
        yield int(seq[-1]), batch.filter(pa.array(np.searchsorted(edges, seq, side="right") % 2 == 0))
