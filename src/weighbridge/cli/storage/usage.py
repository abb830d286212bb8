"""`weighbridge storage usage|limit|recount`: storage usage, quotas and a check of the counters."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weighbridge.cli.application import with_app
from weighbridge.cli.options import DEFAULT_WORKSPACE, AsJson, Workspace
from weighbridge.cli.output import complain, out, print_json
from weighbridge.cli.table import plain_table

if TYPE_CHECKING:
    from weighbridge.app import App
    from weighbridge.storage.recount import Recounted
    from weighbridge.storage.usage import Usage

app = typer.Typer()

_UNITS = {"B": 1, "KB": 2**10, "MB": 2**20, "GB": 2**30, "TB": 2**40}
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?B?)", re.IGNORECASE)
_MOST = 2**60
_LIMIT = "500MB, 2GB, …; none: no limit; default: the limit of the settings."


@app.command()
def usage(workspace: Workspace = DEFAULT_WORKSPACE, as_json: AsJson = False) -> None:
    """Show storage usage and quotas of a workspace and its users."""

    async def work(app: App) -> list[Usage]:
        from weighbridge.postgres import roles
        from weighbridge.storage import usage
        from weighbridge.storage.quota import defaults
        from weighbridge.uploads.check_request import uuid_of

        workspace_id = uuid_of(workspace, "workspace", "workspace")
        async with app.db.tx(roles.TENANT, workspace_id) as tx:
            return await usage.usage_and_limits(tx, defaults(app.ctx.limits))

    whole, *users = with_app(work)
    if as_json:
        print_json(
            {"workspace_id": workspace, **_to_json(whole), "users": [_to_json(user) for user in users]}
        )
        return

    from weighbridge.storage.quota import readable

    table = plain_table()
    table.add_column("user", overflow="fold")
    for name in (
        "files",
        "stored",
        "of",
        whole.billing_month,
        "of",
        "queued",
        "in progress",
        "read again",
        "of",
    ):
        table.add_column(name, justify="right")
    for each in (whole, *users):
        limits = [
            readable(limit) if limit is not None else "" for limit in (each.total_limit, each.month_limit)
        ]
        table.add_row(
            str(each.user_id or "all"), f"{each.total_sources:,}", readable(each.total_bytes), limits[0],
            readable(each.month_bytes), limits[1], readable(each.waiting_bytes), readable(each.reserved_bytes),
            f"{each.interpretation_count_month:,}",
            f"{each.interpretation_limit_month:,}" if each.user_id else "",
        )  # fmt: skip
    out().print(table)
    out().print(f"The monthly counters reset on {whole.resets_at:%Y-%m-%d} (UTC).")


@app.command()
def limit(
    workspace: Workspace = DEFAULT_WORKSPACE,
    user: Annotated[
        str | None,
        typer.Option("--user", help="Set the limits of this user instead of the workspace.", metavar="UUID"),
    ] = None,
    month: Annotated[
        str | None,
        typer.Option("--month", help=f"Bytes stored per calendar month: {_LIMIT}", metavar="BYTES"),
    ] = None,
    total: Annotated[
        str | None, typer.Option("--total", help=f"Total bytes stored at any time: {_LIMIT}", metavar="BYTES")
    ] = None,
    interpretations: Annotated[
        int | None,
        typer.Option(
            "--interpretations",
            help="Maximum number of stored files of the user that may be read again per month. Requires --user.",
            metavar="N",
            min=0,
            max=2**31 - 1,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Set the storage limits of a workspace or a user. The action is audited."""
    months, totals = _amount("--month", month), _amount("--total", total)
    if interpretations is not None and user is None:
        raise typer.BadParameter("--interpretations requires --user: they are counted per user.")
    if months is None and totals is None and interpretations is None:
        raise typer.BadParameter("expected a limit: --month, --total or --interpretations.")

    async def work(app: App) -> Usage:
        from weighbridge.storage import usage
        from weighbridge.storage.quota import defaults
        from weighbridge.uploads.check_request import uuid_of

        workspace_id = uuid_of(workspace, "workspace", "workspace")
        user_id = uuid_of(user, "user", "user") if user else None
        wanted = usage.Limit(user_id, months, totals, interpretations)
        async with app.db.tx(workspace_id=workspace_id) as tx:
            await usage.set_limit(tx, wanted, "command line")
            found = {
                each.user_id: each for each in await usage.usage_and_limits(tx, defaults(app.ctx.limits))
            }
        return found.get(user_id) or found[None]

    now = with_app(work)
    if as_json:
        print_json({"workspace_id": workspace, **_to_json(now), "user_id": user})
        return
    from weighbridge.storage.quota import readable

    spelled = [
        readable(each) if each is not None else "no limit" for each in (now.month_limit, now.total_limit)
    ]
    sentence = f"{f'User {user}' if user else f'Workspace {workspace}'}: {spelled[0]} per month, {spelled[1]} in total"
    if user:
        sentence += f", {now.interpretation_limit_month:,} files read again per month"
    out().print(f"{sentence}.", soft_wrap=True)


