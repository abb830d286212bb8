"""Staged rows have exact columns and types, in the order of the production key."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from rules.checking import SCOPE, check_file, check_text, meta
from weighbridge.formats import open_sheet
from weighbridge.formats.delimited import DelimitedSheet
from weighbridge.model.errors import FileRefused, WeighbridgeError
from weighbridge.model.progress import Progress
from weighbridge.pipelines import ads
from weighbridge.rules import check_result as results
from weighbridge.rules import record_source
from weighbridge.rules.check_result import CheckResult
from weighbridge.rules.headers import field_counter
from weighbridge.rules.run_checks import check
from weighbridge.testing.exports import ExportSpec, write_export

COMMON = [
    ("upload_id", pa.uuid()),
    ("workspace_id", pa.uuid()),
    ("seq", pa.int32()),
    ("row_index", pa.int32()),
    ("line", pa.int32()),
]
OF_DIMENSIONS = [("id", pa.uuid()), ("natural_key_hash", pa.binary())]
TYPES = {
    "text": pa.string(),
    "bigint": pa.int64(),
    "numeric(18,6)": pa.decimal128(18, 6),
    "date": pa.date32(),
}


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file counts as large: streamed, in a database of its own, in many small batches."""
    monkeypatch.setattr(record_source, "SMALL", 1)
    monkeypatch.setattr(results, "BATCH_ROWS", 1000)


@pytest.fixture
def exported(tmp_path: Path) -> Iterator[CheckResult]:
    write_export(tmp_path / "export", ExportSpec("meta", days=90, ads=30))
    sheet = open_sheet(
        tmp_path / "export",
        "csv",
        count_fields=field_counter(ads.pipeline, ads.meta.profile),
        scratch=tmp_path,
    )
    with check(ads.pipeline, sheet, SCOPE, scratch=tmp_path) as checked:
        yield checked


def test_staged_rows_have_exactly_the_agreed_columns_and_types(exported: CheckResult) -> None:
    for entity in ads.pipeline.entities:
        own = [(name, TYPES.get(entity.sql_type(name), pa.uuid())) for name in entity.columns]
        of_dimension = [] if entity is ads.pipeline.grain else OF_DIMENSIONS
        batch = next(exported.staged(entity.name))
        assert [(field.name, field.type) for field in batch.schema] == [*COMMON, *of_dimension, *own]


def test_rejections_have_exactly_the_agreed_columns() -> None:
    outcome = check_text(meta("2025-07-01,11,Spring,5,1", "2025-07-01,11,Spring,x,1"))
    assert list(outcome.rejections[0]) == [
        "row_index",
        "line",
        "column_name",
        "code",
        "message",
        "more",
        "raw",
    ]


@pytest.mark.usefixtures("large")
def test_seq_follows_the_production_key_bytewise(exported: CheckResult) -> None:
    rows = pa.Table.from_batches(exported.staged("daily_metric"))
    assert rows.num_rows == exported.counts["daily_metric"] == 90 * 180
    assert rows["seq"].to_pylist() == list(range(1, rows.num_rows + 1))
    keys = list(
        zip(
            rows["metric_date"].to_pylist(),
            *(
                map(bytes, (u.bytes for u in rows[ref].to_pylist()))
                for ref in ("campaign_id", "ad_set_id", "ad_id")
            ),
            strict=True,
        )
    )
    assert keys == sorted(keys)
    ads_staged = pa.Table.from_batches(exported.staged("ad"))
    assert ads_staged["external_id"].to_pylist() == sorted(ads_staged["external_id"].to_pylist())
    assert ads_staged["seq"].to_pylist() == list(range(1, 181))


@pytest.mark.usefixtures("large")
def test_staging_goes_on_after_the_last_staged_row(exported: CheckResult) -> None:
    whole = pa.Table.from_batches(exported.staged("daily_metric"))
    rest = pa.Table.from_batches(exported.staged("daily_metric", after=12_345))
    assert rest == whole.slice(12_345)
    assert list(exported.staged("daily_metric", after=whole.num_rows)) == []
    assert pa.Table.from_batches(exported.staged("ad", after=100)).num_rows == 80


def test_an_iterator_left_half_way_does_not_block_the_next(exported: CheckResult) -> None:
    next(exported.staged("daily_metric"))
    assert next(exported.staged("campaign")).num_rows == 3


