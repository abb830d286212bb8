"""`weighbridge load`: receive files and process them in this process until each upload has ended."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from weighbridge.cli.application import with_app
from weighbridge.cli.options import DEFAULT_WORKSPACE, AsJson, Workspace
from weighbridge.cli.output import complain, err, out, print_json
from weighbridge.cli.uploads.read_options import DateOrder, Decimal, Delimiter, Encoding, SumBreakdowns
from weighbridge.cli.uploads.request import request_of

if TYPE_CHECKING:
    from weighbridge.app import App
    from weighbridge.cli.uploads.report import FileResult
    from weighbridge.uploads.check_request import Request
    from weighbridge.uploads.queue import Holder

REPORT_HOLDER_AFTER = 5  # seconds that another worker holds a file before the command says so

Files = Annotated[
    list[Path],
    typer.Argument(help="Export files, CSV or JSON.", metavar="FILE", exists=True, dir_okay=False),
]
Pipe = Annotated[
    str,
    typer.Option(
        "--pipeline",
        help="The pipeline, see `weighbridge pipelines list`. auto: detect it from the header.",
        metavar="NAME",
    ),
]
Platform = Annotated[
    str | None,
    typer.Option(
        "--platform",
        help="The platform that exported the file: meta, google or tiktok. Required by the pipeline ads.",
        metavar="NAME",
    ),
]
Client = Annotated[
    str | None, typer.Option("--client", help="The client that the rows belong to.", metavar="UUID")
]
Source = Annotated[
    str, typer.Option("--source", help="Recorded source: manual, api or webhook.", metavar="NAME")
]
Project = Annotated[
    str | None,
    typer.Option("--project", help="The keyword project that the files belong to, by number.", metavar="N"),
]
ForcePartial = Annotated[
    bool, typer.Option("--force-partial", help="Promote the valid rows even if too many rows are invalid.")
]
Batch = Annotated[
    str | None,
    typer.Option("--batch", help="A name for this batch. A batch is loaded only once.", metavar="NAME"),
]
Force = Annotated[bool, typer.Option("--force", help="Load the file even if its content was loaded before.")]
Preview = Annotated[
    bool, typer.Option("--preview", help="Show the changes without writing them to production.")
]


def load(
    files: Files,
    pipeline: Pipe = "ads",
    platform: Platform = None,
    workspace: Workspace = DEFAULT_WORKSPACE,
    client: Client = None,
    project: Project = None,
    source: Source = "manual",
    force_partial: ForcePartial = False,
    force: Force = False,
    batch: Batch = None,
    preview: Preview = False,
    encoding: Encoding = None,
    delimiter: Delimiter = None,
    decimal: Decimal = None,
    date_order: DateOrder = None,
    sum_breakdowns: SumBreakdowns = False,
    as_json: AsJson = False,
) -> None:
    """Load files and wait until their rows are in production or, with --preview, staged."""
    request = request_of(locals(), besides=("files", "as_json"))
    if batch is not None and len(files) > 1:
        raise typer.BadParameter(f"--batch: expected one file, got {len(files)}; load them one by one")

    async def work(app: App) -> list[FileResult]:
        outcomes = await load_files(
            app, [(file, replace(request, filename=file.name)) for file in files], bar=not as_json
        )
        with_preview = await with_warnings(app, await with_previews(app, outcomes))
        show(app, with_preview, pipeline, as_json=as_json)
        return outcomes

    outcomes = with_app(work)
    if not all(outcome.ok for outcome in outcomes):
        raise typer.Exit(1)


async def load_files(app: App, wanted: Sequence[tuple[Path, Request]], *, bar: bool) -> list[FileResult]:
    """Receive the files, then process them until all have ended."""
    from weighbridge.cli.serve import worker_options
    from weighbridge.cli.uploads.progress import progress
    from weighbridge.cli.uploads.report import FileResult
    from weighbridge.model.errors import RequestRefused, RetryLater
    from weighbridge.uploads.receive import Received, receive
    from weighbridge.worker import run_with_progress

    received_files: list[Received | RequestRefused] = []
    for file, request in wanted:
        try:
            received = await receive(app.ctx, request, file)
            received_files.append(received)
            if received.storage_status == "pending_retry":
                complain(f"{file.name}: {_DEFERRED}")
        except RequestRefused as refusal:
            received_files.append(refusal)
        except RetryLater as trouble:
            received_files.append(RequestRefused(503, "unavailable", trouble.message))
    waiting: dict[UUID, str] = {}
    for (file, _), each in zip(wanted, received_files, strict=True):
        if not isinstance(each, RequestRefused):
            waiting.setdefault(each.upload_id, file.name)
    latest = {}
    if waiting:
        holders, grouping = _HolderReport(waiting), _GroupingReport(bar)
        work = run_with_progress(app.ctx, worker_options(app.settings), list(waiting))
        with progress(waiting, shown=bar) as show_progress:
            async with aclosing(work) as steps:
                async for step in steps:
                    holders.print(step.leased_by_others, step.earlier)
                    for upload in step.uploads:
                        show_progress(upload)
                        latest[upload.id] = upload
                    if step.grouping:
                        grouping.print()
    return [
        FileResult(file, refusal=each)
        if isinstance(each, RequestRefused)
        else FileResult(file, upload=latest[each.upload_id], duplicate=each.duplicate)
        for (file, _), each in zip(wanted, received_files, strict=True)
    ]


async def with_previews(app: App, outcomes: list[FileResult]) -> list[FileResult]:
    """Add the preview to each upload that is on hold."""

    from weighbridge.model.errors import RequestRefused
    from weighbridge.uploads.preview import preview

    with_preview = []
    for each in outcomes:
        found = None
        if each.upload is not None and each.upload.on_hold:
            try:
                found = await preview(app.ctx, each.upload)
            except RequestRefused as refusal:
                complain(f"{each.file.name}: {refusal.message}")
        with_preview.append(replace(each, preview=found))
    return with_preview


async def with_warnings(app: App, outcomes: list[FileResult]) -> list[FileResult]:
    """Add the first warnings to each upload."""

    from weighbridge.cli.uploads.report import WARNINGS
    from weighbridge.uploads import history

    async with app.db.tx() as tx:
        return [
            replace(each, warnings=tuple(await history.warnings(tx, each.upload.id, None, WARNINGS)))
            if each.upload is not None
            else each
            for each in outcomes
        ]


_DEFERRED = (
    "the file store is not available. The file is queued and stored automatically later. This command waits for it; "
    "after Ctrl-C the service continues. For reason and next attempt, run: weighbridge storage list"
)


class _GroupingReport:
    """Prints once, at a terminal, that all files are loaded and grouping has started."""

    def __init__(self, shown: bool) -> None:
        self._printed = not shown or not sys.stderr.isatty()

    def print(self) -> None:
        if not self._printed:
            self._printed = True
            err().print("All files are loaded; grouping the project's keywords …")


class _HolderReport:
    """Prints once per file why nothing happens: another worker holds it, or an earlier file comes first."""

    def __init__(self, names: dict[UUID, str]) -> None:
        self._names = names
        self._since: dict[UUID, float] = {}
        self._reported: set[UUID] = set()

    def print(self, holders: Sequence[Holder], earlier: Mapping[UUID, UUID]) -> None:
        for holder in holders:
            self._print(
                holder.upload_id,
                f"another worker ({holder.worker}) is processing it. If that worker has stopped, this command takes "
                f"over at {holder.lease_until:%H:%M:%S} UTC.",
            )
        for waiting, first in earlier.items():
            self._print(
                waiting,
                f"its rows are ready, and are written after those of an earlier file, upload {first}, which may have "
                f"the same rows. See weighbridge uploads show {first}",
            )

    def _print(self, upload_id: UUID, reason: str) -> None:
        waited = monotonic() - self._since.setdefault(upload_id, monotonic())
        if upload_id not in self._reported and waited > REPORT_HOLDER_AFTER:
            self._reported.add(upload_id)
            complain(f"{self._names[upload_id]}: {reason}")


def show(app: App, outcomes: list[FileResult], pipeline_name: str, *, as_json: bool) -> None:
    """Print the result on stdout and one message per error on stderr."""
    from weighbridge.cli.uploads import report

    for outcome in outcomes:
        if outcome.refusal is not None:
            complain(f"{outcome.file.name}: {outcome.refusal.message}")
        elif outcome.upload is not None and outcome.upload.error_text:
            complain(f"{outcome.file.name}: {outcome.upload.error_text}")
    by_pipeline: dict[str, list[FileResult]] = {}  # with auto, the files may belong to several pipelines
    for each in outcomes:
        by_pipeline.setdefault(each.upload.pipeline if each.upload else pipeline_name, []).append(each)
    if as_json:
        of = {id(each): app.ctx.pipelines.get(name) for name, some in by_pipeline.items() for each in some}
        objects: list[Any] = [report.as_json(each, of[id(each)]) for each in outcomes]
        print_json(objects[0] if len(objects) == 1 else objects)
    else:
        for name, some in by_pipeline.items():
            if pipeline := app.ctx.pipelines.get(name):  # None: the files were refused, as reported above
                if name != pipeline_name:
                    out().print(f"{name}:")
                out().print(report.outcome_table(some, pipeline))
        for each in outcomes:
            if each.upload is None:
                continue
            name, id_ = each.file.name, each.upload.id
            for line in report.warning_lines(each.warnings):
                text = f"{name}: {line}" if len(outcomes) > 1 else line
                out().print(text, markup=False, soft_wrap=True)
            if superseded := report.superseded(each.upload):
                out().print(f"{name}: {superseded}", markup=False, soft_wrap=True)
            if each.upload.failed_rows:
                out().print(f"Rejected rows of {name}: weighbridge uploads rejects {id_}", markup=False)
            if each.warnings:
                out().print(
                    f"{report.more_warnings(each)} {name}: weighbridge uploads warnings {id_}", markup=False
                )
        for each in outcomes:
            if each.preview is not None:
                report.print_preview(
                    each.file.name, each.preview, app.ctx.pipelines[each.preview.upload.pipeline]
                )
        for project in dict.fromkeys(_project_of(each) for each in outcomes if each.upload is not None):
            if project:
                out().print(f"Show the groups: weighbridge projects show {project}", markup=False)


def _project_of(outcome: FileResult) -> str:
    """The project of a file, as arguments of `weighbridge projects`."""
    assert outcome.upload is not None
    project, workspace = outcome.upload.project_id, str(outcome.upload.workspace_id)
    if project is None:
        return ""
    return f"{project}" if workspace == DEFAULT_WORKSPACE else f"{project} --workspace {workspace}"