@app.command()
def recount(
    workspace: Annotated[
        str | None, typer.Option("--workspace", help="Only this workspace.", metavar="UUID")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Report differences without changing anything.")
    ] = False,
    remove_orphans: Annotated[
        bool, typer.Option("--remove-orphans", help="Delete stored files that belong to no upload.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation before deleting.")] = False,
    as_json: AsJson = False,
) -> None:
    """Compare the usage counters with the stored files and correct them. Exit code 1: a file is missing."""
    if remove_orphans and not dry_run and not yes:
        typer.confirm("Permanently delete every stored file that belongs to no upload?", abort=True, err=True)

    async def work(app: App) -> list[Recounted]:
        from weighbridge.storage.recount import recount
        from weighbridge.uploads.check_request import uuid_of

        workspace_id = uuid_of(workspace, "workspace", "workspace") if workspace else None
        return await recount(app.ctx, workspace_id, dry=dry_run, remove_orphans=remove_orphans)

    found = with_app(work)
    if as_json:
        print_json([_recounted_to_json(each) for each in found])
    else:
        for each in found:
            _print(each, dry=dry_run)
        if not found:
            out().print("The counters match the stored files.")
    if any(each.missing for each in found):
        raise typer.Exit(1)


def _print(found: Recounted, *, dry: bool) -> None:
    from weighbridge.storage.quota import readable

    for user in found.users:
        out().print(
            f"{found.workspace_id}, user {user.user_id}: {user.recorded_sources:,} files of "
            f"{readable(user.recorded_bytes)} were counted, {user.found_sources:,} of {readable(user.found_bytes)} "
            f"are stored{'' if dry else '; corrected'}.", soft_wrap=True,
        )  # fmt: skip
    if found.orphans:
        size = sum(size for _, size in found.orphans)
        action = (
            "deleted" if found.removed else "delete them with weighbridge storage recount --remove-orphans"
        )
        text = f"{len(found.orphans):,} stored files of {readable(size)} belong to no upload; {action}."
        out().print(f"{found.workspace_id}: {text}", soft_wrap=True)
    for upload_id in found.missing:
        complain(f"The stored file of upload {upload_id} is missing.")


def _amount(option: str, text: str | None) -> int | None:
    """Bytes, or the constants for no limit and for the limit of the settings."""
    from weighbridge.storage.usage import AS_SETTINGS_SAY, NO_LIMIT

    if text is None:
        return None
    words = {"none": NO_LIMIT, "default": AS_SETTINGS_SAY}
    if text.lower() in words:
        return words[text.lower()]
    found = _AMOUNT.fullmatch(text.strip())
    unit = found and found[2].upper().removesuffix("B") + "B"
    if found is None or unit not in _UNITS or (amount := float(found[1]) * _UNITS[unit]) > _MOST:
        raise typer.BadParameter(
            f"{option}: expected an amount such as 500MB or 2GB, none or default, got {text!r}."
        )
    return round(amount)


def _to_json(usage: Usage) -> dict[str, Any]:
    fields = dict(vars(usage))
    limits = {"month_bytes": fields.pop("month_limit"), "total_bytes": fields.pop("total_limit")}
    if usage.user_id is None:
        for name in (
            "user_id",
            "interpretation_limit_month",
            "interpretation_count_month",
            "last_calculated",
        ):
            del fields[name]
    else:
        del fields["billing_month"], fields["resets_at"]
    return {**fields, "limits": limits}


def _recounted_to_json(found: Recounted) -> dict[str, Any]:
    return {
        "workspace_id": found.workspace_id,
        "users": [vars(user) for user in found.users],
        "orphans": {"number": len(found.orphans), "bytes": sum(size for _, size in found.orphans)},
        "removed": found.removed,
        "missing": list(found.missing),
    }
