"""Six times the rows must not take more memory: a check spills to disk what it cannot hold."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from weighbridge.testing.exports import bench_meta_export

CHECK = """
import sys
from pathlib import Path
from uuid import uuid4

import psutil
from weighbridge.formats import open_sheet
from weighbridge.model.progress import Progress
from weighbridge.model.upload import Scope
from weighbridge.pipelines.ads import pipeline
from weighbridge.rules.run_checks import check
from weighbridge.rules.headers import field_counter

file, scratch = map(Path, sys.argv[1:])
sheet = open_sheet(file, "csv", count_fields=field_counter(pipeline, pipeline.profile("meta")), scratch=scratch)
peak = 0

def look():
    global peak
    peak = max(peak, psutil.Process().memory_info().rss)

class Watched(Progress):
    def add(self, rows):
        look()

scope = Scope(uuid4(), uuid4(), None, "meta")
with check(pipeline, sheet, scope, scratch=scratch, memory_limit="96MB", progress=Watched()) as checked:
    look()
    for entity in pipeline.entities:
        for batch in checked.staged(entity.name):
            look()
print(peak // 2**20)
"""


def peak_mb(rows: int, tmp_path: Path) -> int:
    """Of a process that checks a file with so many rows and reads all that it staged."""
    file, scratch = tmp_path / f"{rows}.csv", tmp_path / f"scratch-{rows}"
    scratch.mkdir()
    bench_meta_export(file, rows)
    done = subprocess.run(
        [sys.executable, "-c", CHECK, file, scratch], capture_output=True, text=True, timeout=120, check=True
    )
    return int(done.stdout)


def test_memory_stays_flat_in_the_size_of_the_file(tmp_path: Path) -> None:
    """With the limit the peaks of both vary, by up to 70 MB from run to run; without one they are 180 MB apart."""
    small, large = peak_mb(200_000, tmp_path), peak_mb(1_200_000, tmp_path)
    assert large - small < 120, f"{small} MB for 36 MB of text, {large} MB for 216"
