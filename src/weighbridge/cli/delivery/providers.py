"""`weighbridge providers`: the available ad platforms, and the delivery status per site and provider."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from weighbridge.cli.application import read_settings, with_app
from weighbridge.cli.delivery.group_status import key_ids, print_status, to_json
from weighbridge.cli.delivery.sites import InWorkspace, SiteName, check_providers, the_site
from weighbridge.cli.options import AsJson
from weighbridge.cli.output import err, out, print_json
from weighbridge.model.counts import counted
from weighbridge.model.retry import STUCK_MINUTES

if TYPE_CHECKING:
    from uuid import UUID

    from weighbridge.app import App
    from weighbridge.delivery.conversions import GroupStatus
    from weighbridge.delivery.group_key import GroupKey
    from weighbridge.delivery.providers.base import Provider

app = typer.Typer(help="List providers, show their status, and manage credentials.", no_args_is_help=True)

ProviderName = Annotated[
    str,
    typer.Argument(help="The provider, from `providers list`.", metavar="PROVIDER", show_default=False),
]
_AT_ONCE = 1000


@app.command("list")
def listing(as_json: AsJson = False) -> None:
    """List providers: accepted click ids, maximum click age and required credentials."""
    from weighbridge.app import provider_urls
    from weighbridge.delivery.providers import find

    settings = read_settings()
    found = find(settings.providers, urls=provider_urls(settings), allow_private=settings.webhook_private)
    if as_json:
        print_json([_described(provider) for provider in found.values()])
        return
    from rich.markup import escape

    for number, provider in enumerate(found.values()):
        if number:
            out().print()
        window = (
            f"{provider.window.days} days from the {provider.window_from}" if provider.window else "any age"
        )
        out().print(
            f"[bold]{escape(provider.name)}[/]  {', '.join(provider.clicks)}; {window}", soft_wrap=True
        )
        for need in provider.needs:
            needed = "required" if need.required else "optional"
            out().print(f"  {need.name:<32} {needed}  {need.help}", markup=False, soft_wrap=True)


@app.command()
def status(
    site: Annotated[
        str | None, typer.Option("--site", help="Only this site (id or name).", metavar="SITE")
    ] = None,
    workspace: Annotated[
        str | None, typer.Option("--workspace", help="Only sites of this workspace.", metavar="UUID")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show each site and provider: circuit, queued, failed and delivered conversions, credentials."""

    async def work(app: App) -> tuple[list[GroupStatus], tuple[str, ...] | None]:
        from weighbridge.uploads.check_request import uuid_of

        workspace_id = uuid_of(workspace, "workspace", "workspace") if workspace else None
        site_id = (await the_site(app, site, workspace)).id if site else None
        return await _all_groups(app, workspace_id, site_id), key_ids(app)

    found, keys = with_app(work)
    if as_json:
        print_json([to_json(group, keys) for group in found])
        return
    if not found:
        out().print("No sites yet: weighbridge sites create NAME --provider PROVIDER")
        return
    print_status(found, keys)
    if keys is None:
        err().print("WEIGHBRIDGE_VAULT_KEY is not set: this process cannot deliver.")


@app.command()
def reset(
    site: SiteName, provider: ProviderName, workspace: InWorkspace = None, as_json: AsJson = False
) -> None:
    """Close a circuit and retry refused credentials. Use this after the cause is fixed. The action is audited."""

    async def work(app: App) -> UUID:
        from weighbridge.delivery import breaker
        from weighbridge.postgres import roles

        found = await the_site(app, site, workspace)
        await check_providers(app, provider, option="PROVIDER")
        async with app.db.tx(roles.DELIVER, found.workspace_id) as tx:
            await breaker.reset(tx, found.id, provider, "command line")
        return found.id

    site_id = with_app(work)
    if as_json:
        print_json({"site_id": site_id, "provider": provider, "state": "CLOSED"})
    else:
        out().print(f"Deliveries of {site_id} to {provider} resume immediately.", soft_wrap=True)


@app.command()
def recover(
    min_age_minutes: Annotated[
        int,
        typer.Option(
            "--min-age-minutes",
            min=1,
            max=100_000,
            help="Minimum age of the claim, in minutes.",
            metavar="N",
        ),
    ] = STUCK_MINUTES,
    as_json: AsJson = False,
) -> None:
    """Return conversions to the queue if their worker stopped during a call. Workers also do this automatically."""

    async def work(app: App) -> int:
        from weighbridge.delivery import queue
        from weighbridge.postgres import roles

        async with app.db.tx(roles.DELIVER) as tx:
            return await queue.recover_stuck(tx, min_age_minutes)

    count = with_app(work)
    if as_json:
        print_json({"ok": True, "recovered": count})
    elif count:
        out().print(f"{counted(count, 'conversion')} requeued with the same order id.")
    else:
        out().print("Nothing to recover.")


async def _all_groups(app: App, workspace_id: UUID | None, site_id: UUID | None) -> list[GroupStatus]:
    from weighbridge.delivery import conversions
    from weighbridge.postgres import roles

    found: list[GroupStatus] = []
    after: GroupKey | None = None
    async with app.db.tx(roles.DELIVER, workspace_id) as tx:
        while page := await conversions.groups(
            tx, workspace_id, site_id=site_id, after=after, limit=_AT_ONCE
        ):
            found += page
            after = page[-1].key
    return sorted(found, key=lambda group: (group.site_name, group.site_id, group.provider_key))


def _described(provider: Provider) -> dict[str, Any]:
    return {
        "name": provider.name,
        "clicks": list(provider.clicks),
        "window_days": provider.window.days if provider.window else None,
        "window_from": provider.window_from,
        "max_batch": provider.max_batch,
        "needs": [vars(need) for need in provider.needs],
    }