@pytest.mark.parametrize("platform", ["google", "tiktok"])
@pytest.mark.parametrize("remembered", [100_000, 3])
@pytest.mark.usefixtures("large")
def test_large_and_small_files_are_judged_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, platform: Any, remembered: int
) -> None:
    defects = ("text_in_money", "missing_date", "equal_repeat", "conflicting_repeat")
    write_export(tmp_path / "export", ExportSpec(platform, days=10, defects=defects, blank_lines=2))
    with monkeypatch.context() as large:
        read = DelimitedSheet.batches
        large.setattr(
            DelimitedSheet,
            "batches",
            lambda sheet: (b.slice(i, 7) for b in read(sheet) for i in range(0, len(b), 7)),
        )
        large.setattr(record_source, "REMEMBERED", remembered)
        as_large = check_file(tmp_path / "export", platform)
    monkeypatch.setattr(record_source, "SMALL", 1_000_000)
    assert check_file(tmp_path / "export", platform) == as_large


def test_cells_that_meet_when_laid_end_to_end_stay_apart() -> None:
    columns = [pa.array(["a", "a:b", "", None, "-"]), pa.array(["b:c", "c", None, "", ""])]
    assert len(set(record_source._keys(columns).to_pylist())) == 5


def test_a_dimension_row_has_the_last_known_values() -> None:
    header = "Day,Campaign ID,Campaign name,Campaign delivery,Impressions"
    outcome = check_text(
        meta(
            "2025-07-03,11,New,,5",
            "2025-07-01,11,Old,active,5",
            "2025-07-02,11,Middle,paused,5",
            "2025-07-04,11,,-,5",
            header=header,
        )
    )
    [row] = outcome.rows["campaign"]
    assert (row["name"], row["status"], row["line"]) == ("New", "paused", 5)


def test_the_affected_dates_are_those_of_accepted_records() -> None:
    outcome = check_text(
        meta("2025-07-02,11,A,5,1", "2025-07-01,11,A,5,1", "2025-07-03,11,A,x,1", "2025-07-02,12,B,5,1")
    )
    assert [day.isoformat() for day in outcome.affected_dates] == ["2025-07-01", "2025-07-02"]


def test_progress_is_told_after_each_batch() -> None:
    told: list[int] = []

    class Told(Progress):
        def add(self, rows: int) -> None:
            super().add(rows)
            told.append(self.rows)

    check_text(meta("2025-07-01,11,A,5,1", "2025-07-02,11,A,5,1", "x"), progress=Told())
    assert told[-1] == 3
    assert told == sorted(told)


@pytest.mark.parametrize("small", [True, False])
def test_a_check_can_be_stopped_from_outside(monkeypatch: pytest.MonkeyPatch, small: bool) -> None:
    if not small:
        monkeypatch.setattr(record_source, "SMALL", 1)

    progress = Progress(stop=WeighbridgeError("stop"))
    with pytest.raises(WeighbridgeError, match=r"^stop$"):
        check_text(meta("2025-07-01,11,A,5,1", "x", "2025-07-02,11,A,5,1"), progress=progress)


@pytest.mark.usefixtures("large")
def test_what_the_reader_refuses_comes_out_as_it_is() -> None:
    with pytest.raises(FileRefused) as refused:
        check_text(meta("2025-07-01,11,A,5,1", "x" * 2_000_000))
    assert refused.value.code == "malformed_file"


def test_checks_in_many_threads_do_not_see_one_another() -> None:
    def own(number: int) -> list[Any]:
        barrier.wait()
        records = [f"2025-07-{day:02},{number},C{number},{day},1" for day in range(1, 4)]
        outcome = check_text(meta(*records, f"2025-07-09,{number},C{number},x,1"))
        return [outcome.rows["campaign"][0]["name"], outcome.bins.accepted, outcome.rejections[0]["raw"][2]]

    barrier = threading.Barrier(8)
    with ThreadPoolExecutor(8) as pool:
        for _ in range(3):
            assert list(pool.map(own, range(10, 18))) == [[f"C{i}", 3, f"C{i}"] for i in range(10, 18)]


def test_memory_does_not_keep_what_was_checked() -> None:
    header = "Day,Campaign name,Impressions"
    text = meta(
        *(f"2025-07-{d:02},{c}-{'x' * 500},{c}" for d in range(1, 29) for c in range(40)), header=header
    )
    sizes = []
    for _ in range(6):
        check_text(text)
        sizes.append(pa.total_allocated_bytes())
    assert np.ptp(sizes[1:]) < 1_000_000
