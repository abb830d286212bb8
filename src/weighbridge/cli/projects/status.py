"""The status of a project, for people: a line, its files, its groups."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from weighbridge.cli.table import plain_table
from weighbridge.model.project import ProjectStatus

if TYPE_CHECKING:
    from rich.table import Table

    from weighbridge.projects.groups import KeywordGroup

_MARKS = {  # fixed symbols: docs/contracts.md
    "succeeded": "[green]✓ completed[/]",
    "running": "[cyan]⏳ processing[/]",
    "queued": "[cyan]🕒 queued[/]",
    "failed": "[red]⚠ error[/]",
}


def line(project_status: ProjectStatus) -> str:
    """`processing: 1 of 3 files, 4,500 of 9,000 rows, now b.csv; the groups are locked`"""
    fields = project_status.as_dict()
    files = f"{fields['processedFileCount']} of {fields['uploadedFileCount']} files"
    rows = "{rows_processed:,} of {rows_total:,} rows".format(**fields["progress"])
    now = f", now {fields['current_file']}" if fields["current_file"] else ""
    failed = f", {fields['failed_jobs']} failed" if fields["failed_jobs"] else ""
    return f"{project_status.status}: {files}{failed}, {rows}{now}" + (
        "; the groups are locked" if project_status.locked else ""
    )


@contextmanager
def live_line() -> Iterator[Callable[[ProjectStatus], None]]:
    """Yield the function to call with each new status of a project; it updates a line on stderr, at a terminal."""
    if not sys.stderr.isatty():
        yield lambda project_status: None
        return
    from rich.console import Console
    from rich.markup import escape

    with Console(stderr=True).status("") as shown:
        yield lambda project_status: shown.update(escape(line(project_status)))


def files_table(project_status: ProjectStatus) -> Table:
    """One line per file, in order of receipt; duplicates at the end."""
    from rich.markup import escape

    table = plain_table()
    table.add_column("file", overflow="fold")
    table.add_column("status")
    for name in ("rows", "inserted", "duplicate", "invalid"):
        table.add_column(name, justify="right")
    for file in project_status.files:
        numbers = (file.rows_total, file.inserted, file.duplicate, file.invalid)
        table.add_row(
            escape(file.filename or ""), _MARKS[file.status], *(f"{number:,}" for number in numbers)
        )
    for each in project_status.duplicates:
        table.add_row(escape(each.filename or ""), "= duplicate")
    return table


def remarks(project_status: ProjectStatus) -> list[str]:
    """A sentence for each file that failed or is a duplicate."""
    names = {file.job_id: file.filename or str(file.job_id) for file in project_status.files}
    failed = [
        f"{names[file.job_id]}: {file.message}" for file in project_status.files if file.status == "failed"
    ]
    again = [  # the original may have failed and be shown as its retry
        f"{each.filename or 'A file without a name'}: the same content as "
        f"{names.get(each.duplicate_of, 'a failed file')}."
        for each in project_status.duplicates
    ]
    return failed + again


def groups_table(groups: Sequence[KeywordGroup]) -> Table:
    from rich.markup import escape

    table = plain_table()
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
