"""Weighbridge: `weighbridge load`, from the start of the process to the upload's final state, with all checks."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from weighbridge.testing.exports import ExportSpec, bench_meta_export, write_export

from .measure import Failed, Run, measure
from .setting import AGAIN, FIRST, LARGE, SMALL, Result, Setting

_COMMAND = Path(sys.executable).parent / "weighbridge"


def run(setting: Setting, export: Path) -> Iterator[Result]:
    """The import, then the same import again."""
    with database(setting) as environment:
        workspace = str(uuid4())
        for what, options in ((FIRST, []), (AGAIN, ["--force"])):
            timed = load(setting, environment, [export], "--workspace", workspace, *options)
            yield Result("ours", what, setting.rows, timed.seconds, timed.peak_mb)


def run_large(setting: Setting) -> Iterator[Result]:
    """Many times the rows: time should grow with them, memory should not."""
    export, rows = setting.folder / "large.csv", setting.rows * setting.scale
    if not export.exists():
        bench_meta_export(export, rows)
    with database(setting) as environment:
        timed = load(setting, environment, [export])
        yield Result("ours", LARGE, rows, timed.seconds, timed.peak_mb)


def run_small(setting: Setting) -> Iterator[Result]:
    """Many files of ten rows in one call."""
    folder, count = setting.folder / "small", setting.small_files
    folder.mkdir(exist_ok=True)
    files = [folder / f"{number}.csv" for number in range(count)]
    for number, file in enumerate(files):
        write_export(file, ExportSpec("meta", campaigns=1, ad_sets=1, ads=1, days=10, seed=number))
    with database(setting) as environment:
        timed = load(setting, environment, files)
        note = f"{count / timed.seconds:.1f} files/s"
        yield Result("ours", SMALL, 10 * count, timed.seconds, timed.peak_mb, note)


@contextmanager
def database(setting: Setting) -> Iterator[dict[str, str]]:
    """The environment of a new database of ours. Before the clock starts: the schema, and one small load, after
    which Python has compiled its modules."""
    with setting.database("bench_ours") as uri:
        environment = setting.environment(
            DATABASE_URL=uri,
            WEIGHBRIDGE_HOME=str(setting.home),
            WEIGHBRIDGE_MAX_UPLOAD_MB="10000",
            PYTHONDONTWRITEBYTECODE="",
        )
        measure([_COMMAND, "db", "migrate"], env=environment)
        warm = setting.folder / "warm.csv"
        write_export(warm, ExportSpec("meta", days=1))
        load(setting, environment, [warm])
        yield environment


def load(setting: Setting, environment: dict[str, str], files: Sequence[Path], *options: str) -> Run:
    setting.quiet()
    kind = () if "--pipeline" in options else ("--pipeline", "ads", "--platform", "meta")
    timed = measure([_COMMAND, "load", *files, "--json", *kind, *options], env=environment)
    for upload in _uploads(timed.output):
        if upload["status"] != "completed":
            raise Failed(f"expected a completed upload, got {upload['status']}: {upload.get('error_text')}")
    return timed


def _uploads(output: str) -> list[dict[str, Any]]:
    """One object for one file; a list, or an object a line, for several."""
    try:
        parsed = json.loads(output)
    except json.JSONDecodeError:
        return [json.loads(line) for line in output.splitlines() if line.strip()]
    return parsed if isinstance(parsed, list) else [parsed]
