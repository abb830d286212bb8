"""`weighbridge sites`: sites, and the providers that receive their conversions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from weighbridge.cli.application import with_app
from weighbridge.cli.delivery import group_status
from weighbridge.cli.options import DEFAULT_WORKSPACE, AsJson, Workspace
from weighbridge.cli.output import err, out, print_json
from weighbridge.cli.table import plain_table

if TYPE_CHECKING:
    from weighbridge.app import App
    from weighbridge.delivery.conversions import GroupStatus
    from weighbridge.delivery.sites import Site
    from weighbridge.model.errors import RequestRefused

app = typer.Typer(
    help="Create, list and change sites, and choose the providers that receive their conversions.",
    no_args_is_help=True,
)

SiteName = Annotated[str, typer.Argument(help="The site's id or name.", metavar="SITE", show_default=False)]
InWorkspace = Annotated[
    str | None, typer.Option("--workspace", help="Only a site of this workspace.", metavar="UUID")
]
LONGEST_NAME = 200


@app.command("list")
def listing(workspace: Workspace = DEFAULT_WORKSPACE, as_json: AsJson = False) -> None:
    """List the sites of a workspace, by name."""

    async def work(app: App) -> list[Site]:
        from weighbridge.delivery import sites
        from weighbridge.postgres import roles
        from weighbridge.uploads.check_request import uuid_of

        workspace_id = uuid_of(workspace, "workspace", "workspace")
        found: list[Site] = []
        async with app.db.tx(roles.TENANT, workspace_id) as tx:
            while page := await sites.get_sites(tx, workspace_id, found[-1].name if found else "", 1000):
                found += page
        return found

    found = with_app(work)
    if as_json:
        print_json([to_json(site) for site in found])
        return
    if not found:
        out().print("No sites yet: weighbridge sites create NAME --provider PROVIDER")
        return
    from rich.markup import escape

    table = plain_table()
    table.add_column("site", no_wrap=True)
    for name in ("name", "providers", "created"):
        table.add_column(name, overflow="fold")
    for site in found:
        table.add_row(
            str(site.id), escape(site.name), ", ".join(site.providers) or "none",
            f"{site.created_at:%Y-%m-%d %H:%M:%S}",
        )  # fmt: skip
    out().print(table)


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="The site's name.", metavar="NAME", show_default=False)],
    provider: Annotated[
        list[str] | None,
        typer.Option(
            "--provider",
            help="A provider that receives the site's sales. Repeatable. Default: google_datamanager.",
            metavar="PROVIDER",
        ),
    ] = None,
    workspace: Workspace = DEFAULT_WORKSPACE,
    as_json: AsJson = False,
) -> None:
    """Create a site. Use its id as --client when you load files with the pipeline conversions."""
    _check_name("NAME", name)

    async def work(app: App) -> Site:
        from weighbridge.delivery import sites
        from weighbridge.postgres import roles
        from weighbridge.uploads.check_request import uuid_of

        workspace_id = uuid_of(workspace, "workspace", "workspace")
        await check_providers(app, *(provider or ()))
        async with app.db.tx(roles.INTAKE, workspace_id) as tx:
            made = await sites.make(tx, workspace_id, name, provider)
        if made is None:
            raise _taken(name)
        return made

    site = with_app(work)
    if as_json:
        print_json(to_json(site))
        return
    out().print(str(site.id))
    next_ = "\n".join(f"  weighbridge providers credentials {site.id} {each}" for each in site.providers)
    err().print(
        f"Its sales are sent to {', '.join(site.providers)} after you store credentials:\n{next_}",
        markup=False,
        soft_wrap=True,
    )


@app.command()
def show(site: SiteName, workspace: InWorkspace = None, as_json: AsJson = False) -> None:
    """Show a site and the delivery status of each of its providers."""

    async def work(app: App) -> tuple[Site, list[GroupStatus], tuple[str, ...] | None]:
        from weighbridge.delivery import conversions
        from weighbridge.postgres import roles

        found = await the_site(app, site, workspace)
        async with app.db.tx(roles.DELIVER, found.workspace_id) as tx:
            groups = await conversions.groups(tx, found.workspace_id, site_id=found.id)
        return found, groups, group_status.key_ids(app)

    found, groups, keys = with_app(work)
    if as_json:
        print_json({**to_json(found), "groups": [group_status.to_json(group, keys) for group in groups]})
        return
    lines = {
        "site": found.id,
        "name": found.name,
        "workspace": found.workspace_id,
        "providers": ", ".join(found.providers) or "none",
        "created": f"{found.created_at:%Y-%m-%d %H:%M:%S %Z}",
    }
    for title, value in lines.items():
        out().print(f"{title:<10} {value}", markup=False, soft_wrap=True)
    if groups:
        out().print()
        group_status.print_status(groups, keys)


@app.command()
def change(
    site: SiteName,
    name: Annotated[str | None, typer.Option("--name", help="The site's new name.", metavar="NAME")] = None,
    provider: Annotated[
        list[str] | None,
        typer.Option(
            "--provider",
            help="A provider that receives new sales. Repeatable. Replaces the current providers.",
            metavar="PROVIDER",
        ),
    ] = None,
    no_providers: Annotated[
        bool, typer.Option("--no-providers", help="Stop sending the site's sales to any provider.")
    ] = False,
    workspace: InWorkspace = None,
    as_json: AsJson = False,
) -> None:
    """Change a site's name or providers. Conversions queued for a removed provider wait until it is added again."""
    if name is None and not provider and not no_providers:
        raise typer.BadParameter("expected a change: --name, --provider or --no-providers.")
    if provider and no_providers:
        raise typer.BadParameter("--no-providers cannot be combined with --provider.")
    if name is not None:
        _check_name("--name", name)
    wanted = [] if no_providers else provider or None

    async def work(app: App) -> Site:
        from weighbridge.delivery import sites
        from weighbridge.postgres import roles
        from weighbridge.postgres.errors import RowFault

        found = await the_site(app, site, workspace)
        await check_providers(app, *(wanted or ()))
        try:
            async with app.db.tx(roles.INTAKE, found.workspace_id) as tx:
                changed = await sites.change(tx, found.workspace_id, found.id, name, wanted)
        except RowFault as fault:
            if fault.code != "unique_violation":
                raise
            raise _taken(name or "") from fault
        assert changed is not None  # a site is never removed
        return changed

    changed = with_app(work)
    if as_json:
        print_json(to_json(changed))
    else:
        sentence = (
            f"Site {changed.id}: name {changed.name}; providers: {', '.join(changed.providers) or 'none'}."
        )
        out().print(sentence, markup=False, soft_wrap=True)


