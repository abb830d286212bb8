"""How a project stands, for people: a line, its files, its groups."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from weighbridge.model.project import ProjectStatus

if TYPE_CHECKING:
    from rich.table import Table

    from weighbridge.projects.groups import Group

_MARKS = {  # S2 §11.0.1
    "succeeded": "[green]✓ completed[/]",
    "running": "[cyan]⏳ processing[/]",
    "queued": "[cyan]🕒 queued[/]",
    "failed": "[red]⚠ error[/]",
}


def line(standing: ProjectStatus) -> str:
    """`processing: 1 of 3 files, 4,500 of 9,000 rows, now b.csv; the groups are locked`"""
    told = standing.as_dict()
    files = f"{told['processedFileCount']} of {told['uploadedFileCount']} files"
    rows = "{rows_processed:,} of {rows_total:,} rows".format(**told["progress"])
    now = f", now {told['current_file']}" if told["current_file"] else ""
    failed = f", {told['failed_jobs']} failed" if told["failed_jobs"] else ""
    return f"{standing.status}: {files}{failed}, {rows}{now}" + (
        "; the groups are locked" if standing.locked else ""
    )


@contextmanager
def live_line() -> Iterator[Callable[[ProjectStatus], None]]:
    """Gives the function to call with each new look at a project; the line shows on stderr, where someone watches."""
    if not sys.stderr.isatty():
        yield lambda standing: None
        return
    from rich.console import Console
    from rich.markup import escape

    with Console(stderr=True).status("") as shown:
        yield lambda standing: shown.update(escape(line(standing)))


def files_table(standing: ProjectStatus) -> Table:
    """One line a file, in order of arrival; below them those that were here already."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("file", overflow="fold")
    table.add_column("status")
    for name in ("rows", "inserted", "duplicate", "invalid"):
        table.add_column(name, justify="right")
    for file in standing.files:
        numbers = (file.rows_total, file.inserted, file.duplicate, file.invalid)
        table.add_row(
            escape(file.filename or ""), _MARKS[file.status], *(f"{number:,}" for number in numbers)
        )
    for each in standing.duplicates:
        table.add_row(escape(each.filename or ""), "= duplicate")
    return table


def remarks(standing: ProjectStatus) -> list[str]:
    """A sentence for each file that failed, or was here already."""
    names = {file.job_id: file.filename or str(file.job_id) for file in standing.files}
    failed = [f"{names[file.job_id]}: {file.message}" for file in standing.files if file.status == "failed"]
    again = [  # the one that it repeats may have failed since, and be shown as its next try
        f"{each.filename or 'A file without a name'}: the same content as "
        f"{names.get(each.duplicate_of, 'one that failed')}."
        for each in standing.duplicates
    ]
    return failed + again


def groups_table(groups: Sequence[Group]) -> Table:
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("group", no_wrap=True)
    for name in ("name", "parent"):
        table.add_column(name, overflow="fold")
    for name in ("keywords", "volume"):
        table.add_column(name, justify="right")
    table.add_column("")
    for group in groups:
        table.add_row(
            str(group.id), escape(group.name), escape(group.parent or ""), f"{group.keywords:,}",
            f"{group.volume:,}", "[green]confirmed[/]" if group.confirmed else "",
        )  # fmt: skip
    return table
