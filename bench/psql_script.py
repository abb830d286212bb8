"""Peer: what one would write by hand, `\\copy` and four set-based upserts with ordinary foreign keys."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

from .measure import Failed, measure
from .setting import AGAIN, FIRST, Result, Setting

_HERE = Path(__file__).parent


def run(setting: Setting, export: Path) -> Iterator[Result]:
    """The import, then the same import again."""
    workspace = str(uuid4())
    with setting.database("bench_psql") as uri:
        psql: list[str | Path] = [setting.psql, uri, "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1"]
        measure([*psql, "-f", _HERE / "psql_schema.sql"], env=setting.environment())
        for what in (FIRST, AGAIN):
            setting.quiet()
            command = [*psql, "-v", f"workspace={workspace}", "-v", f"upload={uuid4()}"]
            timed = measure(
                [*command, "-f", _HERE / "psql_import.sql"], env=setting.environment(), stdin=export
            )
            if timed.output.strip() != str(setting.rows):
                raise Failed(f"expected {setting.rows} facts, got {timed.output.strip()}")
            yield Result("psql script", what, setting.rows, timed.seconds, timed.peak_mb)