async def the_site(app: App, text: str, workspace: str | None) -> Site:
    """The site with this id or name. RequestRefused if there is none, or if several have the name."""
    from uuid import UUID

    from weighbridge.delivery import sites
    from weighbridge.model.errors import RequestRefused, did_you_mean
    from weighbridge.postgres import roles
    from weighbridge.uploads.check_request import uuid_of

    workspace_id = uuid_of(workspace, "workspace", "workspace") if workspace else None
    async with app.db.tx(roles.DELIVER, workspace_id) as tx:
        try:
            by_id = await sites.get_site(tx, workspace_id, UUID(text))
        except ValueError:
            by_id = None
        found = [by_id] if by_id else await sites.named(tx, text, workspace_id)
        names = [] if found else await sites.names(tx, workspace_id)
    if len(found) == 1:
        return found[0]
    if found:
        message = f"SITE: more than one workspace has a site {text!r}. Use its id, or add --workspace."
        raise RequestRefused(409, "ambiguous_site", message)
    hint = did_you_mean(text, names) or "."
    message = (
        f"SITE: there is no site {text!r}{hint} List the sites of a workspace with: weighbridge sites list"
    )
    raise RequestRefused(404, "unknown_site", message)


async def check_providers(app: App, *names: str | None, option: str = "--provider") -> None:
    """Raise BadParameter for a name that is not a provider in the database. None is ignored."""
    from weighbridge.delivery import sites
    from weighbridge.model.errors import did_you_mean
    from weighbridge.postgres import roles

    async with app.db.tx(roles.DELIVER) as tx:
        known = await sites.providers(tx)
    for each in names:
        if each is not None and each not in known:
            hint = did_you_mean(each, known) or "."
            raise typer.BadParameter(f"{option}: expected one of {', '.join(known)}, got {each!r}{hint}")


def to_json(site: Site) -> dict[str, Any]:
    """The object that `--json` prints; its field names are those of the API."""
    return {
        "site_id": site.id,
        "workspace_id": site.workspace_id,
        "name": site.name,
        "providers": list(site.providers),
        "created_at": site.created_at,
    }


def _check_name(option: str, name: str) -> None:
    if not 1 <= len(name) <= LONGEST_NAME or not name.isprintable() or not name.strip():
        raise typer.BadParameter(f"{option}: expected 1 to {LONGEST_NAME} printable characters.")


def _taken(name: str) -> RequestRefused:
    from weighbridge.model.errors import RequestRefused

    message = f"The workspace already has a site {name!r}: weighbridge sites list"
    return RequestRefused(409, "site_exists", message)
