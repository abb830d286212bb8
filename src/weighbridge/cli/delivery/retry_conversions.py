"""`weighbridge conversions retry`: requeue failed conversions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from weighbridge.cli.application import with_app
from weighbridge.cli.delivery.conversions import (
    OfCategory,
    OfProvider,
    OfSite,
    Workspace,
    category_of,
    workspace_and_site,
)
from weighbridge.cli.delivery.sites import check_providers
from weighbridge.cli.options import AsJson
from weighbridge.cli.output import complain, out, print_json
from weighbridge.model.counts import counted

if TYPE_CHECKING:
    from uuid import UUID

    from weighbridge.app import App
    from weighbridge.delivery.conversions import ConversionStatus
    from weighbridge.delivery.queue import FailedFilter


def retry(
    sales: Annotated[
        list[str] | None,
        typer.Argument(help="Ids of sales, from `conversions list`.", metavar="SALE", show_default=False),
    ] = None,
    provider: OfProvider = None,
    site: OfSite = None,
    category: OfCategory = None,
    code: Annotated[
        str | None,
        typer.Option("--code", help="Only conversions with this provider error code.", metavar="CODE"),
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="All failed conversions.")] = False,
    workspace: Workspace = None,
    every_workspace: Annotated[
        bool, typer.Option("--every-workspace", help="All workspaces instead of one.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    as_json: AsJson = False,
) -> None:
    """Retry failed conversions: the given sales, or all that match the options. The action is audited."""
    filters = {"--provider": provider, "--site": site, "--category": category, "--code": code}
    given = [name for name, value in filters.items() if value is not None]
    if sales:
        if given not in ([], ["--provider"]) or all_ or workspace or every_workspace:
            raise typer.BadParameter("expected either sales, optionally with --provider, or filter options.")
        _retry_named(sales, provider, as_json=as_json)
        return
    if bool(given) == all_:
        raise typer.BadParameter(
            f"expected sales, or filters ({', '.join(filters)}), or --all without filters."
        )
    if every_workspace and (workspace or site):
        raise typer.BadParameter("--every-workspace cannot be combined with --workspace or --site.")
    wanted_category = category_of(category)

    async def look(app: App) -> tuple[FailedFilter, dict[UUID, int]]:
        from weighbridge.delivery import queue
        from weighbridge.postgres import roles

        workspace_id, site_id = None, None
        if not every_workspace:
            workspace_id, site_id = await workspace_and_site(app, site, workspace)
        await check_providers(app, provider)
        async with app.db.tx(roles.DELIVER) as tx:
            wanted = queue.FailedFilter(site_id, provider, wanted_category, code)
            return wanted, await queue.count_failed(tx, wanted, workspace_id)

    wanted, by_workspace = with_app(look)
    count = sum(by_workspace.values())
    if count and not yes:
        where = "" if len(by_workspace) == 1 else f" of {len(by_workspace):,} workspaces"
        typer.confirm(f"Retry {counted(count, 'conversion')}{where}?", abort=True, err=True)
    requeued = with_app(lambda app: _requeue(app, wanted, list(by_workspace))) if count else 0
    if as_json:
        print_json({"requeued": requeued})
    elif requeued:
        out().print(f"{counted(requeued, 'conversion')} queued again.")
    else:
        out().print("No failed conversion matches.")


def _retry_named(sales: list[str], provider: str | None, *, as_json: bool) -> None:
    """Retry the given sales and report the result of each. Exit code 1: at least one was refused."""

    async def work(app: App) -> list[dict[str, Any]]:
        from weighbridge.delivery import conversions, queue
        from weighbridge.delivery.retry_failed import retry_failed
        from weighbridge.postgres import roles
        from weighbridge.uploads.check_request import uuid_of

        wanted = list(dict.fromkeys(uuid_of(each, "sale", "SALE") for each in sales))
        await check_providers(app, provider)
        async with app.db.tx(roles.DELIVER) as tx:
            before = await conversions.statuses(tx, wanted, provider)
        for workspace_id in {state.workspace_id for state in before}:
            theirs = [state.sale_id for state in before if state.workspace_id == workspace_id]
            named = queue.FailedFilter(provider_key=provider, sales=theirs)
            await retry_failed(app.db, named, workspace_id, "command line")
        async with app.db.tx(roles.DELIVER) as tx:
            after = {_key(state): state for state in await conversions.statuses(tx, wanted, provider)}
        missing = set(wanted) - {state.sale_id for state in before}
        message = f"There is no such sale{f' for {provider}' if provider else ''}."
        unknown = [
            {"sale_id": each, "error": "unknown_conversion", "message": message}
            for each in wanted
            if each in missing
        ]
        return [*(_retry_result(state, after[_key(state)]) for state in before), *unknown]

    done = with_app(work)
    refused = [each for each in done if "error" in each]
    for each in refused:
        complain(f"{each['sale_id']}: {each['message']}")
    if as_json:
        print_json(done)
    else:
        out().print(f"{counted(len(done) - len(refused), 'conversion')} queued again.")
    if refused:
        raise typer.Exit(1)


def _key(state: ConversionStatus) -> tuple[UUID, str]:
    return state.sale_id, state.provider_key


def _retry_result(before: ConversionStatus, after: ConversionStatus) -> dict[str, Any]:
    result = {
        "sale_id": before.sale_id,
        "provider": before.provider_key,
        "status": after.status,
    }
    if before.status == "FAILED" and after.status == "QUEUED":
        return result
    if before.status == "FAILED" and before.canceled:
        return {**result, "error": "sale_canceled", "message": "The sale was canceled."}
    message = f"{before.provider_key}: expected status FAILED, got {after.status}."
    return {**result, "error": "not_failed", "message": message}


async def _requeue(app: App, wanted: FailedFilter, workspaces: list[UUID]) -> int:
    """Retry workspace by workspace: each has its own audit entry."""
    from weighbridge.delivery.retry_failed import retry_failed

    return sum([await retry_failed(app.db, wanted, each, "command line") for each in workspaces])
