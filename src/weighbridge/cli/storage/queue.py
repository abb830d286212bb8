"""`weighbridge storage`: list, retry and drop files that wait for the file store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from weighbridge.cli.application import with_app
from weighbridge.cli.options import AsJson
from weighbridge.cli.output import complain, out, print_json
from weighbridge.cli.table import plain_table
from weighbridge.model.counts import counted

if TYPE_CHECKING:
    from weighbridge.app import App
    from weighbridge.storage.queue import Waiting

app = typer.Typer(
    help="Manage files that wait for the file store, and storage usage and quotas.", no_args_is_help=True
)

QueueIds = Annotated[
    list[str] | None,
    typer.Argument(help="Queue ids, from `storage list`.", metavar="ID", show_default=False),
]


@app.command("list")
def listing(
    workspace: Annotated[
        str | None, typer.Option("--workspace", help="Only files of this workspace.", metavar="UUID")
    ] = None,
    failed: Annotated[
        bool, typer.Option("--failed", help="Only files that used all their retries and need an operator.")
    ] = False,
    limit: Annotated[
        int, typer.Option("--limit", help="Maximum number of files.", metavar="N", min=1, max=10_000)
    ] = 200,
    as_json: AsJson = False,
) -> None:
    """List files that wait for the file store, oldest first."""

    async def work(app: App) -> tuple[list[Waiting], Any]:
        return await _waiting(app, workspace, failed or None, limit), app.ctx.spool.id

    found, spool_id = with_app(work)
    if as_json:
        print_json([_to_json(each, spool_id) for each in found])
        return
    if not found:
        out().print("No file has failed." if failed else "No files wait for the store.")
        return
    from rich.markup import escape

    table = plain_table()
    for name in ("queue id", "upload", "since", "next retry", "machine"):
        table.add_column(name, no_wrap=True)
    for name in ("bytes", "retries"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("reason", overflow="fold")
    for each in found:
        next_try = f"{each.next_retry_at:%Y-%m-%d %H:%M:%S}" if each.next_retry_at else "failed"
        table.add_row(
            str(each.queue_id), str(each.upload_id or ""), f"{each.created_at:%Y-%m-%d %H:%M:%S}", next_try,
            "this one" if each.spool_id == spool_id else "another", f"{each.byte_size:,}",
            f"{each.retry_count} of {each.max_retries}", escape(each.error_message or ""),
        )  # fmt: skip
    out().print(table)


@app.command()
def retry(
    queue_ids: QueueIds = None,
    all_: Annotated[bool, typer.Option("--all", help="All waiting and failed files.")] = False,
    as_json: AsJson = False,
) -> None:
    """Retry files now. The Weighbridge process on the machine that holds them stores them."""

    async def work(app: App) -> list[dict[str, Any]]:
        from weighbridge.model.errors import RequestRefused
        from weighbridge.storage.replay import retry_now

        results: list[dict[str, Any]] = []
        for each in await _chosen(app, queue_ids, all_):
            try:
                await retry_now(app.db, each, actor="command line")
                results.append({"queue_id": str(each), "storage_status": "pending_retry"})
            except RequestRefused as refusal:
                results.append({"queue_id": str(each), "error": refusal.code, "message": refusal.message})
        return results

    _report(with_app(work), "queued for an immediate retry.", as_json=as_json)


@app.command()
def drop(
    queue_ids: Annotated[
        list[str],
        typer.Argument(help="Queue ids, from `storage list`.", metavar="ID", show_default=False),
    ],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    as_json: AsJson = False,
) -> None:
    """Drop files: their uploads fail and their content is deleted. The sender has to upload them again."""
    if not yes:
        typer.confirm(f"Delete {counted(len(queue_ids), 'file')} permanently?", abort=True, err=True)

    async def work(app: App) -> list[dict[str, Any]]:
        from weighbridge.model.errors import RequestRefused
        from weighbridge.storage import replay

        results: list[dict[str, Any]] = []
        for each in await _chosen(app, queue_ids, everything=False):
            try:
                await replay.drop(app.ctx, each, actor="command line")
                results.append({"queue_id": str(each), "dropped": True})
            except RequestRefused as refusal:
                results.append({"queue_id": str(each), "error": refusal.code, "message": refusal.message})
        return results

    _report(with_app(work), "dropped.", as_json=as_json)


def _report(results: list[dict[str, Any]], done: str, *, as_json: bool) -> None:
    """Report the result for each file. Exit code 1: at least one was refused."""
    refused = [each for each in results if "error" in each]
    for each in refused:
        complain(f"{each['queue_id']}: {each['message']}")
    if as_json:
        print_json(results)
    elif results:
        out().print(f"{counted(len(results) - len(refused), 'file')} {done}")
    else:
        out().print("No files wait for the store.")
    if refused:
        raise typer.Exit(1)


async def _chosen(app: App, named: list[str] | None, everything: bool) -> list[Any]:
    from weighbridge.uploads.check_request import uuid_of

    if bool(named) == everything:
        raise typer.BadParameter("expected queue ids or --all")
    if everything:
        return [each.queue_id for each in await _waiting(app, None, None, 1_000_000)]
    return [uuid_of(each, "queue_id", "ID") for each in named or ()]


async def _waiting(app: App, workspace: str | None, failed: bool | None, limit: int) -> list[Waiting]:
    from weighbridge.storage import queue
    from weighbridge.uploads.check_request import uuid_of

    workspace_id = uuid_of(workspace, "workspace", "workspace") if workspace else None
    async with app.db.tx() as tx:
        return await queue.waiting(tx, workspace_id=workspace_id, failed=failed, limit=limit)


def _to_json(waiting: Waiting, spool_id: Any) -> dict[str, Any]:
    return {**vars(waiting), "here": waiting.spool_id == spool_id}
