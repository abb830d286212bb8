"""A progress bar per file on stderr, if it is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from uuid import UUID

from weighbridge.model.states import TERMINAL, Status
from weighbridge.model.upload import Upload

_WORDS = {
    Status.PENDING: "waiting",
    Status.PROCESSING: "checking",
    Status.STAGING_COMPLETE: "staged",
    Status.PROMOTING: "writing",
}


@contextmanager
def progress(names: Mapping[UUID, str], *, shown: bool) -> Iterator[Callable[[Upload], None]]:
    """Yield the function to call with each new state of an upload."""
    if not shown or not sys.stderr.isatty():
        yield lambda upload: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        TextColumn("{task.fields[state]:<9}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bars:
        tasks = {id_: bars.add_task(name, total=None, state="waiting") for id_, name in names.items()}

        def on_progress(upload: Upload) -> None:
            ended = upload.status in TERMINAL or upload.on_hold
            read = upload.status in (Status.PENDING, Status.PROCESSING)
            total = upload.total_rows or None
            done = upload.rows_read if read else (total or 0) if ended else upload.promoted_rows
            state = "on hold" if upload.on_hold else upload.status.value if ended else _WORDS[upload.status]
            bars.update(tasks[upload.id], completed=done, total=total, state=state)
            if ended:
                bars.update(tasks[upload.id], completed=total or 1, total=total or 1)
                bars.stop_task(tasks[upload.id])

        yield on_progress
