"""`weighbridge sites`: whose conversions they are, and which providers hear of them (S4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from weighbridge.cli.running import DEFAULT_WORKSPACE, AsJson, Workspace, err, out, print_json, with_app

if TYPE_CHECKING:
    from weighbridge.app import App
    from weighbridge.delivery.conversions import GroupStatus
    from weighbridge.delivery.sites import Site
    from weighbridge.model.errors import RequestRefused

app = typer.Typer(
    help="Sites: whose conversions they are, and which providers hear of them.", no_args_is_help=True
)

SiteName = Annotated[str, typer.Argument(help="The site's id or name.", metavar="SITE", show_default=False)]
InWorkspace = Annotated[
    str | None, typer.Option("--workspace", help="Only a site of this workspace.", metavar="UUID")
]
LONGEST_NAME = 200


@app.command("list")
def listing(workspace: Workspace = DEFAULT_WORKSPACE, as_json: AsJson = False) -> None:
    """The sites of a workspace, by name."""

    async def work(app: App) -> list[Site]:
        from weighbridge.delivery import sites
        from weighbridge.uploads.request import uuid_of

        workspace_id = uuid_of(workspace, "workspace", "workspace")
        found: list[Site] = []
        async with app.db.tx("weighbridge_tenant", workspace_id) as tx:
            while page := await sites.page(tx, workspace_id, found[-1].name if found else "", 1000):
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
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("site", no_wrap=True)
    for name in ("name", "providers", "made"):
        table.add_column(name, overflow="fold")
    for site in found:
        table.add_row(
            str(site.id), escape(site.name), ", ".join(site.providers) or "none",
            f"{site.created_at:%Y-%m-%d %H:%M:%S}",
        )  # fmt: skip
    out().print(table)


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="What to call it.", metavar="NAME", show_default=False)],
    provider: Annotated[
        list[str] | None,
        typer.Option(
            "--provider", help="Who hears of its sales; several are allowed. Without: google_datamanager."
        ),
    ] = None,
    workspace: Workspace = DEFAULT_WORKSPACE,
    as_json: AsJson = False,
) -> None:
    """Make a site. Its id is the --client of files of the pipeline conversions."""
    _check_name("NAME", name)

    async def work(app: App) -> Site:
        from weighbridge.delivery import sites
        from weighbridge.uploads.request import uuid_of

        workspace_id = uuid_of(workspace, "workspace", "workspace")
        await check_providers(app, *(provider or ()))
        async with app.db.tx("weighbridge_intake", workspace_id) as tx:
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
        f"Its sales go to {', '.join(site.providers)}, once there are credentials:\n{next_}",
        markup=False,
        soft_wrap=True,
    )


@app.command()
def show(site: SiteName, workspace: InWorkspace = None, as_json: AsJson = False) -> None:
    """A site, and how it fares with each of its providers."""

    async def work(app: App) -> tuple[Site, list[GroupStatus], tuple[str, ...] | None]:
        from weighbridge.cli.delivery.providers import key_ids
        from weighbridge.delivery import conversions
        from weighbridge.delivery.outbound import ROLE

        found = await the_site(app, site, workspace)
        async with app.db.tx(ROLE, found.workspace_id) as tx:
            groups = await conversions.groups(tx, found.workspace_id, site_id=found.id)
        return found, groups, key_ids(app)

    from weighbridge.cli.delivery import providers

    found, groups, keys = with_app(work)
    if as_json:
        print_json({**to_json(found), "groups": [providers.to_json(group, keys) for group in groups]})
        return
    lines = {
        "site": found.id,
        "name": found.name,
        "workspace": found.workspace_id,
        "providers": ", ".join(found.providers) or "none",
        "made": f"{found.created_at:%Y-%m-%d %H:%M:%S %Z}",
    }
    for title, value in lines.items():
        out().print(f"{title:<10} {value}", markup=False, soft_wrap=True)
    if groups:
        out().print()
        providers.print_status(groups, keys)


@app.command()
def change(
    site: SiteName,
    name: Annotated[str | None, typer.Option("--name", help="What to call it from now on.")] = None,
    provider: Annotated[
        list[str] | None,
        typer.Option("--provider", help="Who hears of its sales from now on, in place of those there were."),
    ] = None,
    no_providers: Annotated[
        bool, typer.Option("--no-providers", help="Nobody hears of its sales from now on.")
    ] = False,
    workspace: InWorkspace = None,
    as_json: AsJson = False,
) -> None:
    """Give a site another name or other providers. What waits for one that is taken off waits until it is back."""
    if name is None and not provider and not no_providers:
        raise typer.BadParameter("expected something to change: --name, --provider or --no-providers.")
    if provider and no_providers:
        raise typer.BadParameter("--no-providers: expected no --provider beside it.")
    if name is not None:
        _check_name("--name", name)
    wanted = [] if no_providers else provider or None

    async def work(app: App) -> Site:
        from weighbridge.delivery import sites
        from weighbridge.postgres.errors import RowFault

        found = await the_site(app, site, workspace)
        await check_providers(app, *(wanted or ()))
        try:
            async with app.db.tx("weighbridge_intake", found.workspace_id) as tx:
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
            f"{changed.id} is {changed.name}; its sales go to {', '.join(changed.providers) or 'nobody'}."
        )
        out().print(sentence, markup=False, soft_wrap=True)


async def the_site(app: App, said: str, workspace: str | None) -> Site:
    """The site of that id, or of that name; RequestRefused where there is none, or where several have the name."""
    from uuid import UUID

    from weighbridge.delivery import overview, sites
    from weighbridge.delivery.outbound import ROLE
    from weighbridge.model.errors import RequestRefused, did_you_mean
    from weighbridge.uploads.request import uuid_of

    workspace_id = uuid_of(workspace, "workspace", "workspace") if workspace else None
    async with app.db.tx(ROLE, workspace_id) as tx:
        try:
            by_id = await sites.get(tx, workspace_id, UUID(said))
        except ValueError:
            by_id = None
        found = [by_id] if by_id else await overview.sites_called(tx, said, workspace_id)
        names = [] if found else await overview.site_names(tx, workspace_id)
    if len(found) == 1:
        return found[0]
    if found:
        message = f"SITE: more than one workspace has a site {said!r}. Name it by its id, or say --workspace."
        raise RequestRefused(409, "ambiguous_site", message)
    hint = did_you_mean(said, names) or "."
    message = f"SITE: there is no site {said!r}{hint} weighbridge sites list shows those of a workspace."
    raise RequestRefused(404, "unknown_site", message)


async def check_providers(app: App, *said: str | None, option: str = "--provider") -> None:
    """BadParameter where the database knows no such provider; None is said of none."""
    from weighbridge.delivery import sites
    from weighbridge.delivery.outbound import ROLE
    from weighbridge.model.errors import did_you_mean

    async with app.db.tx(ROLE) as tx:
        known = await sites.providers(tx)
    for each in said:
        if each is not None and each not in known:
            hint = did_you_mean(each, known) or "."
            raise typer.BadParameter(f"{option}: expected one of {', '.join(known)}, got {each!r}{hint}")


def to_json(site: Site) -> dict[str, Any]:
    """The object that `--json` prints; its names are the API's."""
    return {
        "site_id": site.id,
        "workspace_id": site.workspace_id,
        "name": site.name,
        "providers": list(site.providers),
        "created_at": site.created_at,
    }


def _check_name(option: str, name: str) -> None:
    if not 1 <= len(name) <= LONGEST_NAME or not name.isprintable() or not name.strip():
        raise typer.BadParameter(f"{option}: expected 1 to {LONGEST_NAME} characters that can be printed.")


def _taken(name: str) -> RequestRefused:
    from weighbridge.model.errors import RequestRefused

    message = f"There is a site {name!r} in the workspace. weighbridge sites list shows it."
    return RequestRefused(409, "site_exists", message)
