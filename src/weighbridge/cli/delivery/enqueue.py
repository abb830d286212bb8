"""`weighbridge conversions enqueue`: queue sales that are older than the site's provider."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from weighbridge.cli.application import with_app
from weighbridge.cli.delivery.sites import check_providers, the_site
from weighbridge.cli.options import AsJson
from weighbridge.cli.output import out, print_json
from weighbridge.model.counts import counted

if TYPE_CHECKING:
    from weighbridge.app import App


def enqueue(
    site: Annotated[str, typer.Argument(help="The site's id or name.", metavar="SITE", show_default=False)],
    provider: Annotated[
        str | None,
        typer.Option(
            "--provider",
            help="Only for this provider. Default: all providers of the site.",
            metavar="PROVIDER",
        ),
    ] = None,
    since: Annotated[
        datetime | None,
        typer.Option(
            "--since",
            help="Only conversions since this time in UTC, such as 2026-01-31 or 2026-01-31T08:00:00.",
            metavar="TIME",
            show_default=False,
        ),
    ] = None,
    workspace: Annotated[
        str | None,
        typer.Option(
            "--workspace", help="The workspace's UUID. Default: the site's workspace.", metavar="UUID"
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    as_json: AsJson = False,
) -> None:
    """Queue sales that were loaded before the site had its current providers.

    A sale is queued when it is written. Sales that have expired or are already queued do not change.
    """
    from datetime import UTC

    if not yes:
        to = provider or "its providers"
        typer.confirm(f"Queue all sales of {site} that are not queued for {to} yet?", abort=True, err=True)

    async def work(app: App) -> int:
        from weighbridge.delivery import queue
        from weighbridge.postgres import roles

        found = await the_site(app, site, workspace)
        await check_providers(app, provider)
        from_then = since and since.replace(tzinfo=UTC)
        async with app.db.tx(roles.DELIVER) as tx:
            return await queue.enqueue(tx, found.workspace_id, found.id, provider, from_then, "command line")

    queued = with_app(work)
    if as_json:
        print_json({"queued": queued})
    else:
        out().print(f"{counted(queued, 'conversion')} queued.")
