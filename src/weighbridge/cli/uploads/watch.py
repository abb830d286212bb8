"""`weighbridge watch DIR`: receive and process files that appear in a folder.

Files stay in place and are never deleted: a file received before is recognised by its content. With
--move they are moved to the subfolders received/ and refused/.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from weighbridge.cli.application import with_app
from weighbridge.cli.options import DEFAULT_WORKSPACE, AsJson, Workspace
from weighbridge.cli.output import out
from weighbridge.cli.uploads.load import Client, ForcePartial, Pipe, Platform, Project, Source
from weighbridge.cli.uploads.read_options import DateOrder, Decimal, Delimiter, Encoding, SumBreakdowns
from weighbridge.cli.uploads.request import request_of

if TYPE_CHECKING:
    from weighbridge.app import App
    from weighbridge.cli.uploads.complete_files import Folder
    from weighbridge.uploads.check_request import Request


def watch(
    folder: Annotated[
        Path, typer.Argument(help="The folder to watch.", exists=True, file_okay=False, metavar="DIR")
    ],
    pipeline: Pipe = "ads",
    platform: Platform = None,
    workspace: Workspace = DEFAULT_WORKSPACE,
    client: Client = None,
    project: Project = None,
    source: Source = "manual",
    force_partial: ForcePartial = False,
    encoding: Encoding = None,
    delimiter: Delimiter = None,
    decimal: Decimal = None,
    date_order: DateOrder = None,
    sum_breakdowns: SumBreakdowns = False,
    move: Annotated[
        bool, typer.Option("--move", help="Move files to the subfolders received/ and refused/.")
    ] = False,
    once: Annotated[
        bool, typer.Option("--once", help="Process the files that are in the folder, then exit.")
    ] = False,
    work: Annotated[
        bool,
        typer.Option("--work/--no-work", help="Process files in this process, or leave them to workers."),
    ] = True,
    settle: Annotated[
        float,
        typer.Option(
            "--settle",
            help="Seconds without change after which a file counts as complete, 0 to 3600.",
            metavar="SECONDS",
        ),
    ] = 1,
    as_json: AsJson = False,
) -> None:
    """Load every file that appears in a folder."""
    request = request_of(locals(), besides=("folder", "move", "once", "work", "settle", "as_json"))
    if not 0 <= settle <= 3600:  # not as a range of the option: "nan" is neither below nor above it
        raise typer.BadParameter(f"--settle: expected 0 to 3600 seconds, got {settle:g}")
    from weighbridge.cli.uploads.complete_files import Folder

    async def inside(app: App) -> bool:
        watcher = _Watcher(app, Folder(folder, settle), request, move=move, as_json=as_json)
        return await watcher.once(work) if once else await watcher.forever(work)

    if not with_app(inside, long_running=not once):
        raise typer.Exit(1)


class _Watcher:
    def __init__(self, app: App, folder: Folder, request: Request, *, move: bool, as_json: bool) -> None:
        self._app = app
        self._folder = folder
        self._request = request
        self._move = move
        self._as_json = as_json
        self._waiting: dict[UUID, str] = {}  # uploads whose end is not reported yet
        self._all_loaded = True
        self._continuous = False  # running continuously: a file that fails now is retried

    async def forever(self, work: bool) -> bool:
        from weighbridge.cli.serve import worker_options
        from weighbridge.uploads.check_request import check_sender
        from weighbridge.worker import Worker

        check_sender(self._app.ctx, self._request)  # report a wrong option now, not with the first file
        self._continuous = True
        stop = asyncio.Event()
        tasks = [asyncio.create_task(self._watch_folder()), asyncio.create_task(self._report_ends())]
        if work:
            tasks.append(
                asyncio.create_task(Worker(self._app.ctx, worker_options(self._app.settings)).run(stop))
            )
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            stop.set()
            for task in tasks[:2]:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return True

    async def once(self, work: bool) -> bool:
        from weighbridge.cli.serve import worker_options
        from weighbridge.worker import run_until

        self._folder.ready()
        while self._folder.unsettled:
            await asyncio.sleep(self._folder.settle)
            await self._receive_ready()
        if work and self._waiting:
            ids = list(self._waiting)
            for upload in await run_until(self._app.ctx, worker_options(self._app.settings), ids):
                self._report_end(upload)
        return self._all_loaded

    async def _watch_folder(self) -> None:
        from watchfiles import awatch

        # A notification or a poll every two seconds: some file systems send no notifications.
        async for _ in awatch(
            self._folder.path, recursive=False, step=100, rust_timeout=2000, yield_on_timeout=True
        ):
            await self._receive_ready()
            while self._folder.unsettled:
                await asyncio.sleep(self._folder.settle / 2)
                await self._receive_ready()

    async def _receive_ready(self) -> None:
        for file in self._folder.ready():
            await self._receive(file)

    async def _receive(self, file: Path) -> None:
        from dataclasses import replace

        from weighbridge.cli.uploads.complete_files import put_aside
        from weighbridge.model.errors import RequestRefused, RetryLater
        from weighbridge.uploads.receive import receive

        try:
            received = await receive(self._app.ctx, replace(self._request, filename=file.name), file)
        except RetryLater as trouble:
            self._all_loaded = False
            if self._continuous:
                self._folder.give_back(file)  # returned again later, like a new file
            self._report("waiting", file.name, message=trouble.message)
            return
        except RequestRefused as refusal:
            self._all_loaded = False
            if self._move:
                await asyncio.to_thread(put_aside, file, "refused")
            self._report("refused", file.name, error=refusal.code, message=refusal.message)
            return
        if self._move:
            await asyncio.to_thread(put_aside, file, "received")
        outcome = "duplicate" if received.duplicate else "received"
        waits = {} if received.storage_status == "stored" else {"storage_status": received.storage_status}
        self._report(outcome, file.name, upload_id=received.upload_id, status=received.status.value, **waits)
        if not received.duplicate:
            self._waiting[received.upload_id] = file.name

    async def _report_ends(self) -> None:
        """Report how each upload ended, whichever worker processed it."""
        from weighbridge.model.errors import RetryLater
        from weighbridge.model.states import TERMINAL
        from weighbridge.postgres.listen import notifications
        from weighbridge.uploads import queue

        async for _ in notifications(self._app.db.url, "weighbridge_live"):
            if not self._waiting:
                continue
            with suppress(
                RetryLater
            ):  # the database is unreachable; after the reconnect there is another notification
                async with self._app.db.tx() as tx:
                    found = await queue.get_many(tx, list(self._waiting))
                for upload in found:
                    if upload.status in TERMINAL:
                        self._report_end(upload)

    def _report_end(self, upload: Any) -> None:
        name = self._waiting.pop(upload.id)
        self._all_loaded = self._all_loaded and upload.status != "failed"
        names = ("total_rows", "promoted_rows", "failed_rows", "warnings", "error_text")
        self._report(upload.status.value, name, upload_id=upload.id, **{n: getattr(upload, n) for n in names})

    def _report(self, event: str, file: str, **fields: Any) -> None:
        if self._as_json:
            sys.stdout.write(json.dumps({"event": event, "file": file, **fields}, default=str) + "\n")
            sys.stdout.flush()
        else:
            text = "  ".join(f"{name} {value}" for name, value in fields.items() if value is not None)
            out().print(f"{event:<10} {file}  {text}", markup=False, soft_wrap=True)
