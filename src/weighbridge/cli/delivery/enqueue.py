"""`weighbridge conversions enqueue`: sales from before their site had a provider."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from weighbridge.cli.delivery.sites import check_providers, the_site
from weighbridge.cli.running import AsJson, out, print_json, with_app

if TYPE_CHECKING:
    from weighbridge.app import App


def enqueue(
    site: Annotated[str, typer.Argument(help="The site, by id or name.", metavar="SITE", show_default=False)],
    provider: Annotated[
        str | None, typer.Option("--provider", help="Only to this one; else to all that the site has.")
    ] = None,
    since: Annotated[
        datetime | None,
        typer.Option("--since", help="Only conversions from then on (UTC).", show_default=False),
    ] = None,
    workspace: Annotated[
        str | None,
        typer.Option("--workspace", help="The workspace's UUID; else that of the site.", metavar="UUID"),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Queue sales that the site's providers have not heard of: they came before the site had them.

    A sale makes its queue rows when it is written. What has expired stays as it is; what is in the queue already, too.
    """
    from datetime import UTC

    if not yes:
        to = provider or "every provider it has"
        typer.confirm(f"Queue all sales of {site} that {to} has not heard of?", abort=True, err=True)

    async def work(app: App) -> int:
        from weighbridge.delivery import queue
        from weighbridge.delivery.outbound import ROLE

        found = await the_site(app, site, workspace)
        await check_providers(app, provider)
        from_then = since and since.replace(tzinfo=UTC)
        async with app.db.tx(ROLE) as tx:
            return await queue.enqueue(tx, found.workspace_id, found.id, provider, from_then, "command line")

    queued = with_app(work)
    if as_json:
        print_json({"queued": queued})
    else:
        out().print(f"{queued:,} conversion{'' if queued == 1 else 's'} in the queue.")
