"""A project of a million keywords: its import, and the grouping after it, each by the database's own clock."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import psutil
import psycopg

from . import ours
from .setting import GROUPED, KEYWORDS, Result, Setting

_SAMPLE_SECONDS = 0.2
_WORDS = {"cheap": 300, "shoe": 3000, "brand": 400, "town": 200}  # a stem and how many words are made of it


def run(setting: Setting) -> Iterator[Result]:
    """As many keywords as asked for in one file, and twice as many: time should double, memory should not grow."""
    for rows in (setting.keywords, 2 * setting.keywords):
        export = setting.folder / f"keywords-{rows}.csv"
        if not export.exists():
            _write(export, rows)
        with ours.database(setting) as environment, _server_memory(setting) as peak:
            workspace = str(uuid4())
            options = ("--pipeline", "keywords", "--project", "1", "--workspace", workspace)
            timed = ours.load(setting, environment, [export], *options)
            with psycopg.connect(environment["DATABASE_URL"]) as connection:
                found = connection.execute(
                    "SELECT extract(epoch FROM d.finished_at - d.started_at)::float,"
                    " extract(epoch FROM p.grouped_at - d.finished_at)::float,"
                    " (SELECT count(*) FROM keyword_groups)"
                    " FROM projects p JOIN data_uploads d ON d.project_id = p.id AND d.workspace_id = p.workspace_id"
                ).fetchone()
            assert found is not None
            imported, grouped, groups = found
        yield Result("ours", KEYWORDS, rows, imported, timed.peak_mb)
        note = f"{groups:,} groups; the memory is that of the largest server process"
        yield Result("ours", GROUPED, rows, grouped, peak[0] / 1e6, note)


def _write(path: Path, rows: int) -> None:
    """Different keywords of two to four words; some of the same words in another order, number, or with an article."""
    chance = random.Random(1)
    seen: set[str] = set()
    while len(seen) < rows:
        words = [f"{stem}{chance.randrange(many)}" for stem, many in _WORDS.items()]
        words = [word for word, share in zip(words, (1, 1, 0.6, 0.4), strict=True) if chance.random() < share]
        for _ in range(chance.choice((1, 1, 2, 3))):
            chance.shuffle(words)
            article = "the " if chance.random() < 0.2 else ""
            seen.add(article + " ".join(words))
    lines = (f"{keyword},{chance.randrange(100_000)}\n" for keyword in sorted(seen)[:rows])
    with path.open("w") as file:
        file.write("Keyword,Volume\n")
        file.writelines(lines)


@contextmanager
def _server_memory(setting: Setting) -> Iterator[list[int]]:
    """The most memory of its own that any process of the server held, sampled on the way."""
    server = int((setting.home / "postgres" / "postmaster.pid").read_text().splitlines()[0])
    peak, ended = [0], threading.Event()

    def sample() -> None:
        while not ended.wait(_SAMPLE_SECONDS):
            for process in psutil.Process(server).children():
                peak[0] = max(peak[0], _own(process.pid))

    sampler = threading.Thread(target=sample, daemon=True)
    sampler.start()
    try:
        yield peak
    finally:
        ended.set()
        sampler.join()


def _own(pid: int) -> int:
    """Bytes that no other process shares; zero for one that has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return next(
        (int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("RssAnon")), 0
    )
